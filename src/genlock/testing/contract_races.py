"""Clauses about concurrent calls. Each proves that the calls did overlap."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from genlock.errors import Closed, CursorLost, GenlockError, OverLimit
from genlock.store import (
    Change,
    Committed,
    Conflict,
    EventQuery,
    Index,
    Key,
    PendingCommit,
    PendingLoad,
    Query,
    Store,
    start_commit,
    start_load,
)
from genlock.testing.concurrency import (
    PATIENCE,
    Meeting,
    Race,
    Raced,
    Rendezvous,
    Timed,
    Worker,
    overlapped,
    together,
)
from genlock.testing.contract_base import Another, ContractBase, commit
from genlock.testing.contract_feed import from_cursor, tail
from genlock.testing.sample import (
    facts_of,
    keys_of,
    make_change,
    make_key,
    read_feed,
    read_record,
    recorded_of,
    stored_of,
)

# Commits and loads that are started now and answered later. A store without `start_commit` answers
# at once, and satisfies these clauses, too.


def _started_commit(store: Store, *changes: Change) -> PendingCommit:
    """Starts a commit, which must not raise whatever is wrong with it."""
    try:
        return start_commit(store, changes)
    except GenlockError as error:
        raise AssertionError(f"told before anybody asked: {error}") from error


def _started_load(store: Store, *keys: Key) -> PendingLoad:
    try:
        return start_load(store, keys)
    except GenlockError as error:
        raise AssertionError(f"told before anybody asked: {error}") from error


class StartCommitClauses(ContractBase):
    """Started commits and their answers."""

    def test_what_was_sent_is_answered_change_by_change_whichever_thread_waits(
        self, store: Store
    ) -> None:
        old = make_change(make_key("A-001"))
        commit(store, old)
        new, late = make_change(make_key("A-002"), events=2), make_change(old.key, mark="late")
        sent = start_commit(store, [late, new])
        waiting = threading.Thread(target=sent.wait)
        waiting.start()
        waiting.join(PATIENCE)
        assert not waiting.is_alive(), "nothing is to be heard of a commit that was sent"
        assert [type(answer) for answer in sent.answers()] == [Conflict, Committed]
        assert store.load([old.key, new.key]).records == {
            change.key: stored_of(change) for change in (old, new)
        }
        assert facts_of(read_record(store, new.key)) == recorded_of([new])

    def test_a_commit_that_was_sent_need_not_be_waited_for(self, store: Store) -> None:
        change = make_change(make_key())
        assert [type(answer) for answer in start_commit(store, [change]).answers()] == [Committed]
        assert facts_of(read_record(store, change.key)) == recorded_of([change])
        assert start_commit(store, []).answers() == []

    def test_others_are_served_while_commits_are_under_way(self, store: Store) -> None:
        old, first, second, third = (make_change(make_key(f"A-{number:03}")) for number in range(4))
        commit(store, old)
        one, other = (
            start_commit(store, [first]),
            start_commit(store, [second, make_change(old.key, mark="late")]),
        )
        assert old.key in store.load([old.key]).records
        commit(store, third)
        # In a different order than they were sent: each gets its own answer.
        assert [type(answer) for answer in other.answers()] == [Committed, Conflict]
        assert [type(answer) for answer in one.answers()] == [Committed]
        assert sorted(facts_of(read_feed(store))) == sorted(
            recorded_of([old, first, second, third])
        )

    def test_what_cannot_be_written_is_told_with_the_answers(
        self, store: Store, another: Another
    ) -> None:
        large = make_change(make_key("A-002"), body=bytes(store.limits.body_bytes + 1))
        sent = _started_commit(store, make_change(make_key("A-001")), large)
        sent.wait()
        with pytest.raises(OverLimit):
            sent.answers()
        assert read_feed(store) == []
        closed = another()
        closed.close()
        late = _started_commit(closed, make_change(make_key("A-001")))
        late.wait()
        with pytest.raises(Closed):
            late.answers()
        assert read_feed(store) == []

    def test_an_answer_that_nobody_wants_to_hear_is_not_taken_for_anothers(
        self, store: Store
    ) -> None:
        for number in range(6):
            old = make_change(make_key(f"A-{number:03}"))
            commit(store, old)
            unheard = start_commit(store, [make_change(make_key(f"unheard-{number}"))])
            if number % 2:
                unheard.wait()
            del unheard
            gc.collect()
            if number % 3:
                assert store.load([old.key]).records[old.key].digest == old.digest
            late = make_change(old.key, mark="late")
            assert [type(answer) for answer in store.commit([late])] == [Conflict]

    def test_what_was_asked_for_is_loaded_while_others_are_served(
        self, store: Store, another: Another
    ) -> None:
        old, other = make_change(make_key("A-001")), make_change(make_key("A-002"))
        commit(store, old, other)
        first, second = (
            start_load(store, [old.key, make_key("absent")]),
            start_load(store, [other.key]),
        )
        third = make_change(make_key("A-003"))
        commit(store, third)
        assert store.load([third.key]).records == {third.key: stored_of(third)}
        # In a different order than they were started: each gets its own answer.
        found, _, now, epoch, _ = second.answers()
        assert (found, epoch) == ({other.key: stored_of(other)}, 0)
        assert first.answers().records == {old.key: stored_of(old)}
        assert abs((store.load([]).now - now).total_seconds()) < PATIENCE
        assert start_load(store, []).answers().records == {}

    def test_what_was_asked_for_was_read_after_it_was_asked_for(self, store: Store) -> None:
        for number in range(5):
            change = make_change(make_key(f"A-{number:03}"))
            commit(store, change)
            asked = start_load(store, [change.key])
            late = make_change(change.key, change, mark="later")
            commit(store, late)
            assert asked.answers().records.get(change.key) in (stored_of(change), stored_of(late))

    def test_what_cannot_be_read_is_told_with_the_answers(self, another: Another) -> None:
        closed = another()
        closed.close()
        asked = _started_load(closed, make_key())
        with pytest.raises(Closed):
            asked.answers()

    def test_what_nobody_wants_to_hear_any_more_is_not_taken_for_anothers(
        self, store: Store
    ) -> None:
        old, other = make_change(make_key("A-001")), make_change(make_key("A-002"))
        commit(store, old, other)
        for _ in range(4):
            unheard = start_load(store, [old.key])
            del unheard
            gc.collect()
            assert store.load([other.key]).records == {other.key: stored_of(other)}


RIVALS = 6
MEETINGS = 15
"""Rounds in which rivals must have met before a race counts as run."""
MOST_ROUNDS = 400


class Run(Protocol):
    """Runs every rival's commit concurrently. Returns which changes were done, and when."""

    def __call__(self, rivals: list[list[Change]]) -> list[Timed[list[bool]]]: ...


def race(store: Store, run: Run, rivals: int, *, created: bool) -> None:
    """Rivals write the same records over the same version, until they have overlapped often enough:
    one wins each record."""
    met = 0
    for number in range(MOST_ROUNDS):
        keys = [
            make_key(
                f"{'new' if created else 'old'}-{number:03}-{at}",
                project="apollo" if at % 2 else "gemini",
            )
            for at in range(4)
        ]
        before: list[Change | None] = [None if created else make_change(key) for key in keys]
        if not created:
            commit(store, *(change for change in before if change))
        batches = [
            [
                make_change(key, old, mark=f"rival {rival}", events=1 + rival % 3)
                for key, old in zip(keys, before, strict=True)
            ]
            for rival in range(rivals)
        ]
        runs = run(batches)
        for at, key in enumerate(keys):
            winners = [rival for rival in range(rivals) if runs[rival].answer[at]]
            assert len(winners) == 1, f"{len(winners)} rivals were told that they had written {key}"
            won = batches[winners[0]][at]
            stored = store.load([key]).records[key]
            assert stored[:4] == (key, won.version, won.digest, won.body)
            assert facts_of(read_record(store, key)) == recorded_of(
                [change for change in (before[at], won) if change]
            )
        winner = next(run for run in runs if run.answer[0])
        met += overlapped(winner, (run for run in runs if run is not winner)) > 0
        if met == MEETINGS:
            return
    raise AssertionError(f"rivals met in only {met} of {MOST_ROUNDS} rounds: nothing is proved")


def by_threads(handles: list[Store]) -> Run:
    """Runs rivals as threads, each with its own handle or sharing one."""

    def attempt(store: Store, changes: Sequence[Change]) -> list[bool]:
        answers = store.commit(changes)
        assert all(isinstance(answer, Committed | Conflict) for answer in answers)
        return [isinstance(answer, Committed) for answer in answers]

    def run(rivals: list[list[Change]]) -> list[Timed[list[bool]]]:
        inside = threading.Barrier(len(rivals))
        pairs = [
            (handles[rival % len(handles)], Rendezvous(changes, inside))
            for rival, changes in enumerate(rivals)
        ]
        return together([partial(attempt, store, changes) for store, changes in pairs])

    return run


class RaceClauses(ContractBase):
    """Races between threads, and between processes where the store allows them."""

    def test_one_of_many_threads_wins_a_record_at_one_version_and_digest(
        self, store: Store, another: Another
    ) -> None:
        race(store, by_threads([another() for _ in range(RIVALS)]), RIVALS, created=False)

    def test_one_of_many_threads_on_one_handle_wins_a_record(self, store: Store) -> None:
        race(store, by_threads([store]), RIVALS, created=False)

    def test_one_of_many_threads_creates_a_record(self, store: Store, another: Another) -> None:
        race(store, by_threads([another() for _ in range(RIVALS)]), RIVALS, created=True)

    def test_one_of_many_processes_wins_a_record(self, tmp_path: Path) -> None:
        self.needs("processes")
        with self.handles(tmp_path) as another, ExitStack() as stack:
            store = another()
            workers = [stack.enter_context(Worker(self, tmp_path / "here")) for _ in range(3)]
            for worker in workers:
                worker.ready()

            def run(rivals: list[list[Change]]) -> list[Timed[list[bool]]]:
                for worker, changes in zip(workers, rivals, strict=True):
                    worker.order(Race(changes))
                answers = [worker.answer(Raced) for worker in workers]
                return [Timed(answer.done, answer.began, answer.ended) for answer in answers]

            race(store, run, len(workers), created=False)
            race(store, run, len(workers), created=True)

    def test_no_increment_is_lost_among_many_threads(self, another: Another) -> None:
        handles, key, meeting = (
            [another() for _ in range(4)],
            make_key(),
            Meeting(parties=4, share=8),
        )

        def increment(store: Store, name: int) -> list[Change]:
            done: list[Change] = []
            for _ in meeting.steps():
                change = make_change(key, store.load([key]).records.get(key), mark=f"{name}")
                if isinstance(store.commit([change])[0], Committed):
                    done.append(change)
                    meeting.step_done(name)
            return done

        runs = together(
            [partial(increment, store, name) for name, store in enumerate(handles)], meeting
        )
        done = sorted(
            (change for run in runs for change in run.answer), key=lambda change: change.version
        )
        assert [change.version for change in done] == list(range(1, len(done) + 1))
        assert facts_of(read_record(handles[0], key)) == recorded_of(done)

    def test_a_load_is_one_consistent_read(self, store: Store, another: Another) -> None:
        """One party repeatedly writes A, then B, then C. A load that has C at a version must have A
        and B at that version or a later one."""
        other, meeting = another(), Meeting(parties=3, share=20)
        keys = [make_key("A"), make_key("B", project="gemini"), make_key("C")]
        between = [make_key(f"absent {number}") for number in range(30)]

        def write() -> None:
            changes: list[Change | None] = [None, None, None]
            for _ in meeting.steps():
                for at in range(3):
                    changes[at] = change = make_change(keys[at], changes[at])
                    commit(other, change)
                meeting.step_done(0)

        def read(party: int, order: list[Key]) -> None:
            last = 0
            for _ in meeting.steps():
                records = store.load(order).records
                versions = [records[key].version if key in records else 0 for key in keys]
                assert versions == sorted(versions, reverse=True), (
                    f"an earlier write is missing from a later state: {versions}"
                )
                assert versions[0] - versions[2] <= 1, f"two states in one answer: {versions}"
                assert sum(versions) >= last, "time ran back"
                if sum(versions) > last:
                    meeting.step_done(party)
                last = sum(versions)

        calls: list[Callable[[], None]] = [
            write,
            partial(read, 1, [keys[0], *between, keys[1], *between, keys[2]]),
            partial(read, 2, keys[::-1]),
        ]
        together(calls, meeting)

    def test_who_sees_a_record_sees_its_events_and_who_sees_an_event_sees_its_record(
        self, store: Store, another: Another
    ) -> None:
        other, key, meeting = another(), make_key(), Meeting(parties=3, share=20)

        def write() -> None:
            change: Change | None = None
            for number in meeting.steps():
                change = make_change(key, change, events=1 + number % 3)
                commit(other, change)
                meeting.step_done(0)

        def read_the_record_first(party: int) -> None:
            last = 0
            for _ in meeting.steps():
                records = store.load([key]).records
                version = records[key].version if key in records else 0
                page = store.read_events(
                    EventQuery("acme", "apollo", record=key, after_version=last)
                )
                # After a long wait there are more events than one page holds.
                assert page.more or version <= last + len(page.events), (
                    "the record is there without its events"
                )
                if version > last:
                    meeting.step_done(party)
                last = version

        def read_the_feed_first(party: int) -> None:
            cursor = None
            for _ in meeting.steps():
                page = store.read_events(EventQuery("acme", "apollo", after=cursor, limit=5))
                cursor = page.cursor
                if page.events:
                    assert store.load([key]).records[key].version >= page.events[-1].version, (
                        "the events are there without their record"
                    )
                    meeting.step_done(party)

        calls: list[Callable[[], None]] = [
            write,
            partial(read_the_record_first, 1),
            partial(read_the_feed_first, 2),
        ]
        together(calls, meeting)

    def test_who_reads_while_events_are_purged_has_them_or_is_told(
        self, store: Store, another: Another
    ) -> None:
        """Reads the same page repeatedly, until the cursor is lost: a purge between two reads never
        goes unnoticed."""
        reader = another()
        for number in range(MEETINGS):
            before = tail(store)
            change = make_change(make_key(f"A-{number:03}"), events=1 + number % 3)
            commit(store, change)
            reading = threading.Event()

            def read(
                cursor: str = before, change: Change = change, reading: threading.Event = reading
            ) -> None:
                deadline = time.monotonic() + PATIENCE
                while time.monotonic() < deadline:
                    try:
                        events = from_cursor(reader, cursor)
                    except CursorLost:
                        return
                    assert facts_of(events) == recorded_of([change]), (
                        "events are gone, and nobody was told"
                    )
                    reading.set()
                raise AssertionError("the cursor was never lost")

            def purge(change: Change = change, reading: threading.Event = reading) -> None:
                assert reading.wait(PATIENCE)
                store.purge(change.key, change.version + 1, b"the base")

            calls: list[Callable[[], None]] = [read, purge]
            runs = together(calls)
            assert overlapped(runs[0], runs[1:])

    def test_a_dependent_is_never_missed_by_who_looks_after_its_commit(
        self, another: Another
    ) -> None:
        handles, meeting = [another() for _ in range(4)], Meeting(parties=4, share=10)

        def wait_on(store: Store, name: int) -> None:
            for number in meeting.steps():
                commit(
                    store,
                    make_change(
                        make_key(f"{name}-{number:04}"),
                        index=Index(waits_on=(f"hub{number}", f"other{name}")),
                    ),
                )
                found = keys_of(store.find(Query("acme", "apollo", waits_on=(f"hub{number}",))))
                assert make_key(f"{name}-{number:04}") in found
                meeting.step_done(name)

        together([partial(wait_on, store, name) for name, store in enumerate(handles)], meeting)
