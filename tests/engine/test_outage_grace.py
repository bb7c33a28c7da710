"""Outage grace: after an outage of a service or its store, holders get time to come back. Nobody
gets back a claim that was lost."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from math import inf

import pytest

import genlock
from genlock.core.keys import SETTLED, Key
from genlock.core.results import RenewalResult
from genlock.engine.limits import Counts
from genlock.engine.recovery import Recovery
from genlock.errors import StoreUnavailable
from genlock.testing.clock import ManualClock
from genlock.testing.scenario import play
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    GatedStore,
    Home,
    claim,
    granted,
    later,
    next_for,
    raising,
    state,
    submit,
    told,
)

pytestmark = pytest.mark.parametrize("home", ["memory", "sqlite"], indirect=True)
away = raising(StoreUnavailable("the store is away"))


def renew(fleet: genlock.Coordinator, task_id: str, who: str, generation: int = 1) -> RenewalResult:
    return fleet.renew_lease(task_id=task_id, expected_generation=generation, session_id=f"s-{who}")


def before(home: Home, *tasks: str, lease: float = 30) -> None:
    """At 0 alice claims these; at 10 whoever coordinated is gone."""
    first = home.connect()
    first.add_tasks(tasks=list(tasks))
    for task in tasks:
        granted(first, task, "alice", lease)
    home.clock.set(10)
    first.close()


def restarted(home: Home, at: float = 100, store: GatedStore | None = None) -> genlock.Coordinator:
    """A service that starts at this time."""
    home.clock.set(at)
    return home.connect(store, service=True)


# After a start


def test_who_comes_back_in_time_goes_on(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    home.clock.set(111)
    assert renew(service, "T", "alice").reason == "RENEWED"
    home.clock.set(140)
    assert (
        claim(service, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    )  # the lease runs anew, from 111
    assert submit(service, "T", "alice", 1).accepted
    assert told(service, "T") == [
        "TASK_ADDED",
        "CLAIM_ACQUIRED",
        "LEASE_RENEWED",
        "RESULT_ACCEPTED",
    ]


def test_nobody_takes_over_in_the_meantime_and_whoever_asks_is_told_why(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    denied = claim(service, "T", "bob")
    assert (denied.reason, denied.current_holder) == ("DENIED_ACTIVE_CLAIM", "alice")
    assert denied.detail == (
        "its lease ran out while the coordinator was away; its holder has until "
        "2026-01-04T06:01:52Z to come back"
    )
    assert service.explain(task_id="T").because[-1] == denied.detail


def test_afterwards_a_takeover_is_one_as_always(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    home.clock.set(112)
    assert granted(service, "T", "bob") == 2
    assert renew(service, "T", "alice").reason == "GENERATION_MISMATCH"
    assert submit(service, "T", "alice", 1).reason == "STALE_GENERATION"


def test_who_does_not_come_back_before_it_ends_has_lost_the_lease_as_always(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    home.clock.set(112)
    assert renew(service, "T", "alice").reason == "ALREADY_EXPIRED"


def test_an_embedded_coordinator_takes_over_at_once(home: Home) -> None:
    before(home, "T")
    home.clock.set(100)
    assert granted(home.connect(), "T", "bob") == 2


def test_whoever_was_fenced_off_meanwhile_stays_so(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    assert (
        granted(home.connect(), "T", "bob") == 2
    )  # by a coordinator that knows nothing of the outage
    assert renew(service, "T", "alice").reason == "GENERATION_MISMATCH"
    assert submit(service, "T", "alice", 1).reason == "STALE_GENERATION"
    assert claim(service, "T", "alice").reason == "DENIED_ACTIVE_CLAIM"


def test_a_claim_that_was_found_to_be_over_before_stays_over(home: Home) -> None:
    first = home.connect()
    first.add_tasks(tasks=["T"])
    granted(first, "T", "alice", 30)
    home.clock.set(30)
    assert first.sweep().expired == 1
    first.close()
    service = restarted(home)
    assert renew(service, "T", "alice").reason == "ALREADY_EXPIRED"
    assert granted(service, "T", "bob") == 2


def test_what_fell_due_before_the_newest_event_is_handed_on(home: Home) -> None:
    """Somebody was there after it had fallen due, and could have taken it."""
    before(home, "T", lease=30)
    other = home.connect()
    other.add_tasks(tasks=["U"])
    granted(other, "U", "alice", 60)  # at 10, until 70
    home.clock.set(40)
    other.add_tasks(tasks=["later"])
    other.close()
    service = restarted(home)
    assert granted(service, "T", "bob") == 2
    assert claim(service, "U", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_each_project_has_its_own_newest_event(home: Home) -> None:
    before(home, "T")
    home.clock.set(40)
    other = home.connect(project_id="apollo")
    other.add_tasks(tasks=["U"])
    other.close()
    assert claim(restarted(home), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_events_after_the_return_do_not_shorten_it(home: Home) -> None:
    """Of several services that come back together, the last must not take the first one's events
    for life before the outage."""
    before(home, "T", "U")
    first = restarted(home)
    second = home.connect(service=True)
    home.clock.set(101)
    assert renew(first, "U", "alice").reason == "RENEWED"
    assert claim(second, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_a_holder_who_asks_again_keeps_its_claim(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    assert granted(service, "T", "alice") == 1


def test_a_session_that_has_ended_is_not_waited_for(home: Home) -> None:
    before(home, "T")
    ending = home.connect()
    ending.register_session(session_id="s-alice")
    ending.end_session(session_id="s-alice")
    ending.close()
    assert granted(restarted(home), "T", "bob") == 2


def test_a_clock_that_is_set_back_does_not_prolong_it(home: Home) -> None:
    before(home, "T", lease=60)
    service = restarted(home)
    home.clock.set(80)
    assert claim(service, "T", "bob").reason == "GRANTED"


# Everyone who looks


def test_readers_and_sweepers_see_the_same(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    service.add_tasks(tasks=[{"id": "U", "depends_on": ["T"]}])

    def looks() -> tuple[object, ...]:
        held = service.get_task_state(task_id="T").holder
        root = service.explain(task_id="U").roots[0].because
        return (
            [line.task.id for line in service.ready()],
            held and held.looks_alive,
            "is at work" in root,
        )

    assert looks() == ([], True, True)
    assert (service.sweep().expired, state(service, "T")) == (0, "IN_PROGRESS")
    home.clock.set(112)
    assert looks() == (["T"], False, False)
    assert service.sweep().expired == 1


def test_a_limit_counts_who_is_spared(home: Home) -> None:
    before(home, "T")
    home.connect().add_tasks(tasks=["U"])
    home.connect().set_policy(limits={"max_concurrent_claims": 1})
    # The newest event is at 10, before the lease is over.
    service = restarted(home)
    assert claim(service, "U", "bob").limit == "max_concurrent_claims"
    home.clock.set(112)
    assert granted(service, "U", "bob") == 1


def test_claim_next_passes_by_who_is_spared_and_takes_what_else_is_due(home: Home) -> None:
    """Also if it lies behind more of them than are looked at otherwise."""
    before(home, *(f"T-{number}" for number in range(100)))
    planning = home.connect()
    planning.add_tasks(
        tasks=[{"id": "U", "not_before": (home.clock.now() + timedelta(seconds=60)).isoformat()}]
    )
    planning.close()
    service = restarted(home)
    assert next_for(service, "bob").task_id == "U"
    assert next_for(service, "bob").reason == "NOTHING_READY"
    home.clock.set(112)
    assert next_for(service, "bob").success


def test_who_waits_for_a_task_is_woken_when_the_mercy_ends(home: Home) -> None:
    before(home, "T")
    service = restarted(home)
    waiting = later(lambda: next_for(service, "bob", wait=PATIENCE))
    home.clock.set(111)
    home.clock.set(112)
    result = waiting.result(PATIENCE)
    assert (result.task_id, result.claim.generation if result.claim else 0) == ("T", 2)


def test_who_waits_sleeps_until_then(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock on the wall: the lease has been over for long, and must not keep the lane
    awake."""
    monkeypatch.setattr("genlock.engine.maintenance.SEARCH_SECONDS", 3600.0)
    monkeypatch.setattr("genlock.engine.maintenance._RECOVER_PAUSE", 3600.0)
    past = ManualClock(datetime.now(UTC) - timedelta(seconds=100))
    first = home.connect(clock=past)
    first.add_tasks(tasks=["T"])
    granted(first, "T", "alice", 2)
    first.close()
    wall = Wall()
    store = GatedStore(home.store(wall))  # type: ignore[arg-type]
    service = home.connect(store, clock=wall, service=True)  # type: ignore[arg-type]
    start = time.monotonic()
    result = next_for(service, "bob", wait=PATIENCE)
    assert result.success
    assert time.monotonic() - start > 0.6  # 40 % of two seconds, less what it took to get here
    assert len([method for method, _ in store.calls if method == "find"]) < 40


class Wall:
    """The clock on the wall."""

    def now(self) -> datetime:
        return datetime.now(UTC)


# A store that was away


def test_a_store_that_comes_back_is_a_return_too(home: Home) -> None:
    store = home.gated()
    service = home.connect(store, service=True, deadline_seconds=0.2)
    service.add_tasks(tasks=["T"])
    home.clock.set(100)
    granted(service, "T", "alice", 30)  # long after the start
    store.on("load", before=away, times=inf)
    home.clock.set(120)
    with pytest.raises(StoreUnavailable):
        renew(service, "T", "alice")
    home.clock.set(200)
    store.clear()

    assert claim(service, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    home.clock.set(211)
    assert renew(service, "T", "alice").reason == "RENEWED"


@pytest.mark.parametrize("where", ["commit", "find"])
def test_it_is_noticed_wherever_it_fails(home: Home, where: str) -> None:
    store = home.gated()
    service = home.connect(store, service=True, deadline_seconds=0.2)
    service.add_tasks(tasks=["T", "U"])
    home.clock.set(100)
    granted(service, "T", "alice", 30)
    store.on(where, before=away, times=inf)
    with pytest.raises(StoreUnavailable):
        next_for(service, "carol")
    home.clock.set(200)
    store.clear()
    assert claim(service, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_whatever_finds_the_store_again_ends_the_outage(home: Home) -> None:
    """Also a look that finds nothing due: the mercy begins there, not with the next claim."""
    store = home.gated()
    service = home.connect(store, service=True, deadline_seconds=0.2)
    service.add_tasks(tasks=["T"])
    home.clock.set(100)
    granted(service, "T", "alice", 150)
    store.on("load", before=away, times=inf)
    with pytest.raises(StoreUnavailable):
        renew(service, "T", "alice")
    store.clear()
    home.clock.set(110)
    assert next_for(service, "bob").reason == "NOTHING_READY"
    home.clock.set(250)
    assert granted(service, "T", "bob") == 2


def test_others_who_could_work_meanwhile_leave_no_excuse(home: Home) -> None:
    """The store was there; only this service could not reach it."""
    store, other = home.gated(), home.connect()
    service = home.connect(store, service=True, deadline_seconds=0.2)
    service.add_tasks(tasks=["T", "U"])
    home.clock.set(100)
    granted(service, "T", "alice", 30)
    store.on("load", before=away, times=inf)
    with pytest.raises(StoreUnavailable):
        renew(service, "T", "alice")
    home.clock.set(190)
    granted(other, "U", "carol")
    home.clock.set(200)
    store.clear()
    assert granted(service, "T", "bob") == 2


def test_a_service_that_starts_without_its_store_starts_when_it_is_there(home: Home) -> None:
    before(home, "T")
    store = home.gated()
    store.on("load", before=away, times=inf)
    service = restarted(home, 50, store)
    home.clock.set(200)
    store.clear()
    assert claim(service, "T", "bob").reason == "DENIED_ACTIVE_CLAIM"
    home.clock.set(212)
    assert granted(service, "T", "bob") == 2


# How it is looked up


def test_the_newest_event_is_found_by_a_short_look(home: Home) -> None:
    """A service tells the store now and then how far all is settled; the feed is read from there,
    once a project."""
    writing = home.connect(service=True)
    tasks = [f"T-{number}" for number in range(400)]
    for _ in range(4):
        writing.add_tasks(tasks=tasks, project_id="apollo")
        tasks = [task + "x" for task in tasks]
    writing.sweep(project_id="apollo")
    key = Key("default", "apollo", SETTLED, SETTLED)
    assert key in writing.engine.store.load([key]).records
    granted_at = writing.claim_task(
        task_id="T-0", project_id="apollo", agent_id="a", session_id="s", lease_duration_seconds=30
    )
    assert granted_at.success
    writing.close()

    store = home.gated()
    service = restarted(home, 100, store)
    for _ in range(3):
        answer = service.claim_task(
            task_id="T-0", project_id="apollo", agent_id="b", session_id="t"
        )
        assert answer.reason == "DENIED_ACTIVE_CLAIM"
    reads = [query for method, query in store.calls if method == "read_events"]
    assert len(reads) == 1
    assert len(store.inner.read_events(reads[0]).events) < 1000


def test_a_settled_cursor_that_is_lost_costs_a_longer_look_and_nothing_else(home: Home) -> None:
    first = home.connect()
    first.add_tasks(tasks=["T"])
    store = home.store()
    Recovery(store, Counts(store), "local").begin_at(PLACE, first.read_events(tail=True).cursor)
    granted(first, "T", "alice", 30)
    first.close()
    store.set_epoch(1)
    assert claim(restarted(home), "T", "bob").reason == "DENIED_ACTIVE_CLAIM"


def test_a_project_without_events_is_none_to_spare(home: Home) -> None:
    service = restarted(home)
    assert next_for(service, "bob").reason == "NOTHING_READY"


# As a script


BEFORE = """
task   A-001-core lease=300
task   A-002-rest
at 0   claim A-001-core alice/s1 lease=30   -> granted generation=1
at 0   claim A-002-rest carol/s3 lease=300  -> granted generation=1
"""
EXCUSE = (
    "(its lease ran out while the coordinator was away; its holder has until T=12 to come back)"
)
AFTER = f"""
at 0   claim  A-001-core bob/s2 lease=30       -> denied DENIED_ACTIVE_CLAIM holder=alice/s1 until=-370 {EXCUSE}
at 1   renew  A-001-core alice/s1 generation=1 -> renewed until=31
at 11  next   bob/s2                           -> denied NOTHING_READY
at 59  renew  A-002-rest carol/s3 generation=1 -> renewed until=359
at 60  claim  A-001-core bob/s2 lease=30       -> granted generation=2
at 61  submit A-001-core alice/s1 generation=1 -> refused STALE_GENERATION current=2 kept
"""


def test_a_scenario_with_a_restart(home: Home) -> None:
    first = home.connect()
    ran = play(BEFORE, first, home.clock)
    first.close()
    home.clock.set(400)
    again = play(AFTER, home.connect(service=True), home.clock)
    assert [*ran.wrong, *again.wrong] == [], again.text
