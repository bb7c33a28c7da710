"""The contract can fail: stores that break one promise each, and the clauses that must notice.

Every broken store is the memory store with one thing done as one might do it in a hurry.
"""

from __future__ import annotations

import inspect
import time
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from genlock.errors import BadArgument, CursorLost, OverLimit
from genlock.store import (
    Audit,
    Change,
    Clock,
    Committed,
    Conflict,
    Deferred,
    EventPage,
    EventQuery,
    Key,
    Page,
    Payloads,
    PendingCommit,
    PendingLoad,
    Query,
    RecordedEvent,
    Snapshot,
    Store,
    Stored,
)
from genlock.testing import StoreContract, contract_maintenance
from tests.stores import test_contract


class Whole:
    """A store that breaks nothing: all it does is done by another. The handles of one place share
    `notes`."""

    def __init__(self, inner: Store, notes: dict[str, list[object]]) -> None:
        self.inner, self.notes, self.limits = inner, notes, inner.limits

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        return self.inner.load(keys, queries, with_index=with_index)

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        return self.inner.commit(changes, epoch=epoch)

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        return self.inner.find(query, count_by=count_by)

    def read_events(self, query: EventQuery) -> EventPage:
        return self.inner.read_events(query)

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        return self.inner.wait(projects, after, timeout, others=others)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        self.inner.purge(key, before_version, base)

    def payloads(self) -> Payloads:
        return self.inner.payloads()

    def set_epoch(self, epoch: int) -> None:
        self.inner.set_epoch(epoch)

    def audit(self) -> Audit:
        return self.inner.audit()

    def close(self) -> None:
        self.inner.close()

    def at(self, key: Key) -> tuple[int, bytes]:
        """Version and digest of a record at present."""
        stored = self.inner.load([key]).records.get(key)
        return (stored.version, stored.digest) if stored else (0, b"")


class SwapsByVersionAlone(Whole):
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        digests = [self.at(change.key) for change in changes]
        return self.inner.commit(
            [
                change._replace(read_digest=digest) if change.read_version == version else change
                for change, (version, digest) in zip(changes, digests, strict=True)
            ]
        )


class ChecksBeforeItWrites(Whole):
    """Reads, compares, and then writes without a condition."""

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        fits = [
            self.at(change.key) == (change.read_version, change.read_digest) for change in changes
        ]
        time.sleep(0.001)  # a store on the other end of a network takes its time
        return [
            self.force(change) if fit else Conflict()
            for change, fit in zip(changes, fits, strict=True)
        ]

    def force(self, change: Change) -> Committed | Conflict:
        answer: Committed | Conflict = Conflict()
        while isinstance(answer, Conflict):
            version, digest = self.at(change.key)
            (answer,) = self.inner.commit(
                [change._replace(read_version=version, read_digest=digest)]
            )
        return answer


class WritesEventsOfTheRefused(Whole):
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        answers = self.inner.commit(changes, epoch=epoch)
        for change, answer in zip(changes, answers, strict=True):
            if isinstance(answer, Conflict):
                self.notes.setdefault("ghosts", []).extend(
                    RecordedEvent(change.key, *event, 0) for event in change.events
                )
        return answers

    def read_events(self, query: EventQuery) -> EventPage:
        page = self.inner.read_events(query)
        ghosts = [
            ghost
            for ghost in self.notes.get("ghosts", [])
            if isinstance(ghost, RecordedEvent) and ghost.key == query.record
        ]
        return page._replace(events=[*page.events, *ghosts])


class CommitsAllOrNone(Whole):
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        if any(
            self.at(change.key) != (change.read_version, change.read_digest) for change in changes
        ):
            return [Conflict() for _ in changes]
        return self.inner.commit(changes, epoch=epoch)


class AnswersInItsOwnOrder(Whole):
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        return self.inner.commit(sorted(changes, key=lambda change: change.digest))


class WritesUpToTheLimit(Whole):
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        answers: list[Committed | Conflict] = []
        for change in changes[: self.limits.batch]:
            answers += self.inner.commit([change])
        if len(changes) > self.limits.batch:
            raise OverLimit("too many")
        return answers


class LoadsKeyByKey(Whole):
    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        parts = [self.inner.load([], queries)]
        for key in keys:
            time.sleep(0)  # as above
            parts.append(self.inner.load([key], with_index=with_index))
        return parts[0]._replace(
            records={key: stored for part in parts for key, stored in part.records.items()}
        )


class RemembersWhatItLoaded(Whole):
    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        snapshot = self.inner.load(keys, queries, with_index=with_index)
        memory: dict[Key, Stored] = self.__dict__.setdefault("memory", {})
        return snapshot._replace(
            records={
                key: memory.setdefault(key, stored) for key, stored in snapshot.records.items()
            }
        )


class ShowsSomeEventsTooLate(Whole):
    """Some events come to light only after a later one has been read: as when positions are given
    before the commit."""

    def read_events(self, query: EventQuery) -> EventPage:
        page = self.inner.read_events(query)
        shown: set[int] = self.__dict__.setdefault("shown", set())
        late = [
            event
            for event in page.events[:-1]
            if event.version % 3 == 0 and event.position not in shown and not query.record
        ]
        shown.update(event.position for event in late)
        return page._replace(events=[event for event in page.events if event not in late])


class RepeatsTheLastOfAPage(Whole):
    def read_events(self, query: EventQuery) -> EventPage:
        page = self.inner.read_events(query)
        if page.more and len(page.events) > 1:
            return page._replace(
                cursor=self.inner.read_events(replace(query, limit=len(page.events) - 1)).cursor
            )
        return page


class HasOneCursorAPage(Whole):
    def read_events(self, query: EventQuery) -> EventPage:
        page = self.inner.read_events(query)
        return page._replace(cursors=[page.cursor for _ in page.cursors])


class CountsVoidsThatAreEvents(Whole):
    def read_events(self, query: EventQuery) -> EventPage:
        page = self.inner.read_events(query)
        return page._replace(voids=len(page.events) // 2)


class NeverLosesACursor(Whole):
    def read_events(self, query: EventQuery) -> EventPage:
        try:
            return self.inner.read_events(query)
        except (CursorLost, BadArgument):
            return self.inner.read_events(replace(query, after=None))


class LooksAtTheCursorFirst(Whole):
    """And then at the events."""

    def read_events(self, query: EventQuery) -> EventPage:
        page = self.inner.read_events(query)
        if query.after is None:
            return page
        time.sleep(0.001)
        kept = self.inner.read_events(replace(query, after=None)).events
        return page._replace(events=[event for event in page.events if event in kept])


class FindsDependentsLate(Whole):
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        page = self.inner.find(query, count_by=count_by)
        if not query.waits_on:
            return page
        pages = self.notes.setdefault(repr(query), [page])
        pages.append(page)
        before = pages[-2]
        assert isinstance(before, Page)
        return before


class AnswersQueriesInItsOwnOrder(Whole):
    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        snapshot = self.inner.load(keys, with_index=with_index)
        return snapshot._replace(pages=[self.find(query) for query in reversed(queries)])


class Starts(Whole):
    """In one step, like the memory store; but it says that it has two."""

    def __init__(self, inner: Store, notes: dict[str, list[object]]) -> None:
        super().__init__(inner, notes)
        self.limits = replace(inner.limits, starts=True)

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        return Deferred(partial(self.commit, epoch=epoch), changes)

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        return Deferred(self.load, keys)


class AnswersTheFirstForAll(Starts):
    """One connection for all that is sent: whoever listens first hears the first answer."""

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        self.notes.setdefault("sent", []).append(
            Deferred(partial(self.commit, epoch=epoch), changes)
        )
        return Deferred(lambda _: self.notes["sent"].pop(0).answers(), ())  # type: ignore[attr-defined]


class ComplainsWhenItSends(Starts):
    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        answers = self.commit(changes)
        return Deferred(lambda _: answers, ())


class LeavesAnswersLying(Starts):
    """A connection that was given back with an answer on it."""

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        self.notes["lying"] = [self.inner.commit(changes, epoch=epoch)]
        return Deferred(lambda _: self.notes.pop("lying")[0], ())  # type: ignore[arg-type, return-value]

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        answers = self.inner.commit(changes, epoch=epoch)
        return (
            self.notes.pop("lying")[0] if "lying" in self.notes and len(changes) == 1 else answers  # type: ignore[return-value]
        )


class TellsTheFirstToAll(Starts):
    """One connection for all that is asked: whoever listens first hears the first answer."""

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        self.notes.setdefault("asked", []).append(Deferred(self.load, keys))
        return Deferred(lambda _: self.notes["asked"].pop(0).answers(), ())  # type: ignore[attr-defined]


class AsksBeforehand(Starts):
    """It says what it has heard before."""

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        before = self.inner.load([change.key for change in changes])
        self.notes.setdefault("before", [before])[0] = before
        return self.inner.commit(changes, epoch=epoch)

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        before = self.notes["before"][0]
        return Deferred(lambda _: before, ())  # type: ignore[arg-type, return-value]


class ComplainsWhenItIsAsked(Starts):
    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        snapshot = self.load(keys)
        return Deferred(lambda _: snapshot, ())


class LeavesWhatWasReadLying(Starts):
    """A connection that was given back with an answer on it."""

    def start_load(self, keys: Sequence[Key]) -> PendingLoad:
        self.notes["lying"] = [self.inner.load(keys)]
        return Deferred(lambda _: self.notes.pop("lying")[0], ())  # type: ignore[arg-type, return-value]

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        snapshot = self.inner.load(keys, queries, with_index=with_index)
        return self.notes.pop("lying")[0] if "lying" in self.notes else snapshot  # type: ignore[return-value]


class PagesByNumber(Whole):
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        skipped = int(query.after or 0)
        page = self.inner.find(
            replace(query, after=None, limit=skipped + query.limit), count_by=count_by
        )
        return page._replace(
            records=page.records[skipped:], next=page.next and str(skipped + query.limit)
        )


class LeavesOutTheInstantItself(Whole):
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        before = None if query.due_before is None else query.due_before - 1
        return self.inner.find(replace(query, due_before=before), count_by=count_by)


class CountsAPage(Whole):
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        page = self.inner.find(query, count_by=count_by)
        return page._replace(
            counts={name: min(count, query.limit) for name, count in page.counts.items()}
        )


class TakesHeadsOfAllPoolsTogether(Whole):
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        page = self.inner.find(query, count_by=count_by)
        return page._replace(records=page.records[: query.heads]) if query.heads else page


class PutsThoseWithoutAnOrderLast(Whole):
    """As a server does that is not told where NULL stands."""

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        page = self.inner.find(query, count_by=count_by)
        return (
            page._replace(records=sorted(page.records, key=lambda stored: stored.order is None))
            if query.pool is not None
            else page
        )


class KeepsTheFirstBase(Whole):
    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        old = self.inner.read_events(EventQuery(key.tenant, key.project, record=key)).base
        self.inner.purge(key, before_version, base if old is None else old)


class OverwritingPayloads:
    def __init__(self, inner: Payloads) -> None:
        self.open, self.drop, self.names, self.inner = inner.open, inner.drop, inner.names, inner

    def put(self, key: Key, digest: str, data: bytes) -> None:
        self.inner.drop(key, digest)
        self.inner.put(key, digest, data)


class OverwritesPayloads(Whole):
    def payloads(self) -> Payloads:
        payloads: Payloads = OverwritingPayloads(self.inner.payloads())
        return payloads


class TakesAnyEpoch(Whole):
    def set_epoch(self, epoch: int) -> None:
        if epoch > self.inner.load([]).epoch:
            self.inner.set_epoch(epoch)


class CommitsInAnyEpoch(Whole):
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        return self.inner.commit(changes)


class WaitsNoTime(Whole):
    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        return self.inner.wait(projects, after, 0)


class WaitsAllTheTime(Whole):
    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        time.sleep(timeout)
        return ()


class NamesAllWhoWereAskedFor(Whole):
    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        self.inner.wait(projects, after, timeout)
        return projects


class HearsNobodyBesideItself(Whole):
    """It takes the last words for all of them."""

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        self.notes["last"] = [id(self)]
        return self.inner.commit(changes, epoch=epoch)

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        if self.notes.get("last") == [id(self)]:
            time.sleep(timeout)
        self.inner.wait(projects, after, timeout)
        return ()


class IsNeverClosed(Whole):
    def close(self) -> None:
        pass


class Folds(Whole):
    """Takes ids for equal that are not."""

    def fold(self, id: str) -> str:
        raise NotImplementedError

    def folded(self, key: Key) -> Key:
        return key._replace(id=self.fold(key.id))

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        snapshot = self.inner.load(
            [self.folded(key) for key in keys], queries, with_index=with_index
        )
        return snapshot._replace(
            records={
                key: snapshot.records[self.folded(key)]
                for key in keys
                if self.folded(key) in snapshot.records
            }
        )

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        return self.inner.commit(
            [change._replace(key=self.folded(change.key)) for change in changes]
        )


class FoldsCase(Folds):
    def fold(self, id: str) -> str:
        return id.casefold()


class DropsTrailingBlanks(Folds):
    def fold(self, id: str) -> str:
        return id.rstrip()


class NormalisesLetters(Folds):
    def fold(self, id: str) -> str:
        return unicodedata.normalize("NFC", id)


class JoinsNames(Whole):
    """Keys as one text, with a dash between the parts."""

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        joined = {
            "-".join(key): key for key in self.notes.setdefault("keys", []) if isinstance(key, Key)
        }
        real = {key: joined.get("-".join(key), key) for key in keys}
        snapshot = self.inner.load(list(real.values()), queries, with_index=with_index)
        return snapshot._replace(
            records={
                key: snapshot.records[at] for key, at in real.items() if at in snapshot.records
            }
        )

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        self.notes.setdefault("keys", []).extend(change.key for change in changes)
        return self.inner.commit(changes, epoch=epoch)


BROKEN: list[tuple[Callable[[Store, dict[str, list[object]]], Store], list[str]]] = [
    (SwapsByVersionAlone, ["test_the_same_version_with_another_digest_is_a_conflict"]),
    (
        ChecksBeforeItWrites,
        [
            "test_one_of_many_threads_wins_a_record_at_one_version_and_digest",
            "test_one_of_many_threads_on_one_handle_wins_a_record",
            "test_one_of_many_threads_creates_a_record",
            "test_no_increment_is_lost_among_many_threads",
        ],
    ),
    (
        WritesEventsOfTheRefused,
        [
            "test_of_a_change_that_conflicts_nothing_is_written",
            "test_a_second_writer_between_read_and_write_makes_a_conflict",
        ],
    ),
    (CommitsAllOrNone, ["test_changes_of_a_batch_stand_or_fall_alone"]),
    (
        AnswersInItsOwnOrder,
        [
            "test_changes_of_a_batch_stand_or_fall_alone",
            "test_the_position_of_a_commit_is_that_of_its_last_event_in_the_feed",
        ],
    ),
    (
        WritesUpToTheLimit,
        [
            "test_a_batch_over_the_limit_is_refused_before_anything_is_written",
            "test_a_body_over_the_limit_is_refused_before_anything_is_written",
        ],
    ),
    (LoadsKeyByKey, ["test_a_load_is_one_consistent_read"]),
    (RemembersWhatItLoaded, ["test_two_handles_see_each_others_commits_at_once"]),
    (
        ShowsSomeEventsTooLate,
        ["test_a_reader_by_cursor_misses_and_doubles_nothing_while_threads_commit"],
    ),
    (RepeatsTheLastOfAPage, ["test_every_cursor_continues_right_after_its_page"]),
    (HasOneCursorAPage, ["test_a_page_has_the_cursor_behind_each_event_if_asked"]),
    (
        CountsVoidsThatAreEvents,
        ["test_every_position_up_to_a_pages_end_is_an_events_or_counted_as_void"],
    ),
    (
        NeverLosesACursor,
        [
            "test_a_cursor_of_another_store_is_lost",
            "test_a_cursor_of_an_older_epoch_is_lost",
            "test_a_cursor_before_what_was_purged_is_lost",
            "test_what_is_no_cursor_is_refused",
        ],
    ),
    (LooksAtTheCursorFirst, ["test_who_reads_while_events_are_purged_has_them_or_is_told"]),
    (FindsDependentsLate, ["test_who_waits_on_a_record_is_found_exactly_and_at_once"]),
    (AnswersQueriesInItsOwnOrder, ["test_load_answers_each_query_as_find_does_in_their_order"]),
    (AnswersTheFirstForAll, ["test_others_are_served_while_commits_are_under_way"]),
    (ComplainsWhenItSends, ["test_what_cannot_be_written_is_told_with_the_answers"]),
    (LeavesAnswersLying, ["test_an_answer_that_nobody_wants_to_hear_is_not_taken_for_anothers"]),
    (TellsTheFirstToAll, ["test_what_was_asked_for_is_loaded_while_others_are_served"]),
    (AsksBeforehand, ["test_what_was_asked_for_was_read_after_it_was_asked_for"]),
    (ComplainsWhenItIsAsked, ["test_what_cannot_be_read_is_told_with_the_answers"]),
    (LeavesWhatWasReadLying, ["test_what_nobody_wants_to_hear_any_more_is_not_taken_for_anothers"]),
    (
        AnswersInItsOwnOrder,
        ["test_what_was_sent_is_answered_change_by_change_whichever_thread_waits"],
    ),
    (PagesByNumber, ["test_pages_skip_and_double_nothing_that_stays_while_others_come_and_go"]),
    (
        LeavesOutTheInstantItself,
        ["test_due_records_come_in_order_of_time_and_the_instant_is_included"],
    ),
    (CountsAPage, ["test_counts_do_not_end_at_a_page"]),
    (TakesHeadsOfAllPoolsTogether, ["test_heads_are_the_first_of_every_pool_in_order"]),
    (PutsThoseWithoutAnOrderLast, ["test_records_without_order_come_first_in_their_pool"]),
    (
        KeepsTheFirstBase,
        ["test_a_second_purge_swaps_the_base", "test_a_purge_leaves_replay_intact"],
    ),
    (OverwritesPayloads, ["test_a_payload_once_put_stays"]),
    (
        TakesAnyEpoch,
        [
            "test_the_epoch_is_zero_at_birth_and_goes_only_upwards",
            "test_of_many_who_raise_the_epoch_to_the_same_number_one_does",
        ],
    ),
    (
        CommitsInAnyEpoch,
        [
            "test_changes_that_were_decided_before_the_epoch_rose_are_all_conflicts",
            "test_who_has_read_that_another_handle_raised_the_epoch_writes_nothing_of_the_old_one",
        ],
    ),
    (WaitsNoTime, ["test_a_wait_on_a_quiet_feed_lasts_until_its_timeout"]),
    (
        WaitsAllTheTime,
        [
            "test_a_waiter_is_woken_by_another_handles_commit",
            "test_a_waiter_on_several_projects_is_woken_by_any",
        ],
    ),
    (
        NamesAllWhoWereAskedFor,
        ["test_a_wait_for_others_ends_when_they_commit_and_names_only_what_they_moved"],
    ),
    (
        HearsNobodyBesideItself,
        ["test_a_wait_for_others_misses_none_of_their_commits_among_its_own"],
    ),
    (IsNeverClosed, ["test_a_closed_store_says_so"]),
    (FoldsCase, ["test_upper_and_lower_case_are_apart"]),
    (DropsTrailingBlanks, ["test_blanks_distinguish"]),
    (NormalisesLetters, ["test_letters_are_kept_as_given"]),
    (JoinsNames, ["test_names_that_would_be_equal_if_joined_are_apart"]),
]

CLAUSES = [(broken, clause) for broken, clauses in BROKEN for clause in clauses]


class Broken(StoreContract):
    """The contract of a memory store with something around it."""

    def __init__(self, around: Callable[[Store, dict[str, list[object]]], Store]) -> None:
        self.around = around
        self.notes: dict[Path, dict[str, list[object]]] = {}
        self.memory = test_contract.TestMemoryStore()

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return self.around(self.memory.open(place, clock), self.notes.setdefault(place, {}))


def run(contract: StoreContract, clause: str, place: Path) -> None:
    """Calls one clause as pytest would."""
    method = getattr(contract, clause)
    with contract.handles(place) as another:
        given: dict[str, Callable[[], object]] = {
            "another": lambda: another,
            "store": another,
            "tmp_path": lambda: place,
        }
        method(**{name: given[name]() for name in inspect.signature(method).parameters})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never comes need not be waited for so long."""
    monkeypatch.setattr(contract_maintenance, "PATIENCE", 1.0)


@pytest.mark.parametrize(
    ("broken", "clause"), CLAUSES, ids=[f"{broken.__name__}-{clause}" for broken, clause in CLAUSES]
)
def test_a_broken_promise_is_noticed(
    broken: Callable[[Store, dict[str, list[object]]], Store], clause: str, tmp_path: Path
) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(Broken(broken), clause, tmp_path)


@pytest.mark.parametrize("clause", sorted({clause for _, clause in CLAUSES}))
def test_the_wrapper_alone_breaks_nothing(clause: str, tmp_path: Path) -> None:
    run(Broken(Whole), clause, tmp_path)
