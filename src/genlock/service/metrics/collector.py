"""The census of the store, and all metrics in Prometheus' format."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from genlock.core.reasons import Status
from genlock.errors import GenlockError
from genlock.reads.agents import with_people
from genlock.reads.progress import TaskCounts, task_counts
from genlock.reads.reader import StoreReader
from genlock.service.metrics import table
from genlock.service.metrics.table import ERROR, Kind
from genlock.service.metrics.tallies import OTHER, Histogram, Place, Tallies, Tally
from genlock.threads import started

# The census asks the store how many tasks are in which state.
#
# It runs when Prometheus scrapes: at most every ten seconds for a project in which this coordinator
# has changed something, and every minute for other projects, in which another coordinator may have.
# Projects that have waited longest come first, and one run takes at most a second. The census has a
# thread of its own, and a scrape waits at most two seconds for it. So if the store is unavailable,
# the figures are old, but the scrape does not hang.


MOVED_SECONDS = 10.0
OTHERS_SECONDS = 60.0
BUDGET_SECONDS = 1.0
WAIT_SECONDS = 2.0


class Census:
    """The census of one store, for the projects that are counted."""

    def __init__(
        self, reader: StoreReader, tallies: Tallies, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = reader
        self._tallies = tallies
        self._clock = clock
        self._counts: dict[Place, TaskCounts] = {}
        self._counted_at: dict[Place, float] = {}
        self._searched_at: float | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def counts(self) -> dict[Place, TaskCounts]:
        """The known counts by project."""
        with self._lock:
            return dict(self._counts)

    def refresh(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """Runs the census, and stops waiting if it takes too long."""
        with self._lock:
            if self._thread is None:
                self._thread = started(self._run, "genlock-census")
            thread = self._thread
        if thread is not None:
            thread.join(wait_seconds)

    def _run(self) -> None:
        try:
            # The store is unavailable or closed: keep the counts; the next scrape tries again.
            with contextlib.suppress(GenlockError):
                self._count(self._clock() + BUDGET_SECONDS)
        finally:
            with self._lock:
                self._thread = None

    def _count(self, until: float) -> None:
        now = self._clock()
        if self._searched_at is None or now - self._searched_at >= OTHERS_SECONDS:
            self._search(until)
            self._searched_at = now
        for place in self._due(now):
            if self._clock() >= until:
                return
            counts = self._counted(place)
            with self._lock:
                self._counts[place] = counts
                self._counted_at[place] = now

    def _counted(self, place: Place) -> TaskCounts:
        tally = self._tallies.places[place]
        # Before the query: a change during the query must count as newer than its result.
        tally.moved = False
        try:
            return with_people(self._reader, place, task_counts(self._reader, place))
        except GenlockError:
            tally.moved = True
            raise

    def _search(self, until: float) -> None:
        """Adds the store's projects, as many as there is room and time for."""
        for place in self._places():
            with self._tallies.lock:
                full = place not in self._tallies.places and self._tallies.is_full
                if not full:
                    self._tallies.known(place)
            if full or self._clock() >= until:
                return

    def _places(self) -> Iterator[Place]:
        for tenant in self._reader.tenants():
            yield from self._reader.scopes(tenant)

    def _due(self, now: float) -> list[Place]:
        """The projects to count now, those counted longest ago first."""
        with self._tallies.lock:
            known = [
                (place, tally.moved)
                for place, tally in self._tallies.places.items()
                if place != OTHER
            ]
        ages = [
            (now - self._counted_at.get(place, -OTHERS_SECONDS), moved, place)
            for place, moved in known
        ]
        due = [
            (age, place)
            for age, moved, place in ages
            if age >= (MOVED_SECONDS if moved else OTHERS_SECONDS)
        ]
        return [place for _, place in sorted(due, reverse=True)]


Rows = Iterable[tuple[tuple[str, ...], float | Histogram]]


def families_of(
    prefix: str,
    tallies: Tallies,
    counts: Mapping[Place, TaskCounts],
    plain: Mapping[table.Metric, Rows],
) -> Iterator[Metric]:
    """All metrics. `counts` come from the census; `plain` has metrics without a project."""
    with tallies.lock:
        names = list(tallies.places)
    places = [(place, _copied(tallies, place)) for place in names]
    for metric, read in _BY_PLACE.items():
        yield _family(
            prefix,
            metric,
            (
                ((*place, *labels), value)
                for place, tally in places
                for labels, value in read(tally)
            ),
        )
    for metric, of in _BY_COUNT.items():
        yield _family(prefix, metric, ((place, of(found)) for place, found in counts.items()))
    for metric, state in _BY_STATE.items():
        yield _family(
            prefix, metric, ((place, found.states.get(state, 0)) for place, found in counts.items())
        )
    states = (
        ((*place, state.value), found.states.get(state, 0))
        for place, found in counts.items()
        for state in Status
    )
    yield _family(prefix, table.TASKS, states)
    for metric, rows in plain.items():
        yield _family(prefix, metric, rows)


def _copied(tallies: Tallies, place: Place) -> Tally:
    """Copies the tallies of one project. The lanes must not wait while all are copied."""
    with tallies.lock:
        return tallies.places[place].copy()


def _family(prefix: str, metric: table.Metric, rows: Rows) -> Metric:
    """One metric with all its series."""
    name = f"{prefix}_{metric.name}"
    if metric.kind is Kind.HISTOGRAM:
        histograms = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        for labels, value in rows:
            assert isinstance(value, Histogram)
            histograms.add_metric(labels, _buckets(value), value.sum)
        return histograms
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    numbers = kind(name, metric.help, labels=metric.labels)
    for labels, value in rows:
        assert not isinstance(value, Histogram)
        numbers.add_metric(labels, value)
    return numbers


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))


def _by_word(counts: Mapping[str, int], words: Mapping[str, str], error: str) -> Rows:
    """Rows for all label values, including those that have not occurred: Prometheus misses the
    first increase of a series that appears late."""
    sums = dict.fromkeys([*words.values(), error], 0)
    for reason, count in counts.items():
        sums[words.get(reason, error)] += count
    return [((word,), count) for word, count in sums.items()]


def _claims(tally: Tally) -> Rows:
    counts = {**tally.claims, "GRANTED": tally.granted}
    return _by_word(counts, _CLAIM_WORDS, ERROR)


_CLAIM_WORDS = {reason.value: word for reason, word in table.CLAIM_WORDS.items()}
_RESULT_WORDS = {reason.value: word for reason, word in table.RESULT_WORDS.items()}
_RENEWAL_WORDS = {reason.value: word for reason, word in table.RENEWAL_WORDS.items()}
_FAILED = "failed"

_BY_PLACE: dict[table.Metric, Callable[[Tally], Rows]] = {
    table.CLAIMS: _claims,
    table.RESULTS: lambda tally: _by_word(tally.results, _RESULT_WORDS, ERROR),
    table.RENEWALS: lambda tally: _by_word(tally.renewals, _RENEWAL_WORDS, _FAILED),
    table.EXPIRATIONS: lambda tally: [((), tally.expirations)],
    table.INCREMENTS: lambda tally: [((), tally.increments)],
    table.CLAIM_DURATION: lambda tally: [((), tally.claim_duration)],
    table.COMPLETION_TIME: lambda tally: [((), tally.completion_time)],
    table.GENERATIONS: lambda tally: [((), tally.generations)],
    table.ORPHANED: lambda tally: [((), tally.orphaned)],
    table.STALE: lambda tally: [((), tally.stale)],
    table.REFUSED: lambda tally: [
        ((reason,), count) for reason, count in sorted(tally.refused.items())
    ],
}

_BY_COUNT: dict[table.Metric, Callable[[TaskCounts], int]] = {
    table.ACTIVE_CLAIMS: lambda found: found.claims,
    table.ACTIVE_SESSIONS: lambda found: found.sessions,
    table.ACTIVE_AGENTS: lambda found: found.agents,
}
_BY_STATE = {
    table.PENDING_TASKS: Status.PENDING,
    table.COMPLETED_TASKS: Status.COMPLETED,
}
