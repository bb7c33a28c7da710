"""Which store a call finds: one for a repository and all its worktrees, never a second one by
accident."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from genlock import project_folder
from genlock.errors import NotFound
from tests.cli.console import environment, run

SETTINGS = {
    "user.name": "nobody",
    "user.email": "nobody@example.org",
    "init.defaultBranch": "main",
    "protocol.file.allow": "always",
}
GIT = ["git", *(word for setting in SETTINGS.items() for word in ("-c", "=".join(setting)))]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*GIT, *arguments],
        cwd=folder,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    """An ordinary repository with one commit and a subfolder."""
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "src" / "file").write_text("x")
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "--message", "first")
    return folder


def found_from(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    monkeypatch.chdir(folder)
    return project_folder.project_folder()


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("GIT_", "GENLOCK_"))]:
        monkeypatch.delenv(name)


def test_three_worktrees_and_a_subfolder_have_one_store(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "--detach", str(tmp_path / "second"))
    git(main, "worktree", "add", "--detach", str(main / "inside"))
    assert run("init", cwd=tmp_path / "second").json()["path"] == str(
        main / ".genlock" / "genlock.db"
    )
    for number, folder in enumerate(
        [
            main,
            tmp_path / "second",
            main / "inside",
            main / "src" / "deep",
            tmp_path / "second" / "src",
        ]
    ):
        assert run("add", f"task-{number}", cwd=folder).code == 0
    assert run("ready", "--quiet", cwd=main).out.split() == [
        f"task-{number}" for number in range(5)
    ]
    assert [path.parent.parent for path in tmp_path.rglob("genlock.db")] == [main]


def test_a_bare_repository_keeps_it_inside_and_so_do_its_worktrees(tmp_path: Path) -> None:
    repository(tmp_path / "origin")
    git(tmp_path, "clone", "--bare", "origin", "shared.git")
    git(tmp_path / "shared.git", "worktree", "add", "--detach", str(tmp_path / "tree"))
    store = tmp_path / "shared.git" / ".genlock" / "genlock.db"
    assert run("init", cwd=tmp_path / "tree").json() == {
        "url": f"sqlite://{store}",
        "path": str(store),
        "made": True,
    }
    assert run("init", cwd=tmp_path / "shared.git").json()["made"] is False
    assert not (store.parent / ".gitignore").exists(), "git does not look there"


def test_without_a_repository_it_is_the_nearest_folder_upwards(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert run("init", cwd=tmp_path / "a").json()["made"] is True
    assert run("init", cwd=tmp_path / "a" / "b").json() == {
        "url": f"sqlite://{tmp_path}/a/.genlock/genlock.db",
        "path": f"{tmp_path}/a/.genlock/genlock.db",
        "made": False,
    }
    assert not (tmp_path / "a" / "b" / ".genlock").exists()


def test_a_repository_below_another_project_is_a_project_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".genlock").mkdir()
    inner = repository(tmp_path / "inner")
    assert found_from(monkeypatch, inner / "src") == inner / ".genlock"


def test_a_submodule_is_a_repository_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, above = repository(tmp_path / "library"), repository(tmp_path / "above")
    git(above, "submodule", "add", str(library), "part")
    git(above / "part", "worktree", "add", "--detach", str(tmp_path / "part-tree"))
    inside = above / ".git" / "modules" / "part" / ".genlock"
    assert found_from(monkeypatch, above / "part" / "src") == inside
    assert found_from(monkeypatch, tmp_path / "part-tree") == inside
    assert found_from(monkeypatch, above) == above / ".genlock"


def test_a_git_folder_elsewhere_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    git(tmp_path / "work", "init", "--separate-git-dir", str(tmp_path / "elsewhere.git"))
    assert found_from(monkeypatch, tmp_path / "work") == tmp_path / "elsewhere.git" / ".genlock"


def test_git_dir_says_which_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main, other = repository(tmp_path / "main"), repository(tmp_path / "other")
    git(main, "worktree", "add", "--detach", str(tmp_path / "tree"))
    monkeypatch.setenv("GIT_DIR", str(main / ".git"))
    assert found_from(monkeypatch, other) == main / ".genlock"
    monkeypatch.setenv("GIT_DIR", "../main/.git/worktrees/tree")
    assert found_from(monkeypatch, other) == main / ".genlock"
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    with pytest.raises(NotFound, match="GIT_DIR"):
        project_folder.project_folder()


def test_inside_the_git_folder_it_is_the_same_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = repository(tmp_path / "main")
    assert found_from(monkeypatch, main / ".git") == main / ".genlock"
    assert found_from(monkeypatch, main / ".git" / "refs") == main / ".genlock"


def test_a_ceiling_is_gits_to_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = repository(tmp_path / "main")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(main))
    assert found_from(monkeypatch, main / "src") == main / "src" / ".genlock"
    assert found_from(monkeypatch, main) == main / ".genlock"


@pytest.mark.parametrize(
    "layout", ["plain", "worktree", "bare", "submodule", "below", "git folder"]
)
def test_it_is_found_as_git_finds_it(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = repository(tmp_path / "main")
    folder = {
        "plain": main,
        "below": main / "src" / "deep",
        "git folder": main / ".git" / "objects",
    }.get(layout)
    if layout == "worktree":
        git(main, "worktree", "add", "--detach", str(folder := tmp_path / "tree"))
    if layout == "bare":
        git(tmp_path, "clone", "--bare", "main", "bare.git")
        folder = tmp_path / "bare.git" / "refs"
    if layout == "submodule":
        git(repository(tmp_path / "above"), "submodule", "add", str(main), "part")
        folder = tmp_path / "above" / "part"
    assert folder is not None
    monkeypatch.chdir(folder)
    assert str(project_folder.git_folder(folder)) == git(
        folder, "rev-parse", "--path-format=absolute", "--git-common-dir"
    )


def test_a_worktree_whose_repository_has_moved_is_not_given_a_store_of_its_own(
    tmp_path: Path,
) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "--detach", str(tmp_path / "tree"))
    main.rename(tmp_path / "moved")
    ran = run("init", cwd=tmp_path / "tree")
    assert (ran.code, ran.out) == (3, "")
    assert ran.error()["code"] == "REPOSITORY_BROKEN"
    assert "git worktree repair" in ran.error()["message"]
    assert not (tmp_path / "tree" / ".genlock").exists()


def test_only_init_makes_a_store(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    ran = run("ready", cwd=main)
    assert (ran.code, ran.out) == (3, "")
    assert ran.error() == {
        "code": "STORE_MISSING",
        "message": (
            f"there is no store at {main}/.genlock/genlock.db; to make one, type: genlock init"
        ),
        "try_next": [["genlock", "init"]],
    }
    assert not (main / ".genlock").exists()


def test_the_store_is_kept_out_of_git_and_the_settings_are_not(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    assert run("init", cwd=main).code == 0
    assert run("config", "set", "project", "web", cwd=main).code == 0
    assert git(main, "status", "--porcelain", "--untracked-files=all").split() == [
        "??",
        ".genlock/.gitignore",
        "??",
        ".genlock/config.toml",
    ]
    files = [main / ".genlock" / ".gitignore", main / ".genlock" / "config.toml"]
    before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    assert run("init", cwd=main).json()["made"] is False
    assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before


def test_stealth_writes_nothing_that_git_could_see(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "--detach", str(tmp_path / "tree"))
    store = main / ".git" / ".genlock" / "genlock.db"
    assert run("init", "--stealth", cwd=tmp_path / "tree").json() == {
        "url": f"sqlite://{store}",
        "path": str(store),
        "made": True,
    }
    assert git(main, "status", "--porcelain", "--ignored") == ""
    assert not (main / ".genlock").exists()
    assert run("add", "hidden", cwd=main).code == 0
    assert run("ready", "-q", cwd=tmp_path / "tree").out == "hidden\n"
    assert run("init", cwd=main).json() == {
        "url": f"sqlite://{store}",
        "path": str(store),
        "made": False,
    }, "never a second one"


def test_stealth_does_not_hide_a_store_that_is_there_nor_one_of_no_repository(
    tmp_path: Path,
) -> None:
    main = repository(tmp_path / "main")
    run("init", cwd=main)
    assert run("init", "--stealth", cwd=main).json()["path"] == str(
        main / ".genlock" / "genlock.db"
    )
    (tmp_path / "plain").mkdir()
    ran = run("init", "--stealth", cwd=tmp_path / "plain")
    assert ran.code == 2
    assert "no git repository" in ran.error()["message"]
    assert list((tmp_path / "plain").iterdir()) == []


def test_a_folder_with_odd_characters_is_one_like_any_other(tmp_path: Path) -> None:
    odd = tmp_path / "50% of #1? ä"
    odd.mkdir()
    assert run("init", cwd=odd).json()["path"] == str(odd / ".genlock" / "genlock.db")
    assert run("add", "task", cwd=odd).code == 0
    assert run("ready", "-q", cwd=odd).out == "task\n"
    assert [path.name for path in tmp_path.iterdir()] == [odd.name]


def test_the_library_finds_the_same_store(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "--detach", str(tmp_path / "tree"))
    run("init", "--stealth", cwd=main)
    program = (
        "import genlock\nwith genlock.connect() as fleet:\n    fleet.add_tasks(tasks=['task'])"
    )
    subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "tree", env=environment(), check=True
    )
    assert run("ready", "-q", cwd=main).out == "task\n"


def test_the_library_follows_the_projects_settings(tmp_path: Path) -> None:
    run("init", cwd=tmp_path)
    run("config", "set", "url", f"sqlite://{tmp_path}/named.db", cwd=tmp_path)
    program = (
        "import genlock\nwith genlock.connect(create=True) as fleet:\n    "
        "fleet.add_tasks(tasks=['task'])"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment(), check=True)
    assert run("ready", "-q", cwd=tmp_path).out == "task\n"
    assert (tmp_path / "named.db").exists()


def test_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = (
        f'cd "{tmp_path}/gone" && rmdir "{tmp_path}/gone" && "{sys.executable}" -P -m '
        "genlock.cli ready"
    )
    done = subprocess.run(
        ["sh", "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "the working folder does not exist any more" in done.stderr
