"""A lane: the thread that works for the projects assigned to it.

It gathers the jobs in its inbox into a batch, hands the batch to the pipeline, and answers the
callers. While one batch is in flight the next one gathers, so batches grow with the load, and a
single caller never waits for a timer. Renewals, submissions and releases go before claims.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from operator import attrgetter

from genlock.core import codec
from genlock.engine.batch import BatchRound
from genlock.engine.claim_next import ClaimNext
from genlock.engine.commit import DecodeCache, LoadedRecord
from genlock.engine.feed_watch import FeedWatch
from genlock.engine.inbox import Inbox
from genlock.engine.jobs import Item, Job, NextTask, answer, items_of
from genlock.engine.limits import Counts
from genlock.engine.maintenance import Maintenance
from genlock.engine.observer import Activity, Observer, ObserverNotes
from genlock.engine.outage_grace import OutageTracker
from genlock.engine.pipeline import InFlightBatch, Pipeline
from genlock.engine.retry import BACKOFF
from genlock.engine.unknown_outcomes import undecided
from genlock.errors import Closed, GenlockError, StoreError
from genlock.shortages import shortage_of
from genlock.store import Store

_MAINTENANCE_PAUSE = 0.05
_number = attrgetter("number")


@cache
def import_early() -> None:
    """Imports what a lane needs later. Without file descriptors an import fails, and then it should
    fail before anything has begun."""
    try:
        import random  # noqa: F401

        codec.digest_of(b"")
    except OSError as error:
        raise shortage_of(error) or error from error


class Lane:
    """One thread and its inbox."""

    def __init__(
        self,
        name: str,
        store: Store,
        watcher: FeedWatch,
        *,
        coordinator: str,
        profile: str,
        observer: Observer | None = None,
        outages: OutageTracker | None = None,
        activity: Activity | None = None,
    ) -> None:
        counts, decoded = Counts(store, outages, activity), DecodeCache()

        def new_round() -> BatchRound:
            observe = self._maintenance.observe if store.limits.observes else None
            return BatchRound(
                store, counts, profile=profile, memo=decoded, outages=outages, observe=observe
            )

        self._notes = None if observer is None else ObserverNotes(observer, name)
        self._inbox = Inbox()
        self._maintenance = Maintenance(
            store,
            counts,
            new_round,
            profile=profile,
            coordinator=coordinator,
            changed=self._changed,
            own=watcher.own,
            notes=self._notes,
            keeps_up=outages is not None,
        )
        self._claim_next = ClaimNext(self, watcher, self._maintenance)
        self._pipeline = Pipeline(
            name,
            store,
            new_round,
            self._inbox,
            self._claim_next,
            self._maintenance,
            watcher,
            outages,
            self._answer,
        )
        self.thread = threading.Thread(target=self._run, name=f"genlock-lane-{name}", daemon=True)
        self.thread.start()

    # For callers, in any thread

    @property
    def depth(self) -> int:
        """Returns the number of jobs in the inbox."""
        return self._inbox.depth

    @property
    def waiters(self) -> int:
        """Returns the number of requests that wait for a task."""
        return len(self._claim_next)

    def submit(self, job: Job) -> None:
        """Queues a job."""
        import_early()
        self._inbox.put(job)

    def give_back(self, job: Job) -> None:
        """Releases the claims granted to a job without a caller."""
        self._inbox.give_back(job)

    def poke(self) -> None:
        """Makes the waiters try again: something may have changed for them."""
        self._inbox.poke()

    def close(self) -> None:
        """Finishes the batch in flight and answers the rest with `Closed`."""
        self._inbox.close()

    # The thread

    def _run(self) -> None:
        try:
            while True:
                if not self._pipeline.process_prefetched():
                    depth, items = self._gather()
                    if items is None:
                        if self._is_at_the_end():
                            break
                        continue
                    self._pipeline.process(items, depth)
                try:
                    self._maintain()
                except StoreError:
                    # Maintenance is repeated after a pause. Callers get their own errors.
                    time.sleep(_MAINTENANCE_PAUSE)
        finally:
            # Also if a bug ends the thread: its traceback is printed, and no caller is left
            # waiting.
            self._end()

    def _gather(self) -> tuple[int, list[Item] | None]:
        """Waits for work. Returns the number of waiting jobs and the next batch, or no batch when
        the lane must end."""
        is_open = self._inbox.wait(self._has_more, self._seconds_to_next_event)
        if not is_open:
            return 0, self._pipeline.take_unresolved() or None
        if self._inbox.is_closed:
            returns = [item for job in self._inbox.take(0) for item in items_of(job)]
            return 0, [*self._pipeline.take_unresolved(), *returns]
        poked = self._inbox.take_poke()
        again = self._pipeline.take_again()
        # A request that may hold a task already is decided at once: it must not wait for another.
        waits = [isinstance(item.request, NextTask) and not item.possible_writes for item in again]
        items = [item for item, wait in zip(again, waits, strict=True) if not wait]
        returned = [item for item, wait in zip(again, waits, strict=True) if wait]
        depth = self._inbox.depth
        for job in self._inbox.take(self._pipeline.room - len(items)):
            if not job.cancelled:
                items += items_of(job)
        items = self._claim_next.gather(items, returned, poked)
        items.sort(key=_number)
        return depth, items

    def _has_more(self) -> bool:
        """Is there anything to do at once besides the jobs in the inbox?"""
        if self._pipeline.has_more:
            return True
        return not self._pipeline.is_busy and self._maintenance.is_due

    def _seconds_to_next_event(self) -> float | None:
        """Returns the seconds until something happens by itself."""
        recover_at = None if self._pipeline.is_busy else self._maintenance.recover_at
        events = [
            event
            for event in (self._claim_next.next_event, self._maintenance.flush_at, recover_at)
            if event is not None
        ]
        return max(0.0, min(events) - time.monotonic()) if events else None

    def _maintain(self) -> None:
        """Between batches: pauses after conflicts, writes denials, runs recoveries that are due."""
        attempts = self._pipeline.attempts
        if attempts:
            time.sleep(BACKOFF.pause(attempts))
        flush_at = self._maintenance.flush_at
        if flush_at is not None and time.monotonic() >= flush_at:
            self._maintenance.flush_denials()
        self._maintenance.recover_due(
            self._pipeline.finish_in_flight if self._pipeline.is_busy else None
        )
        if self._notes:
            self._notes.tell()

    def _changed(self, loaded_records: Iterable[LoadedRecord], now: datetime) -> None:
        """Notes records that this lane has written."""
        self._pipeline.changed(loaded_records)
        if self._claim_next.changed(loaded_records, now):
            self._inbox.poked = True

    def _answer(
        self, items: list[Item], round: BatchRound | None, batch: InFlightBatch | None
    ) -> None:
        """Hands the decisions of these items to their callers."""
        now = None if round is None else round.now
        answer(items, now, self._maintenance.denials, self.give_back)
        if self._notes is not None and (items or batch is not None):
            self._notes.tell(items, batch)

    # The end

    def _is_at_the_end(self) -> bool:
        """Is the lane at its end? Closing continues while a batch is in flight or a grant must be
        released."""
        if self._pipeline.is_busy:
            self._pipeline.finish_in_flight()
            return False
        self._dismiss(self._pipeline.take_again())
        if self._inbox.has_returns:
            return False  # some of these grants have reached no caller
        with contextlib.suppress(GenlockError):
            self._maintenance.leave()
        return True

    def _end(self) -> None:
        """Does the last work of the thread, however it ends."""
        if self._maintenance.flush_at is not None:
            with contextlib.suppress(GenlockError):
                self._maintenance.flush_denials()
        self._dismiss(self._pipeline.abort())

    def _dismiss(self, under_way: Iterable[Item]) -> None:
        """Answers all remaining callers with `Closed`."""
        queued = [item for job in self._inbox.clear() for item in items_of(job)]
        items = [*under_way, *self._claim_next.clear(), *queued]
        for item in (unique := list({id(item): item for item in items}.values())):
            item.decision = undecided(
                item, Closed("the coordinator was closed before this was carried out")
            )
        self._answer(unique, None, None)
