"""A request for a next task that finds none is told how many unfinished tasks there are, by state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import genlock
import genlock.aio
from genlock.errors import StoreCorrupt
from genlock.reads.unfinished import UnfinishedCounts
from genlock.store import Page, Query, Store
from genlock.stores.memory import MemoryStore
from tests.servers.service import serving

TASKS: list[Mapping[str, Any] | str] = [
    "T-1",
    {"id": "T-2", "depends_on": ["T-1"]},
    {"id": "T-3", "depends_on": ["T-1"]},
]
UNFINISHED = {"BLOCKED": 2, "IN_PROGRESS": 1}
TOLD = "no task is ready that suits this agent; unfinished: 2 blocked, 1 in progress"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def at_work(store: Store) -> genlock.Coordinator:
    fleet = genlock.connect(store, session_id="alice", agent_id="alice")
    fleet.add_tasks(tasks=TASKS)
    assert fleet.claim_next().task_id == "T-1"
    return fleet


def test_an_answer_without_a_task_has_the_states_of_unfinished_tasks() -> None:
    with at_work(MemoryStore()) as fleet:
        answer = fleet.claim_next(session_id="bob", agent_id="bob")
        assert (answer.reason, answer.detail) == ("NOTHING_READY", TOLD)
        assert answer.unfinished == UNFINISHED
        waited = fleet.claim_next(session_id="bob", agent_id="bob", wait_seconds=0.02)
        assert waited.unfinished == UNFINISHED
        fleet.reset_task(task_id="T-1", take_over=True)
        granted = fleet.claim_next(session_id="bob", agent_id="bob")
        assert (granted.success, granted.unfinished) == (True, {})


def test_a_service_and_an_event_loop_answer_the_same() -> None:
    store = MemoryStore()
    with at_work(store), serving(store) as service:
        with genlock.connect(service.url, session_id="bob", agent_id="bob") as remote:
            answer = remote.claim_next()
        assert (answer.detail, answer.unfinished) == (TOLD, UNFINISHED)

    async def ask() -> dict[str, int]:
        async with genlock.aio.connect("memory://", session_id="a", agent_id="a") as there:
            await there.add_tasks(tasks=TASKS)
            await there.claim_next()
            return (await there.claim_next(session_id="b", agent_id="b")).unfinished

    assert asyncio.run(ask()) == UNFINISHED


def test_callers_that_ask_again_cost_one_count_in_a_second() -> None:
    clock, store = Clock(), MemoryStore()
    counts = UnfinishedCounts(store, clock)
    place = ("default", "default")
    with at_work(store):
        assert counts.kept(place, 1.0) is None
        assert counts.count(place) == UNFINISHED
        clock.now += 1.0
        assert counts.kept(place, 1.0) == UNFINISHED
        clock.now += 0.1
        assert counts.kept(place, 1.0) is None
        assert counts.kept(place, 10.0) == UNFINISHED


def test_a_count_that_takes_long_is_kept_for_longer() -> None:
    clock, store = Clock(), MemoryStore()
    find = store.find

    def slow_find(query: Query, *, count_by: str | None = None) -> Page:
        clock.now += 0.5
        return find(query, count_by=count_by)

    store.find = slow_find  # type: ignore[method-assign]
    counts = UnfinishedCounts(store, clock)
    place = ("default", "default")
    assert counts.count(place) == {}
    clock.now += 24.0
    assert counts.kept(place, 1.0) == {}
    clock.now += 1.0
    assert counts.kept(place, 1.0) is None


def test_an_error_of_the_count_is_no_error_of_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise StoreCorrupt("a damaged index")

    with at_work(MemoryStore()) as fleet:
        monkeypatch.setattr(UnfinishedCounts, "count", fail)
        answer = fleet.claim_next(session_id="bob", agent_id="bob")
        assert (answer.reason, answer.unfinished) == ("NOTHING_READY", {})
