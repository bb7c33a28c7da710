"""An observer is told of every batch once, after the answers, and cannot disturb anybody."""

from __future__ import annotations

import logging

import pytest

from genlock.core import events as e
from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.engine.observer import Batch, Measures
from genlock.errors import StoreUnavailable, TaskNotFound
from tests.engine.gated_store import (
    Home,
    caller,
    claim,
    granted,
    raising,
    submit,
    task_key,
    writing,
)

pytestmark = pytest.mark.parametrize("home", ["memory", "sqlite"], indirect=True)


class Book:
    """Keeps what it is told, in words."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.events: list[str] = []
        self.measures: list[Measures] = []
        self.second_commits = 0
        self.lanes: set[str] = set()

    def batch_done(self, batch: Batch) -> None:
        for item in batch.answered:
            self.answers.append(
                item.decision.outcome if isinstance(item.decision, Decision) else item.decision
            )
        self.events += [type(event).__name__ for loaded in batch.written for event in loaded.events]
        self.second_commits += batch.second_commits
        self.lanes.add(batch.lane)
        if batch.measures is not None:
            self.measures.append(batch.measures)

    def reasons(self) -> list[str]:
        return [str(getattr(answer, "reason", type(answer).__name__)) for answer in self.answers]


class Failing:
    """Fails whenever it is told anything."""

    def __init__(self) -> None:
        self.told = 0

    def batch_done(self, batch: Batch) -> None:
        self.told += 1
        raise ZeroDivisionError("by the observer")


def test_every_answer_is_told_once_with_its_request_and_outcome(home: Home) -> None:
    book = Book()
    fleet = home.connect(observer=book)
    fleet.add_tasks(tasks=["T"])
    claim(fleet, "T", "alice")
    claim(fleet, "T", "bob")
    with pytest.raises(TaskNotFound):
        claim(fleet, "U", "bob")
    fleet.close()

    assert book.reasons()[-3:] == ["GRANTED", "DENIED_ACTIVE_CLAIM", "TaskNotFound"]


def test_every_event_is_told_once_also_those_of_reactions_and_of_a_sweep(home: Home) -> None:
    book = Book()
    fleet = home.connect(observer=book)
    fleet.add_tasks(tasks=["T", {"id": "U", "depends_on": ["T"]}])
    granted(fleet, "T", "alice", lease=30)
    submit(fleet, "T", "alice", 1)
    granted(fleet, "U", "bob", lease=30)
    home.clock.advance(30)
    fleet.sweep()
    fleet.close()

    tasks = [
        name
        for name in book.events
        if name in ("ClaimAcquired", "ResultAccepted", "DependencyMet", "ClaimExpired")
    ]
    assert tasks == [
        "ClaimAcquired",
        "ResultAccepted",
        "DependencyMet",
        "ClaimAcquired",
        "ClaimExpired",
    ]
    assert book.second_commits >= 1


def test_a_batch_is_measured(home: Home) -> None:
    book = Book()
    fleet = home.connect(observer=book)
    fleet.add_tasks(tasks=[f"T-{number}" for number in range(20)])
    book.measures.clear()
    fleet.batch_claim(
        task_ids=[f"T-{number}" for number in range(20)], agent_id="a", session_id="s"
    )
    fleet.close()

    batch = next(measures for measures in book.measures if measures.size == 20)
    assert batch.depth == 1  # twenty commands, one call
    assert batch.conflicts == 0
    assert min(batch.load_seconds, batch.decide_seconds, batch.commit_seconds) > 0


def test_conflicts_are_told(home: Home) -> None:
    book = Book()
    store, other = home.gated(), home.connect()
    fleet = home.connect(store, observer=book)
    fleet.add_tasks(tasks=["T"])
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=lambda: claim(other, "T", "bob"))

    assert claim(fleet, "T", "alice").reason == "DENIED_ACTIVE_CLAIM"
    fleet.close()

    assert sum(measures.conflicts for measures in book.measures) == 1
    assert book.reasons()[-1] == "DENIED_ACTIVE_CLAIM"


def test_what_fails_before_it_is_decided_is_told_as_an_error(home: Home) -> None:
    book = Book()
    store = home.gated()
    fleet = home.connect(store, observer=book, deadline_seconds=0)
    fleet.add_tasks(tasks=["T"])
    store.on("load", before=raising(StoreUnavailable("the store is away")), times=100)
    with pytest.raises(StoreUnavailable):
        claim(fleet, "T", "alice")
    store.clear()
    fleet.close()

    assert isinstance(book.answers[-1], StoreUnavailable)


def test_an_observer_that_fails_is_logged_once_and_costs_nobody_an_answer(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing()
    fleet = home.connect(observer=failing)
    with caplog.at_level(logging.ERROR, "genlock.engine"):
        fleet.add_tasks(tasks=["T", "U"])
        assert claim(fleet, "T", "alice").success
        assert claim(fleet, "U", "alice").success
        assert submit(fleet, "T", "alice", 1).accepted
        fleet.close()

    assert failing.told >= 4
    assert [record.getMessage() for record in caplog.records] == [
        "an observer has failed; it is told again, but this is not logged again"
    ]


def test_each_lane_tells_of_its_own(home: Home) -> None:
    """Where the store gains by several; SQLite and memory have one writer, and say so."""
    book = Book()
    fleet = home.connect(observer=book, lanes=4)
    for number in range(8):
        fleet.add_tasks(tasks=["T"], project_id=f"p-{number}")
    depths = fleet.engine.depths()
    fleet.close()

    assert book.lanes == {"0"}
    assert depths == {"0": (0, 0)}


def test_the_lists_that_are_handed_over_are_the_lane_s_own(home: Home) -> None:
    """A request can be told from its answer by whoever reads both."""
    seen: list[tuple[object, bool]] = []

    class Reader:
        def batch_done(self, batch: Batch) -> None:
            seen.extend(
                (item.request, item.decision.outcome.success)
                for item in batch.answered
                if isinstance(item.request, ClaimTask)
            )

    fleet = home.connect(observer=Reader())
    fleet.add_tasks(tasks=["T"])
    claim(fleet, "T", "alice")
    fleet.close()

    [(request, success)] = seen
    assert isinstance(request, ClaimTask)
    assert (request.key, request.by.session, success) == (
        task_key("T"),
        caller("alice").session,
        True,
    )
