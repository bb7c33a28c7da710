"""A repository may hold symbolic links in its `.genlock` folder: whoever clones it is told, and
nothing is read or written through one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import genlock
from genlock.errors import StoreForeign
from tests.cli.console import COMMAND, environment, run

SECRET = "root_password = 'hunter2'\n"


def git(*words: str, cwd: Path) -> None:
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.invalid", *words],
        cwd=cwd,
        check=True,
        capture_output=True,
        env=environment(),
    )


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "precious").write_text(SECRET)
    return folder / "precious"


def clone(tmp_path: Path, link: str, target: Path) -> Path:
    """A clone of a repository that has this link committed."""
    origin = tmp_path / "origin"
    (origin / link).parent.mkdir(parents=True)
    (origin / link).symlink_to(target)
    git("init", "-q", ".", cwd=origin)
    git("add", "-Af", ".", cwd=origin)
    git("commit", "-qm", "x", cwd=origin)
    git("clone", "-q", str(origin), str(tmp_path / "clone"), cwd=tmp_path)
    assert (tmp_path / "clone" / link).is_symlink()
    return tmp_path / "clone"


LINKS = [
    ".genlock", ".genlock/genlock.db", ".genlock/genlock.db-wal", ".genlock/genlock.db-shm", ".genlock/genlock.db-journal",
    ".genlock/genlock.db.gate", ".genlock/genlock.db.payloads", ".genlock/config.toml", ".genlock/.gitignore",
]  # fmt: skip


@pytest.mark.parametrize("link", LINKS)
def test_a_clone_with_a_link_is_refused_by_name_and_nothing_is_touched(
    tmp_path: Path, victim: Path, link: str
) -> None:
    folder = clone(
        tmp_path, link, victim.parent if link.endswith((".genlock", ".payloads")) else victim
    )
    for words in (
        ["init"],
        ["status"],
        ["ready"],
        ["next"],
        ["doctor"],
        ["config", "show"],
        ["config", "set", "project", "p"],
        ["add", "T"],
    ):
        ran = run(*words, cwd=folder)
        assert ran.code != 0, words
        assert f"{folder / link} is a symbolic link" in ran.out + ran.err, (words, ran)
        assert f"type: rm {folder / link}" in ran.out + ran.err, (words, ran)
        assert "hunter2" not in ran.out + ran.err, words
        assert "root_password" not in ran.out + ran.err, words
    assert victim.read_text() == SECRET
    assert os.listdir(victim.parent) == ["precious"]


def test_the_library_refuses_it_too(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clone(tmp_path, ".genlock/genlock.db", victim))
    monkeypatch.delenv("GENLOCK_URL", raising=False)
    with pytest.raises(StoreForeign, match=r"genlock\.db is a symbolic link"):
        genlock.connect()
    assert victim.read_text() == SECRET


def test_once_the_link_is_removed_all_is_well(tmp_path: Path, victim: Path) -> None:
    folder = clone(tmp_path, ".genlock/genlock.db.gate", victim)
    (folder / ".genlock/genlock.db.gate").unlink()
    assert run("init", cwd=folder).code == 0
    assert run("add", "T", cwd=folder).code == 0
    assert victim.read_text() == SECRET


def test_a_new_project_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        assert run("init", cwd=tmp_path).code == 0
        assert run("config", "set", "project", "p", cwd=tmp_path).code == 0
    finally:
        os.umask(before)
    found = {
        each.name: oct(each.stat().st_mode & 0o777)
        for each in (tmp_path / ".genlock", *(tmp_path / ".genlock").iterdir())
    }
    assert {name: mode for name, mode in found.items() if name != ".gitignore"} == {
        ".genlock": "0o700", "genlock.db": "0o600", "genlock.db.gate": "0o600", "config.toml": "0o600",
    }  # fmt: skip


def test_the_doctor_says_what_all_users_can_read(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).code == 0
    store = tmp_path / ".genlock/genlock.db"

    def said() -> tuple[str, str, list[str]]:
        found = run("doctor", "--json", cwd=tmp_path).json()["findings"]
        one = next(each for each in found if each["check"] == "permissions")
        return one["level"], one["what"], one["try_next"]

    assert said() == ("ok", "only for its user", [])
    store.chmod(0o660)
    assert said() == ("ok", "only for its user and group", [])
    store.chmod(0o644)
    assert said() == ("note", f"open to all users: {store}", [f"chmod -R o-rwx {store}"])


@pytest.mark.parametrize(
    "pipe",
    [
        "config.toml",
        "own/genlock/config.toml",
        "own/genlock/trusted.json",
        "own/genlock/credentials.toml",
    ],
)
def test_settings_that_are_a_pipe_are_refused_and_not_waited_for(tmp_path: Path, pipe: str) -> None:
    project = tmp_path / "project" / ".genlock"
    project.mkdir(parents=True)
    (project / "config.toml").write_text('url = "http://127.0.0.1:1"\n')
    own = tmp_path / "own"
    (own / "genlock").mkdir(parents=True)
    path = tmp_path / pipe if "/" in pipe else project / pipe
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    words = ["login", "http://127.0.0.1:1"] if "credentials" in pipe else ["ready"]
    done = subprocess.run(
        ["timeout", "20", *COMMAND, *words],
        cwd=project.parent,
        env=environment({"XDG_CONFIG_HOME": str(own)}),
        input=f"glk_{'a' * 20}\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert f"{path} cannot be read: " in done.stderr
    assert "this is no regular file" in done.stderr


@pytest.mark.parametrize(
    "pipe", ["genlock.db", "genlock.db.gate", "genlock.db-wal", "genlock.db-journal"]
)
def test_a_pipe_in_a_stores_place_is_not_waited_for(tmp_path: Path, pipe: str) -> None:
    assert run("init", cwd=tmp_path).code == 0
    path = tmp_path / ".genlock" / pipe
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    done = subprocess.run(
        ["timeout", "20", *COMMAND, "ready"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
    )
    assert done.returncode not in (-9, 124)
