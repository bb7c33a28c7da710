"""Safety never rests on time: a clock that steps by a day takes nobody's result away and keeps
nobody out for ever."""

from __future__ import annotations

from datetime import timedelta

import pytest

import genlock
from genlock.testing.clock import ManualClock
from tests.engine.gated_store import Home, claim, granted, later, next_for, state, submit

DAY = 86_400.0


def lapses(fleet: genlock.Coordinator, task_id: str) -> list[str]:
    """The causes by which claims of a task were lost."""
    events = fleet.read_events(task_id=task_id).events
    return [
        str(event.event["cause"])
        for event in events
        if event.event_type in ("CLAIM_EXPIRED", "CLAIM_ORPHANED")
    ]


def test_a_claim_is_over_due_after_a_step_forward(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    home.clock.advance(DAY)

    assert granted(fleet, "T", "bob") == 2
    assert lapses(fleet, "T") == ["LEASE_OVER"]
    refused = submit(fleet, "T", "alice", 1, {"work": "done"})
    assert (refused.reason, refused.kept) == ("STALE_GENERATION", True)
    assert submit(fleet, "T", "bob", 2).accepted


def test_a_claim_is_over_due_after_a_step_backward(home: Home) -> None:
    """Its lease would end a day from now: nobody asked for so long a one, so the clock is not to be
    believed."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    home.clock.advance(-DAY)

    assert granted(fleet, "T", "bob") == 2
    assert lapses(fleet, "T") == ["CLOCK_STEPPED"]
    assert submit(fleet, "T", "alice", 1).reason == "STALE_GENERATION"
    assert submit(fleet, "T", "bob", 2).accepted


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_a_result_is_accepted_after_a_step_if_nobody_has_taken_over(
    home: Home, step: float
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    home.clock.advance(step)

    assert submit(fleet, "T", "alice", 1).accepted


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_claim_next_finds_what_a_step_has_made_over_due(home: Home, step: float) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    home.clock.advance(step)

    assert next_for(fleet, "bob").task_id == "T"


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_who_waits_gets_what_a_step_has_made_over_due(home: Home, step: float) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    waiting = later(lambda: next_for(fleet, "bob", wait=20))
    home.clock.advance(step)

    assert waiting.result(20).task_id == "T"


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_a_holder_renews_after_a_step_or_claims_anew(home: Home, step: float) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    home.clock.advance(step)

    assert (
        fleet.renew_lease(task_id="T", expected_generation=1, session_id="s-alice").reason
        == "ALREADY_EXPIRED"
    )
    # One's own overdue claim is granted anew, at a new generation.
    assert granted(fleet, "T", "alice") == 2


def test_there_and_back_again(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    generations = []
    for who, step in (("alice", DAY), ("bob", -DAY), ("carol", -DAY), ("dave", DAY)):
        generations.append(granted(fleet, "T", who))
        home.clock.advance(step)

    assert generations == [1, 2, 3, 4]
    assert submit(fleet, "T", "dave", 4).accepted
    assert state(fleet, "T") == "COMPLETED"


def test_a_small_step_backward_takes_no_claim_away(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=300)
    home.clock.advance(-29)

    assert claim(fleet, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_event_times_never_run_back(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    home.clock.advance(-DAY)
    granted(fleet, "T", "bob")
    home.clock.advance(-DAY)
    submit(fleet, "T", "bob", 2)

    times = [event.event["timestamp"] for event in fleet.read_events(task_id="T").events]
    assert len(times) == 5
    assert times == sorted(times)
    # The lease is reckoned by the clock as it was, not by the events.
    acquired = [
        event.event
        for event in fleet.read_events(task_id="T").events
        if event.event_type == "CLAIM_ACQUIRED"
    ]
    assert acquired[1]["expires_at"] < acquired[0]["expires_at"]


def test_coordinators_whose_clocks_differ_by_a_day_fence_each_other(home: Home) -> None:
    behind = ManualClock()
    behind.advance(-DAY)
    here, there = home.connect(), home.connect(home.store(behind), clock=behind)
    here.add_tasks(tasks=["T"])
    assert granted(here, "T", "alice") == 1
    # To the other one the lease looks stepped, so it takes over; then each in turn. The generation
    # only rises.
    assert granted(there, "T", "bob") == 2
    assert granted(here, "T", "carol") == 3

    assert [
        submit(here, "T", who, generation).reason for who, generation in (("alice", 1), ("bob", 2))
    ] == ["STALE_GENERATION"] * 2
    assert submit(there, "T", "carol", 3).accepted


@pytest.mark.parametrize("many", [65, 200])
def test_claim_next_finds_what_time_has_opened_behind_much_else_that_is_due(
    home: Home, many: int
) -> None:
    fleet = home.connect()
    monday = (home.clock.now() + timedelta(seconds=100)).isoformat()
    others = [
        {"id": f"A-{n:03d}-x", "not_before": monday, "depends_on": ["Z-001-first"]}
        for n in range(1, many + 1)
    ]
    fleet.add_tasks(tasks=[{"id": "Z-001-first", "not_before": monday}, *others])
    home.clock.advance(100)

    assert [ready.task.id for ready in fleet.ready()] == ["Z-001-first"]
    assert next_for(fleet, "alice").task_id == "Z-001-first"
    assert next_for(fleet, "bob").reason == "NOTHING_READY"


@pytest.mark.large
def test_what_time_has_opened_is_ready_behind_much_else_that_is_due(home: Home) -> None:
    fleet = home.connect()
    monday = (home.clock.now() + timedelta(seconds=100)).isoformat()
    others = [
        {"id": f"A-{n:03d}-x", "not_before": monday, "depends_on": ["Z-001-first"]}
        for n in range(1, 601)
    ]
    fleet.add_tasks(tasks=[{"id": "Z-001-first", "not_before": monday}, *others])
    home.clock.advance(100)

    assert [ready.task.id for ready in fleet.ready()] == ["Z-001-first"]
