"""A holder whose session has ended or whose process is gone holds nothing: a claim finds that out,
no monitor is needed."""

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
from genlock.core.process_identity import Sight
from genlock.core.results import ClaimResult, SpawnResult
from genlock.engine import processes
from genlock.engine.processes import identify
from genlock.errors import LiveClaim, SessionEnded
from tests.engine.gated_store import Home, claim, granted, later, next_for, submit, told


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


def held_by(
    fleet: genlock.Coordinator, process: Process | None = None, pid: int | None = None
) -> None:
    """T is alice's, whose session is that process."""
    fleet.add_tasks(tasks=["T"])
    fleet.register_session(session_id="s-alice", process=process, pid=pid)
    granted(fleet, "T", "alice", lease=3600)


def granted_to(fleet: genlock.Coordinator, task_id: str) -> int:
    """The generation of a claim that the connection's own session and process make."""
    result = fleet.claim_task(task_id=task_id, lease_duration_seconds=3600)
    assert result.claim is not None, result
    return result.claim.generation


def orphaned(fleet: genlock.Coordinator) -> list[Any]:
    return [
        event.event
        for event in fleet.read_events(task_id="T").events
        if event.event_type == "CLAIM_ORPHANED"
    ]


ACTS: dict[str, Any] = {
    "force_release": lambda fleet: fleet.force_release(task_id="T"),
    "assign_task": lambda fleet: fleet.assign_task(task_id="T", agent_id="bob"),
    "reset_task": lambda fleet: fleet.reset_task(task_id="T"),
    "cancel_task": lambda fleet: fleet.cancel_task(task_id="T"),
    "adopt_result": lambda fleet: fleet.adopt_result(
        task_id="T", refused_id=fleet.list_refused_results()[0].id, session_id="s-olga"
    ),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_claim_is_taken_from_a_holder_that_was_killed_without_take_over(
    home: Home, victim: subprocess.Popen[bytes], act: str
) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    submit(fleet, "T", "carol", 1, {"work": "done"})
    with pytest.raises(LiveClaim):
        ACTS[act](fleet)
    kill(victim)
    ACTS[act](fleet)
    assert fleet.get_task_state(task_id="T").generation == 2


@pytest.mark.parametrize("reap", [True, False])
def test_a_holder_that_was_killed_is_succeeded_at_once(
    home: Home, victim: subprocess.Popen[bytes], reap: bool
) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    kill(victim, reap=reap)

    assert granted(fleet, "T", "bob") == 2

    (evidence,) = orphaned(fleet)
    assert (evidence["cause"], evidence["process_gone"], evidence["holder_session_id"]) == (
        "PROCESS_GONE",
        True,
        "s-alice",
    )
    assert [entry.release_reason for entry in fleet.get_claim_history(task_id="T")] == [
        "ORPHANED",
        None,
    ]
    # The zombie's result, should it come after all, is fenced off and kept.
    refused = submit(fleet, "T", "alice", 1, {"work": "done"})
    assert (refused.reason, refused.kept) == ("STALE_GENERATION", True)


def test_claim_next_finds_the_task_of_a_holder_that_was_killed(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    kill(victim)

    assert next_for(fleet, "bob").task_id == "T"
    assert len(orphaned(fleet)) == 1


def test_what_is_ready_if_nothing_else_is_are_the_tasks_of_holders_that_were_killed(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    assert fleet.ready() == ()
    kill(victim)

    assert [(line.task.id, line.state, line.generation) for line in fleet.ready()] == [
        ("T", "PENDING", 1)
    ]
    assert fleet.ready(tracks="Z") == ()
    assert orphaned(fleet) == [], "a look has written something"


def test_who_waits_gets_the_task_of_a_holder_that_is_killed_meanwhile(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    """Nothing tells of a death: the waiter looks again every two seconds."""
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    waiting = later(lambda: next_for(fleet, "bob", wait=20))
    kill(victim)

    assert waiting.result(20).task_id == "T"


def test_a_sweep_finds_a_holder_that_was_killed(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
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


def test_a_process_of_an_earlier_boot_is_gone_if_the_store_is_on_this_machine(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server it may be another machine of the same name, as all are called `localhost` on
    which nobody has set a name."""
    fleet = home.connect()
    held_by(fleet, pid=os.getpid())
    monkeypatch.setattr(processes, "boot", lambda: "another-boot")

    if home.kind in ("memory", "sqlite", "folder"):
        assert granted(fleet, "T", "bob") == 2
        return
    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert fleet.sweep().orphaned == 0
    assert [
        session.process_gone for session in fleet.list_sessions() if session.session_id == "s-alice"
    ] == [False]


def test_another_machine_of_this_name_that_comes_over_the_network_is_never_known_to_be_gone(
    home: Home,
) -> None:
    """Whoever registers lives; one that names another boot is not on this machine, whatever the
    store."""
    mine = identify()
    assert mine is not None
    fleet = home.connect()
    held_by(fleet, process=replace(mine, boot="that-of-another-machine"))
    other = home.connect(
        session_id="s-carol",
        agent_id="carol",
        process=replace(mine, boot="that-of-another-machine"),
    )
    other.add_tasks(tasks=["U"])
    assert other.claim_task(task_id="U").success

    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert claim(fleet, "U", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert fleet.sweep().orphaned == 0


def test_a_process_without_a_namespace_as_older_records_have_it_is_not_known_to_be_gone(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    dead = identify(victim.pid)
    assert dead is not None
    kill(victim)
    fleet = home.connect()
    held_by(fleet, process=replace(dead, namespace=""))

    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    home.clock.advance(3600)
    assert granted(fleet, "T", "bob") == 2
    assert told(fleet, "T").count("CLAIM_EXPIRED") == 1


def test_a_process_of_another_namespace_is_not_known_to_be_gone(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    dead = identify(victim.pid)
    assert dead is not None
    kill(victim)
    fleet = home.connect()
    held_by(fleet, process=replace(dead, namespace="4026532999"))

    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert fleet.sweep().orphaned == 0


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
    home: Home,
    victim: subprocess.Popen[bytes],
    other_victim: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = home.connect()
    names = [f"t-{number}" for number in range(6)]
    fleet.add_tasks(tasks=names)
    fleet.register_session(session_id="s-alice", pid=victim.pid)
    fleet.register_session(session_id="s-bob", pid=other_victim.pid)
    for number, name in enumerate(names):
        granted(fleet, name, ("alice", "bob")[number % 2], lease=3600)
    asked: list[int] = []
    really = processes.look

    def look(pid: int) -> Sight | int:
        asked.append(pid)
        return really(pid)

    def taken() -> list[str]:
        answers = fleet.batch_claim(task_ids=names, agent_id="carol", session_id="s-carol")
        return [
            name
            for name, answer in answers.items()
            if isinstance(answer, ClaimResult) and answer.success
        ]

    monkeypatch.setattr(processes, "look", look)
    kill(victim)
    assert taken() == names[::2], "alice's, and not bob's"
    assert sorted(asked) == sorted([victim.pid, other_victim.pid])
    kill(other_victim)
    asked.clear()
    assert taken() == names, "what was found in one round is not believed in the next"
    assert asked == [other_victim.pid]


def test_a_tool_that_is_started_anew_under_its_name_is_not_taken_for_the_one_that_died(
    home: Home,
) -> None:
    died = home.connect(session_id="nightly", agent_id="alice", process=_gone())
    died.add_tasks(tasks=["T", "U"])
    assert died.claim_task(task_id="U").success
    anew = home.connect(session_id="nightly", agent_id="alice")
    assert anew.claim_task(task_id="T").success

    assert claim(anew, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert [session.pid for session in anew.list_sessions()] == [os.getpid()]
    # Nobody else is to have what it was at, either: it has the name and may go on with it.
    assert claim(anew, "U", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_of_several_processes_of_one_session_none_is_lost_because_another_ends(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    first = home.connect(session_id="crew", agent_id="alice", process=identify(victim.pid))
    first.add_tasks(tasks=["T", "U"])
    assert first.claim_task(task_id="U").success
    second = home.connect(session_id="crew", agent_id="carol")
    assert second.claim_task(task_id="T").success
    kill(victim)

    assert claim(second, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert [session.pid for session in second.list_sessions()] == [None]


def test_a_claim_that_another_process_of_the_session_renews_is_not_lost_with_the_one_that_made_it(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    first = home.connect(session_id="crew", agent_id="alice", process=identify(victim.pid))
    first.add_tasks(tasks=["T"])
    generation = granted_to(first, "T")
    second = home.connect(session_id="crew", agent_id="alice")
    assert second.renew_lease(task_id="T", expected_generation=generation).success
    kill(victim)

    assert claim(home.connect(), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert second.submit_result(task_id="T", generation=generation).accepted


def test_a_renewal_by_the_successor_of_a_dead_process_keeps_the_claim(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    first = home.connect(session_id="crew", agent_id="alice", process=identify(victim.pid))
    first.add_tasks(tasks=["T"])
    generation = granted_to(first, "T")
    kill(victim)
    second = home.connect(session_id="crew", agent_id="alice")
    assert second.renew_lease(task_id="T", expected_generation=generation).success

    assert claim(home.connect(), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert [session.pid for session in second.list_sessions()] == [os.getpid()]


@pytest.mark.parametrize("verb", ["claim_task", "claim_next"])
def test_a_claim_that_the_successor_of_a_dead_process_repeats_is_not_taken_for_the_dead_ones(
    home: Home, victim: subprocess.Popen[bytes], verb: str
) -> None:
    wanted: dict[str, Any] = {"task_id": "T"} if verb == "claim_task" else {}
    first = home.connect(session_id="crew", agent_id="alice", process=identify(victim.pid))
    first.add_tasks(tasks=["T"])
    assert getattr(first, verb)(**wanted, lease_duration_seconds=3600, operation_id="first").success
    kill(victim)
    second = home.connect(session_id="crew", agent_id="alice")
    repeated = getattr(second, verb)(**wanted, lease_duration_seconds=3600, operation_id="first")
    assert (repeated.success, repeated.already_held, repeated.claim.generation) == (True, False, 1)

    assert claim(home.connect(), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_a_renewal_does_not_change_the_process_that_was_said(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    assert fleet.renew_lease(task_id="T", session_id="s-alice", expected_generation=1).success
    kill(victim)

    assert granted(fleet, "T", "bob") == 2


def test_a_session_is_the_process_that_was_said_whoever_claims_for_it(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    fleet = home.connect()
    held_by(fleet, pid=victim.pid)
    kill(victim)

    assert granted(fleet, "T", "bob") == 2
    assert [event["cause"] for event in orphaned(fleet)] == ["PROCESS_GONE"]


def test_a_session_that_two_processes_register_is_not_lost_with_either(
    home: Home, victim: subprocess.Popen[bytes], other_victim: subprocess.Popen[bytes]
) -> None:
    first = home.connect(session_id="crew", agent_id="alice", process=identify(other_victim.pid))
    first.add_tasks(tasks=["T"])
    assert first.register_session().pid == other_victim.pid
    generation = granted_to(first, "T")
    second = home.connect(session_id="crew", agent_id="carol", process=identify(victim.pid))
    assert second.register_session().pid is None
    third = home.connect(session_id="crew", agent_id="dave")
    assert third.register_session().pid is None, "there are several still"
    kill(victim)

    assert claim(home.connect(), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert home.connect().sweep().orphaned == 0
    assert first.submit_result(task_id="T", generation=generation).accepted


@pytest.mark.parametrize("known", [True, False])
def test_a_registered_session_in_which_another_process_claims_is_not_lost_with_the_first(
    home: Home, victim: subprocess.Popen[bytes], known: bool
) -> None:
    first = home.connect(session_id="crew", agent_id="alice", process=identify(victim.pid))
    first.add_tasks(tasks=["T"])
    first.register_session()
    second = home.connect(
        session_id="crew", agent_id="carol", process=identify() if known else None
    )
    generation = granted_to(second, "T")
    kill(victim)

    assert claim(home.connect(), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert second.submit_result(task_id="T", generation=generation).accepted


def test_a_process_that_registers_takes_the_place_of_one_that_is_gone(
    home: Home, victim: subprocess.Popen[bytes]
) -> None:
    first = home.connect(session_id="crew", agent_id="alice", process=_gone())
    first.add_tasks(tasks=["T"])
    first.register_session()
    second = home.connect(session_id="crew", agent_id="alice", process=identify(victim.pid))
    assert second.register_session().pid == victim.pid
    granted_to(second, "T")
    assert claim(home.connect(), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    kill(victim)

    assert granted(home.connect(), "T", "bob") == 2


def test_a_launcher_names_the_process_of_a_session_whatever_process_it_was(
    home: Home, victim: subprocess.Popen[bytes], other_victim: subprocess.Popen[bytes]
) -> None:
    fleet = home.connect()
    fleet.register_session(session_id="s-alice", pid=other_victim.pid)
    held_by(fleet, pid=victim.pid)
    kill(victim)

    assert granted(fleet, "T", "bob") == 2


def test_a_session_that_has_ended_holds_nothing(home: Home) -> None:
    fleet = home.connect()
    held_by(fleet)
    assert fleet.end_session(session_id="s-alice").released == ("T",)

    assert granted(fleet, "T", "bob") == 2
    with pytest.raises(SessionEnded):
        claim(fleet, "T", "alice")


def test_a_claim_whose_session_ended_and_whose_release_was_cut_off_is_orphaned(home: Home) -> None:
    """Ending a session is one commit and the release of its claims another; whoever comes between
    finds an orphan."""
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    held_by(rival)
    store.on(
        "find",
        when=lambda query: query.session == "s-alice",
        before=lambda: granted(rival, "T", "bob"),
    )

    assert fleet.end_session(session_id="s-alice").released == ()

    assert [event["cause"] for event in orphaned(fleet)] == ["SESSION_ENDED"]
    assert [entry.session_id for entry in fleet.get_claim_history(task_id="T")] == [
        "s-alice",
        "s-bob",
    ]


@pytest.mark.parametrize("keep", [True, False])
def test_a_holder_whose_session_has_ended_may_split_its_task_until_another_is_granted_it(
    home: Home, keep: bool
) -> None:
    """Its release was cut off. As with a submission, session and generation are what counts (ADR
    42)."""
    store = home.gated()
    ending, fleet = home.connect(store), home.connect()
    held_by(fleet)
    answers: list[SpawnResult] = []

    def split() -> None:
        answers.append(
            fleet.spawn_subtasks(
                task_id="T",
                generation=1,
                subtasks=["U"],
                keep=keep,
                session_id="s-alice",
                agent_id="alice",
            )
        )

    store.on("find", when=lambda query: query.session == "s-alice", before=split)
    ending.end_session(session_id="s-alice")

    assert [answer.reason for answer in answers] == ["ACCEPTED"]
    (part,) = answers[0].children
    assert granted(fleet, part, "bob") == 1
    assert claim(fleet, "T", "bob").reason == "DENIED_BLOCKED"
    assert submit(fleet, part, "bob", 1, {"work": "done"}).accepted
    assert granted(fleet, "T", "bob") == 2
    split()
    assert answers[-1].reason == "STALE_GENERATION"


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
