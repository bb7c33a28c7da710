"""Writing the figures down for Prometheus, when it asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from genlock.core.reasons import Status
from genlock.service.metrics import table
from genlock.service.metrics.census import Counted
from genlock.service.metrics.table import ERROR, Kind
from genlock.service.metrics.tallies import Histogram, Place, Tallies, Tally

Rows = Iterable[tuple[tuple[str, ...], float | Histogram]]


def families_of(
    prefix: str,
    tallies: Tallies,
    counts: Mapping[Place, Counted],
    plain: Mapping[table.Metric, Rows],
) -> Iterator[Metric]:
    """All of them. `counts` are those of the store; `plain` has what is written down as it is."""
    with tallies.lock:
        names = list(tallies.places)
    places = [(place, _copied(tallies, place)) for place in names]
    for metric, read in _BY_PLACE.items():
        yield _family(prefix, metric, (((*place, *labels), value) for place, tally in places for labels, value in read(tally)))
    yield _family(prefix, table.ACTIVE_CLAIMS, ((place, found.claims) for place, found in counts.items()))
    for metric, state in _BY_STATE.items():
        yield _family(prefix, metric, ((place, found.states.get(state, 0)) for place, found in counts.items()))
    states = (((*place, state.value), found.states.get(state, 0)) for place, found in counts.items() for state in Status)
    yield _family(prefix, table.TASKS, states)
    for metric, rows in plain.items():
        yield _family(prefix, metric, rows)


def _copied(tallies: Tallies, place: Place) -> Tally:
    """One at a time: the lanes must not wait for all of them."""
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
    """Every word there is, also those that have not come up: a series that appears late has lost its first step."""
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
    table.REFUSED: lambda tally: [((reason,), count) for reason, count in sorted(tally.refused.items())],
}

_BY_STATE = {
    table.PENDING_TASKS: Status.PENDING,
    table.COMPLETED_TASKS: Status.COMPLETED,
}
