"""claim_next waits: it wakes when there is something for it, in order of arrival, and by no
monitor's grace."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from msgspec.structs import replace

import genlock
from genlock.core import events as e
from genlock.core.keys import SESSION, project_key
from genlock.engine.feed_watch import FeedWatch
from genlock.engine.jobs import Job, NextTask
from genlock.errors import Closed, SessionEnded, StoreError, StoreUnavailable, TaskNotFound
from genlock.store import MAX_DUE, EventQuery
from tests.engine.gated_store import (
    PATIENCE,
    PLACE,
    GatedStore,
    Home,
    Stop,
    answered,
    caller,
    claim,
    granted,
    later,
    next_for,
    raising,
    submit,
    until,
    writing,
)


def asks_for_next(
    fleet: genlock.Coordinator,
    who: str,
    tracks: str | None = None,
    project: str = "default",
    lease: float | None = None,
) -> Job:
    """A waiter that stands in the queue when this returns. It waits for longer than we do for its
    answer."""
    wanted = None if tracks is None else frozenset([tracks])
    until = time.monotonic() + 2 * PATIENCE
    request = NextTask(
        project_key("default", project),
        caller(who),
        lease_seconds=lease,
        tracks=wanted,
        wait_until=until,
    )
    return fleet.engine.submit([request], patience=PATIENCE)


def falls_asleep(home: Home, store: GatedStore) -> Stop:
    """Arrived at when a waiter has looked, found nothing, and asks when to look again."""
    stop = home.stop()
    store.on(
        "find", when=lambda query: query.due_before == MAX_DUE and query.limit == 1, after=stop
    )
    return stop


@pytest.fixture
def only_the_feed_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes away what would wake a sleeper anyway after a while: then a wake-up that is lost is
    lost."""
    monkeypatch.setattr("genlock.engine.maintenance.SEARCH_SECONDS", 3600.0)
    monkeypatch.setattr("genlock.engine.maintenance._RECOVER_PAUSE", 3600.0)


# Time


def test_a_lease_that_runs_out_wakes_who_waits(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=30)
    asleep = falls_asleep(home, store)
    waiting = later(lambda: next_for(fleet, "bob", wait=PATIENCE))
    asleep.wait()
    asleep.open()

    home.clock.advance(29)
    home.clock.advance(1)

    result = waiting.result(PATIENCE)
    assert (result.task_id, result.claim.generation if result.claim else 0) == ("T", 2)
    history = fleet.get_claim_history(task_id="T")
    assert [(entry.session_id, entry.release_reason) for entry in history] == [
        ("s-alice", "EXPIRED"),
        ("s-bob", None),
    ]


def test_a_renewed_lease_does_not_wake_who_waits(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice", lease=30)
    waiting = asks_for_next(fleet, "bob")
    home.clock.advance(20)
    assert fleet.renew_lease(task_id="T", expected_generation=1, session_id="s-alice").success

    home.clock.advance(20)

    # The lane has looked again since: this call was behind the waiter's look.
    assert fleet.renew_lease(task_id="T", expected_generation=1, session_id="s-alice").success
    assert waiting.left == 1


def test_a_lease_that_runs_out_by_the_wall_clock_wakes_who_waits(home: Home) -> None:
    """No clock of ours, nobody pokes: the waiter itself knows when to look."""
    with genlock.connect(home.url, create=True) as fleet:
        fleet.add_tasks(tasks=["T"])
        granted(fleet, "T", "alice", lease=1)
        began = time.monotonic()

        assert next_for(fleet, "bob", wait=PATIENCE).task_id == "T"

        assert time.monotonic() - began < PATIENCE / 2


def test_a_task_that_may_not_begin_before_wakes_who_waits_when_it_may(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=[{"id": "T", "not_before": home.clock.now() + timedelta(seconds=60)}])
    asleep = falls_asleep(home, store)
    waiting = later(lambda: next_for(fleet, "bob", wait=PATIENCE))
    asleep.wait()
    asleep.open()

    home.clock.advance(60)

    assert waiting.result(PATIENCE).task_id == "T"


def test_who_has_waited_long_enough_is_told_that_nothing_is_ready(home: Home) -> None:
    fleet = home.connect()
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    began = time.monotonic()

    assert next_for(fleet, "bob", wait=0.1).reason == "NOTHING_READY"

    assert time.monotonic() - began >= 0.1


# The feed


@pytest.mark.usefixtures("only_the_feed_wakes")
@pytest.mark.parametrize("by", ["the same coordinator", "another coordinator"])
def test_a_task_that_is_added_between_the_look_and_the_sleep_is_not_missed(
    home: Home, by: str
) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    stop = home.stop()
    store.on("find", when=lambda query: query.heads > 0, after=stop)
    waiting = later(lambda: next_for(fleet, "bob", wait=PATIENCE))
    stop.wait()
    # It has looked and found nothing.
    adding = later(
        lambda: (fleet if by == "the same coordinator" else rival).add_tasks(tasks=["T"])
    )
    if by == "another coordinator":
        adding.result(PATIENCE)
    stop.open()

    assert waiting.result(PATIENCE).task_id == "T"
    adding.result(PATIENCE)


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_a_look_without_watching_first_misses_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The naive way, as proof that the test above can fail: nobody watches the feed while the
    waiter looks."""
    monkeypatch.setattr(FeedWatch, "watch", lambda self, place, sleeper: None)
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    stop = home.stop()
    store.on("find", when=lambda query: query.heads > 0, after=stop)
    waiting = later(lambda: next_for(fleet, "bob", wait=PATIENCE))
    stop.wait()
    rival.add_tasks(tasks=["T"])
    stop.open()

    with pytest.raises(TimeoutError):
        waiting.result(0.2)
    fleet.close()
    with pytest.raises(Closed):
        waiting.result(PATIENCE)


@pytest.mark.core
@pytest.mark.usefixtures("only_the_feed_wakes")
def test_who_waits_at_one_coordinator_is_woken_by_what_another_does(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    rival.add_tasks(tasks=["A", {"id": "B", "depends_on": ["A"]}])
    generation = granted(rival, "A", "alice")
    asleep = falls_asleep(home, store)
    waiting = later(lambda: next_for(fleet, "bob", wait=PATIENCE))
    asleep.wait()
    asleep.open()

    assert submit(rival, "A", "alice", generation).accepted

    assert waiting.result(PATIENCE).task_id == "B"


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_who_waits_is_woken_by_a_release(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    rival.add_tasks(tasks=["T"])
    granted(rival, "T", "alice")
    asleep = falls_asleep(home, store)
    waiting = later(lambda: next_for(fleet, "bob", wait=PATIENCE))
    asleep.wait()
    asleep.open()

    rival.release_claim(task_id="T", expected_generation=1, session_id="s-alice")

    assert waiting.result(PATIENCE).task_id == "T"


def test_the_feed_is_watched_from_before_the_look(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=["T"])
    granted(fleet, "T", "alice")
    store.calls.clear()

    next_for(fleet, "bob", wait=0.05)

    tail = next(
        at
        for at, (name, given) in enumerate(store.calls)
        if name == "read_events" and isinstance(given, EventQuery) and given.tail
    )
    look = next(
        at for at, (name, given) in enumerate(store.calls) if name == "find" and given.heads
    )
    assert tail < look


class Sleeper:
    """Who is to be woken."""

    def __init__(self) -> None:
        self.poked = threading.Event()

    def poke(self) -> None:
        self.poked.set()


def test_a_project_whose_end_could_not_be_read_leaves_the_watch_over_the_others_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, fleet = home.gated(), home.connect()
    fleet.add_tasks(tasks=[])
    watcher, sleeper, asleep = FeedWatch(store, alone=True), Sleeper(), home.stop()
    store.on("read_events", before=raising(StoreUnavailable("for a moment")))
    # Nobody comes back for it, and what nobody asks for is forgotten at once.
    monkeypatch.setattr("genlock.engine.feed_watch._LINGER_SECONDS", 0.0)
    with pytest.raises(StoreUnavailable):
        watcher.watch(("default", "elsewhere"), sleeper)
    monkeypatch.setattr("genlock.engine.feed_watch._LINGER_SECONDS", 3600.0)
    store.on("wait", before=asleep)

    watcher.watch(PLACE, sleeper)

    asleep.wait()
    asleep.open()
    fleet.add_tasks(tasks=["T"])
    assert sleeper.poked.wait(PATIENCE)
    watcher.close()
    watcher.join()


# Order


def test_waiters_are_served_in_the_order_in_which_they_came(home: Home) -> None:
    fleet = home.connect()
    waiting = [asks_for_next(fleet, f"agent-{n}") for n in range(5)]

    for n in range(5):
        fleet.add_tasks(tasks=[f"t-{n}"])
        assert answered(waiting[n])[0].task_id == f"t-{n}"
        assert [job.left for job in waiting[n + 1 :]] == [1] * (4 - n)


def test_waiters_are_served_in_order_when_many_tasks_come_at_once(home: Home) -> None:
    fleet = home.connect()
    waiting = [asks_for_next(fleet, f"agent-{n}") for n in range(8)]

    fleet.add_tasks(tasks=[f"t-{n}" for n in range(8)])

    assert [answered(job)[0].task_id for job in waiting] == [f"t-{n}" for n in range(8)]


def test_who_comes_later_does_not_go_before_those_who_wait(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    fleet.add_tasks(tasks=["X"])
    waiting = asks_for_next(fleet, "alice", tracks="A")
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "X"), before=stop)
    busy = later(
        lambda: fleet.claim_task(task_id="X", agent_id="somebody", session_id="s-somebody")
    )
    stop.wait()
    rival.add_tasks(tasks=["A-001-only"])
    late = fleet.engine.submit(
        [NextTask(project_key(*PLACE), caller("bob"), tracks=frozenset("A"))]
    )
    stop.open()

    assert busy.result(PATIENCE).success
    assert answered(waiting)[0].task_id == "A-001-only"
    assert answered(late)[0].reason == "NOTHING_READY"


def test_a_waiter_that_lost_a_race_keeps_its_place(home: Home) -> None:
    store = home.gated()
    fleet, rival = home.connect(store), home.connect()
    rival.add_tasks(tasks=[])
    first, second = asks_for_next(fleet, "first"), asks_for_next(fleet, "second")
    # The first task that comes is snatched away from the first waiter at the last moment, and then
    # there is another one.
    snatched = home.stop()
    store.on(
        "commit",
        when=writing(e.ClaimAcquired, "t-1"),
        before=lambda: granted(rival, "t-1", "snatcher"),
        after=snatched,
    )
    rival.add_tasks(tasks=["t-1"])
    snatched.wait()
    assert store.commits[-1].conflicts == ["t-1"]
    rival.add_tasks(tasks=["t-2"])
    snatched.open()

    until(rival, lambda: bool(rival.get_claim_history(task_id="t-2")))
    assert [entry.session_id for entry in rival.get_claim_history(task_id="t-2")] == ["s-first"]
    assert answered(first)[0].task_id == "t-2"
    rival.add_tasks(tasks=["t-3"])
    assert answered(second)[0].task_id == "t-3"


def test_a_waiter_whom_nothing_suits_lets_the_next_one_go_first(home: Home) -> None:
    fleet = home.connect()
    picky, easy = (
        asks_for_next(fleet, "picky", tracks="A"),
        asks_for_next(fleet, "easy", tracks="B"),
    )

    fleet.add_tasks(tasks=["B-001-one"])

    assert answered(easy)[0].task_id == "B-001-one"
    fleet.add_tasks(tasks=["A-001-one"])
    assert answered(picky)[0].task_id == "A-001-one"


def test_a_task_of_another_project_serves_only_who_waits_there(home: Home) -> None:
    fleet = home.connect()
    here, there = asks_for_next(fleet, "here"), asks_for_next(fleet, "there", project="elsewhere")

    fleet.add_tasks(tasks=["T"], project_id="elsewhere")

    assert answered(there)[0].task_id == "T"
    assert here.left == 1
    fleet.add_tasks(tasks=["U"])
    assert answered(here)[0].task_id == "U"


# Many


def look_after_all(fleet: genlock.Coordinator) -> None:
    """Whoever came before has looked when this returns. Nothing is written for it, so nobody is
    woken."""
    with pytest.raises(TaskNotFound):
        claim(fleet, "there-is-no-such-task", "passer-by")


def waiting_at(fleet: genlock.Coordinator) -> int:
    """How many wait for a task."""
    return sum(waiters for _, waiters in fleet.engine.depths().values())


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_when_one_task_comes_only_one_of_many_who_wait_is_looked_up(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=[])
    waiting = [asks_for_next(fleet, f"waiter-{number}") for number in range(40)]
    look_after_all(fleet)
    assert waiting_at(fleet) == len(waiting)
    before = len(store.calls)

    fleet.add_tasks(tasks=["T"])

    assert answered(waiting[0])[0].task_id == "T"
    loaded = [keys for method, keys in store.calls[before:] if method == "load"]
    assert {key.id for keys in loaded for key in keys if key.kind == SESSION} == {"s-waiter-0"}
    assert [job.left for job in waiting[1:]] == [1] * (len(waiting) - 1)


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_whoever_comes_to_wait_where_there_is_nothing_makes_nobody_look(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=[])
    first = asks_for_next(fleet, "first")
    look_after_all(fleet)
    assert waiting_at(fleet) == 1
    before = len(store.calls)

    others = [asks_for_next(fleet, f"other-{number}") for number in range(5)]
    look_after_all(fleet)
    assert waiting_at(fleet) == 6
    assert [
        query for method, query in store.calls[before:] if method == "find" and query.heads
    ] == []

    fleet.add_tasks(tasks=["T", "U"])
    assert {answered(first)[0].task_id, answered(others[0])[0].task_id} == {"T", "U"}


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_whoever_comes_to_wait_where_all_was_handed_out_makes_nobody_look(home: Home) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=[])
    first, second = asks_for_next(fleet, "first"), asks_for_next(fleet, "second")
    look_after_all(fleet)
    fleet.add_tasks(tasks=["T"])
    assert answered(first)[0].task_id == "T"
    look_after_all(fleet)
    before = len(store.calls)

    third = asks_for_next(fleet, "third")
    look_after_all(fleet)
    assert waiting_at(fleet) == 2
    assert [
        query for method, query in store.calls[before:] if method == "find" and query.heads
    ] == []

    fleet.add_tasks(tasks=["U", "V"])
    assert {answered(second)[0].task_id, answered(third)[0].task_id} == {"U", "V"}


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_a_task_that_was_handed_out_and_could_not_be_written_is_the_next_waiters(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    fleet.add_tasks(tasks=[])
    first, second = asks_for_next(fleet, "first"), asks_for_next(fleet, "second")
    look_after_all(fleet)
    assert waiting_at(fleet) == 2

    def break_down() -> None:
        raise StoreError("no room")

    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=break_down)
    fleet.add_tasks(tasks=["T"])

    assert isinstance(answered(first)[0], StoreError)
    assert answered(second)[0].task_id == "T"


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_a_task_that_one_may_not_have_is_the_next_waiters(home: Home) -> None:
    fleet = home.connect()
    ended, other = asks_for_next(fleet, "ended"), asks_for_next(fleet, "other")
    fleet.register_session(session_id="s-ended")
    fleet.end_session(session_id="s-ended")
    look_after_all(fleet)
    assert waiting_at(fleet) == 2

    fleet.add_tasks(tasks=["T"])

    assert isinstance(answered(ended)[0], SessionEnded)
    assert answered(other)[0].task_id == "T"


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_a_limit_of_ones_own_leaves_the_task_to_the_next_waiter_and_one_of_all_is_told_to_the_first(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.set_policy(limits={"max_concurrent_claims": 1, "max_lease_duration_seconds": 600})
    greedy, modest = asks_for_next(fleet, "greedy", lease=601), asks_for_next(fleet, "modest")
    third, fourth = asks_for_next(fleet, "third"), asks_for_next(fleet, "fourth")
    look_after_all(fleet)
    assert waiting_at(fleet) == 4

    fleet.add_tasks(tasks=["T"])
    assert answered(greedy)[0].limit == "max_lease_duration_seconds"
    assert answered(modest)[0].task_id == "T"
    fleet.add_tasks(tasks=["U"])
    assert answered(third)[0].limit == "max_concurrent_claims"
    look_after_all(fleet)
    assert fourth.left == 1
    assert submit(fleet, "T", "modest", 1).accepted
    assert answered(fourth)[0].task_id == "U"


@pytest.mark.usefixtures("only_the_feed_wakes")
def test_a_claim_less_in_another_project_of_the_tenant_lets_who_waits_at_the_limit_go_on(
    home: Home,
) -> None:
    fleet = home.connect()
    fleet.set_policy(limits={"max_concurrent_claims": 1})
    fleet.add_tasks(tasks=["T"], project_id="other")
    assert next_for(fleet, "alice", project_id="other").success
    first, second = asks_for_next(fleet, "bob"), asks_for_next(fleet, "carol")
    look_after_all(fleet)
    fleet.add_tasks(tasks=["U"])
    assert answered(first)[0].limit == "max_concurrent_claims"
    look_after_all(fleet)

    fleet.release_claim(
        task_id="T", expected_generation=1, session_id="s-alice", project_id="other"
    )

    assert answered(second)[0].task_id == "U"


def test_of_two_who_wait_with_one_operation_id_the_second_is_told_what_the_first_was_granted(
    home: Home,
) -> None:
    """As when a connection broke and its caller asks again: nobody hears the first answer."""
    fleet = home.connect()
    now = time.monotonic()
    long = NextTask(project_key(*PLACE), caller("bob"), operation="op", wait_until=now + PATIENCE)
    first = fleet.engine.submit([long], patience=PATIENCE)
    second = fleet.engine.submit([replace(long, wait_until=now + 0.5)], patience=1)
    look_after_all(fleet)
    assert waiting_at(fleet) == 2
    fleet.add_tasks(tasks=["T"])
    assert answered(first)[0].task_id == "T"

    assert (result := answered(second)[0]).success
    assert (result.task_id, result.claim.generation) == ("T", 1)


def asks_again_and_again(fleet: genlock.Coordinator, who: str, times: int) -> list[Job]:
    """So many waiters who are one and the same, with others between them."""
    request = NextTask(
        project_key(*PLACE), caller(who), operation="op", wait_until=time.monotonic() + 2 * PATIENCE
    )
    asked = []
    for number in range(times):
        asked.append(fleet.engine.submit([request], patience=PATIENCE))
        asks_for_next(fleet, f"between-{number}")
    look_after_all(fleet)
    return asked


def test_whoever_waits_more_than_once_under_one_operation_id_hears_of_the_grant_at_once_each_time(
    home: Home,
) -> None:
    fleet = home.connect()
    asked = asks_again_and_again(fleet, "bob", 3)
    assert waiting_at(fleet) == 6

    fleet.add_tasks(tasks=["T"])

    results = [answered(job)[0] for job in asked]
    assert [(result.task_id, result.claim.generation) for result in results] == [("T", 1)] * 3
    assert waiting_at(fleet) == 3


def test_one_who_waits_more_than_once_takes_no_turn_from_the_others(home: Home) -> None:
    fleet = home.connect()
    first, second = asks_again_and_again(fleet, "bob", 2)
    fleet.add_tasks(tasks=["T-1", "T-2", "T-3"])
    assert [answered(job)[0].task_id for job in (first, second)] == ["T-1", "T-1"]
    assert [claims.agent_id for claims in fleet.list_agents()] == ["between-0", "between-1", "bob"]


def test_a_claim_of_which_one_of_two_still_hears_is_not_given_back_for_the_other_s_sake(
    home: Home,
) -> None:
    store = home.gated()
    fleet = home.connect(store)
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=stop)
    first, second = asks_again_and_again(fleet, "bob", 2)
    fleet.add_tasks(tasks=[])
    adding = later(lambda: fleet.add_tasks(tasks=["T"]))
    stop.wait()
    fleet.engine.abandon(first)
    stop.open()
    adding.result(PATIENCE)

    assert answered(second)[0].task_id == "T"
    look_after_all(fleet)
    assert [(claims.agent_id, claims.tasks) for claims in fleet.list_agents()] == [("bob", ("T",))]
    # It is the second's now: if nobody waits for that one either, it is given back.
    fleet.engine.abandon(second)
    until(fleet, lambda: [claims.agent_id for claims in fleet.list_agents()] == ["between-0"])
