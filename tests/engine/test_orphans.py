"""A holder whose session has ended or whose process is known to be gone holds nothing: found by whoever claims, not by a monitor."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import genlock
from genlock.core.model import Process
from genlock.core.results import ClaimResult
from genlock.engine import processes
from genlock.engine.processes import identify
from genlock.errors import SessionEnded
from tests.engine.gates import Home, claim, granted, later, next_for, submit, told


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


other_victim = victim
"""Another one."""


def kill(process: subprocess.Popen[bytes], *, reap: bool = True) -> None:
    """kill -9; returns when the process has ended, with `reap=False` as a zombie of ours."""
    os.kill(process.pid, signal.SIGKILL)
    if reap:
        process.wait()
    else:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def held_by(fleet: genlock.Coordinator, process: Process | None = None, pid: int | None = None) -> None:
    """T is alice's, whose session is that process."""
    fleet.add_tasks(tasks=["T"])
    fleet.register_session(session_id="s-alice", process=process, pid=pid)
    granted(fleet, "T", "alice", lease=3600)


def orphaned(fleet: genlock.Coordinator) -> list[Any]:
    return [event.event for event in fleet.read_events(task_id="T").events if event.event_type == "CLAIM_ORPHANED"]


@pytest.mark.parametrize("reap", [True, False])
def test_a_holder_that_was_killed_is_succeeded_at_once(home: Home, victim: subprocess.Popen[bytes], reap: bool) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    kill(victim, reap=reap)

    assert granted(fleet, "T", "bob") == 2

    (evidence,) = orphaned(fleet)
    assert (evidence["cause"], evidence["process_gone"], evidence["holder_session_id"]) == ("PROCESS_GONE", True, "s-alice")
    assert [entry.release_reason for entry in fleet.get_claim_history(task_id="T")] == ["ORPHANED", None]
    # The zombie's result, should it come after all, is fenced off and kept.
    refused = submit(fleet, "T", "alice", 1, {"work": "done"})
    assert (refused.reason, refused.kept) == ("STALE_GENERATION", True)


def test_claim_next_finds_the_task_of_a_holder_that_was_killed(home: Home, victim: subprocess.Popen[bytes]) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    kill(victim)

    assert next_for(fleet, "bob").task_id == "T"
    assert len(orphaned(fleet)) == 1


def test_what_is_ready_if_nothing_else_is_are_the_tasks_of_holders_that_were_killed(home: Home, victim: subprocess.Popen[bytes]) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    assert fleet.ready() == ()
    kill(victim)

    assert [(line.task.id, line.state, line.generation) for line in fleet.ready()] == [("T", "PENDING", 1)]
    assert fleet.ready(tracks="Z") == ()
    assert orphaned(fleet) == [], "a look has written something"


def test_who_waits_gets_the_task_of_a_holder_that_is_killed_meanwhile(home: Home, victim: subprocess.Popen[bytes]) -> None:
    """Nothing tells of a death: the waiter looks again every two seconds."""
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    waiting = later(lambda: next_for(fleet, "bob", wait=20))
    kill(victim)

    assert waiting.result(20).task_id == "T"


def test_a_sweep_finds_a_holder_that_was_killed(home: Home, victim: subprocess.Popen[bytes]) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    assert fleet.sweep().orphaned == 0
    kill(victim)

    assert fleet.sweep().orphaned == 1
    assert fleet.get_task_state(task_id="T").state == "PENDING"
    assert fleet.sweep().orphaned == 0


def test_a_pid_that_is_used_again_is_not_the_process_that_was(home: Home) -> None:
    """Our own pid, alive, with another start time: what had the number then is gone."""
    mine = identify()
    assert mine is not None
    fleet = home.connect()
    held_by(fleet, process=replace(mine, started=mine.started + 1))

    assert granted(fleet, "T", "bob") == 2
    assert [event["cause"] for event in orphaned(fleet)] == ["PROCESS_GONE"]


def test_a_process_of_an_earlier_boot_is_gone(home: Home) -> None:
    mine = identify()
    assert mine is not None
    fleet = home.connect()
    held_by(fleet, process=replace(mine, boot="an-earlier-one"))

    assert granted(fleet, "T", "bob") == 2


@pytest.mark.parametrize("pid", [1, 2**22 - 1])
def test_a_process_of_another_host_is_not_known_to_be_gone(home: Home, pid: int) -> None:
    fleet = home.connect()
    held_by(fleet, process=Process("another-host", "its-boot", pid, 1))

    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert next_for(fleet, "bob").reason == "NOTHING_READY"
    assert fleet.sweep().orphaned == 0
    home.clock.advance(3600)
    assert granted(fleet, "T", "bob") == 2
    assert told(fleet, "T").count("CLAIM_EXPIRED") == 1


def test_a_process_that_lives_keeps_its_claim(home: Home, victim: subprocess.Popen[bytes]) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)

    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert fleet.sweep().orphaned == 0
    state = fleet.get_task_state(task_id="T")
    assert state.holder is not None
    assert state.holder.looks_alive


def test_the_system_is_asked_once_a_round_for_each_process_that_holds_something(
    home: Home, victim: subprocess.Popen[bytes], other_victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = home.connect()
    names = [f"t-{number}" for number in range(6)]
    fleet.add_tasks(tasks=names)
    fleet.register_session(session_id="s-alice", pid=victim.pid)
    fleet.register_session(session_id="s-bob", pid=other_victim.pid)
    for number, name in enumerate(names):
        granted(fleet, name, ("alice", "bob")[number % 2], lease=3600)
    asked: list[int] = []
    look = processes.start_time

    def start_time(pid: int) -> int | None:
        asked.append(pid)
        return look(pid)

    def taken() -> list[str]:
        answers = fleet.batch_claim(task_ids=names, agent_id="carol", session_id="s-carol")
        return [name for name, answer in answers.items() if isinstance(answer, ClaimResult) and answer.success]

    monkeypatch.setattr(processes, "start_time", start_time)
    kill(victim)
    assert taken() == names[::2], "alice's, and not bob's"
    assert sorted(asked) == sorted([victim.pid, other_victim.pid])
    kill(other_victim)
    asked.clear()
    assert taken() == names, "what was found in one round is not believed in the next"
    assert asked == [other_victim.pid]


def test_a_tool_that_is_started_anew_under_its_name_is_not_taken_for_the_one_that_died(home: Home) -> None:
    died = home.connect(session_id="nightly", agent_id="alice", process=_gone())
    died.add_tasks(tasks=["T", "U"])
    assert died.claim_task(task_id="U").success
    anew = home.connect(session_id="nightly", agent_id="alice")
    assert anew.claim_task(task_id="T").success

    assert claim(anew, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert [session.pid for session in anew.list_sessions()] == [os.getpid()]
    # Nobody else is to have what it was at, either: it has the name and may go on with it.
    assert claim(anew, "U", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_of_several_processes_of_one_session_none_is_lost_because_another_ends(home: Home, victim: subprocess.Popen[bytes]) -> None:
    first = home.connect(session_id="crew", agent_id="alice", process=identify(victim.pid))
    first.add_tasks(tasks=["T", "U"])
    assert first.claim_task(task_id="U").success
    second = home.connect(session_id="crew", agent_id="carol")
    assert second.claim_task(task_id="T").success
    kill(victim)

    assert claim(second, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert [session.pid for session in second.list_sessions()] == [None]


def test_a_session_is_the_process_that_was_said_whoever_claims_for_it(home: Home, victim: subprocess.Popen[bytes]) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    kill(victim)

    assert granted(fleet, "T", "bob") == 2
    assert [event["cause"] for event in orphaned(fleet)] == ["PROCESS_GONE"]


def test_a_session_that_has_ended_holds_nothing(home: Home) -> None:
    fleet = home.connect()
    held_by(fleet)
    assert fleet.end_session(session_id="s-alice").released == ("T",)

    assert granted(fleet, "T", "bob") == 2
    with pytest.raises(SessionEnded):
        claim(fleet, "T", "alice")


def test_a_claim_whose_session_ended_and_whose_release_was_cut_off_is_orphaned(home: Home) -> None:
    """Ending a session is one commit and the release of its claims another; whoever comes between finds an orphan."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    held_by(rival)
    store.on("find", when=lambda query: query.session == "s-alice", before=lambda: granted(rival, "T", "bob"))

    assert fleet.end_session(session_id="s-alice").released == ()

    assert [event["cause"] for event in orphaned(fleet)] == ["SESSION_ENDED"]
    assert [entry.session_id for entry in fleet.get_claim_history(task_id="T")] == ["s-alice", "s-bob"]


def test_a_task_whose_holders_keep_dying_is_held(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    for n in range(5):
        fleet.register_session(session_id=f"s-agent-{n}", process=_gone())
        granted(fleet, "T", f"agent-{n}", lease=3600)

    assert claim(fleet, "T", "bob").reason == "DENIED_HELD"
    assert fleet.get_task_state(task_id="T").failures == 5
    assert next_for(fleet, "bob").reason == "NOTHING_READY"
    fleet.reopen_task(task_id="T")
    assert claim(fleet, "T", "bob").success


def _gone() -> Process:
    mine = identify()
    assert mine is not None
    return replace(mine, started=mine.started + 1)
