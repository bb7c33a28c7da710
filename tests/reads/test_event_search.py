"""Events from the newest to the oldest: filters, pages, and cursors that fit the stream."""

from __future__ import annotations

from typing import Any

import pytest

import genlock
from genlock.core.dashboard import EventPage
from genlock.errors import CursorLost, TaskNotFound
from genlock.reads import event_search
from genlock.testing.clock import ManualClock
from tests.engine.gated_store import Home, complete, granted, submit


def types(page: EventPage) -> list[str]:
    return [event.event_type for event in page.events]


def paged(fleet: genlock.Coordinator, limit: int, **wanted: Any) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    before: str | None = None
    while True:
        page = fleet.search_events(limit=limit, before=before, **wanted)
        assert len(page.events) <= limit
        found += [(event.event_type, event.id, event.position) for event in page.events]
        before = page.next
        if before is None:
            return found


@pytest.mark.parametrize("window", [2000, 3])
def test_pages_backwards_have_every_event_once_the_newest_first(
    home: Home, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(event_search, "_WINDOW", window)
    fleet = home.connect(session_id="op")
    fleet.add_tasks(tasks=["a", "b", {"id": "c", "depends_on": ["a"]}])
    for name in ("a", "b", "c"):
        complete(fleet, name)

    forwards = [
        (event.event_type, event.id, event.position)
        for event in fleet.read_events(limit=1000).events
    ]
    assert len(forwards) > 10
    for limit in (1, 4, 1000):
        assert paged(fleet, limit) == forwards[::-1]


def test_every_event_of_a_page_has_its_sentence(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a"])
    granted(fleet, "a", "alice")
    fleet.hold_task(task_id="a", reason="no budget")

    page = fleet.search_events(task_id="a")
    assert page.sentences == (
        "a was put on hold: no budget",
        "alice claimed a at generation 1",
        "a was added",
    )


def test_a_page_before_a_cursor_and_a_stream_after_it_have_every_event_once(
    fleet: genlock.Coordinator,
) -> None:
    fleet.add_tasks(tasks=["a", "b"])
    cursor = fleet.get_overview().cursor
    granted(fleet, "a", "alice")

    older = [event.position for event in fleet.search_events(before=cursor).events]
    newer = [event.position for event in fleet.read_events(after=cursor).events]
    every = [event.position for event in fleet.read_events().events]
    assert older[::-1] + newer == every


def make_history(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a", "b"])
    granted(fleet, "a", "alice")
    fleet.force_release(task_id="a", take_over=True)
    submit(fleet, "a", "alice", 1, "late")
    granted(fleet, "b", "bob")
    submit(fleet, "b", "bob", 1, "x" * 500)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"types": "RESULT_REJECTED"}, ["RESULT_REJECTED"]),
        ({"types": ["RESULT_REJECTED", "RESULT_ACCEPTED"]}, ["RESULT_ACCEPTED", "RESULT_REJECTED"]),
        ({"agent_id": "alice"}, ["RESULT_REJECTED", "CLAIM_SUPERSEDED", "CLAIM_ACQUIRED"]),
        ({"agent_id": "nobody"}, []),
        (
            {"session_id": "s-bob", "types": ["CLAIM_ACQUIRED", "RESULT_ACCEPTED"]},
            ["RESULT_ACCEPTED", "CLAIM_ACQUIRED"],
        ),
        ({"task_id": "b"}, ["RESULT_ACCEPTED", "CLAIM_ACQUIRED", "TASK_ADDED"]),
        (
            {"task_id": "a"},
            ["RESULT_REJECTED", "CLAIM_SUPERSEDED", "CLAIM_ACQUIRED", "TASK_ADDED"],
        ),
        ({"task_id": "a", "types": "RESULT_REJECTED"}, ["RESULT_REJECTED"]),
        ({"user_id": "nobody"}, []),
    ],
)
def test_only_events_that_pass_every_filter_are_found(
    fleet: genlock.Coordinator, wanted: dict[str, Any], found: list[str]
) -> None:
    make_history(fleet)
    page = fleet.search_events(**wanted)
    assert [name for name in types(page) if not name.startswith("SESSION")] == found
    assert [name for name, *_ in paged(fleet, 1, **wanted) if not name.startswith("SESSION")] == (
        found
    )


def test_the_history_of_a_user_has_what_was_done_in_that_name(clock: ManualClock) -> None:
    with genlock.connect("memory://", clock=clock, session_id="op", user_id="ann") as fleet:
        fleet.add_tasks(tasks=["a"])
        fleet.cancel_task(task_id="a")
        assert types(fleet.search_events(user_id="ann"))[0] == "TASK_CANCELLED"


def test_results_are_left_out_of_found_events(fleet: genlock.Coordinator) -> None:
    make_history(fleet)
    for wanted in ({"types": "RESULT_ACCEPTED"}, {"task_id": "b", "types": "RESULT_ACCEPTED"}):
        (event,) = fleet.search_events(**wanted).events  # type: ignore[arg-type]
        assert event.event["size"] == 502
        assert "result_data" not in event.event


def test_a_search_reads_so_many_events_at_most_and_goes_on_from_there(
    fleet: genlock.Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add_tasks(tasks=[f"t-{number}" for number in range(300)])
    granted(fleet, "t-0", "alice")
    for _ in range(200):
        fleet.renew_lease(task_id="t-0", generation=1, session_id="s-alice")
    monkeypatch.setattr(event_search, "_WINDOW", 50)
    monkeypatch.setattr(event_search, "_MOST_READ", 100)

    page = fleet.search_events(types="CLAIM_ACQUIRED")
    assert page.events == ()
    assert page.next is not None
    assert [name for name, *_ in paged(fleet, 10, types="CLAIM_ACQUIRED")] == ["CLAIM_ACQUIRED"]


def test_events_of_a_task_that_does_not_exist_are_refused(fleet: genlock.Coordinator) -> None:
    with pytest.raises(TaskNotFound):
        fleet.search_events(task_id="nowhere")


def test_a_cursor_of_another_project_is_lost(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a"])
    fleet.add_tasks(tasks=["a"], project_id="other")
    elsewhere = fleet.get_overview(project_id="other").cursor
    with pytest.raises(CursorLost):
        fleet.search_events(before=elsewhere)
