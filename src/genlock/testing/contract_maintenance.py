"""Clauses about purging, the epoch, the clock, waiting and closing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

from genlock.errors import BadArgument, Closed
from genlock.store import (
    Change,
    Committed,
    Conflict,
    EventQuery,
    Query,
    Store,
    start_commit,
)
from genlock.testing.concurrency import PATIENCE, Meeting, together
from genlock.testing.contract_base import Another, ContractBase, commit, must_conflict
from genlock.testing.contract_feed import from_cursor, history, must_be_lost, tail
from genlock.testing.sample import (
    facts_of,
    fold,
    make_change,
    make_key,
    read_feed,
    read_record,
    recorded_of,
    stored_of,
)

Wait = Callable[[list[tuple[str, str]], list[str], float], object]


class StoppedClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.instant = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)

    def now(self) -> datetime:
        return self.instant


class PurgeClauses(ContractBase):
    """Purging."""

    def test_a_purge_drops_the_older_events_and_keeps_the_base_and_the_rest(
        self, store: Store
    ) -> None:
        changes = history(store, commits=6)
        others = history(store, "A-002", commits=3)
        store.purge(make_key(), changes[3].version, b"the base")
        page = store.read_events(EventQuery("acme", "apollo", record=make_key()))
        assert facts_of(page.events) == [
            fact for fact in recorded_of(changes) if fact[1] >= changes[3].version
        ]
        assert page.base == b"the base"
        assert store.load([make_key()]).records == {make_key(): stored_of(changes[-1])}
        assert facts_of(read_record(store, make_key("A-002"))) == recorded_of(others)
        assert (
            store.read_events(EventQuery("acme", "apollo", record=make_key("A-002"))).base is None
        )

    def test_a_second_purge_swaps_the_base(self, store: Store) -> None:
        changes = history(store, commits=6)
        for at, base in ((2, b"first"), (4, bytes(range(256)))):
            store.purge(make_key(), changes[at].version, base)
            page = store.read_events(EventQuery("acme", "apollo", record=make_key()))
            assert page.base == base
            assert facts_of(page.events) == [
                fact for fact in recorded_of(changes) if fact[1] >= changes[at].version
            ]

    def test_a_purge_of_every_event_leaves_the_record_and_its_base(self, store: Store) -> None:
        changes = history(store, commits=3)
        store.purge(make_key(), changes[-1].version + 1, b"all of it")
        page = store.read_events(EventQuery("acme", "apollo", record=make_key()))
        assert (list(page.events), page.base) == ([], b"all of it")
        assert list(store.audit().faults) == []
        must_conflict(store, make_change(make_key(), changes[-2]))
        later = make_change(make_key(), changes[-1])
        commit(store, later)
        assert facts_of(read_record(store, make_key())) == recorded_of([later])

    def test_a_purge_leaves_replay_intact(self, store: Store) -> None:
        changes = history(store, commits=6)
        for change in (changes[1], changes[4], changes[5]):
            kept = [
                event for event in read_record(store, make_key()) if event.version <= change.version
            ]
            before = store.read_events(EventQuery("acme", "apollo", record=make_key())).base or b""
            store.purge(
                make_key(), change.version + 1, fold(before, (event.body for event in kept))
            )
            page = store.read_events(EventQuery("acme", "apollo", record=make_key()))
            assert fold(page.base or b"", (event.body for event in page.events)) == changes[-1].body

    def test_a_purge_is_seen_by_every_handle(self, store: Store, another: Another) -> None:
        reader = another()
        changes = history(store, commits=3)
        cursor = reader.read_events(EventQuery("acme", "apollo", limit=1)).cursor
        store.purge(make_key(), changes[-1].version, b"the base")
        assert (
            reader.read_events(EventQuery("acme", "apollo", record=make_key())).base == b"the base"
        )
        must_be_lost(reader, cursor)

    def test_a_cursor_before_what_was_purged_is_lost(self, store: Store) -> None:
        empty = store.read_events(EventQuery("acme", "apollo")).cursor
        history(store, "A-000", commits=1)
        early = tail(store)
        changes = history(store, commits=4)
        late = tail(store)
        history(store, "A-002", commits=2)
        store.purge(make_key(), changes[-1].version + 1, b"the base")
        must_be_lost(store, empty)
        must_be_lost(store, early)
        assert [event.key.id for event in from_cursor(store, late)] == ["A-002"] * 3

    def test_a_feed_read_from_the_start_has_all_that_is_kept(self, store: Store) -> None:
        first = history(store, "A-000", commits=2)
        changes = history(store, commits=6)
        last = history(store, "A-002", commits=2)
        store.purge(make_key(), changes[3].version, b"the base")
        kept = [
            *recorded_of(first),
            *(fact for fact in recorded_of(changes) if fact[1] >= changes[3].version),
            *recorded_of(last),
        ]
        for limit in (1, 2, 3, 1000):
            assert facts_of(read_feed(store, limit=limit)) == kept

    def test_a_feed_of_which_all_was_purged_continues(self, store: Store) -> None:
        changes = history(store, commits=3)
        store.purge(make_key(), changes[-1].version + 1, b"the base")
        page = store.read_events(EventQuery("acme", "apollo"))
        assert (list(page.events), page.more) == ([], False)
        cursors = [page.cursor, tail(store)]
        later = make_change(make_key(), changes[-1])
        (position,) = commit(store, later)
        for cursor in cursors:
            assert [(event.version, event.position) for event in from_cursor(store, cursor)] == [
                (later.version, position)
            ]

    def test_what_was_purged_is_not_missed_by_who_begins_some_way_back(self, store: Store) -> None:
        changes = history(store, "A-001", commits=3)
        store.purge(make_key(), changes[-1].version + 1, b"the base")
        later = history(store, "A-002", commits=2)
        back = EventQuery(
            "acme", "apollo", tail=True, back=len(recorded_of([*changes, *later])) - 1
        )
        assert facts_of(from_cursor(store, store.read_events(back).cursor)) == recorded_of(later)

    def test_a_purge_in_one_project_leaves_the_others_cursors(self, store: Store) -> None:
        history(store, project="gemini", commits=2)
        start = store.read_events(EventQuery("acme", "apollo")).cursor
        changes = history(store, commits=2)
        store.purge(make_key(project="gemini"), 3, b"the base")
        assert facts_of(from_cursor(store, start)) == recorded_of(changes)

    def test_positions_go_on_rising_after_a_purge(self, store: Store) -> None:
        changes = history(store, commits=3)
        last = max(event.position for event in read_feed(store))
        store.purge(make_key(), changes[-1].version + 1, b"the base")
        assert commit(store, make_change(make_key("A-002")))[0] > last


class EpochClauses(ContractBase):
    """The epoch and the clock."""

    def test_an_audit_names_every_place_that_has_anything_in_it_and_finds_nothing_wrong(
        self, store: Store
    ) -> None:
        assert list(store.audit().places) == []
        keys = [
            make_key(tenant="a", project="b"),
            make_key(tenant="a", project="c"),
            make_key(tenant="d", project="b"),
        ]
        for key in keys:
            commit(store, make_change(key))

        audit = store.audit()

        assert sorted(audit.places) == [("a", "b"), ("a", "c"), ("d", "b")]
        assert list(audit.faults) == []

    def test_changes_that_were_decided_before_the_epoch_rose_are_all_conflicts(
        self, store: Store
    ) -> None:
        old = make_change(make_key("A-001"))
        commit(store, old)
        before = store.load([old.key]).epoch
        store.set_epoch(before + 3)
        late = [make_change(old.key, old), make_change(make_key("A-002"))]
        for answers in (
            store.commit(late, epoch=before),
            start_commit(store, late, epoch=before).answers(),
        ):
            assert list(answers) == [Conflict(), Conflict()]
        assert facts_of(read_feed(store)) == recorded_of([old])
        answers = store.commit(late, epoch=store.load([]).epoch)
        assert [type(answer) for answer in answers] == [Committed, Committed]

    def test_who_has_read_that_another_handle_raised_the_epoch_writes_nothing_of_the_old_one(
        self, store: Store, another: Another
    ) -> None:
        change = make_change(make_key())
        before = store.load([change.key]).epoch
        another().set_epoch(before + 1)
        assert store.load([]).epoch == before + 1
        assert list(store.commit([change], epoch=before)) == [Conflict()]
        assert store.load([change.key]).records == {}

    def test_the_epoch_is_zero_at_birth_and_goes_only_upwards(self, store: Store) -> None:
        assert store.load([]).epoch == 0
        for epoch in (1, 2, 7, 1_000_000):
            store.set_epoch(epoch)
            assert store.load([make_key()]).epoch == epoch
            for lower in (epoch, epoch - 1, 0, -1):
                with pytest.raises(BadArgument):
                    store.set_epoch(lower)
            assert store.load([]).epoch == epoch

    def test_the_epoch_is_seen_by_every_handle(self, store: Store, another: Another) -> None:
        other = another()
        assert other.load([]).epoch == 0
        store.set_epoch(4)
        assert other.load([]).epoch == 4
        with pytest.raises(BadArgument):
            other.set_epoch(4)
        other.set_epoch(5)
        assert store.load([]).epoch == 5

    def test_of_many_who_raise_the_epoch_to_the_same_number_one_does(
        self, another: Another
    ) -> None:
        handles = [another() for _ in range(4)]

        def raise_to(store: Store, epoch: int) -> bool:
            try:
                store.set_epoch(epoch)
            except BadArgument:
                return False
            return True

        for epoch in range(1, 11):
            done = together([partial(raise_to, store, epoch) for store in handles])
            assert sum(each.answer for each in done) == 1

    def test_records_outlive_an_epoch(self, store: Store) -> None:
        changes = history(store, commits=2)
        store.set_epoch(1)
        assert store.load([make_key()]).records == {make_key(): stored_of(changes[-1])}
        commit(store, make_change(make_key(), changes[-1]))

    def test_now_is_aware_and_utc(self, store: Store) -> None:
        now = store.load([]).now
        assert now.utcoffset() == timedelta(0)

    def test_an_injected_clock_is_used(self, another: Another) -> None:
        clock = StoppedClock()
        store = another(clock)
        assert store.load([]).now == clock.instant
        clock.instant += timedelta(days=400)
        assert store.load([make_key()]).now == clock.instant
        clock.instant -= timedelta(days=800)
        assert store.load([]).now == clock.instant


class WaitClauses(ContractBase):
    """A wakeup is a hint: it must come, but not all the time."""

    def woken(
        self,
        store: Store,
        projects: list[str],
        act: Callable[[], object],
        wait_by: Wait | None = None,
    ) -> float:
        """Returns how many seconds after the beginning of `act` a waiter on these projects came
        back."""
        after = [tail(store, project) for project in projects]
        returned: list[float] = []
        ready = threading.Event()

        def wait() -> None:
            ready.set()
            (wait_by or store.wait)([("acme", project) for project in projects], after, PATIENCE)
            returned.append(time.monotonic())

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        assert ready.wait(PATIENCE)
        began = time.monotonic()
        act()
        waiter.join(PATIENCE / 2)
        assert returned, f"nobody woke the waiter within {PATIENCE / 2} s"
        return returned[0] - began

    def test_a_waiter_is_woken_by_another_handles_commit(
        self, store: Store, another: Another
    ) -> None:
        other = another()
        history(store, "A-000", commits=1)
        for number in range(3):
            assert (
                self.woken(store, ["apollo"], partial(history, other, f"A-1{number}", commits=1))
                < PATIENCE / 4
            )

    def test_a_waiter_is_woken_by_its_own_handles_commit(self, store: Store) -> None:
        assert self.woken(store, ["apollo"], partial(history, store, commits=1)) < PATIENCE / 4

    def test_a_waiter_on_several_projects_is_woken_by_any(
        self, store: Store, another: Another
    ) -> None:
        other = another()
        for project in ("apollo", "gemini", "mercury"):
            act = partial(history, other, project=project, commits=1)
            assert self.woken(store, ["apollo", "gemini", "mercury"], act) < PATIENCE / 4

    def test_a_wait_for_others_ends_when_they_commit_and_names_only_what_they_moved(
        self, store: Store, another: Another
    ) -> None:
        other = another()
        moved: set[tuple[str, str]] = set()
        for number, project in enumerate(("apollo", "gemini", "apollo", "mercury")):
            heard: list[tuple[str, str]] = []
            moved.add(("acme", project))

            def listen(*given: Any, heard: list[tuple[str, str]] = heard) -> None:
                heard += store.wait(*given, others=True)

            history(store, f"A-0{number}", project="mercury", commits=1)
            act = partial(history, other, f"A-1{number}", project=project, commits=1)
            assert self.woken(store, ["apollo", "gemini", "mercury"], act, listen) < PATIENCE / 4
            # The wakeup may be a late one for the previous commit. But a feed moved only by this
            # process causes none.
            assert moved.issuperset(heard), "a project was named that only this handle has moved"

    def test_a_wait_for_others_misses_none_of_their_commits_among_its_own(
        self, store: Store, another: Another
    ) -> None:
        other = another()
        for number in range(5):
            after = [tail(store)]
            history(store, f"A-0{number}", commits=1)
            history(other, f"A-1{number}", commits=1)
            history(store, f"A-2{number}", commits=1)
            began = time.monotonic()
            store.wait([("acme", "apollo")], after, PATIENCE, others=True)
            assert time.monotonic() - began < PATIENCE / 4

    def test_a_wait_for_what_has_already_happened_returns_at_once(self, store: Store) -> None:
        start = store.read_events(EventQuery("acme", "apollo")).cursor
        history(store, commits=1)
        began = time.monotonic()
        store.wait(
            [("acme", "gemini"), ("acme", "apollo")], [tail(store, "gemini"), start], PATIENCE
        )
        assert time.monotonic() - began < PATIENCE / 4

    def test_a_wait_on_a_quiet_feed_lasts_until_its_timeout(self, store: Store) -> None:
        history(store, commits=1)
        history(store, "A-001", "gemini", commits=1)
        after, began = tail(store), time.monotonic()
        history(store, "A-002", "gemini", commits=1)
        for _ in range(20):  # it may return without a reason, but not repeatedly
            left = began + 0.2 - time.monotonic()
            if left <= 0:
                break
            store.wait([("acme", "apollo")], [after], left)
        assert began + 0.2 <= time.monotonic() < began + PATIENCE / 4

    def test_a_wait_of_no_time_returns(self, store: Store) -> None:
        store.wait([("acme", "apollo")], [tail(store)], 0)
        store.wait([], [], 0)


class CloseClauses(ContractBase):
    """Closing a store."""

    def test_a_closed_store_says_so(self, store: Store) -> None:
        cursor = tail(store)
        store.close()
        key = make_key()
        calls: list[Callable[[], object]] = [
            lambda: store.load([key]),
            lambda: store.commit([make_change(key)]),
            lambda: store.find(Query("acme")),
            lambda: store.find(Query("acme"), count_by="state"),
            lambda: store.read_events(EventQuery("acme", "apollo")),
            lambda: store.read_events(EventQuery("acme", "apollo", record=key)),
            lambda: store.wait([("acme", "apollo")], [cursor], 0),
            lambda: store.wait([("acme", "apollo")], [cursor], 0, others=True),
            lambda: store.purge(key, 1, b""),
            lambda: store.payloads(),
            lambda: store.set_epoch(1),
        ]
        for call in calls:
            with pytest.raises(Closed):
                call()

    def test_closing_twice_is_fine(self, store: Store) -> None:
        store.close()
        store.close()

    def test_closing_one_handle_leaves_the_others_open(
        self, store: Store, another: Another
    ) -> None:
        other = another()
        store.close()
        changes = history(other, commits=2)
        assert facts_of(read_feed(other)) == recorded_of(changes)

    def test_calls_during_close_raise_closed(self, store: Store, another: Another) -> None:
        meeting = Meeting(parties=4, share=10)
        done: list[Change] = []
        after = [tail(store)]

        def work(party: int, act: Callable[[int], object]) -> None:
            deadline = time.monotonic() + PATIENCE
            with suppress(Closed):
                for number in count():
                    assert time.monotonic() < deadline, "the store was never closed to us"
                    act(number)
                    meeting.step_done(party)

        def write(number: int) -> None:
            change = make_change(make_key(f"A-{number:05}"))
            commit(store, change)
            done.append(change)

        def wait() -> None:
            with suppress(Closed):
                store.wait([("acme", "gemini")], [tail(store, "gemini")], PATIENCE)

        def close() -> None:
            for _ in meeting.steps():
                store.read_events(EventQuery("acme", "apollo", after=after[0], limit=1))
            store.close()

        calls: list[Callable[[], None]] = [
            partial(work, 0, write),
            partial(work, 1, lambda number: store.load([make_key(f"A-{number:05}")])),
            partial(work, 2, lambda number: store.find(Query("acme", "apollo", limit=3))),
            partial(
                work, 3, lambda number: store.read_events(EventQuery("acme", "apollo", limit=3))
            ),
            wait,
            close,
        ]
        began = time.monotonic()
        together(calls, meeting)
        assert time.monotonic() - began < PATIENCE / 2, "who waited was not told"
        if self.persistent:
            assert {fact[0] for fact in facts_of(read_feed(another()))} >= {
                change.key for change in done
            }, "what was acknowledged is lost"
