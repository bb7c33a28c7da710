"""The command that agents' clients call at events of a session, and what a model is told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genlock.cli.agents import hook_events
from genlock.cli.agents.hook_events import Kind
from genlock.cli.agents.prime_text import LONGEST
from genlock.coordinator import Coordinator
from tests.cli.console import Ran, run
from tests.eventually import eventually
from tests.mcp.server import fleet, make_project

SESSION = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return make_project(folder, "A-001-first", "A-002-second")


@pytest.fixture
def opened(project: Path) -> Iterator[Coordinator]:
    with fleet(project) as coordinator:
        yield coordinator


def hook(
    project: Path, event: str, agent: str = "claude", env: dict[str, str] | None = None, **more: Any
) -> Ran:
    told = {"hook_event_name": event, "session_id": SESSION, "cwd": str(project)} | more
    unset = {"GENLOCK_SESSION": None, "XDG_STATE_HOME": str(project.parent / "state")}
    return run("hook", agent, cwd=project, input=json.dumps(told), env=unset | (env or {}))


def claim(opened: Coordinator, task: str = "A-001-first", lease: float = 300) -> None:
    opened.claim_task(task_id=task, session_id=SESSION, lease_duration_seconds=lease)


@pytest.mark.parametrize(
    ("told", "kind", "session"),
    [
        ({"hook_event_name": "SessionStart", "session_id": "s"}, Kind.START, "s"),
        ({"hook_event_name": "sessionStart", "conversation_id": "c"}, Kind.START, "c"),
        ({"hook_event_name": "PostToolUse", "session_id": "s"}, Kind.TOOL, "s"),
        ({"hook_event_name": "AfterTool", "session_id": "s"}, Kind.TOOL, "s"),
        ({"hook_event_name": "Stop", "session_id": "s"}, Kind.STOP, "s"),
        ({"hook_event_name": "session.end"}, Kind.END, None),
        ({"hook_event_name": "PreCompact", "session_id": "s"}, Kind.OTHER, "s"),
        ({"session_id": 5}, Kind.OTHER, None),
        ([], Kind.OTHER, None),
    ],
)
def test_every_clients_events_are_understood(told: Any, kind: Kind, session: str | None) -> None:
    found = hook_events.read_event(json.dumps(told).encode())
    assert (found.kind, found.session) == (kind, session)


@pytest.mark.parametrize("data", [b"", b"garbage", b"\xff", b"[" * 100_000])
def test_garbage_on_stdin_is_an_event_of_no_interest(data: bytes) -> None:
    assert hook_events.read_event(data).kind is Kind.OTHER


def test_at_the_start_the_model_is_told_of_the_plan(project: Path, opened: Coordinator) -> None:
    claim(opened)
    env_file = project / "env.sh"
    ended = hook(project, "SessionStart", env={"CLAUDE_ENV_FILE": str(env_file)})
    assert (ended.code, ended.err) == (0, "")
    assert "You hold:\n- A-001-first, generation 1" in ended.out
    assert "- A-002-second" in ended.out
    assert env_file.read_text() == f"export GENLOCK_SESSION={SESSION}\n"


@pytest.mark.parametrize(
    ("agent", "event", "where"),
    [
        ("cursor", "sessionStart", ("additional_context",)),
        ("gemini", "SessionStart", ("hookSpecificOutput", "additionalContext")),
    ],
)
def test_each_client_is_told_in_its_own_form(
    project: Path, agent: str, event: str, where: tuple[str, ...]
) -> None:
    found = json.loads(hook(project, event, agent).out)
    for key in where:
        found = found[key]
    assert "Ready to be claimed" in found


def test_after_a_tool_the_leases_are_renewed(project: Path, opened: Coordinator) -> None:
    claim(opened, lease=5)
    (before,) = opened.get_active_claims_for_session(session_id=SESSION)
    old = before.claimed_at.timestamp() + 0.5
    eventually(lambda: time.time() > old, "a tenth of the lease to pass")
    assert hook(project, "PostToolUse").code == 0
    (after,) = opened.get_active_claims_for_session(session_id=SESSION)
    assert after.expires_at is not None
    assert before.expires_at is not None
    assert after.expires_at > before.expires_at


def test_nothing_is_asked_of_the_store_within_a_tenth_of_the_lease(
    project: Path, opened: Coordinator
) -> None:
    claim(opened, lease=1000)
    assert hook(project, "PostToolUse").code == 0
    note = project.parent / "state" / "genlock" / "hooks" / f"{SESSION}.json"
    assert json.loads(note.read_text())["seconds"] == 100
    # Without a store it would complain, if it looked for one.
    (project / ".genlock").rename(project.parent / "moved")
    ended = hook(project, "PostToolUse")
    assert (ended.code, ended.err) == (0, "")
    note.write_text('{"at": 0, "seconds": 100}')
    assert "there is no store" in hook(project, "PostToolUse").err


def test_an_agent_that_holds_a_task_is_kept_from_stopping_once(
    project: Path, opened: Coordinator
) -> None:
    assert hook(project, "Stop").code == 0
    claim(opened)
    ended = hook(project, "Stop")
    assert ended.code == 2
    assert "You still hold A-001-first (generation 1)." in ended.err
    assert hook(project, "Stop", stop_hook_active=True).code == 0


def test_at_the_end_the_claims_of_the_session_are_released_and_no_others(
    project: Path, opened: Coordinator
) -> None:
    claim(opened)
    opened.claim_task(task_id="A-002-second", session_id="another")
    assert hook(project, "SessionEnd", reason="logout").code == 0
    assert opened.get_active_claims_for_session(session_id=SESSION) == ()
    assert len(opened.get_active_claims_for_session(session_id="another")) == 1


@pytest.mark.parametrize("reason", ["\ud800", "\0", "\x1b[2J\n", ["x"], "x" * 9000])
def test_a_reason_that_is_no_text_keeps_no_claim_from_being_released(
    project: Path, opened: Coordinator, reason: Any
) -> None:
    claim(opened)
    claim(opened, "A-002-second")
    ended = hook(project, "SessionEnd", reason=reason)
    assert (ended.code, ended.err) == (0, "")
    assert opened.get_active_claims_for_session(session_id=SESSION) == ()


def test_a_session_that_the_user_has_named_goes_first(project: Path, opened: Coordinator) -> None:
    opened.claim_task(task_id="A-001-first", session_id="named")
    hook(project, "SessionEnd", env={"GENLOCK_SESSION": "named"})
    assert opened.get_active_claims_for_session(session_id="named") == ()


@pytest.mark.parametrize("event", ["SessionStart", "PostToolUse", "Stop", "SessionEnd", "Nonsense"])
def test_without_a_store_no_session_fails(tmp_path: Path, event: str) -> None:
    ended = hook(tmp_path, event)
    assert (ended.code, ended.out) == (0, "")


def test_prime_stays_below_a_thousand_tokens_however_large_the_plan_is(
    project: Path, opened: Coordinator
) -> None:
    title = "long title " * 30
    opened.add_tasks(
        tasks=[{"id": f"T{chr(65 + n % 26)}-{n + 1:03}-x", "title": title} for n in range(500)]
    )
    for number in range(40):
        opened.claim_next(session_id=f"s{number}", agent_id=f"agent-with-a-long-name-{number}")
        opened.claim_next(session_id="mine", agent_id=f"a{number}")
    ended = run("prime", cwd=project, env={"GENLOCK_SESSION": "mine"})
    assert ended.code == 0
    assert len(ended.out) <= LONGEST + 1
    assert LONGEST / 4 < 1000
    for part in ("You hold:", "Done: ", "At work:", "Ready to be claimed"):
        assert part in ended.out
