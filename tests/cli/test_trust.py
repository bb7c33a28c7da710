"""A project of somebody else's: a clone that names a store elsewhere, a folder of another user,
settings that are the user's."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genlock.settings import CHECKS, PROJECT_MAY_SET
from tests.cli.console import environment, run
from tests.cli.terminal import Terminal
from tests.cli.test_project_folder import GIT

KEY = "glk_abc_verysecret_1234"
NONE = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\ngenlock-protocol: 1\r\n\r\n[]"


class Recorder:
    """A service on loopback that keeps what it is sent, and counts connections on which nothing was
    sent too."""

    def __init__(self, answer: bytes = NONE) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.requests: list[str] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with near:
                self.requests.append(near.recv(65536).decode())
                near.sendall(self._answer)

    @property
    def keys(self) -> list[str]:
        """The authorization of every request; "" where there was none."""
        heads = [
            [line for line in request.split("\r\n") if line.lower().startswith("authorization:")]
            for request in self.requests
        ]
        return [found[0].partition(": ")[2] if found else "" for found in heads]

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)


@pytest.fixture
def attacker() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


@pytest.fixture
def other() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str | None]:
    """An environment whose user has settings of their own."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "own")}


def cloned(tmp_path: Path, settings: str) -> Path:
    """A clone of somebody's repository, which has these settings in it."""
    origin = tmp_path / "origin"
    (origin / ".genlock").mkdir(parents=True)
    (origin / ".genlock" / "config.toml").write_text(settings, encoding="utf-8")
    for words in (
        ["init"],
        ["add", "--force", "."],
        ["commit", "--message", "first"],
        ["clone", ".", str(tmp_path / "clone")],
    ):
        subprocess.run(
            [*GIT, *words], cwd=origin, env=environment(), check=True, capture_output=True
        )
    return tmp_path / "clone"


def store_key(address: str, env: dict[str, str | None]) -> None:
    ran = run("login", address, env=env, input=f"{KEY}\n")
    assert (ran.code, ran.err) == (0, "")
    assert KEY not in ran.out


COMPLETION = {
    "_GENLOCK_COMPLETE": "bash_complete",
    "COMP_WORDS": "genlock claim ",
    "COMP_CWORD": "2",
}


@pytest.mark.parametrize("kept", ["environment", "user's file", "stored"])
def test_a_clone_gets_neither_a_connection_nor_a_key(
    tmp_path: Path, own: dict[str, str | None], attacker: Recorder, kept: str
) -> None:
    clone = cloned(tmp_path, f'# build settings\nurl = "{attacker.url}"\n')
    if kept == "environment":
        own["GENLOCK_API_KEY"] = KEY
    elif kept == "user's file":
        (tmp_path / "own/genlock").mkdir(parents=True)
        (tmp_path / "own/genlock/config.toml").write_text(f'api_key = "{KEY}"\n')
    else:
        store_key("https://genlock.example.com", own)
    for words in (
        ["ready"],
        ["status"],
        ["next"],
        ["doctor"],
        ["config", "show"],
        ["events"],
        ["init"],
        ["serve"],
        ["dev", "--seconds", "0"],
    ):
        ran = run(*words, cwd=clone, env=own)
        assert (ran.code, ran.out) == (4, ""), words
        assert ran.error() == {
            "code": "UNTRUSTED",
            "message": f"{clone}/.genlock/config.toml:2: the project names {attacker.url} as its "
            "store, which is outside of the project"
            " and is not used without your consent; if you trust it, type: genlock trust",
            "try_next": [["genlock", "trust"]],
        }
    completed = run(cwd=clone, env=own | COMPLETION)
    assert (completed.code, completed.out, completed.err) == (0, "", "")
    for program in ("genlock.connect().ready()", "genlock.open_store()", "asyncio.run(asked())"):
        text = (
            "import asyncio, genlock, genlock.aio\nasync def asked():\n    "
            f"genlock.aio.connect()\n{program}"
        )
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=clone,
            env=environment(own),
            capture_output=True,
            text=True,
            check=False,
        )
        assert "genlock.trust.Untrusted" in done.stderr
    assert attacker.connections == 0


def test_after_consent_it_is_used_with_no_key_but_its_own(
    tmp_path: Path, own: dict[str, str | None], attacker: Recorder, other: Recorder
) -> None:
    clone = cloned(tmp_path, f'url = "{attacker.url}"\n')
    store_key(other.url, own)
    env = own | {"GENLOCK_API_KEY": "glk_environment"}
    assert run("trust", attacker.url, cwd=clone, env=env).json() == {
        "folder": f"{clone}/.genlock",
        "trusted": [attacker.url],
    }
    assert run("review", "list", cwd=clone, env=env).code == 0
    assert run(cwd=clone, env=env | COMPLETION).code == 0
    assert attacker.keys[0] == ""
    assert set(attacker.keys) == {""}, (
        "neither the environment's nor another address's, whatever it is asked for"
    )
    store_key(attacker.url, own)
    assert run("review", "list", cwd=clone, env=env).code == 0
    assert attacker.keys[-1] == f"Bearer {KEY}"
    assert other.connections == 0


def test_consent_is_for_one_folder_and_one_address(
    tmp_path: Path, own: dict[str, str | None], attacker: Recorder, other: Recorder
) -> None:
    clone = cloned(tmp_path, f'url = "{attacker.url}"\n')
    shutil.copytree(clone, tmp_path / "second")
    assert run("trust", attacker.url, cwd=clone, env=own).code == 0
    assert run("review", "list", cwd=tmp_path / "second", env=own).error()["code"] == "UNTRUSTED"
    assert run("trust", "--list", cwd=clone, env=own).json() == [
        {"folder": f"{clone}/.genlock", "trusted": attacker.url}
    ]
    (clone / ".genlock/config.toml").write_text(f'url = "{other.url}"\n')
    assert run("review", "list", cwd=clone, env=own).error()["code"] == "UNTRUSTED"
    (clone / ".genlock/config.toml").write_text(f'url = "{attacker.url}"\n')
    assert run("review", "list", cwd=clone, env=own).code == 0
    assert run("trust", "--revoke", cwd=clone, env=own).json() == {
        "folder": f"{clone}/.genlock",
        "revoked": [attacker.url],
    }
    assert run("review", "list", cwd=clone, env=own).error()["code"] == "UNTRUSTED"
    assert (attacker.connections, other.connections) == (1, 0)


def test_consent_is_asked_for_on_a_terminal_and_named_elsewhere(
    tmp_path: Path, own: dict[str, str | None]
) -> None:
    clone = cloned(tmp_path, 'url = "postgresql://ada:verysecret@db.example.com/plans"\n')
    shown = "postgresql://ada:…@db.example.com/plans"
    ran = run("review", "list", cwd=clone, env=own)
    assert shown in ran.error()["message"]
    assert "verysecret" not in ran.err
    ran = run("trust", cwd=clone, env=own)
    assert (
        ran.code,
        f"genlock trust '{shown}'" in ran.error()["message"],
        "verysecret" in ran.err,
    ) == (2, True, False)
    ran = run("trust", "postgresql://db.example.com/plans", cwd=clone, env=own)
    assert (ran.code, ran.error()["message"]) == (
        2,
        f"this project does not name 'postgresql://db.example.com/plans'; it wants {shown}",
    )
    for answer, code in (("n", 1), ("y", 0)):
        with Terminal("trust", cwd=clone, columns=200, env=own) as terminal:
            terminal.wait_for("Do you trust it? [y/N]: ")
            terminal.press(f"{answer}\n")
            assert terminal.end() == code
    kept = tmp_path / "own/genlock/trusted.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "verysecret" not in kept.read_text()
    assert run("config", "get", "url", "-q", cwd=clone, env=own).code == 0
    assert run("trust", cwd=clone, env=own).json() == {"folder": f"{clone}/.genlock", "trusted": []}


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "https://genlock.example.com",
        "postgresql://db.example.com/plans",
        "mysql://db.example.com/plans",
        "redis://db.example.com",
        "dynamodb://plans?region=eu-central-1",
        "journal:///somewhere",
        "memory://",
        "sqlite:///elsewhere/genlock.db",
        "sqlite://{clone}/../origin/genlock.db",
        "sqlite://{clone}-beside/genlock.db",
        "sqlite://{clone}/away/genlock.db",
        "sqlite://{clone}/link.db",
    ],
)
def test_any_store_outside_of_the_project_needs_consent(tmp_path: Path, url: str) -> None:
    clone = cloned(tmp_path, f'url = "{url.format(clone=tmp_path / "clone")}"\n')
    (clone / "away").symlink_to(tmp_path / "origin")
    (clone / "link.db").symlink_to(tmp_path / "origin" / "genlock.db")
    ran = run("init", cwd=clone)
    assert (ran.code, ran.error()["code"]) == (4, "UNTRUSTED")
    assert not list((tmp_path / "origin").glob("*.db"))


def test_a_store_inside_the_project_needs_none(tmp_path: Path) -> None:
    clone = cloned(tmp_path, f'url = "sqlite://{tmp_path}/clone/plans/genlock.db"\n')
    assert run("init", cwd=clone).json()["path"] == f"{clone}/plans/genlock.db"
    assert run("review", "list", cwd=clone).code == 0


def test_a_link_in_a_clone_leads_to_no_other_projects_store(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    run("init", cwd=private)
    run("add", "secret", cwd=private)
    clone = cloned(tmp_path, "")
    shutil.rmtree(clone / ".genlock")
    (clone / ".genlock").symlink_to("../private/.genlock")
    ran = run("review", "list", cwd=clone)
    assert (ran.code, ran.out, ran.error()["code"]) == (1, "", "STORE_FOREIGN")
    assert f"{clone}/.genlock is a symbolic link" in ran.error()["message"]


def test_what_the_user_puts_into_the_projects_file_is_consented_to(
    tmp_path: Path, own: dict[str, str | None], other: Recorder
) -> None:
    run("init", cwd=tmp_path)
    assert run("config", "set", "url", other.url, cwd=tmp_path, env=own).code == 0
    assert run("review", "list", cwd=tmp_path, env=own).code == 0
    assert run("review", "list", cwd=tmp_path).error()["code"] == "UNTRUSTED", (
        "another user has not"
    )


def test_a_projects_address_does_not_matter_where_the_user_names_one(
    tmp_path: Path, own: dict[str, str | None], attacker: Recorder, other: Recorder
) -> None:
    clone = cloned(tmp_path, f'url = "{attacker.url}"\n')
    env = own | {"GENLOCK_API_KEY": KEY}
    assert run("review", "list", "--url", other.url, cwd=clone, env=env).code == 0
    assert run("review", "list", cwd=clone, env=env | {"GENLOCK_URL": other.url}).code == 0
    assert (attacker.connections, other.keys) == (0, [f"Bearer {KEY}"] * 2)


# Settings that are the user's


def test_what_a_project_may_set_is_this_and_no_more() -> None:
    assert {
        "url",
        "tenant",
        "project",
        "lease_seconds",
        "serve_port",
        "serve_metrics_prefix",
        "serve_log_level",
        "serve_log_format",
        "serve_grace_seconds",
        "serve_api_tenant",
        "serve_api_project",
        "serve_claim_config",
        "worktree_base",
    } == PROJECT_MAY_SET
    assert {
        "session",
        "agent",
        "user",
        "api_key",
        "serve_host",
        "serve_allow_host",
        "serve_keys",
        "on_complete",
        "container",
        "serve_forwarded_allow_ips",
        "serve_connections",
        "serve_rate",
        "serve_tenant_operations",
        "serve_streams",
        "serve_sign_in_file",
        "serve_products",
    } == CHECKS.keys() - PROJECT_MAY_SET, (
        "a new setting is the user's until somebody says why a project may set it"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("agent", "vera"),
        ("user", "vera"),
        ("serve_host", "0.0.0.0"),
        ("serve_allow_host", "*"),
        ("serve_keys", "false"),
        ("serve_forwarded_allow_ips", "*"),
        ("serve_connections", "1"),
        ("serve_rate", "0"),
        ("serve_tenant_operations", "100000"),
        ("serve_sign_in_file", "secret"),
        ("serve_products", "s3://bucket"),
    ],
)
def test_a_setting_that_is_the_users_is_refused_in_a_clone(
    tmp_path: Path, own: dict[str, str | None], name: str, value: str
) -> None:
    clone = cloned(tmp_path, f'tenant = "web"\n{name} = "{value}"\n')
    ran = run("review", "list", cwd=clone, env=own)
    assert (ran.code, ran.error()) == (
        2,
        {
            "code": "BAD_SETTING",
            "message": f"{clone}/.genlock/config.toml:2: {name} cannot be set by a project, only "
            "by its user; "
            f"to set it in your own file, {tmp_path}/own/genlock/config.toml, type: genlock config "
            f"set --user {name} VALUE",
            "try_next": [["genlock", "config", "set", "--user", name, "VALUE"]],
        },
    )
    assert (
        run("config", "set", name, value, cwd=clone, env=own)
        .error()["message"]
        .startswith(f"config set: {name} cannot be set")
    )
    assert run("config", "unset", name, cwd=clone, env=own).code == 0
    assert run("config", "set", "--user", name, value, cwd=clone, env=own).code == 0
    assert (
        run("config", "get", name, cwd=clone, env=own).json()["origin"]
        == f"{tmp_path}/own/genlock/config.toml:1"
    )


def test_a_key_in_a_clone_is_refused_and_not_shown(tmp_path: Path) -> None:
    clone = cloned(tmp_path, f'api_key = "{KEY}"\n')
    ran = run("review", "list", cwd=clone)
    assert (ran.code, ran.error()["message"]) == (
        2,
        (
            f"{clone}/.genlock/config.toml:1: api_key cannot be set by a project: a key belongs to "
            "a user and an address; to store yours, type: genlock login ADDRESS"
        ),
    )
    assert KEY not in ran.err


def test_a_projects_settings_are_not_read_through_a_link(tmp_path: Path) -> None:
    clone = cloned(tmp_path, "")
    (tmp_path / "elsewhere.toml").write_text('tenant = "web"\n')
    (clone / ".genlock/config.toml").unlink()
    (clone / ".genlock/config.toml").symlink_to(tmp_path / "elsewhere.toml")
    assert "is a symbolic link" in run("review", "list", cwd=clone).error()["message"]


# Another user's folder

AS_ANOTHER = """
import hashlib, json, os, pwd, sys
from genlock.cli.group import run
run(sys.argv[1:])
BECOME
sys.exit(run(sys.argv[1:]))
"""
"""It is run twice, the first time by the folder's owner: so all is imported that another user may
not be able to read."""


def run_as_another(folder: Path, *words: str) -> dict[str, Any]:
    """The command of a user to whom this folder does not belong: a real one if we are root."""
    nobody = pwd.getpwnam("nobody").pw_uid
    become = (
        f"os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})"
        if os.geteuid() == 0
        else "os.geteuid = lambda: 54321"
    )
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER.replace("BECOME", become), *words],
        cwd=folder,
        env=environment({"XDG_CONFIG_HOME": "/nonexistent"}),
        capture_output=True,
        text=True,
        check=False,
    )
    error: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["error"]
    return error


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can enter, as they can not those of the tests."""
    folder = Path(tempfile.mkdtemp(prefix="genlock-shared-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("repository", [True, False])
def test_another_users_project_above_is_not_obeyed(shared: Path, repository: bool) -> None:
    if repository:
        subprocess.run(
            [*GIT, "init"], cwd=shared, env=environment(), check=True, capture_output=True
        )
    run("init", cwd=shared)
    (shared / "below").mkdir()
    (shared / ".genlock").chmod(0o755)
    (shared / ".genlock" / "config.toml").write_text('tenant = "mine"\n')
    me = pwd.getpwuid(os.geteuid()).pw_name
    for words in (["ready"], ["config", "show"], ["doctor"]):
        error = run_as_another(shared / "below", *words)
        assert error == {
            "code": "UNTRUSTED",
            "message": f"{shared}/.genlock belongs to the user {me}, and what another user put "
            "there is not obeyed without your consent; "
            f"if you trust it, type: genlock trust {shared}",
            "try_next": [["genlock", "trust", str(shared)]],
        }


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of two users")
@pytest.mark.parametrize("what", [".genlock", ".genlock/config.toml", ".git", "."])
def test_each_part_of_a_project_must_be_ones_own(
    tmp_path: Path, own: dict[str, str | None], what: str
) -> None:
    clone = cloned(tmp_path, 'tenant = "web"\n')
    assert run("init", cwd=clone, env=own).code == 0
    os.chown(clone / what, 65534, 65534)
    refused = run("review", "list", cwd=clone, env=own).error()
    assert (refused["code"], refused["message"].partition(" belongs to ")[0]) == (
        "UNTRUSTED",
        str((clone / what).resolve()),
    )
    assert (
        run("config", "set", "tenant", "other", cwd=clone, env=own).error()["code"] == "UNTRUSTED"
    )
    assert run("review", "list", cwd=clone, env=own | {"SUDO_UID": "65534"}).code == 0, (
        "as git: the user who called sudo"
    )
    assert run("trust", str(clone), cwd=clone, env=own).json() == {
        "folder": f"{clone}/.genlock",
        "trusted": [str(clone)],
    }
    assert run("review", "list", cwd=clone, env=own).code == 0
    assert run("trust", "--revoke", cwd=clone, env=own).code == 0
    assert run("review", "list", cwd=clone, env=own).error()["code"] == "UNTRUSTED"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of two users")
@pytest.mark.parametrize("kind", ["file", "link", "file in a folder of theirs", "commondir"])
def test_another_user_s_git_entry_leads_to_no_project_of_mine(
    tmp_path: Path, own: dict[str, str | None], kind: str
) -> None:
    private = cloned(tmp_path, 'tenant = "web"\n')
    assert run("init", cwd=private, env=own).code == 0
    assert run("add", "secret", cwd=private, env=own).code == 0
    lure = tmp_path / "lure"
    (lure / "below").mkdir(parents=True)
    entry = foreign = lure / ".git"
    if kind == "link":
        entry.symlink_to(private / ".git")
    elif kind == "commondir":
        entry.mkdir()
        (entry / "HEAD").write_text("ref: refs/heads/main\n")
        foreign = entry / "commondir"
        foreign.write_text(f"{private}/.git\n")
    else:
        entry.write_text(f"gitdir: {private}/.git\n")
        foreign = lure if "folder" in kind else entry
    os.chown(foreign, 65534, 65534, follow_symlinks=False)
    for words in (["ready"], ["status"], ["config", "show"], ["init"]):
        ran = run(*words, cwd=lure / "below", env=own)
        assert (ran.out, ran.error()["code"]) == ("", "UNTRUSTED"), words
        assert ran.error()["message"] == (
            f"{foreign} belongs to the user nobody, and what another user put there is not obeyed "
            f"without your consent; if you trust it, type: genlock trust {foreign}"
        )
    assert run("review", "list", cwd=private, env=own).code == 0
    assert run("trust", str(foreign), cwd=lure / "below", env=own).code == 0
    assert run("review", "list", cwd=lure / "below", env=own).code == 0
    os.chown(private / ".genlock", 65534, 65534)
    assert run("review", "list", cwd=private, env=own).error()["code"] == "UNTRUSTED"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of two users")
def test_consent_is_for_one_owner(tmp_path: Path, own: dict[str, str | None]) -> None:
    clone = cloned(tmp_path, 'tenant = "web"\n')
    assert run("init", cwd=clone, env=own).code == 0
    os.chown(clone / ".genlock", 65534, 65534)
    assert run("trust", str(clone), cwd=clone, env=own).code == 0
    assert run("review", "list", cwd=clone, env=own).code == 0
    os.chown(clone / ".genlock/config.toml", 65533, 65533)
    assert (
        f"{clone}/.genlock/config.toml belongs to the user 65533"
        in run("review", "list", cwd=clone, env=own).error()["message"]
    )
    os.chown(clone / ".genlock", 65533, 65533)
    assert run("review", "list", cwd=clone, env=own).error()["code"] == "UNTRUSTED"
    assert run("trust", str(clone), cwd=clone, env=own).code == 0
    assert run("review", "list", cwd=clone, env=own).code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of two users")
def test_a_store_named_by_the_user_needs_nothing_of_a_checkout(tmp_path: Path) -> None:
    clone = cloned(tmp_path, "")
    shutil.rmtree(clone / ".genlock")
    os.chown(clone / ".git", 65534, 65534)
    url = f"sqlite://{tmp_path}/mine.db"
    assert run("init", "--url", url, cwd=clone).code == 0
    assert run("review", "list", cwd=clone, env={"GENLOCK_URL": url}).code == 0
    assert run("init", cwd=clone).error()["code"] == "UNTRUSTED"
