"""Who held what from when to when, and how that ended."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import genlock
from genlock.errors import BadArgument
from genlock.reads import claim_spans
from genlock.testing.clock import START, ManualClock
from tests.engine.gated_store import Home, complete, granted, submit

Line = tuple[str, str, int, float | None, float | None, str | None]


def lines(fleet: genlock.Coordinator, **asked: Any) -> list[Line]:
    def seconds(at: datetime | None) -> float | None:
        return None if at is None else (at - START).total_seconds()

    return [
        (
            span.agent_id,
            span.task_id,
            span.generation,
            seconds(span.start),
            seconds(span.end),
            span.ended,
        )
        for span in fleet.get_activity(**asked).spans
    ]


def work(fleet: genlock.Coordinator, clock: ManualClock) -> None:
    """Ends claims in every way there is, ten seconds each."""
    fleet.add_tasks(tasks=list("abcdefghi"))
    for name in "abcdefgh":
        granted(fleet, name, "alice", lease=10 if name == "c" else 1000)
        clock.advance(10)
        match name:
            case "a":
                submit(fleet, name, "alice", 1)
            case "b":
                fleet.release_claim(task_id=name, generation=1, session_id="s-alice")
            case "c":
                fleet.sweep()
            case "d":
                fleet.force_release(task_id=name, take_over=True)
            case "e":
                fleet.reset_task(task_id=name, take_over=True)
            case "f":
                fleet.cancel_task(task_id=name, take_over=True)
            case "g":
                fleet.spawn_subtasks(
                    task_id=name, generation=1, subtasks=["part"], session_id="s-alice"
                )
            case _:
                fleet.assign_task(task_id=name, agent_id="bob", take_over=True)
    granted(fleet, "i", "carol", lease=1000)


ENDED: list[Line] = [
    ("alice", "a", 1, 0, 10, "COMPLETED"),
    ("alice", "b", 1, 10, 20, "VOLUNTARY"),
    ("alice", "c", 1, 20, 30, "EXPIRED"),
    ("alice", "d", 1, 30, 40, "SUPERSEDED"),
    ("alice", "e", 1, 40, 50, "SUPERSEDED"),
    ("alice", "f", 1, 50, 60, "SUPERSEDED"),
    ("alice", "g", 1, 60, 70, "SPAWNED"),
    ("alice", "h", 1, 70, 80, "SUPERSEDED"),
    ("carol", "i", 1, 80, None, None),
]


def test_every_claim_is_a_span_with_its_end_and_how_it_ended(home: Home) -> None:
    fleet = home.connect(session_id="op")
    work(fleet, home.clock)
    assert lines(fleet) == ENDED
    assert lines(home.connect()) == ENDED


@pytest.mark.parametrize("first", [0, 3, 7, 12, 19])
@pytest.mark.parametrize("step", [1, 4, 50])
def test_spans_that_were_read_backwards_equal_those_that_were_followed(
    fleet: genlock.Coordinator,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    first: int,
    step: int,
) -> None:
    monkeypatch.setattr(claim_spans, "_AT_FIRST", first)
    monkeypatch.setattr(claim_spans, "_STEP", step)
    work(fleet, clock)
    assert lines(fleet) == ENDED


def test_spans_are_kept_up_to_date(fleet: genlock.Coordinator, clock: ManualClock) -> None:
    fleet.add_tasks(tasks=["a", "b"])
    granted(fleet, "a", "alice", lease=100)
    (open_span,) = fleet.get_activity().spans
    assert (open_span.end, open_span.health) == (None, "WORKING")
    clock.advance(5)
    submit(fleet, "a", "alice", 1)
    complete(fleet, "b", "alice")
    assert lines(fleet) == [
        ("alice", "a", 1, 0, 5, "COMPLETED"),
        ("alice", "b", 1, 5, 5, "COMPLETED"),
    ]


def test_a_result_that_counts_after_the_lease_ends_the_claim_then(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["a"])
    granted(fleet, "a", "alice", lease=10)
    clock.advance(20)
    fleet.sweep()
    assert lines(fleet) == [("alice", "a", 1, 0, 10, "EXPIRED")]
    assert submit(fleet, "a", "alice", 1).accepted
    assert lines(fleet) == [("alice", "a", 1, 0, 20, "COMPLETED")]


def test_an_adoption_by_an_operator_is_no_work(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a"])
    granted(fleet, "a", "alice")
    fleet.force_release(task_id="a", take_over=True)
    submit(fleet, "a", "alice", 1, "late")
    (refused,) = fleet.list_refused_results()
    fleet.adopt_result(task_id="a", refused_id=refused.id, session_id="boss")
    assert lines(fleet) == [("alice", "a", 1, 0, 0, "SUPERSEDED")]


def test_only_spans_within_the_time_and_of_the_agent_are_given(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    work(fleet, clock)

    def at(seconds: float) -> datetime:
        return START + timedelta(seconds=seconds)

    assert [line[1] for line in lines(fleet, since=at(35), until=at(55))] == ["d", "e", "f"]
    assert [line[1] for line in lines(fleet, agent_id="carol")] == ["i"]
    assert [line[1] for line in lines(fleet, since=at(75).isoformat())] == ["h", "i"]
    clock.advance(3595)
    assert [line[1] for line in lines(fleet)] == ["h", "i"]
    with pytest.raises(BadArgument, match="is after until"):
        fleet.get_activity(since=at(2), until=at(1))


def test_what_was_not_read_is_said(
    fleet: genlock.Coordinator, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_spans, "_AT_FIRST", 8)
    monkeypatch.setattr(claim_spans, "_STEP", 1)
    monkeypatch.setattr(claim_spans, "_MOST_READ", 0)
    work(fleet, clock)
    found = fleet.get_activity()
    assert found.since < found.known_since
    # Begun before what was read: the start is not known.
    assert next(span.start for span in found.spans if span.end is not None) is None
    found = fleet.get_activity(limit=1)
    assert (len(found.spans), found.left_out) == (1, len(fleet.get_activity().spans) - 1)


def test_a_claim_names_its_track_and_the_user_of_its_session_also_when_it_has_ended(
    fleet: genlock.Coordinator,
) -> None:
    fleet.register_session(session_id="s-alice", user_id="kim")
    fleet.add_tasks(tasks=["A-001-core", "loose"])
    granted(fleet, "loose", "alice", lease=100)
    granted(fleet, "A-001-core", "alice", lease=100)
    named = {span.task_id: (span.user_id, span.track) for span in fleet.get_activity().spans}
    assert named == {"A-001-core": ("kim", "A"), "loose": ("kim", None)}
    submit(fleet, "loose", "alice", 1)
    submit(fleet, "A-001-core", "alice", 1)
    named = {span.task_id: (span.user_id, span.track) for span in fleet.get_activity().spans}
    assert named == {"A-001-core": ("kim", "A"), "loose": ("kim", None)}


def test_a_claim_ends_when_its_result_is_handed_in_for_a_review_not_when_that_is_approved(
    home: Home,
) -> None:
    fleet, clock = home.connect(), home.clock
    fleet.add_tasks(tasks=[{"id": "r", "human_required": True}])
    granted(fleet, "r", "alice", lease=100)
    clock.advance(10)
    submit(fleet, "r", "alice", 1)
    clock.advance(20)
    span: Line = ("alice", "r", 1, 0, 10, "COMPLETED")
    assert lines(fleet) == [span]
    waits = fleet.get_review(task_id="r")
    fleet.approve_review(task_id="r", generation=1, digest=waits.digest)
    assert lines(fleet) == [span]
    assert lines(home.connect()) == [span]
