"""While the store is unavailable, calls retry until their deadline, and nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

import pytest

import genlock
from genlock.core import events as e
from genlock.core.codec import decode_event
from genlock.core.commands import RenewLease
from genlock.core.keys import project_key
from genlock.engine.jobs import NextTask
from genlock.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from genlock.store import EventQuery
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    Home,
    answered,
    caller,
    claim,
    complete,
    granted,
    later,
    next_for,
    raising,
    state,
    submit,
    task_key,
    told,
    writing,
)

away = raising(StoreUnavailable("the store is away"))


@pytest.mark.core
@pytest.mark.parametrize("where", ["commit", "load"])
def test_a_claim_waits_for_a_store_that_comes_back(home: Home, where: str) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    store.on(where, before=away, times=3)

    assert claim(fleet, "T", "alice").success

    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED"]


@pytest.mark.parametrize("where", ["commit", "load", "find"])
def test_claim_next_waits_for_a_store_that_comes_back(home: Home, where: str) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    store.on(where, before=away, times=3)

    assert next_for(fleet, "alice").task_id == "T"

    assert told(fleet, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED"]


def test_a_waiting_claim_next_outlives_an_outage(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice")
    asleep = home.stop()
    store.on("wait", before=asleep)
    waiting = later(lambda: next_for(fleet, "bob", wait=PATIENCE))
    asleep.wait()
    for method in ("load", "find", "read_events"):
        store.on(method, before=away, times=2)
    asleep.open()
    rival.add_tasks(tasks=["B"])

    assert waiting.result(PATIENCE).task_id == "B"


@pytest.mark.parametrize("where", ["commit", "load"])
def test_a_store_that_stays_away_until_the_deadline_is_an_error_and_no_denial(
    home: Home, where: str
) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    store.on(where, before=away, times=inf)
    began = time.monotonic()

    with pytest.raises(StoreUnavailable):
        claim(fleet, "T", "alice")

    assert time.monotonic() - began >= 0.2, "it did not wait for the store to come back"
    store.clear()
    assert told(fleet, "T") == ["TASK_ADDED"]
    assert claim(fleet, "T", "alice").success


def test_a_store_that_is_full_is_said_at_once_and_changes_nothing(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    store.on("commit", before=raising(StoreFull("no room")), times=1)

    with pytest.raises(StoreFull):
        claim(fleet, "T", "alice")

    assert state(fleet, "T") == "PENDING"
    assert claim(fleet, "T", "alice").success


def test_an_order_that_was_cut_off_is_an_error_and_is_brought_to_its_end_by_who_sets_it_again(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["0001", "0002"])
    store.on(
        "commit", when=writing(e.TaskReordered), before=raising(StoreFull("no room")), times=inf
    )
    with pytest.raises(StoreFull):
        fleet.set_policy(policy={"order": "leaf-first"})
    store.clear()
    assert [line.task.id for line in fleet.ready()] == ["0001", "0002"]

    fleet.set_policy(policy={"order": "leaf-first"})

    assert [line.task.id for line in fleet.ready()] == ["0002", "0001"]


def test_what_must_be_decided_again_anyway_is_not_decided_twice_after_an_outage(home: Home) -> None:
    """More renewals than one change takes are put off to the next batch; the outage that meets the
    same batch must not double them."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["X", "T", "free"])
    granted(fleet, "T", "alice")
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    later(lambda: claim(fleet, "X", "somebody"))
    stop.wait()
    many = store.limits.events
    renewals = fleet.engine.submit(
        [RenewLease(task_key("T"), caller("alice"), 1) for _ in range(many)]
    )
    wanted = fleet.engine.submit([NextTask(project_key(*PLACE), caller("bob"))])
    store.on("find", before=away)
    stop.open()

    assert [answer.reason for answer in answered(renewals)] == ["RENEWED"] * many
    assert answered(wanted)[0].task_id == "free"
    assert told(fleet, "T").count("LEASE_RENEWED") == many


def test_a_waiter_that_was_told_of_an_error_is_granted_nothing_afterwards(home: Home) -> None:
    """An error ends its wait; a task that comes later must not go to someone who no longer
    listens."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["X"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    later(lambda: claim(fleet, "X", "somebody"))
    stop.wait()
    # One batch: bob goes to wait, then the look into another project breaks it off.
    waiter = fleet.engine.submit(
        [NextTask(project_key(*PLACE), caller("bob"), wait_until=time.monotonic() + PATIENCE)],
        patience=PATIENCE,
    )
    other = fleet.engine.submit([NextTask(project_key("default", "elsewhere"), caller("bob"))])
    store.on(
        "find",
        when=lambda query: query.project == "elsewhere",
        before=raising(StoreFull("cannot even read")),
    )
    stop.open()
    assert isinstance(answered(other)[0], StoreFull)
    assert isinstance(answered(waiter)[0], StoreFull)

    fleet.add_tasks(tasks=["B"])

    assert next_for(fleet, "carol").task_id == "B"
    assert [entry.session_id for entry in fleet.get_claim_history(task_id="B")] == ["s-carol"]


def test_a_result_is_accepted_once_however_often_the_store_was_away(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    generation = granted(fleet, "T", "alice")
    store.on("commit", when=writing(e.ResultAccepted), before=away, times=2)

    assert submit(fleet, "T", "alice", generation).accepted

    assert told(fleet, "T").count("RESULT_ACCEPTED") == 1


def test_a_refused_result_is_kept_although_the_store_was_away_after_the_refusal(home: Home) -> None:
    """What a refusal owes is written by a second commit. Its reads too wait for the store to come
    back."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    home.clock.advance(400)
    granted(fleet, "T", "bob")
    store.on(
        "load", when=lambda keys: any(key.kind == "refused" for key in keys), before=away, times=3
    )

    refused = submit(fleet, "T", "alice", 1, {"work": "done"})

    assert (refused.reason, refused.kept) == ("STALE_GENERATION", True)
    assert len(fleet.list_refused_results()) == 1


@pytest.mark.parametrize("where", ["load", "find", "read_events"])
def test_reading_waits_for_a_store_that_comes_back(home: Home, where: str) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    store.on(where, before=away, times=3)

    assert fleet.get_task_state(task_id="T").state == "PENDING"
    assert fleet.track_progress()
    assert fleet.read_events().events


def test_reading_a_store_that_stays_away_is_an_error_after_the_deadline(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    store.on("load", before=away, times=inf)
    began = time.monotonic()

    with pytest.raises(StoreUnavailable):
        fleet.get_task_state(task_id="T")

    assert time.monotonic() - began >= 0.2, "it did not wait for the store to come back"


# Operations of several steps


STEPS: dict[str, tuple[type, Callable[[genlock.Coordinator], object]]] = {
    "register_session": (
        e.SessionRegistered,
        lambda fleet: fleet.register_session(session_id="s-new"),
    ),
    "heartbeat_session": (
        e.SessionHeartbeat,
        lambda fleet: fleet.heartbeat_session(session_id="s-alice", metadata={"on": "T"}),
    ),
    "end_session": (e.SessionEndedEvent, lambda fleet: fleet.end_session(session_id="s-alice")),
    "reset_task": (e.TaskReset, lambda fleet: fleet.reset_task(task_id="A", cascade=True)),
}
"""What each has done first, and what it is asked by."""


@pytest.mark.parametrize("name", STEPS)
def test_what_was_done_in_its_first_step_is_not_said_to_be_undone_because_the_store_was_away_in_the_next(
    home: Home, name: str
) -> None:
    first, call = STEPS[name]
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}, "T"])
    complete(fleet, "A")
    complete(fleet, "B")
    granted(fleet, "T", "alice")

    def leave() -> None:
        for method in ("load", "find"):
            store.on(method, before=away, times=inf)

    store.on("commit", when=writing(first), after=leave)

    with pytest.raises(OutcomeUnknown):
        call(fleet)

    store.clear()
    assert first in [
        type(decode_event(event.body).event)
        for event in store.inner.read_events(EventQuery(*PLACE, limit=100)).events
    ]


def test_who_ends_a_session_hears_of_a_release_that_failed_and_a_repeat_makes_up_for_it(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store, deadline_seconds=0.2)
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    store.on("commit", when=writing(e.ClaimReleased, "T"), before=away, times=inf)

    with pytest.raises(OutcomeUnknown, match=r"away.*the rest was done"):
        fleet.end_session(session_id="s-alice")

    store.clear()
    assert fleet.end_session(session_id="s-alice").released == ("T",)
    assert told(fleet, "T")[-1] == "CLAIM_RELEASED"
