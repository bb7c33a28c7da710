"""Worktrees of tasks, on real repositories."""

from __future__ import annotations

import fcntl
import json
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from genlock.errors import BadArgument
from genlock.isolation.branches import branch_of
from genlock.isolation.worktrees import (
    WorktreeError,
    Worktrees,
    WorkWouldBeLost,
    check_copied,
)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path, name: str) -> None:
    (folder / name).write_text(name)
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "-m", f"Add {name}")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "a repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    (folder / ".gitignore").write_text(".env\n.genlock\nbuild\n")
    git(folder, "add", ".gitignore")
    commit(folder, "app.py")
    return folder


@pytest.fixture
def trees(repository: Path) -> Worktrees:
    return Worktrees.around(repository, repository / ".genlock" / "worktrees")


def test_a_worktree_begins_at_the_base_with_a_branch_of_its_generation(
    trees: Worktrees, repository: Path
) -> None:
    tree = trees.create("A-001", 3, base="main")
    assert tree.path == repository / ".genlock/worktrees/A-001.gen3"
    assert (tree.branch, tree.base) == ("genlock/A-001/gen3", "refs/heads/main")
    assert git(tree.path, "symbolic-ref", "--short", "HEAD") == "genlock/A-001/gen3"
    assert (tree.path / "app.py").read_text() == "app.py"
    assert git(repository, "status", "--porcelain") == ""


def test_list_has_every_worktree_of_a_task_and_no_other(trees: Worktrees, tmp_path: Path) -> None:
    made = [trees.create("A-001", 1), trees.create("AUTH:design::2", 7)]
    git(trees.repository, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"))
    git(trees.repository, "worktree", "add", "-q", "-b", "genlock/x/y", str(tmp_path / "foreign"))
    assert trees.list() == made
    assert trees.find("AUTH:design::2", 7) == made[1]
    assert trees.find("AUTH:design::2", 8) is None
    elsewhere = Worktrees.around(made[0].path, trees.folder)
    assert elsewhere.list() == made


def test_state_tells_uncommitted_changes_commits_and_whether_they_are_merged(
    trees: Worktrees, repository: Path
) -> None:
    tree = trees.create("A-001", 1, base="main")
    assert trees.state(tree)[:3] == ((), 0, True)
    (tree.path / "new file.py").write_text("x")
    assert trees.uncommitted(tree) == ("new file.py",)
    assert trees.has_uncommitted_work(tree)
    (tree.path / "build").mkdir()
    (tree.path / "build" / "output").write_text("x")
    git(tree.path, "add", "new file.py")
    assert trees.uncommitted(tree) == ("new file.py",)
    git(tree.path, "commit", "--quiet", "-m", "Add it")
    assert trees.state(tree)[:3] == ((), 1, False)
    git(repository, "merge", "--quiet", tree.branch)
    assert trees.state(tree)[:3] == ((), 1, True)


def test_commit_folders_are_what_a_commit_writes_to(trees: Worktrees, repository: Path) -> None:
    tree = trees.create("A-001", 1)
    git_folder = repository / ".git"
    assert trees.commit_folders(tree) == (
        str(git_folder / "objects"),
        str(git_folder / "refs/heads/genlock"),
        str(git_folder / "logs/refs/heads/genlock"),
        str(git_folder / "worktrees/A-001.gen1"),
    )


def test_remove_refuses_to_lose_work(trees: Worktrees, repository: Path) -> None:
    tree = trees.create("A-001", 1)
    (tree.path / "app.py").write_text("changed")
    with pytest.raises(WorkWouldBeLost, match=r"uncommitted changes: app\.py"):
        trees.remove(tree)
    git(tree.path, "commit", "--quiet", "-a", "-m", "Change it")
    with pytest.raises(WorkWouldBeLost, match=r"genlock/A-001/gen1 has 1 commits .* not in main"):
        trees.remove(tree)
    assert tree.path.is_dir()
    trees.remove(tree, force=True)
    assert not tree.path.exists()
    assert trees.list() == []
    assert git(repository, "branch", "--list", "genlock/*") == ""


def test_an_empty_or_merged_worktree_is_removed_with_its_branch(
    trees: Worktrees, repository: Path
) -> None:
    empty, merged = trees.create("A-001", 1), trees.create("A-002", 1)
    commit(merged.path, "b.py")
    git(repository, "merge", "--quiet", merged.branch)
    (empty.path / "build").mkdir()
    (empty.path / "build" / "output").write_text("ignored")
    for tree in (empty, merged):
        assert trees.state(tree).is_disposable
        trees.remove(tree)
    assert trees.list() == []
    assert git(repository, "branch", "--list", "genlock/*") == ""


def test_a_worktree_whose_folder_was_deleted_is_removed(trees: Worktrees) -> None:
    tree = trees.create("A-001", 1)
    subprocess.run(["rm", "-rf", str(tree.path)], check=True)
    assert trees.list() == []
    trees.remove(tree)
    assert trees.create("A-001", 1) == tree


def test_the_same_generation_again_takes_an_empty_leftover_and_refuses_one_with_work(
    trees: Worktrees,
) -> None:
    tree = trees.create("A-001", 1)
    assert trees.create("A-001", 1) == tree
    commit(tree.path, "b.py")
    with pytest.raises(WorkWouldBeLost):
        trees.create("A-001", 1)
    git(trees.repository, "worktree", "remove", "--force", str(tree.path))
    with pytest.raises(WorkWouldBeLost, match="git branch -D genlock/A-001/gen1"):
        trees.create("A-001", 1)


def test_copied_files_are_those_that_git_does_not_track(trees: Worktrees, repository: Path) -> None:
    (repository / ".env").write_text("PORT=1")
    (repository / "build").mkdir()
    (repository / "build" / "cache").write_text("warm")
    tree = trees.create("A-001", 1, copy=[".env", "build", "missing"])
    assert (tree.path / ".env").read_text() == "PORT=1"
    assert (tree.path / "build" / "cache").read_text() == "warm"
    assert trees.uncommitted(tree) == ()


@pytest.mark.parametrize("name", [".env", "config/.env", "config"])
def test_nothing_is_copied_through_a_link_that_an_agent_has_committed(
    name: str, trees: Worktrees, repository: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".env").write_text("precious")
    first = trees.create("A-001", 1)
    link = Path(name).parts[0]
    (first.path / link).symlink_to(home if link == "config" else home / ".env")
    git(first.path, "add", "--force", link)
    git(first.path, "commit", "--quiet", "-m", "Add a link")
    source = repository / ("config/.env" if link == "config" else ".env")
    source.parent.mkdir(exist_ok=True)
    source.write_text("PORT=1")
    with pytest.raises(WorktreeError, match="symbolic link"):
        trees.create("A-001", 2, after=trees.predecessor("A-001", 2), copy=[name])
    assert (home / ".env").read_text() == "precious"


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "a/../../b", ".git/config", ""])
def test_a_copied_path_outside_of_the_repository_is_refused(name: str) -> None:
    with pytest.raises(BadArgument, match="no path within the repository"):
        check_copied(name)


def test_what_cannot_be_a_base_is_named(trees: Worktrees, tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="no branch or commit 'nowhere'"):
        trees.create("A-001", 1, base="nowhere")
    with pytest.raises(BadArgument, match="no branch or commit '--help'"):
        trees.check_base("--help")
    empty = tmp_path / "empty"
    git(tmp_path, "init", "--quiet", str(empty))
    with pytest.raises(BadArgument, match="no commit yet"):
        Worktrees.around(empty, empty / ".genlock").check_base("HEAD")
    with pytest.raises(BadArgument, match="in no git repository"):
        Worktrees.around(tmp_path, tmp_path)


def test_worktrees_are_made_listed_and_removed_one_at_a_time(
    trees: Worktrees, repository: Path
) -> None:
    """Git in one process fails over a worktree that another one has half made."""
    first = trees.create("A-001", 1)
    other = Worktrees.around(repository, trees.folder)  # as another process has it
    with ThreadPoolExecutor(3) as pool:
        with open(repository / ".git" / "genlock-worktrees.lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            calls: list[Future[Any]] = [
                pool.submit(other.create, "A-002", 1),
                pool.submit(other.remove, first),
                pool.submit(other.list),
            ]
            assert wait(calls, timeout=0.5).done == set()
        assert wait(calls, timeout=30).not_done == set()
    assert [tree.task_id for tree in trees.list()] == ["A-002"]


def test_gits_variables_of_another_repository_do_not_lead_astray(
    trees: Worktrees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert trees.create("A-001", 1).path.is_dir()


def test_a_failure_of_git_is_told_in_its_words(trees: Worktrees) -> None:
    trees.folder.mkdir(parents=True)
    (trees.folder / "A-001.gen1").mkdir()
    (trees.folder / "A-001.gen1" / "file").write_text("in the way")
    with pytest.raises(WorktreeError, match=r"git worktree add failed: .*already exists"):
        trees.create("A-001", 1)


@pytest.mark.parametrize(
    ("task", "branch"),
    [
        ("A-001-core", "genlock/A-001-core/gen2"),
        ("AUTH:design", "genlock/AUTH+design/gen2"),
        ("A-001-core::1", "genlock/A-001-core++1/gen2"),
        (".hidden", "genlock/%2Ehidden/gen2"),
        ("a..b", "genlock/a.%2Eb/gen2"),
        ("x.lock", "genlock/x%2Elock/gen2"),
        ("x.", "genlock/x%2E/gen2"),
        ("-x", "genlock/-x/gen2"),
        ("...", "genlock/%2E%2E%2E/gen2"),
    ],
)
def test_every_task_id_is_a_branch(task: str, branch: str, trees: Worktrees) -> None:
    assert branch_of(task, 2) == branch
    assert trees.create(task, 2).task_id == task


# What an agent leaves, perhaps in a sandbox, that git would obey


def filtered(folder: Path, settings: Path) -> Path:
    """A file with changes that git looks at by this command; what the command makes."""
    with settings.open("a") as file:
        file.write('[filter "x"]\n\tclean = "touch owned; cat"\n')
    (folder / ".gitattributes").write_text("* filter=x\n")
    (folder / "app.py").write_text("APP.PY")
    return folder / "owned"


def test_settings_of_a_worktree_are_not_obeyed(trees: Worktrees, repository: Path) -> None:
    git(repository, "config", "extensions.worktreeConfig", "true")
    tree = trees.create("A-001", 1)
    own = Path(git(tree.path, "rev-parse", "--absolute-git-dir"))
    owned = filtered(tree.path, own / "config.worktree")
    state = trees.state(tree)
    assert state.uncommitted == ("app.py", ".gitattributes")
    assert state.head == git(repository, "rev-parse", "genlock/A-001/gen1")
    assert not owned.exists()
    git(tree.path, "status")
    assert owned.exists(), "git itself would have obeyed"


def test_settings_of_a_submodule_are_not_obeyed_and_it_is_work(trees: Worktrees) -> None:
    tree = trees.create("A-001", 1)
    inner = tree.path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    commit(inner, "app.py")
    git(tree.path, "add", "inner")
    git(tree.path, "commit", "--quiet", "-m", "Add a submodule")
    owned = filtered(inner, inner / ".git/config")
    assert trees.state(tree).uncommitted == ("inner",)
    with pytest.raises(WorkWouldBeLost):
        trees.retire(tree)
    assert not owned.exists()
    git(tree.path, "status")
    assert owned.exists(), "git itself would have obeyed"


@pytest.mark.parametrize("field", ["start", "base"])
def test_a_note_that_git_would_take_for_an_option_is_none(
    field: str, trees: Worktrees, repository: Path
) -> None:
    tree = trees.create("A-001", 1)
    note = Path(git(tree.path, "rev-parse", "--absolute-git-dir")) / "genlock.json"
    fields = json.loads(note.read_text())
    note.write_text(json.dumps(fields | {field: f"--output={repository}/made"}))
    assert trees.list() == []
