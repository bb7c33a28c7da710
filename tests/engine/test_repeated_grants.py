"""A claim whose caller has gone is released, unless a retry of the same call was answered with it.

The two may reach the store through different services: one that is about to stop, and the one that
the client asks next. Only the task's own record can say which of them came first.
"""

from __future__ import annotations

import pytest

import genlock
from genlock.core import events as e
from genlock.core.commands import ClaimTask
from genlock.core.keys import project_key
from genlock.engine.jobs import Job, NextTask
from genlock.engine.jobs import Request as EngineRequest
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    Home,
    answered,
    caller,
    claim,
    submit,
    task_key,
    told,
    until,
    writing,
)


def request(kind: str) -> EngineRequest:
    """What bob asks, under one operation id."""
    if kind == "claim_next":
        return NextTask(project_key(*PLACE), caller("bob"), operation="op")
    return ClaimTask(task_key("T"), caller("bob"), operation="op")


def ask(fleet: genlock.Coordinator, kind: str) -> Job:
    return fleet.engine.submit([request(kind)], patience=PATIENCE)


KINDS = pytest.mark.parametrize("kind", ["claim_next", "claim_task"])


@KINDS
@pytest.mark.parametrize("answered_first", ["the retry", "the first call"])
def test_a_grant_whose_retry_was_answered_elsewhere_is_not_released(
    home: Home, kind: str, answered_first: str
) -> None:
    store = home.gated()
    stopping, other = home.connect(store), home.connect()
    other.add_tasks(tasks=["T"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "T"), after=stop)
    first = ask(stopping, kind)
    stop.wait()
    if answered_first == "the retry":
        retry = answered(ask(other, kind))[0]
        stopping.engine.abandon(first)
        stop.open()
    else:
        stop.open()
        answered(first)
        retry = answered(ask(other, kind))[0]
        stopping.engine.abandon(first)
    stopping.close()  # after it has released what nobody waits for

    assert (retry.success, retry.task_id, retry.claim.generation) == (True, "T", 1)
    assert claim(other, "T", "carol").reason == "DENIED_ACTIVE_CLAIM"
    assert "CLAIM_RELEASED" not in told(other, "T")
    assert submit(other, "T", "bob", 1).accepted


@KINDS
def test_a_retry_that_comes_after_the_release_is_granted_the_next_generation(
    home: Home, kind: str
) -> None:
    """It had found the claim, and writes its answer only after the release."""
    store = home.gated()
    stopping, other = home.connect(), home.connect(store)
    other.add_tasks(tasks=["T"])
    first = ask(stopping, kind)
    answered(first)
    stop = home.stop()
    store.on("commit", before=stop)
    retry = ask(other, kind)
    stop.wait()
    stopping.engine.abandon(first)
    until(stopping, lambda: "CLAIM_RELEASED" in told(stopping, "T"))
    stop.open()

    assert answered(retry)[0].claim.generation == 2
    assert submit(other, "T", "bob", 2).accepted


@KINDS
def test_a_retry_that_is_abandoned_does_not_release_what_the_first_call_was_answered(
    home: Home, kind: str
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    answered(ask(fleet, kind))
    retry = ask(fleet, kind)
    answered(retry)
    fleet.engine.abandon(retry)
    fleet.close()
    assert submit(home.connect(), "T", "bob", 1).accepted


def test_a_grant_that_its_session_has_renewed_is_not_released(home: Home) -> None:
    """The session learned of it in another way, such as a second claim without an operation id."""
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    first = ask(fleet, "claim_task")
    answered(first)
    again = fleet.claim_task(task_id="T", session_id="s-bob", agent_id="bob")
    assert again.already_held
    fleet.engine.abandon(first)
    fleet.close()
    other = home.connect()
    assert told(other, "T") == ["TASK_ADDED", "CLAIM_ACQUIRED", "LEASE_RENEWED"]
