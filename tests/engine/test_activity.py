"""When a session was last heard of: computed when somebody asks, from what it did."""

from __future__ import annotations

from datetime import datetime

import pytest

import genlock
from genlock.engine import observer
from tests.engine.gated_store import Home, claim, complete, granted, submit


def heard(fleet: genlock.Coordinator) -> dict[str, datetime]:
    return {session.session_id: session.last_activity for session in fleet.list_sessions()}


def test_a_submission_is_activity_whoever_took_it_and_whatever_became_of_it(home: Home) -> None:
    fleet, other = home.connect(), home.connect()
    fleet.add_tasks(tasks=["a", "b"])
    one, two = granted(fleet, "a", "alice"), granted(fleet, "b", "bob")
    home.clock.advance(100)
    assert submit(other, "a", "alice", one).accepted
    fleet.force_release(task_id="b", take_over=True)
    home.clock.advance(100)
    assert not submit(other, "b", "bob", two).accepted
    submitted, refused = home.clock.now(), fleet.get_task_state(task_id="a").result
    assert refused is not None
    assert heard(fleet) == {"s-alice": refused.submitted_at, "s-bob": submitted}
    # By the session's memory too.
    assert fleet.get_session_memory(session_id="s-alice").last_activity == refused.submitted_at
    assert fleet.get_session_memory(session_id="s-bob").last_activity == submitted


def test_a_spawn_whose_parent_is_kept_is_activity_in_the_list_and_in_the_memory(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["a"])
    generation = granted(fleet, "a", "alice")
    home.clock.advance(100)
    assert fleet.spawn_subtasks(
        task_id="a", generation=generation, subtasks=["part"], keep=True, session_id="s-alice"
    ).success
    home.clock.advance(100)

    seen = heard(fleet)["s-alice"]
    assert (home.clock.now() - seen).total_seconds() == 100
    assert fleet.get_session_memory(session_id="s-alice").last_activity == seen


def test_what_others_did_to_its_claim_is_no_activity_of_a_session(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["a", "b"])
    began = home.clock.now()
    granted(fleet, "a", "alice", lease=30)
    granted(fleet, "b", "alice", lease=3000)
    home.clock.advance(100)
    fleet.force_release(task_id="b", take_over=True)
    assert granted(fleet, "a", "bob") == 2
    assert heard(fleet) == {"s-alice": began, "s-bob": home.clock.now()}
    assert fleet.get_session_memory(session_id="s-alice").last_activity == began


def test_the_end_of_the_feed_is_read_once_and_then_only_what_has_come_since(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "_AT_FIRST", 10)
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=[f"t-{n}" for n in range(6)])
    for n in range(5):
        complete(fleet, f"t-{n}", f"worker-{n}")

    def asked() -> list[tuple[str | None, int]]:
        """From where feeds were read since the last look, or from how far back."""
        queries = [
            given
            for method, given in store.calls
            if method == "read_events" and given.record is None
        ]
        store.calls.clear()
        return [(query.after, query.back) for query in queries if query.back or not query.tail]

    asked()
    assert len(heard(fleet)) == 5
    (start, end) = asked()
    assert start == (None, 10)
    seen = fleet.read_events(after=end[0]).events
    assert len(seen) == 10
    complete(fleet, "t-5", "late")
    asked()
    assert len(heard(fleet)) == 6
    ((after, _),) = asked()
    assert len(fleet.read_events(after=after).events) < 10


def test_a_store_that_begins_a_new_epoch_is_read_anew(home: Home) -> None:
    store = home.store()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["a", "b"])
    home.clock.advance(10)
    complete(fleet, "a", "alice")
    before = heard(fleet)
    store.set_epoch(1)
    home.clock.advance(10)
    complete(fleet, "b", "bob")
    assert heard(fleet) == before | {"s-bob": home.clock.now()}


def active(fleet: genlock.Coordinator, project_id: str | None = None) -> list[str]:
    return [
        session.session_id
        for session in fleet.list_sessions(project_id=project_id)
        if session.active
    ]


def test_a_session_takes_a_place_under_the_limit_exactly_while_it_is_listed_as_active(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["a", "b", "c"])
    fleet.set_policy(limits={"max_active_sessions": 1})
    generation = granted(fleet, "a", "alice", lease=3600)
    for seconds in (599, 601):
        home.clock.advance(seconds)
        fleet.renew_lease(task_id="a", expected_generation=generation, session_id="s-alice")
    home.clock.advance(600)
    assert active(fleet) == ["s-alice"]
    assert claim(fleet, "b", "bob").limit == "max_active_sessions"
    home.clock.advance(1)
    assert active(fleet) == []
    assert claim(fleet, "b", "bob").success
    # Alice is heard of again: there are two, which nobody can help, and no third.
    assert fleet.renew_lease(
        task_id="a", expected_generation=generation, session_id="s-alice"
    ).success
    assert active(fleet) == ["s-alice", "s-bob"]
    assert claim(fleet, "c", "carol").limit == "max_active_sessions"


def test_a_renewal_counts_for_the_limit_although_it_is_too_long_ago_for_the_feed(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "_AT_FIRST", 1)
    fleet = home.connect()
    fleet.add_tasks(tasks=["a", "b"])
    fleet.set_policy(limits={"max_active_sessions": 1})
    generation = granted(fleet, "a", "alice", lease=3600)
    home.clock.advance(700)
    fleet.renew_lease(task_id="a", expected_generation=generation, session_id="s-alice")
    for title in "xyz":
        fleet.edit_task(task_id="b", changes={"title": title})
    fresh = home.connect()
    assert active(fresh) == ["s-alice"]
    assert claim(fresh, "b", "bob").limit == "max_active_sessions"


def test_how_long_a_session_may_be_silent_is_said_by_its_own_project(home: Home) -> None:
    fleet = home.connect()
    fleet.set_policy(limits={"max_active_sessions": 1})
    fleet.set_policy(project_id="patient", policy={"orphan_threshold_seconds": 6000})
    fleet.add_tasks(project_id="patient", tasks=["a"])
    fleet.add_tasks(tasks=["a"])
    assert claim(fleet, "a", "alice", 3600, project_id="patient").success
    home.clock.advance(1000)
    assert active(fleet, project_id="patient") == ["s-alice"]
    assert claim(fleet, "a", "bob").limit == "max_active_sessions"
    fleet.set_policy(project_id="patient", policy={"orphan_threshold_seconds": 60})
    assert claim(fleet, "a", "bob").success
