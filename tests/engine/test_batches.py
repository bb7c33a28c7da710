"""While a batch is under way the next one gathers; whoever has worked goes first."""

from __future__ import annotations

import math
from zlib import crc32

import pytest

import genlock
from genlock.core import events as e
from genlock.core.commands import ClaimTask, Content, ReleaseClaim, RenewLease, SubmitResult
from genlock.core.reasons import RenewReason
from genlock.errors import GenlockError, OverLimit
from tests.engine.gated_store import (
    PATIENCE,
    GatedStore,
    Home,
    Stop,
    answered,
    caller,
    claim,
    complete,
    granted,
    later,
    raising,
    task_key,
    told,
    writing,
)


def held_up(home: Home, store: GatedStore, fleet: genlock.Coordinator) -> Stop:
    """The lane stands in a commit, that of X's claim, until the gate is opened."""
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    later(lambda: claim(fleet, "X", "somebody"))
    stop.wait()
    store.commits.clear()
    return stop


def test_a_lone_call_is_a_batch_of_its_own(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["A", "B"])
    store.commits.clear()

    granted(fleet, "A", "alice")
    granted(fleet, "B", "alice")

    assert [commit.tasks for commit in store.commits if commit.tasks] == [["A"], ["B"]]


def test_calls_that_come_in_during_a_commit_are_one_batch_after_it(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    names = [f"t-{n:02d}" for n in range(40)]
    fleet.add_tasks(tasks=["X", *names])
    stop = held_up(home, store, fleet)

    jobs = [
        fleet.engine.submit([ClaimTask(task_key(name), caller(f"agent-{name}"))]) for name in names
    ]
    stop.open()

    assert all(answered(job)[0].success for job in jobs)
    assert [commit.tasks for commit in store.commits if commit.tasks] == [["X"], names]


def test_lanes_do_not_wait_for_each_other(home: Home) -> None:
    """There are as many as are asked for and the store gains by; where there is one writer, there
    is one."""
    store = home.gated()
    fleet = home.connect(store, lanes=4)
    lanes = len(fleet.engine.depths())
    assert lanes == min(4, store.limits.writers)
    if lanes == 1:
        return
    by_lane = {crc32(f"default/p-{number}".encode()) % lanes: f"p-{number}" for number in range(32)}
    for project in (by_lane[0], by_lane[1]):
        fleet.add_tasks(tasks=["X"], project_id=project)
    stop = home.stop()
    store.on(
        "commit",
        when=lambda changes: any(change.key.project == by_lane[0] for change in changes),
        before=stop,
    )
    first = later(lambda: claim(fleet, "X", "alice", project_id=by_lane[0]))
    stop.wait()

    assert claim(fleet, "X", "bob", project_id=by_lane[1]).success

    assert not first.done()
    stop.open()
    assert first.result(PATIENCE).success


@pytest.mark.large
def test_a_batch_has_at_most_512_commands(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    names = [f"t-{n:03d}" for n in range(600)]
    fleet.add_tasks(tasks=["X", *names])
    # Known beforehand, so that the claims are all that is written.
    for session in ("s-alice", "s-somebody"):
        fleet.register_session(session_id=session)
    stop = held_up(home, store, fleet)

    jobs = [fleet.engine.submit([ClaimTask(task_key(name), caller("alice"))]) for name in names]
    stop.open()

    assert all(answered(job)[0].success for job in jobs)
    assert [len(commit.tasks) for commit in store.commits if commit.tasks] == [1, 512, 88]


def test_a_batch_has_about_4_megabytes_at_most(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    names = [f"t-{n:03d}" for n in range(6)]
    fleet.add_tasks(tasks=["X", *names])
    generations = [granted(fleet, name, "alice") for name in names]
    stop = held_up(home, store, fleet)

    # Payloads, so that the sizes count without the bytes.
    jobs = [
        fleet.engine.submit(
            [
                SubmitResult(
                    task_key(name),
                    caller("alice"),
                    generation,
                    Content(name, 2_000_000, payload=True),
                )
            ]
        )
        for name, generation in zip(names, generations, strict=True)
    ]
    stop.open()

    assert all(answered(job)[0].accepted for job in jobs)
    sizes = [len(commit.tasks) for commit in store.commits if commit.tasks][1:]
    assert sum(sizes) == 6
    assert max(sizes) <= 3, "4 MB, and the one result with which they are full"


def test_submissions_renewals_and_releases_go_before_claims_that_came_earlier(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["X", "submitted", "renewed", "released"])
    for name in ("submitted", "renewed", "released"):
        granted(fleet, name, "alice", lease=30)
    stop = held_up(home, store, fleet)
    home.clock.advance(29)

    claims = [
        fleet.engine.submit([ClaimTask(task_key(name), caller("bob"))])
        for name in ("submitted", "renewed", "released")
    ]
    submission = fleet.engine.submit(
        [SubmitResult(task_key("submitted"), caller("alice"), 1, Content("00", 2))]
    )
    renewal = fleet.engine.submit([RenewLease(task_key("renewed"), caller("alice"), 1)])
    release = fleet.engine.submit([ReleaseClaim(task_key("released"), caller("alice"), 1)])
    stop.open()

    assert [answered(job)[0].reason for job in (submission, renewal, release)] == [
        "ACCEPTED",
        "RENEWED",
        "RELEASED",
    ]
    assert [answered(job)[0].reason for job in claims] == [
        "DENIED_COMPLETED",
        "DENIED_ACTIVE_CLAIM",
        "GRANTED",
    ]


def test_a_lease_that_runs_out_while_its_renewal_waits_behind_a_claim_is_still_lost(
    home: Home,
) -> None:
    """Going first does not turn back the clock: what is decided is decided at the time of its own
    round."""
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["X", "T"])
    granted(fleet, "T", "alice", lease=30)
    stop = held_up(home, store, fleet)

    renewal = fleet.engine.submit([RenewLease(task_key("T"), caller("alice"), 1)])
    home.clock.advance(31)
    stop.open()

    assert answered(renewal)[0].reason == "ALREADY_EXPIRED"


@pytest.mark.core
def test_more_happens_to_one_record_than_one_change_takes(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    many = 3 * store.limits.events

    job = fleet.engine.submit([RenewLease(task_key("T"), caller("alice"), 1) for _ in range(many)])

    assert {answer.reason for answer in answered(job)} == {RenewReason.RENEWED}
    assert told(fleet, "T").count("LEASE_RENEWED") == many


def test_one_bad_call_of_a_batch_fails_alone(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["A", "B"])
    complete(fleet, "B")

    answers = fleet.batch_claim(
        task_ids=["A", "no-such-task", "B"], agent_id="alice", session_id="s-alice"
    )

    named = {
        name: answer.code if isinstance(answer, GenlockError) else answer.reason
        for name, answer in answers.items()
    }
    assert named == {"A": "GRANTED", "no-such-task": "TASK_NOT_FOUND", "B": "DENIED_COMPLETED"}


def test_of_a_batch_in_which_one_change_is_too_large_for_the_store_only_that_one_is_refused(
    home: Home,
) -> None:
    """Whoever was caught in one batch with it may be another tenant's."""
    store = home.gated()
    fleet = home.connect(store)
    names = [f"t-{n:02d}" for n in range(9)]
    fleet.add_tasks(tasks=["X", *names])
    stop = held_up(home, store, fleet)
    guilty = writing(e.ClaimAcquired, "t-04")
    store.on(
        "commit",
        when=guilty,
        before=raising(OverLimit("t-04 has a name that is too long")),
        times=math.inf,
    )

    jobs = [
        fleet.engine.submit([ClaimTask(task_key(name), caller(f"agent-{name}"))]) for name in names
    ]
    stop.open()

    outcomes = dict(zip(names, (answered(job)[0] for job in jobs), strict=True))
    assert isinstance(outcomes.pop("t-04"), OverLimit)
    assert all(outcome.success for outcome in outcomes.values())
