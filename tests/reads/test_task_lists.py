"""Lists of tasks: rows, filters, order, pages and counts, kept up to date from the feed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import genlock
from genlock.core.dashboard import HolderHealth, TaskPage, TaskRow
from genlock.core.model import TaskRecord
from genlock.errors import BadArgument
from genlock.reads import project_view
from genlock.testing.clock import ManualClock
from tests.engine.gated_store import Home, granted, submit
from tests.hostile_text import HOSTILE


def ids(page: TaskPage) -> list[str]:
    return [row.id for row in page.tasks]


def row(fleet: genlock.Coordinator, name: str) -> TaskRow:
    (found,) = (row for row in fleet.list_tasks(limit=1000).tasks if row.id == name)
    return found


PLAN: list[dict[str, Any]] = [
    {"id": "A-001-base", "title": "Base", "track": "A", "priority": "high", "tags": ["core"]},
    {"id": "A-002-api", "title": "The API", "track": "A", "depends_on": ["A-001-base"]},
    {"id": "B-001-store", "title": "Store", "track": "B", "priority": "critical", "tags": ["db"]},
    {"id": "later", "description": "An untitled task\nabout the Store", "priority": "low"},
]


def test_a_list_has_every_task_in_the_order_in_which_they_are_handed_out(
    fleet: genlock.Coordinator,
) -> None:
    fleet.add_tasks(tasks=PLAN)

    page = fleet.list_tasks()
    assert ids(page) == ["B-001-store", "A-001-base", "A-002-api", "later"]
    assert (page.total, page.counts, page.next) == (4, {"PENDING": 3, "BLOCKED": 1}, None)
    assert [line.title for line in page.tasks] == ["Store", "Base", "The API", "An untitled task"]
    assert [line.waits_for for line in page.tasks] == [(), (), ("A-001-base",), ()]


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [
        ("order", ["B-001-store", "A-001-base", "A-002-api", "later"]),
        ("priority", ["B-001-store", "A-001-base", "A-002-api", "later"]),
        ("updated", ["A-001-base", "A-002-api", "B-001-store", "later"]),
        ("state", ["A-001-base", "B-001-store", "later", "A-002-api"]),
        ("id", ["A-001-base", "A-002-api", "B-001-store", "later"]),
    ],
)
def test_a_list_is_sorted_as_asked_and_comes_page_by_page(
    fleet: genlock.Coordinator, clock: ManualClock, sort: str, wanted: list[str]
) -> None:
    fleet.add_tasks(tasks=PLAN)
    clock.advance(5)
    granted(fleet, "A-001-base", "alice")

    assert ids(fleet.list_tasks(sort=sort)) == wanted
    assert ids(fleet.list_tasks(sort=sort, reverse=True)) == wanted[::-1]
    for reverse in (False, True):
        paged: list[str] = []
        after: str | None = None
        while True:
            page = fleet.list_tasks(sort=sort, reverse=reverse, limit=1, after=after)
            paged += ids(page)
            after = page.next
            if after is None:
                break
        assert paged == (wanted[::-1] if reverse else wanted)


def test_the_end_of_a_page_does_not_fit_another_order(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=PLAN)
    token = fleet.list_tasks(limit=1).next
    with pytest.raises(BadArgument, match="is not the end of a page of this list"):
        fleet.list_tasks(sort="id", after=token)
    with pytest.raises(BadArgument, match="is not the end of a page of this list"):
        fleet.list_tasks(reverse=True, after=token)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"states": "PENDING"}, ["B-001-store", "later"]),
        ({"states": ["IN_PROGRESS", "BLOCKED"]}, ["A-001-base", "A-002-api"]),
        ({"tracks": "A"}, ["A-001-base", "A-002-api"]),
        ({"tracks": ["B", "C"]}, ["B-001-store"]),
        ({"tag": "core"}, ["A-001-base"]),
        ({"text": "store"}, ["B-001-store", "later"]),
        ({"text": "the UNTITLED"}, ["later"]),
        ({"text": "B-001"}, ["B-001-store"]),
        ({"text": "nothing like it"}, []),
        ({"agent_id": "alice"}, ["A-001-base"]),
        ({"session_id": "s-alice"}, ["A-001-base"]),
        ({"agent_id": "bob"}, ["later"]),
        ({"tracks": "A", "states": "BLOCKED", "text": "api"}, ["A-002-api"]),
    ],
)
def test_a_list_has_only_what_passes_every_filter(
    fleet: genlock.Coordinator, filters: dict[str, Any], wanted: list[str]
) -> None:
    fleet.add_tasks(tasks=PLAN)
    granted(fleet, "A-001-base", "alice")
    fleet.assign_task(task_id="later", agent_id="bob")

    page = fleet.list_tasks(**filters)
    assert ids(page) == wanted
    assert page.total == len(wanted)


def test_counts_are_of_the_filter_but_for_the_states(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=PLAN)
    page = fleet.list_tasks(tracks="A", states="BLOCKED", limit=1)
    assert (ids(page), page.total) == (["A-002-api"], 1)
    assert page.counts == {"PENDING": 1, "BLOCKED": 1}


def test_a_row_says_who_holds_the_task_and_how_far_the_work_is(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["a"])
    began = clock.now()
    granted(fleet, "a", "alice", lease=100)
    fleet.report_progress(
        task_id="a", generation=1, fraction=0.4, note="half", session_id="s-alice"
    )
    fleet.heartbeat_session(
        session_id="s-alice",
        metadata={"score": 92, "contextPercent": 40.5, "phase": "IMPL", "other": "x"},
    )

    line = row(fleet, "a")
    assert (line.state, line.generation, line.attempts) == ("IN_PROGRESS", 1, 1)
    holder, progress = line.holder, line.progress
    assert holder is not None
    assert progress is not None
    assert (holder.agent_id, holder.session_id) == ("alice", "s-alice")
    assert (holder.claimed_at, holder.expires_at) == (began, began + timedelta(seconds=100))
    assert (holder.health, holder.why) == (HolderHealth.WORKING, "")
    assert (progress.fraction, progress.note) == (0.4, "half")
    assert (progress.score, progress.context_percent, progress.phase) == (92, 40.5, "IMPL")


def test_figures_of_a_session_that_are_no_figures_are_left_out(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a"])
    granted(fleet, "a", "alice")
    fleet.heartbeat_session(
        session_id="s-alice", metadata={"score": "92", "contextPercent": True, "phase": ["x"]}
    )
    assert row(fleet, "a").progress is None


def test_the_health_of_a_holder_has_a_reason(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["a", "b"])
    granted(fleet, "a", "alice", lease=100)
    granted(fleet, "b", "bob", lease=1000)

    def health(name: str) -> tuple[str, str]:
        holder = row(fleet, name).holder
        assert holder is not None
        return holder.health, holder.why

    assert health("a") == ("WORKING", "")
    clock.advance(60)
    assert health("a") == (
        "STALE",
        "no renewal since 2026-01-04T06:00:00Z; one is due every 40s",
    )
    clock.advance(40)
    assert health("a") == (
        "OVERDUE",
        "its lease ended at 2026-01-04T06:01:40Z; the next claim takes the task over",
    )
    fleet.set_policy(policy={"expired": "human"})
    assert health("a")[1] == "its lease ended at 2026-01-04T06:01:40Z; a person decides"
    assert health("b") == ("WORKING", "")


def test_an_ended_session_no_longer_holds_its_task(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a"])
    granted(fleet, "a", "alice")
    fleet.list_tasks()
    fleet.end_session(session_id="s-alice")
    line = row(fleet, "a")
    assert (line.state, line.holder) == ("PENDING", None)


def test_rows_of_held_refused_and_completed_tasks_say_so(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a", "b"])
    granted(fleet, "a", "alice")
    fleet.force_release(task_id="a", take_over=True)
    assert not submit(fleet, "a", "alice", 1).accepted
    fleet.hold_task(task_id="a", reason="the specification is wrong")
    granted(fleet, "b", "bob")
    submit(fleet, "b", "bob", 1)

    held, done = row(fleet, "a"), row(fleet, "b")
    assert (held.state, held.hold_reason) == ("HELD", "the specification is wrong")
    assert (held.refused_results, held.generation, held.holder) == (1, 2, None)
    assert (done.state, done.done_by, done.holder) == ("COMPLETED", "bob", None)
    (refused,) = fleet.list_refused_results()
    fleet.discard_result(task_id="a", refused_id=refused.id)
    assert row(fleet, "a").refused_results == 0


def test_hostile_text_is_in_a_row_as_it_was_written(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=[{"id": "a", "title": HOSTILE, "tags": [HOSTILE]}])
    line = row(fleet, "a")
    assert (line.title, line.tags) == (HOSTILE, (HOSTILE,))
    assert ids(fleet.list_tasks(tag=HOSTILE)) == ["a"]


def test_a_list_that_was_kept_up_to_date_equals_one_that_is_read_anew(home: Home) -> None:
    fleet, other = home.connect(), home.connect()
    fleet.add_tasks(tasks=[*PLAN, "x", "y", "z"])
    assert fleet.list_tasks().total == 7
    generation = granted(other, "x", "alice", lease=100)
    granted(other, "y", "bob", lease=100)
    assert fleet.list_tasks().counts == {"PENDING": 4, "BLOCKED": 1, "IN_PROGRESS": 2}
    home.clock.advance(101)
    assert granted(other, "x", "carol") == generation + 1
    assert not submit(other, "x", "alice", generation).accepted
    other.hold_task(task_id="z", reason="why")
    other.cancel_task(task_id="later")
    submit(other, "B-001-store", "dan", granted(other, "B-001-store", "dan"))
    other.edit_task(task_id="A-001-base", changes={"title": "Another", "priority": "low"})

    questions: tuple[dict[str, Any], ...] = ({}, {"sort": "updated"}, {"states": "IN_PROGRESS"})
    for question in questions:
        kept, anew = fleet.list_tasks(**question), home.connect().list_tasks(**question)
        assert kept == anew
    assert fleet.get_overview() == home.connect().get_overview()
    assert fleet.list_tasks().counts == {
        "PENDING": 1,
        "BLOCKED": 1,
        "IN_PROGRESS": 2,
        "COMPLETED": 1,
        "CANCELLED": 1,
        "HELD": 1,
    }


def test_the_cursor_of_a_list_continues_behind_what_is_in_it(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["a", "b"])
    cursor = fleet.list_tasks().cursor
    assert fleet.read_events(after=cursor).events == ()
    granted(fleet, "a", "alice")
    names = [event.event_type for event in fleet.read_events(after=cursor).events]
    assert "CLAIM_ACQUIRED" in names


def test_a_view_far_behind_is_read_anew(
    fleet: genlock.Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.add_tasks(tasks=PLAN)
    assert fleet.list_tasks().total == 4
    monkeypatch.setattr(project_view, "_LONG_PAGE", 1)
    monkeypatch.setattr(project_view, "_MOST_PAGES", 2)
    fleet.add_tasks(tasks=[f"more-{number}" for number in range(9)])
    granted(fleet, "more-1", "alice")
    assert fleet.list_tasks().counts == {"PENDING": 11, "BLOCKED": 1, "IN_PROGRESS": 1}


def test_a_list_after_the_store_was_restored_is_of_the_restored_store(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["a"])
    assert fleet.list_tasks().total == 1
    home.store().set_epoch(1)
    fleet.add_tasks(tasks=["b"])
    assert ids(fleet.list_tasks(sort="id")) == ["a", "b"]


def test_a_view_reads_only_what_has_changed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=[f"t-{number}" for number in range(20)])
    fleet.list_tasks()
    seen: list[str] = []
    real = project_view.entry_of

    def counted(record: TaskRecord) -> project_view.TaskEntry:
        seen.append(record.task.id)
        return real(record)

    monkeypatch.setattr(project_view, "entry_of", counted)
    granted(fleet, "t-7", "alice")
    assert fleet.list_tasks(states="IN_PROGRESS").total == 1
    assert seen == ["t-7"]


def test_an_engine_keeps_the_views_that_were_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_view, "_TASKS_KEPT", 3)
    with genlock.connect("memory://", session_id="op") as fleet:
        for project in ("one", "two"):
            fleet.add_tasks(tasks=["a", "b"], project_id=project)
            assert fleet.list_tasks(project_id=project).total == 2
        views = project_view.views_of(fleet.engine)
        assert fleet.list_tasks(project_id="two").total == 2
        assert list(views._views) == [("default", "two")]
        assert fleet.list_tasks(project_id="one").total == 2
