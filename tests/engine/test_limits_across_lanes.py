"""Limits rest on many records: exact within one lane, behind by one refresh between coordinators,
never below what is allowed."""

from __future__ import annotations

import time
from collections import Counter
from datetime import timedelta

import pytest

import genlock
from genlock.core import events as e
from genlock.core.commands import Caller, ClaimTask, RegisterSession
from genlock.core.keys import SESSION, Key, project_key
from genlock.core.results import ClaimResult
from genlock.engine.jobs import NextTask
from genlock.errors import LimitReached
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    GatedStore,
    Home,
    answered,
    caller,
    claim,
    granted,
    later,
    next_for,
    submit,
    task_key,
    writing,
)


def limited(home: Home, store: GatedStore | None = None, **limits: int) -> genlock.Coordinator:
    fleet = home.connect(store)
    fleet.set_policy(limits=limits)
    return fleet


def at_once(
    home: Home, store: GatedStore, fleet: genlock.Coordinator, claims: list[ClaimTask]
) -> list[str]:
    """The reasons of claims that are decided in one round, because the lane was busy when they came
    in."""
    stop = home.stop()
    store.on("commit", when=writing(e.TaskAdded, "last"), before=stop)
    adding = later(lambda: fleet.add_tasks(tasks=["last"]))
    stop.wait()
    jobs = [fleet.engine.submit([command]) for command in claims]
    store.commits.clear()
    stop.open()
    reasons = [answered(job)[0].reason for job in jobs]
    adding.result(10)
    assert (
        len([commit for commit in store.commits if writing(e.ClaimAcquired)(commit.changes)]) == 1
    ), "they were one batch"
    return reasons


def test_max_concurrent_claims_is_exact_when_claims_are_decided_together(home: Home) -> None:
    store = home.gated()
    fleet = limited(home, store, max_concurrent_claims=7)
    names = [f"t-{n:02d}" for n in range(20)]
    fleet.add_tasks(tasks=names)

    reasons = at_once(
        home, store, fleet, [ClaimTask(task_key(name), caller("alice")) for name in names]
    )

    assert reasons == ["GRANTED"] * 7 + ["DENIED_LIMIT"] * 13


def test_max_concurrent_claims_is_exact_from_call_to_call(home: Home) -> None:
    fleet = limited(home, max_concurrent_claims=2)
    fleet.add_tasks(tasks=["A", "B", "C"])
    granted(fleet, "A", "alice")
    granted(fleet, "B", "bob")

    denied = claim(fleet, "C", "carol")

    assert (denied.reason, denied.limit) == ("DENIED_LIMIT", "max_concurrent_claims")
    assert "max_concurrent_claims = 2" in denied.detail
    assert next_for(fleet, "carol").reason == "DENIED_LIMIT"
    # A claim that one has already takes no further place.
    assert claim(fleet, "A", "alice").success
    assert submit(fleet, "A", "alice", 1).accepted
    assert claim(fleet, "C", "carol").success


def test_max_concurrent_claims_is_exact_where_counting_is_dear(home: Home) -> None:
    """A store that takes long to count is not asked for every claim; the lane adds and takes away
    what it does itself."""
    store = home.gated()
    fleet = limited(home, store, max_concurrent_claims=2)
    fleet.add_tasks(tasks=["A", "B", "C", "D"])
    store.on(
        "count", after=lambda: time.sleep(0.02), times=float("inf")
    )  # the store's own slowness, not ours

    assert [claim(fleet, name, "alice").reason for name in "ABC"] == [
        "GRANTED",
        "GRANTED",
        "DENIED_LIMIT",
    ]
    assert submit(fleet, "A", "alice", 1).accepted
    assert claim(fleet, "C", "alice").reason == "GRANTED"
    assert claim(fleet, "D", "alice").reason == "DENIED_LIMIT"
    fleet.release_claim(task_id="B", expected_generation=1, session_id="s-alice")
    assert claim(fleet, "D", "alice").reason == "GRANTED"


def test_a_grant_that_conflicted_takes_no_place(home: Home) -> None:
    store = home.gated()
    fleet = limited(home, store, max_concurrent_claims=2)
    rival = home.connect()
    fleet.add_tasks(tasks=["A", "B", "C"])
    store.on("count", after=lambda: time.sleep(0.02), times=float("inf"))
    store.on(
        "commit", when=writing(e.ClaimAcquired, "A"), before=lambda: rival.cancel_task(task_id="A")
    )

    assert claim(fleet, "A", "alice").reason == "DENIED_COMPLETED"

    assert [claim(fleet, name, "alice").reason for name in "BC"] == ["GRANTED", "GRANTED"]


def test_the_profile_default_allows_a_hundred_claims(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store, profile="default")
    names = [f"t-{n:03d}" for n in range(120)]
    fleet.add_tasks(tasks=names)

    reasons = at_once(
        home, store, fleet, [ClaimTask(task_key(name), caller("alice")) for name in names]
    )

    assert Counter(reasons) == {"GRANTED": 100, "DENIED_LIMIT": 20}


def test_the_profile_default_has_bounds_for_leases(home: Home) -> None:
    fleet = home.connect(profile="default")
    fleet.add_tasks(tasks=["T"])

    assert fleet.get_policy().profile == "default"
    assert claim(fleet, "T", "alice", lease=29).limit == "min_lease_duration_seconds"
    assert claim(fleet, "T", "alice", lease=3601).limit == "max_lease_duration_seconds"
    assert claim(fleet, "T", "alice", lease=30).success


def test_max_active_sessions_is_exact_when_claims_are_decided_together(home: Home) -> None:
    store = home.gated()
    fleet = limited(home, store, max_active_sessions=3)
    names = [f"t-{n}" for n in range(8)]
    fleet.add_tasks(tasks=names)

    reasons = at_once(
        home, store, fleet, [ClaimTask(task_key(name), caller(f"agent-{name}")) for name in names]
    )

    assert reasons == ["GRANTED"] * 3 + ["DENIED_LIMIT"] * 5
    assert len(fleet.list_sessions()) == 3


def test_max_active_sessions_counts_a_session_once_however_many_tasks_it_takes(home: Home) -> None:
    store = home.gated()
    fleet = limited(home, store, max_active_sessions=1)
    names = [f"t-{n}" for n in range(4)]
    fleet.add_tasks(tasks=names)

    reasons = at_once(
        home, store, fleet, [ClaimTask(task_key(name), caller("alice")) for name in names]
    )

    assert reasons == ["GRANTED"] * 4
    denied = claim(fleet, "last", "bob")
    assert (denied.reason, denied.limit) == ("DENIED_LIMIT", "max_active_sessions")
    fleet.end_session(session_id="s-alice")
    assert claim(fleet, "last", "bob").success


def test_everybody_who_does_not_wait_is_told_of_the_limit_and_nobody_that_nothing_is_ready(
    home: Home,
) -> None:
    store = home.gated()
    fleet = limited(home, store, max_concurrent_claims=1)
    fleet.add_tasks(tasks=["A", "B"])
    granted(fleet, "A", "alice")
    stop = home.stop()
    store.on("commit", when=writing(e.TaskEdited, "B"), before=stop)
    editing = later(lambda: fleet.edit_task(task_id="B", changes={"title": "b"}))
    stop.wait()
    # One task is ready, and three are decided together.
    jobs = [
        fleet.engine.submit([NextTask(project_key(*PLACE), caller(f"agent-{n}"))]) for n in range(3)
    ]
    stop.open()
    editing.result(PATIENCE)

    assert [answered(job)[0].reason for job in jobs] == ["DENIED_LIMIT"] * 3


def test_max_active_sessions_counts_those_that_are_registered_together(home: Home) -> None:
    store = home.gated()
    fleet = limited(home, store, max_active_sessions=3)
    fleet.add_tasks(tasks=["T"])
    stop = home.stop()
    store.on("commit", when=writing(e.TaskAdded, "last"), before=stop)
    adding = later(lambda: fleet.add_tasks(tasks=["last"]))
    stop.wait()
    names = [f"s-{n}" for n in range(5)]
    jobs = [
        fleet.engine.submit([RegisterSession(Key(*PLACE, SESSION, name), Caller(name, ""))])
        for name in names
    ]
    jobs.append(fleet.engine.submit([ClaimTask(task_key("T"), caller("alice"))]))
    stop.open()
    *registered, claimed = [answered(job)[0] for job in jobs]
    adding.result(PATIENCE)

    assert [isinstance(answer, LimitReached) for answer in registered] == [False] * 3 + [True] * 2
    assert claimed.limit == "max_active_sessions"
    assert len(fleet.list_sessions()) == 3


def test_another_coordinator_knows_of_the_claims_of_the_first(home: Home) -> None:
    one, other = limited(home, max_concurrent_claims=2), home.connect()
    one.add_tasks(tasks=["A", "B", "C"])
    granted(one, "A", "alice")
    granted(one, "B", "alice")

    assert claim(other, "C", "bob").reason == "DENIED_LIMIT"


def test_coordinators_overshoot_by_what_they_decide_at_the_same_time_and_no_further(
    home: Home,
) -> None:
    stores = [home.gated(), home.gated()]
    fleets = [limited(home, stores[0], max_concurrent_claims=1), home.connect(stores[1])]
    fleets[0].add_tasks(tasks=["A", "B", "C"])
    # The second has counted before the first wrote.
    stores[1].on(
        "commit",
        when=writing(e.ClaimAcquired, "B"),
        before=lambda: granted(fleets[0], "A", "alice"),
    )

    assert claim(fleets[1], "B", "bob").success, "rules over several records may overshoot"

    assert [claim(fleet, "C", "carol").reason for fleet in fleets] == ["DENIED_LIMIT"] * 2


@pytest.mark.parametrize("how", ["completed", "released", "ended", "taken away"])
def test_what_is_over_takes_no_place(home: Home, how: str) -> None:
    fleet = limited(home, max_concurrent_claims=1)
    fleet.add_tasks(tasks=["A", "B"])
    granted(fleet, "A", "alice")
    assert claim(fleet, "B", "bob").reason == "DENIED_LIMIT"
    match how:
        case "completed":
            submit(fleet, "A", "alice", 1)
        case "released":
            fleet.release_claim(task_id="A", expected_generation=1, session_id="s-alice")
        case "ended":
            fleet.end_session(session_id="s-alice")
        case _:
            fleet.force_release(task_id="A", take_over=True)

    assert claim(fleet, "B", "bob").success


@pytest.mark.parametrize("task", ["A", "B"])
@pytest.mark.parametrize("swept", [True, False])
def test_a_claim_that_has_lapsed_takes_no_place_whether_or_not_anyone_wrote_it_down(
    home: Home, task: str, swept: bool
) -> None:
    """The limit is on live claims, and no answer may depend on whether a monitor came by."""
    fleet = limited(home, max_concurrent_claims=1)
    fleet.add_tasks(tasks=["A", "B"])
    granted(fleet, "A", "alice", lease=30)
    home.clock.advance(31)
    if swept:
        assert fleet.sweep().expired == 1

    assert claim(fleet, task, "bob").reason == "GRANTED"


def test_a_claim_that_has_lapsed_takes_no_place_from_several_that_are_decided_together(
    home: Home,
) -> None:
    fleet = limited(home, max_concurrent_claims=3)
    fleet.add_tasks(tasks=["A", "B", "C", "D"])
    granted(fleet, "A", "alice", lease=300)
    granted(fleet, "B", "alice", lease=30)
    home.clock.advance(31)

    answers = fleet.batch_claim(task_ids=["C", "D"], session_id="s-bob", agent_id="bob")

    assert [answer.reason for answer in answers.values() if isinstance(answer, ClaimResult)] == [
        "GRANTED",
        "GRANTED",
    ]


def test_a_takeover_takes_a_place_from_what_is_decided_with_it(home: Home) -> None:
    fleet = limited(home, max_concurrent_claims=2)
    fleet.add_tasks(tasks=["A", "B", "C"])
    granted(fleet, "A", "alice", lease=300)
    granted(fleet, "B", "alice", lease=30)
    home.clock.advance(31)

    answers = fleet.batch_claim(task_ids=["B", "C"], session_id="s-bob", agent_id="bob")

    assert [answer.reason for answer in answers.values() if isinstance(answer, ClaimResult)] == [
        "GRANTED",
        "DENIED_LIMIT",
    ]


def test_a_claim_takes_its_place_although_something_else_about_its_task_is_due(home: Home) -> None:
    fleet = limited(home, max_concurrent_claims=1)
    fleet.add_tasks(tasks=["A", "B"])
    granted(fleet, "A", "alice", lease=300)
    fleet.edit_task(task_id="A", changes={"not_before": home.clock.now() + timedelta(seconds=10)})
    home.clock.advance(20)

    assert claim(fleet, "B", "bob").reason == "DENIED_LIMIT"


def test_a_claim_that_a_stepped_clock_has_ended_can_be_taken_over_at_the_limit(home: Home) -> None:
    fleet = limited(home, max_concurrent_claims=1)
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice", lease=60)
    home.clock.advance(-3600)

    assert claim(fleet, "A", "bob").reason == "GRANTED"


def test_claim_next_takes_over_at_the_limit(home: Home) -> None:
    fleet = limited(home, max_concurrent_claims=1)
    fleet.add_tasks(tasks=["A"])
    granted(fleet, "A", "alice", lease=30)
    home.clock.advance(31)

    assert next_for(fleet, "bob").reason == "GRANTED"


@pytest.mark.parametrize(("silent", "reason"), [(600, "DENIED_LIMIT"), (601, "GRANTED")])
def test_who_has_handed_in_a_result_lately_is_active_although_it_holds_nothing_and_never_beats(
    home: Home, silent: int, reason: str
) -> None:
    fleet = limited(home, max_active_sessions=1)
    fleet.add_tasks(tasks=["A", "B"])
    granted(fleet, "A", "alice", lease=3600)
    home.clock.advance(3000)
    assert submit(fleet, "A", "alice", 1).accepted
    home.clock.advance(silent)
    assert [session.active for session in fleet.list_sessions()] == [reason == "DENIED_LIMIT"]

    assert fleet.explain(task_id="B", session_id="s-bob", agent_id="bob").reason == reason
    assert claim(fleet, "B", "bob").reason == reason


def test_a_silent_session_takes_no_place_because_a_namesake_in_another_project_is_at_work(
    home: Home,
) -> None:
    fleet = limited(home, max_active_sessions=2)
    fleet.add_tasks(tasks=["A"])
    fleet.add_tasks(tasks=["A"], project_id="other")
    fleet.register_session(session_id="s-alice")
    home.clock.advance(601)
    assert fleet.claim_task(
        task_id="A", agent_id="alice", session_id="s-alice", project_id="other"
    ).success

    assert claim(fleet, "A", "bob").reason == "GRANTED"
