"""Denials write nothing to the task; they are merged, and found in the access record a second later
or when the coordinator closes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

import genlock
from genlock.core import events as e
from genlock.core.keys import ACCESS
from genlock.errors import StoreUnavailable
from genlock.store import Query
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    Home,
    claim,
    complete,
    granted,
    next_for,
    told,
    until,
    writing,
)


def denials(fleet: genlock.Coordinator) -> list[dict[str, Any]]:
    """The events of denials, as anyone can read them."""
    return [
        dict(event.event)
        for event in fleet.read_events(limit=100_000).events
        if event.event_type == "CLAIM_DENIED"
    ]


def counted(fleet: genlock.Coordinator) -> Counter[tuple[str, str, str, str]]:
    totals: Counter[tuple[str, str, str, str]] = Counter()
    for event in denials(fleet):
        totals[event["task_id"], event["session_id"], event["agent_id"], event["reason"]] += event[
            "count"
        ]
    return totals


def test_denials_are_merged_and_written_when_the_coordinator_closes(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A", "B", {"id": "C", "depends_on": ["A"]}])
    granted(fleet, "A", "alice")
    complete(fleet, "B")
    for _ in range(5):
        assert claim(fleet, "A", "bob").reason == "DENIED_ACTIVE_CLAIM"
    assert claim(fleet, "A", "carol").reason == "DENIED_ACTIVE_CLAIM"
    assert claim(fleet, "B", "bob").reason == "DENIED_COMPLETED"
    assert claim(fleet, "C", "bob").reason == "DENIED_BLOCKED"
    fleet.close()

    again = home.connect()
    assert counted(again) == {
        ("A", "s-bob", "bob", "DENIED_ACTIVE_CLAIM"): 5,
        ("A", "s-carol", "carol", "DENIED_ACTIVE_CLAIM"): 1,
        ("B", "s-bob", "bob", "DENIED_COMPLETED"): 1,
        ("C", "s-bob", "bob", "DENIED_BLOCKED"): 1,
    }
    assert len(denials(again)) < 8, "they are merged"
    assert told(again, "A") == ["TASK_ADDED", "CLAIM_ACQUIRED"]
    assert told(again, "C") == ["TASK_ADDED"]


def test_denials_are_written_by_themselves_after_a_second(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice")
    claim(fleet, "A", "bob")

    # Nobody calls, nobody closes.
    until(fleet, lambda: counted(fleet) == {("A", "s-bob", "bob", "DENIED_ACTIVE_CLAIM"): 1})


def test_denials_are_written_at_most_once_a_second(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice")
    store.commits.clear()

    for n in range(50):
        claim(fleet, "A", f"agent-{n % 3}")

    assert (
        len(
            [
                commit
                for commit in store.commits
                if any(change.key.kind == ACCESS for change in commit.changes)
            ]
        )
        <= 1
    )
    assert all(
        change.key.kind == ACCESS for commit in store.commits for change in commit.changes
    ), "a denial is no write"
    fleet.close()
    assert sum(counted(home.connect()).values()) == 50


def test_denials_that_could_not_be_written_are_with_the_next_ones(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice")
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise StoreUnavailable("gone")

    store.on("commit", when=writing(e.ClaimDenied), before=fail)
    claim(fleet, "A", "bob")
    assert failed.wait(PATIENCE)
    claim(fleet, "A", "bob")

    until(fleet, lambda: counted(fleet) == {("A", "s-bob", "bob", "DENIED_ACTIVE_CLAIM"): 2})


@pytest.mark.large
def test_no_denial_is_dropped_when_there_are_many_different_ones(home: Home) -> None:
    fleet = home.connect()
    names = [f"t-{n:03d}" for n in range(200)]
    fleet.add_tasks(tasks=names)
    fleet.batch_claim(task_ids=names, agent_id="alice", session_id="s-alice")

    refused = fleet.batch_claim(task_ids=names, agent_id="bob", session_id="s-bob")

    assert len(refused) == 200
    fleet.close()
    assert counted(home.connect()) == {
        (name, "s-bob", "bob", "DENIED_ACTIVE_CLAIM"): 1 for name in names
    }


def test_two_coordinators_have_an_access_record_each(home: Home) -> None:
    one, other = home.connect(), home.connect()
    one.add_tasks(tasks=["A"])
    granted(one, "A", "alice")
    claim(one, "A", "bob")
    claim(other, "A", "bob")
    one.close()
    other.close()

    again = home.connect()
    assert counted(again) == {("A", "s-bob", "bob", "DENIED_ACTIVE_CLAIM"): 2}
    keys = [stored.key.id for stored in home.store().find(Query(*PLACE, kind=ACCESS)).records]
    assert len({key.partition("/")[0] for key in keys}) == 2


def test_the_hour_is_the_name_of_an_access_record(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice", lease=7200)
    claim(fleet, "A", "bob")
    home.clock.advance(3600)
    claim(fleet, "A", "carol")
    fleet.close()

    keys = [stored.key.id for stored in home.store().find(Query(*PLACE, kind=ACCESS)).records]
    assert sorted(key.rpartition("/")[2] for key in keys) == ["20260104T06", "20260104T07"]


def test_an_empty_look_for_the_next_task_is_no_denial(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=[])
    assert next_for(fleet, "bob").reason == "NOTHING_READY"
    fleet.close()

    assert denials(home.connect()) == []
