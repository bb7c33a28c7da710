"""The tallies of a service: counts of the engine's batches and of HTTP requests.

These are plain numbers, and each batch takes one lock, so that a claim costs about a microsecond.
Only this coordinator's own work is counted. A project gets a series of its own once something was
committed there, up to `MOST_PLACES` projects; so requests for invented names make no new series.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from datetime import datetime
from typing import Any

from genlock.core import events as e
from genlock.core.commands import ClaimTask, RenewLease, SubmitResult
from genlock.core.decision import Decision
from genlock.core.keys import NOWHERE, REFUSED, TASK
from genlock.core.model import SYSTEM_SESSION, TaskRecord
from genlock.core.reasons import ClaimReason, ClaimState
from genlock.core.results import ClaimResult, RenewalResult, SubmissionResult
from genlock.engine.commit import LoadedRecord
from genlock.engine.jobs import Item, NextTask
from genlock.engine.observer import Batch, Measures
from genlock.service.metrics import table
from genlock.service.metrics.table import ERROR, Metric

Place = tuple[str, str]

MOST_PLACES = 1000
OTHER: Place = ("_other", "_other")
"""Counts all other projects; a tenant of this name is counted with them."""


class Histogram:
    """Counts of values up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, metric: Metric) -> None:
        self.bounds = metric.buckets
        self.counts = [0] * (len(metric.buckets) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add(self, other: Histogram) -> None:
        """Adds the values of another histogram."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.sum += other.sum

    def copy(self) -> Histogram:
        """As it is now."""
        copied = Histogram.__new__(Histogram)
        copied.bounds, copied.counts, copied.sum = self.bounds, self.counts.copy(), self.sum
        return copied


class Tally:
    """The counts of one project."""

    __slots__ = (
        "claim_duration",
        "claims",
        "completion_time",
        "expirations",
        "generations",
        "granted",
        "increments",
        "moved",
        "orphaned",
        "refused",
        "renewals",
        "results",
        "stale",
    )

    def __init__(self) -> None:
        self.granted = 0
        self.claims: dict[str, int] = defaultdict(int)
        """Claims by reason, without grants."""
        self.results: dict[str, int] = defaultdict(int)
        self.renewals: dict[str, int] = defaultdict(int)
        self.refused: dict[str, int] = defaultdict(int)
        self.expirations = 0
        self.orphaned = 0
        self.stale = 0
        self.increments = 0
        self.moved = True
        """Have tasks changed since the last census?"""
        self.claim_duration = Histogram(table.CLAIM_DURATION)
        self.completion_time = Histogram(table.COMPLETION_TIME)
        self.generations = Histogram(table.GENERATIONS)

    def copy(self) -> Tally:
        """As it is now."""
        copied = Tally.__new__(Tally)
        for name in Tally.__slots__:
            value = getattr(self, name)
            setattr(copied, name, value.copy() if hasattr(value, "copy") else value)
        return copied


class Tallies:
    """The tallies of all projects and lanes. An observer of the engine."""

    def __init__(self, most_places: int = MOST_PLACES) -> None:
        self.lock = threading.Lock()
        self.places: dict[Place, Tally] = {}
        self._most_places = most_places
        self.conflicts = 0
        self.second_commits = 0
        self.gathered_depth = Histogram(table.GATHERED_DEPTH)
        self.batch_size = Histogram(table.BATCH_SIZE)
        self.load = Histogram(table.LOAD)
        self.decide = Histogram(table.DECIDE)
        self.commit = Histogram(table.COMMIT)

    def batch_done(self, batch: Batch) -> None:
        """Counts one batch."""
        with self.lock:
            self.second_commits += batch.second_commits
            if batch.measures is not None:
                self._measure(batch.measures)
            places = self.places
            for cell in batch.written:
                key = cell.key
                if key.kind == TASK:
                    tally = places.get(key[:2]) or self.known(key[:2])
                    tally.moved = True
                    _count_task(tally, cell)
                elif key.kind == REFUSED:
                    _count_refused(self.known(key[:2]), cell)
            for item in batch.answered:
                decision = item.decision
                if type(decision) is Decision:
                    outcome = decision.outcome
                    if type(outcome) is ClaimResult and outcome.success:
                        # A fast path for by far the most frequent case.
                        (
                            places.get(item.request.key[:2]) or self.known(item.request.key[:2])
                        ).granted += 1
                    else:
                        self._count_outcome(item.request.key[:2], outcome)
                else:
                    _count_error(places.get(item.request.key[:2]) or self._other(), item)

    @property
    def is_full(self) -> bool:
        """Is there no room for another project? The caller holds the lock."""
        return len(self.places) - (OTHER in self.places) >= self._most_places

    def known(self, place: Place) -> Tally:
        """The tally of a project, made if there is room. The caller holds the lock."""
        tally = self.places.get(place)
        if tally is None:
            if self.is_full or place[0] == NOWHERE:
                return self._other()
            tally = self.places[place] = Tally()
        return tally

    def _other(self) -> Tally:
        tally = self.places.get(OTHER)
        if tally is None:
            tally = self.places[OTHER] = Tally()
        return tally

    def _count_outcome(self, place: Place, outcome: Any) -> None:
        """Counts an outcome by its reason. The label values are added by the collector."""
        kind = type(outcome)
        if kind is ClaimResult:
            # NOTHING_READY may be about a project that does not exist; any other answer is about an
            # existing task.
            unsure = outcome.reason is ClaimReason.NOTHING_READY
            tally = (self.places.get(place) or self._other()) if unsure else self.known(place)
            tally.claims[outcome.reason._value_] += 1
        elif kind is RenewalResult:
            self.known(place).renewals[outcome.reason._value_] += 1
        elif kind is SubmissionResult:
            self.known(place).results[outcome.reason._value_] += 1

    def _measure(self, measures: Measures) -> None:
        self.conflicts += measures.conflicts
        if measures.size:
            self.batch_size.observe(measures.size)
            self.gathered_depth.observe(measures.depth)
            self.load.observe(measures.load_seconds)
            self.decide.observe(measures.decide_seconds)
        if measures.commit_seconds:
            self.commit.observe(measures.commit_seconds)


def _count_error(tally: Tally, item: Item) -> None:
    """Counts a request that ended with an error."""
    kind = type(item.request)
    if kind is ClaimTask or kind is NextTask:
        tally.claims[ERROR] += 1
    elif kind is SubmitResult:
        tally.results[ERROR] += 1
    elif kind is RenewLease:
        tally.renewals[ERROR] += 1


def _count_refused(tally: Tally, cell: LoadedRecord) -> None:
    for event in cell.events:
        if type(event) is e.ResultRejected:
            tally.refused[event.rejection_reason] += 1


def _count_task(tally: Tally, cell: LoadedRecord) -> None:
    """Counts the events of one task, starting from its previous claim."""
    events, before = cell.events, cell.read
    task = before if type(before) is TaskRecord else None
    claim = task.claim if task is not None else None
    if (
        task is not None
        and claim is None
        and len(events) == 1
        and type(events[0]) is e.ClaimAcquired
    ):
        # A fast path for by far the most frequent case. An event that took a right away has raised
        # the generation already.
        tally.increments += events[0].generation > task.generation
        return
    since = claim.claimed_at if claim is not None and claim.state is ClaimState.ACTIVE else None
    begun = claim.claimed_at if claim is not None else None
    generation, grants = (task.generation, task.grants) if task is not None else (0, 0)
    for event in events:
        kind = type(event)
        if event.generation > generation:
            generation = event.generation
            tally.increments += 1
        if kind is e.ClaimAcquired:
            # The coordinator's own grant for a fan-in is no work, and ends at once.
            since = begun = None if event.session_id == SYSTEM_SESSION else event.timestamp
            grants += 1
        elif kind in _NO_CHANGE:
            tally.stale += kind is e.ClaimStale
            continue
        elif kind is e.TaskReset or (kind is e.TaskReopened and not event.by_time):
            grants = 0
        elif kind is e.ClaimExpired:
            tally.expirations += 1
        elif kind is e.ClaimOrphaned:
            tally.orphaned += 1
        elif kind is e.ResultAccepted:
            tally.generations.observe(max(grants, 1))
            if begun is not None:
                tally.completion_time.observe(_between(begun, event.timestamp))
        if since is not None and _ends_a_claim(event):
            end = (
                min(event.expires_at or event.timestamp, event.timestamp)
                if kind is e.ClaimExpired
                else event.timestamp
            )
            tally.claim_duration.observe(_between(since, end))
            since = None


def _ends_a_claim(event: e.Event) -> bool:
    """Does this event end a claim? A spawn does, unless its holder keeps the task."""
    return type(event) in _ENDINGS or (type(event) is e.SubtasksSpawned and not event.keep)


def _between(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())


_NO_CHANGE = frozenset({e.LeaseRenewed, e.ProgressReported, e.ClaimStale})
"""Events that leave the claim as it is."""

_ENDINGS = frozenset(
    {
        e.ClaimReleased,
        e.ClaimExpired,
        e.ClaimOrphaned,
        e.ClaimSuperseded,
        e.ResultAccepted,
        e.ConvergenceEscalated,
        e.TaskReset,
        e.TaskCancelled,
    }
)


# HTTP requests: one call per request, which costs less than a microsecond.


class Requests:
    """HTTP requests by route and status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], Histogram] = {}

    def count(self, route: str, status: int, seconds: float) -> None:
        """Counts a request. `route` is the name or pattern of a route, never the requested path,
        because there is no limit to those."""
        with self._lock:
            histogram = self._seen.get((route, status))
            if histogram is None:
                histogram = self._seen[route, status] = Histogram(table.REQUEST_DURATION)
            histogram.observe(seconds)

    def seen(self) -> list[tuple[str, int, Histogram]]:
        """All of them, by route and status."""
        with self._lock:
            return [
                (route, status, histogram.copy())
                for (route, status), histogram in sorted(self._seen.items())
            ]
