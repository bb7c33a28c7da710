"""`genlock session` and `genlock agents`: what an agent says of itself, and what others see."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.console import COMMAND, Ran, environment, run
from tests.cli.terminal import Terminal


@pytest.fixture
def project(tmp_path: Path) -> Path:
    run("init", cwd=tmp_path)
    run("add", "one", cwd=tmp_path)
    return tmp_path


def told(project: Path, *words: object) -> Ran:
    ran = run(*words, "--session", "s", "--agent", "bob", cwd=project)
    assert ran.code == 0, ran.err
    return ran


def agents(project: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run("agents", cwd=project).json()["agents"]
    return found


def test_a_session_starts_lives_and_ends_by_command(project: Path) -> None:
    told(project, "session", "start", "--type", "autonomous", "--worktree", "wt/x")
    (agent,) = agents(project)
    assert (agent["agent_id"], agent["status"], agent["instance_type"]) == (
        "bob",
        "starting",
        "autonomous",
    )
    assert (agent["workspace"], agent["worktree"]) == (str(project), "wt/x")
    told(project, "claim", "one", "--role", "tdd_engineer")
    assert [agents(project)[0][name] for name in ("status", "current_task")] == ["working", "one"]
    assert run("show", "one", cwd=project).json()["claim"]["agent_role"] == "tdd_engineer"
    shown = told(project, "session", "heartbeat", "--status", "waiting", "--set", "phase=IMPL")
    assert shown.json()["metadata"]["phase"] == "IMPL"
    assert agents(project)[0]["status"] == "waiting"
    info = run("session", "show", "s", cwd=project).json()
    assert [claim["task_id"] for claim in info["claims"]] == ["one"]
    memory = run("session", "memory", "s", cwd=project).json()
    assert [entry["event"] for entry in memory["task_log"]] == ["CLAIM_ACQUIRED"]
    assert run("session", "end", "--session", "s", cwd=project).json()["released"] == ["one"]
    assert agents(project) == []


def test_a_status_that_is_none_is_refused_with_those_there_are(project: Path) -> None:
    ran = run("session", "heartbeat", "--status", "asleep", "--session", "s", cwd=project)
    assert (ran.code, ran.error()["message"]) == (
        2,
        "--status is one of starting, idle, working, waiting, stopping, not 'asleep'",
    )


def test_an_unknown_session_is_named(project: Path) -> None:
    ran = run("session", "show", "nobody", cwd=project)
    assert ran.code == 3
    assert "there is no session 'nobody'" in ran.error()["message"]


def test_the_watched_table_follows_what_happens(project: Path) -> None:
    with Terminal("agents", "--watch", cwd=project) as terminal:
        terminal.wait_for("nobody is there")
        told(project, "claim", "one")
        terminal.wait_for("working")
        terminal.interrupt()
        assert terminal.end() == 130


# A session that one process at a time runs


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def locks(home: dict[str, str]) -> list[str]:
    return sorted(file.name for file in Path(home["HOME"]).glob(".claude/locks/*.lock"))


@pytest.fixture
def running(project: Path, home: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock `nightly` until its stdin is closed."""
    process = subprocess.Popen(
        [*COMMAND, "session", "run", "nightly", "--", "sh", "-c", "echo up; cat"],
        cwd=project,
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.communicate(timeout=60)


def test_a_command_runs_as_the_named_session_under_its_lock(
    project: Path, home: dict[str, str]
) -> None:
    script = 'echo "$GENLOCK_SESSION"; ls "$HOME/.claude/locks"; exit 7'
    ran = run("session", "run", "nightly", "--", "sh", "-c", script, cwd=project, env=home)

    assert (ran.code, ran.out) == (7, "nightly\nnightly.lock\n")
    assert locks(home) == []


def test_while_a_session_runs_another_is_forked_with_a_name_of_its_own(
    project: Path, home: dict[str, str], running: subprocess.Popen[str]
) -> None:
    script = 'echo "$GENLOCK_SESSION"'
    ran = run("session", "run", "nightly", "--", "sh", "-c", script, cwd=project, env=home)

    assert ran.code == 0
    assert re.fullmatch(r"nightly_fork_[0-9]+_[0-9]{10}\n", ran.out)
    assert locks(home) == ["nightly.lock"]


def test_while_a_session_runs_exit_fails_at_once(
    project: Path, home: dict[str, str], running: subprocess.Popen[str]
) -> None:
    words = ("session", "run", "--on-conflict", "exit", "nightly", "--", "touch", "ran")
    ran = run(*words, cwd=project, env=home)

    assert (ran.code, ran.out, ran.err) == (1, "", "ERROR: Session busy\n")
    assert not (project / "ran").exists()


def test_while_a_session_runs_queue_makes_a_task_of_the_command(
    project: Path, home: dict[str, str], running: subprocess.Popen[str]
) -> None:
    words = ("session", "run", "--on-conflict", "queue", "nightly", "--", "touch", "a file")
    ran = run(*words, "--with", "x", cwd=project, env=home)

    assert (ran.code, ran.out) == (0, "Queued: 0001\n")
    assert not (project / "a file").exists()
    task = run("show", "0001", cwd=project).json()["task"]
    assert (task["title"], task["description"]) == (
        "Queued for session nightly",
        "touch 'a file' --with x",
    )


def test_a_session_that_was_killed_leaves_no_lock_that_counts(
    project: Path, home: dict[str, str], running: subprocess.Popen[str]
) -> None:
    running.kill()
    running.wait(60)
    assert locks(home) == ["nightly.lock"]
    words = ("session", "run", "--on-conflict", "exit", "nightly", "--", "true")
    assert run(*words, cwd=project, env=home).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nightly",), "which command? It stands after --"),
        (("../x", "--", "true"), "is no name of a session lock"),
        (("nightly", "--", "no-such-command"), "cannot be started"),
    ],
)
def test_a_session_that_cannot_be_run_is_refused_and_leaves_nothing(
    project: Path, home: dict[str, str], words: tuple[str, ...], said: str
) -> None:
    ran = run("session", "run", *words, cwd=project, env=home)
    assert ran.code == 2
    assert said in ran.err
    assert locks(home) == []
