"""A task's claims, told from its events: one entry a generation granted, and how each ended."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from msgspec.structs import replace

import genlock
from genlock.core import commands as c
from genlock.core import keys
from genlock.core.history import claim_history
from genlock.core.model import Actor, RefusedRecord, Task
from genlock.core.policy import Expired, Policy
from genlock.core.reasons import ReleaseReason, SpawnMode
from genlock.core.results import ClaimHistory
from genlock.testing.clock import ManualClock
from tests.core.world import START, World, by, content, key_of

T = key_of("A-003-event-bus")
NAME = T.id
ALICE = by("s1", "alice")


def a_world(policy: Policy = Policy()) -> World:  # noqa: B008 - frozen
    world = World(policy=policy)
    world.add(NAME, track="A", sequence=3)
    return world


def history(
    world: World, refused: frozenset[tuple[int, str]] = frozenset()
) -> tuple[ClaimHistory, ...]:
    return claim_history(world.task(NAME), world.cell(T).events, refused)


def told(world: World, refused: frozenset[tuple[int, str]] = frozenset()) -> list[str]:
    """Each entry as `generation:reason`, with a plus if its result was accepted and a minus if one
    was refused."""
    return [
        f"{entry.generation}:{entry.release_reason or 'open'}{'+' * entry.result_accepted}{'-' * entry.result_rejected}"
        for entry in history(world, refused)
    ]


def refused_in(world: World) -> frozenset[tuple[int, str]]:
    records = [
        cell.record for cell in world.cells.values() if isinstance(cell.record, RefusedRecord)
    ]
    return frozenset((record.generation, record.session) for record in records)


def test_a_task_that_nobody_has_claimed_has_no_history() -> None:
    assert history(a_world()) == ()


def test_an_entry_says_who_held_the_task_from_when_to_when_and_how_it_ended() -> None:
    world = a_world()
    caller = c.Caller("s1", "alice", Actor(user_id="alice@acme.com"))
    world.ask(c.ClaimTask(T, caller, 60.0))
    world.pass_time(20)
    world.ask(c.RenewLease(T, caller, 1))
    world.ask(c.RenewLease(T, caller, 1))
    world.pass_time(20)
    world.ask(c.SubmitResult(T, caller, 1, replace(content("done"), reference="s3://mine")))
    (entry,) = history(world)
    assert entry.id.startswith("claim-")
    assert (entry.tenant_id, entry.project_id, entry.task_id, entry.track, entry.sequence) == (
        "acme",
        "shop",
        NAME,
        "A",
        3,
    )
    assert (entry.generation, entry.session_id, entry.agent_id, entry.user_id) == (
        1,
        "s1",
        "alice",
        "alice@acme.com",
    )
    assert (entry.acquired_at, entry.released_at) == (START, START + timedelta(seconds=40))
    assert (entry.release_reason, entry.result_accepted, entry.result_rejected) == (
        ReleaseReason.COMPLETED,
        True,
        False,
    )
    assert (entry.reference, entry.renewals) == ("s3://mine", 2)
    assert re.fullmatch(f"wp-{NAME}-gen1-[0-9a-z]{{6}}", entry.work_product_ref or "")


def test_gc_4_2_an_expired_claim_with_a_refused_result_and_the_one_that_completed() -> None:
    world = a_world()
    world.claim(NAME)
    world.pass_time(61)
    world.claim(NAME, "s2", "bob")
    world.submit(NAME, "s2", 2)
    world.submit(NAME, "s1", 1, "late")
    assert told(world, refused_in(world)) == ["1:EXPIRED-", "2:COMPLETED+"]


def test_what_a_stranger_handed_in_at_a_generation_is_no_refused_result_of_its_holder() -> None:
    world = a_world()
    world.claim(NAME)
    world.submit(NAME, "stranger", 1, "another's")
    world.submit(NAME, "stranger", 2, "too early")
    world.pass_time(61)
    world.claim(NAME, "s2", "bob")
    world.submit(NAME, "s2", 2)
    assert refused_in(world) == {(1, "stranger"), (2, "stranger")}
    assert told(world, refused_in(world)) == ["1:EXPIRED", "2:COMPLETED+"]


def test_gc_4_3_three_generations() -> None:
    world = a_world()
    for session in ("s1", "s2", "s3"):
        world.claim(NAME, session)
        world.pass_time(61)
    world.submit(NAME, "s3", 3)
    assert told(world, frozenset({(1, "s1"), (2, "s2")})) == [
        "1:EXPIRED-",
        "2:EXPIRED-",
        "3:COMPLETED+",
    ]


@pytest.mark.parametrize(
    ("command", "ending"),
    [
        (c.ReleaseClaim(T, ALICE, 1), "1:VOLUNTARY"),
        (c.ReleaseClaim(T, ALICE, 1, ReleaseReason.ERROR), "1:ERROR"),
        (c.ForceRelease(T, take_over=True), "1:SUPERSEDED"),
        (c.AssignTask(T, agent="bob", take_over=True), "1:SUPERSEDED"),
        (c.ResetTask(T, take_over=True), "1:SUPERSEDED"),
        (c.CancelTask(T, take_over=True), "1:SUPERSEDED"),
        (c.SpawnSubtasks(T, ALICE, 1, (Task(id="x", parent=NAME, depth=1),)), "1:SPAWNED"),
        (c.SpawnSubtasks(T, ALICE, 1, (Task(id="x", parent=NAME, depth=1),), keep=True), "1:open"),
        (c.HoldTask(T), "1:open"),
        (c.EditTask(T, changes={"title": "new"}), "1:open"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, c.Command) else value,
)
def test_every_way_for_a_claim_to_end(command: c.Command, ending: str) -> None:
    world = a_world()
    world.claim(NAME)
    world.ask(command)
    assert told(world) == [ending]


def test_a_claim_whose_session_has_ended_is_orphaned() -> None:
    world = a_world()
    world.claim(NAME)
    world.ask(c.EndSession(key_of("s1", keys.SESSION), ALICE))
    world.claim(NAME, "s2", "bob")
    assert told(world) == ["1:ORPHANED", "2:open"]


def test_a_claim_that_expired_and_then_delivered_is_completed() -> None:
    world = a_world()
    world.claim(NAME)
    world.pass_time(61)
    world.ask(c.CheckDue(T))
    assert told(world) == ["1:EXPIRED"]
    world.submit(NAME, "s1", 1)
    assert told(world) == ["1:COMPLETED+"]


@pytest.mark.parametrize(
    "command",
    [
        c.ReleaseClaim(T, ALICE, 1),
        c.ForceRelease(T, take_over=True),
        c.ResetTask(T, take_over=True),
        c.CancelTask(T, take_over=True),
    ],
    ids=lambda c: type(c).__name__,
)
def test_what_has_expired_stays_so_whatever_comes_after(command: c.Command) -> None:
    world = a_world()
    world.claim(NAME)
    world.pass_time(61)
    world.ask(c.CheckDue(T))
    ended = history(world)[0].released_at
    world.pass_time(10)
    world.ask(command)
    assert told(world) == ["1:EXPIRED"]
    assert history(world)[0].released_at == ended


def test_a_completed_generation_stays_completed_after_a_reset() -> None:
    world = a_world()
    world.claim(NAME)
    world.submit(NAME, "s1", 1)
    world.ask(c.ResetTask(T, take_over=True))
    world.claim(NAME, "s2")
    assert told(world) == ["1:COMPLETED+", "2:open"]


def test_a_hold_for_a_person_shows_as_expired() -> None:
    world = a_world(Policy(expired=Expired.HUMAN))
    world.claim(NAME)
    world.pass_time(61)
    world.ask(c.CheckDue(T))
    assert told(world) == ["1:EXPIRED"]


def test_adoption_by_an_operator_is_a_generation_of_its_own() -> None:
    world = a_world()
    world.claim(NAME)
    world.ask(c.ForceRelease(T, take_over=True))
    world.submit(NAME, "s1", 1, "found")
    (refused,) = [key.id for key in world.cells if key.kind == keys.REFUSED]
    world.ask(
        c.AdoptResult(
            T, by("operations", "olga"), refused, None, content("found"), "wp-found", 1, "s1"
        )
    )
    assert told(world, frozenset({(1, "s1")})) == ["1:SUPERSEDED-", "2:COMPLETED+"]
    assert [(entry.session_id, entry.work_product_ref) for entry in history(world)] == [
        ("s1", None),
        ("operations", "wp-found"),
    ]


def test_a_fan_in_is_a_generation_of_the_coordinator_itself() -> None:
    world = a_world()
    world.claim(NAME)
    child = Task(id=f"{NAME}::1", parent=NAME, depth=1)
    world.ask(c.SpawnSubtasks(T, ALICE, 1, (child,), SpawnMode.FAN_OUT_FAN_IN))
    world.settle()
    world.finish(child.id)
    world.settle()
    assert told(world) == ["1:SPAWNED", "2:COMPLETED+"]
    assert history(world)[1].session_id == "genlock"


@pytest.mark.parametrize(
    ("keep", "log"), [(False, ["CLAIM_ACQUIRED", "CLAIM_RELEASED"]), (True, ["CLAIM_ACQUIRED"])]
)
def test_in_a_sessions_log_a_spawn_is_a_release_unless_the_parent_is_kept(
    keep: bool, log: list[str]
) -> None:
    with genlock.connect(
        "memory://", clock=ManualClock(), session_id="s1", agent_id="alice"
    ) as fleet:
        fleet.add_tasks(tasks=[NAME])
        fleet.claim_task(task_id=NAME)
        fleet.spawn_subtasks(task_id=NAME, generation=1, subtasks=["a part of it"], keep=keep)
        assert [entry.event for entry in fleet.get_session_memory().task_log] == log


def test_a_sessions_log_names_the_track_of_a_task_whose_id_does_not() -> None:
    with genlock.connect(
        "memory://", clock=ManualClock(), session_id="s1", agent_id="alice"
    ) as fleet:
        fleet.import_plan(
            source={"tracks": {"B": [{"id": "choose-a-database"}]}, "tasks": [{"id": "announce"}]}
        )
        fleet.claim_task(task_id="choose-a-database")
        fleet.claim_task(task_id="announce")
        memory = fleet.get_session_memory()
        assert [(entry.task_id, entry.track) for entry in memory.task_log] == [
            ("choose-a-database", "B"),
            ("announce", None),
        ]
        assert memory.track_assignments == {"B": "alice"}


@pytest.mark.parametrize("session", ['a "quoted" one', "back\\slash", "naïve", "plain"])
def test_a_sessions_log_is_found_whatever_its_name_is_made_of(session: str) -> None:
    with genlock.connect(
        "memory://", clock=ManualClock(), session_id=session, agent_id="alice"
    ) as fleet:
        fleet.add_tasks(tasks=[NAME])
        fleet.claim_task(task_id=NAME)
        fleet.submit_result(task_id=NAME, generation=1, result_data={"done": True})
        memory = fleet.get_session_memory()
        assert [entry.event for entry in memory.task_log] == ["CLAIM_ACQUIRED", "RESULT_SUBMITTED"]
        assert memory.completed_tasks == (NAME,)


def test_a_claim_that_was_lost_is_logged_under_the_agent_that_lost_it() -> None:
    clock = ManualClock()
    with genlock.connect("memory://", clock=clock, session_id="s1", agent_id="alice") as fleet:
        fleet.add_tasks(tasks=[NAME])
        fleet.claim_task(task_id=NAME, lease_duration_seconds=10)
        clock.advance(20)
        fleet.claim_task(task_id=NAME, session_id="s2", agent_id="bob")
        assert [(entry.event, entry.agent_id) for entry in fleet.get_session_memory().task_log] == [
            ("CLAIM_ACQUIRED", "alice"),
            ("CLAIM_LOST", "alice"),
        ]


@pytest.mark.parametrize("end", ["reset_task", "cancel_task"])
def test_a_grant_after_a_reset_names_the_generation_before_it(end: str) -> None:
    with genlock.connect(
        "memory://", clock=ManualClock(), session_id="s1", agent_id="alice"
    ) as fleet:
        fleet.add_tasks(tasks=[NAME])
        fleet.claim_task(task_id=NAME)
        getattr(fleet, end)(task_id=NAME, take_over=True)
        fleet.reset_task(task_id=NAME)
        fleet.claim_task(task_id=NAME)
        granted = [
            event.event
            for event in fleet.read_events().events
            if event.event["event_type"] == "CLAIM_ACQUIRED"
        ]
        assert [(event["previous_generation"], event["previous_state"]) for event in granted] == [
            (0, "NO_CLAIM"),
            (1, "SUPERSEDED"),
        ]
