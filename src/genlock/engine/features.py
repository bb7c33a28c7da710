"""Features: those of a project that are nearest to completion, their ready tasks, and the agents
that work on them. For the order closest-to-done.

The features are listed a page at a time, those with the fewest unfinished tasks first, and their
tasks are looked up a few features at a time. The cost of neither grows with the plan. The list and
the work in flight only decide the order. They follow the writes of this lane at once, and are read
again after at most a second for the writes of others. The tasks themselves are always read.
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.index import READY_IN
from genlock.core.keys import FEATURE, Scope
from genlock.core.model import FeatureRecord, Record, TaskRecord
from genlock.core.reasons import Status
from genlock.core.records.feature import FEATURES
from genlock.core.rules import index_of
from genlock.core.task.view import is_claimed
from genlock.store import MAX_DUE, Page, Query, Store, Stored

MOST_EMPTY: Final = 64
"""The limit of features without a ready task that are checked for one request."""
_PAGE = 64
_MOST_LISTED = 1024
"""Features beyond this limit are not checked. Their tasks are still offered, after those of the
listed features."""
_FIRST_LOOK = 4
_NEXT_LOOKS = 60
_MOST_FOUND = 512
_MOST_CLAIMS = 1000


class FeatureCount(NamedTuple):
    """The remaining work of a feature."""

    name: str
    unfinished: int | None
    """None: too many to count."""
    finished: int


class FeatureList:
    """The unfinished features of one project, nearest to completion first."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store = store
        self._listed: list[tuple[str, str]] = []
        """The orders and names."""
        self._known: dict[str, tuple[str, FeatureCount]] = {}
        """By name: the feature's order and its remaining work."""
        self._next: Query | None = Query(*scope, kind=FEATURE, pool=FEATURES, limit=_PAGE)
        self.since = time.monotonic()
        self.took = 0.0
        """The seconds spent on reading."""

    def names(self) -> Iterator[str]:
        """Yields the names in order, and reads only as far as the caller goes."""
        at = 0
        while True:
            while at < len(self._listed):
                yield self._listed[at][1]
                at += 1
            if self._next is None or at >= _MOST_LISTED:
                return
            self._read_page(self._next)

    def _read_page(self, query: Query) -> None:
        start = time.monotonic()
        page = self._store.find(query)
        self._next = replace(query, after=page.next) if page.next is not None else None
        for stored in page.records:
            if stored.key.id not in self._known:  # this lane has written it since
                self._add(stored.order or "", decode_record(FEATURE, stored.body))
        self.took += time.monotonic() - start

    def _add(self, order: str, record: Record) -> None:
        assert isinstance(record, FeatureRecord)
        unfinished = None if record.crowded else len(record.unfinished)
        self._known[record.name] = order, FeatureCount(record.name, unfinished, record.done)
        insort(self._listed, (order, record.name))

    def note(self, record: Record | None) -> None:
        """Takes over the state of a feature from its record."""
        if not isinstance(record, FeatureRecord):
            return
        before = self._known.pop(record.name, None)
        if before is not None:
            del self._listed[bisect_left(self._listed, (before[0], record.name))]
        order = index_of(record).order
        is_listed = self._next is None or (
            bool(self._listed) and order is not None and order <= self._listed[-1][0]
        )
        if order is not None and is_listed:
            self._add(order, record)

    def count(self, name: str) -> FeatureCount | None:
        """Returns the remaining work of a listed feature."""
        return self._known[name][1] if name in self._known else None


class NearestFeatures:
    """The ready tasks of the features of one project, nearest to completion first."""

    def __init__(
        self, features: FeatureList, find: Callable[[Query], Page], scope: Scope, most_ready: int
    ) -> None:
        """Up to `most_ready` tasks of each feature are read."""
        self._features = features
        self._find = find
        self._scope = scope
        self._most_ready = most_ready
        self._ready: dict[str, list[Stored]] = {}

    def count(self, name: str) -> FeatureCount | None:
        """Returns the remaining work of a feature that was checked."""
        return self._features.count(name)

    def _ready_of(self, name: str, others: Sequence[str]) -> list[Stored]:
        """Returns the ready tasks of this feature in their order. Those of `others`, which are
        likely to be needed next, are looked up together with it."""
        if name not in self._ready:
            names = [name, *(other for other in others if other not in self._ready)]
            if not self._look_up(names):
                self._look_up([name])
        return self._ready[name]

    def _look_up(self, names: Sequence[str]) -> bool:
        """Finds the ready tasks of these features; False if there are too many of them."""
        most = self._most_ready if len(names) == 1 else _MOST_FOUND
        waits_on = tuple(READY_IN + name for name in names)
        page = self._find(Query(*self._scope, waits_on=waits_on, limit=most))
        if page.next is not None and len(names) > 1:
            return False
        found: dict[str, list[Stored]] = {name: [] for name in names}
        for stored in page.records:
            record = decode_record(stored.key.kind, stored.body)
            if isinstance(record, TaskRecord) and record.task.feature in found:
                found[record.task.feature].append(stored)
        for ready in found.values():
            ready.sort(key=lambda stored: stored.order or "")
        self._ready.update(found)
        return True

    @property
    def found(self) -> Iterator[Stored]:
        """Yields the ready tasks found so far, in order."""
        return chain.from_iterable(self._ready.values())

    def each_ready(self, skips: Callable[[str], bool]) -> Iterator[tuple[str, list[Stored]]]:
        """Yields each feature with its ready tasks; features for which `skips` is true come after
        the others. Stops after `MOST_EMPTY` features without a ready task."""
        passed: list[str] = []
        empty = 0
        for names in chain(self._in_groups(skips, passed), _in_pieces(passed)):
            for at, name in enumerate(names):
                ready = self._ready_of(name, names[at + 1 :])
                yield name, ready
                empty += not ready
                if empty >= MOST_EMPTY:
                    return

    def _in_groups(self, skips: Callable[[str], bool], passed: list[str]) -> Iterator[list[str]]:
        """Yields the names that are not skipped, in groups that start small. The others are added
        to `passed`."""
        group: list[str] = []
        size = _FIRST_LOOK
        for name in self._features.names():
            if skips(name):
                passed.append(name)
                continue
            group.append(name)
            if len(group) == size:
                yield group
                group, size = [], _NEXT_LOOKS
        if group:
            yield group


def _in_pieces(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the list in pieces, each as it is when it is requested."""
    for start in range(0, len(names), _NEXT_LOOKS):
        yield names[start : start + _NEXT_LOOKS]


class FeaturesInFlight:
    """The agents that hold tasks, by feature."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._feature_of: dict[str, str] = {}
        """The feature of each claimed task."""
        self._held: dict[str, dict[str, tuple[str, datetime | None]]] = {}
        """By feature and task: the holder and the end of its lease. None: it has no lease."""
        # Every claim has a due time, and few other tasks do: a query by state alone would go
        # through the plan.
        begun = Query(*scope, state=Status.IN_PROGRESS, due_before=MAX_DUE, limit=_MOST_CLAIMS)
        # A task may have been put on hold during its claim.
        for query in (begun, replace(begun, state=Status.HELD)):
            for stored in store.find(query).records:
                self.note(decode_record(stored.key.kind, stored.body))

    def note(self, record: Record | None) -> None:
        """Takes over the state of a task from its record."""
        if not isinstance(record, TaskRecord) or record.task.feature is None:
            return
        name, feature = record.task.id, record.task.feature
        if name in self._feature_of:
            del self._held[self._feature_of.pop(name)][name]
        if is_claimed(record):
            assert record.claim is not None
            until = record.claim.expires_at
            if until is not None:
                until += timedelta(seconds=record.claim.grace_seconds)
            self._feature_of[name] = feature
            self._held.setdefault(feature, {})[name] = record.claim.agent, until

    def agents(self, now: datetime) -> dict[str, set[str]]:
        """Returns the agents that work on each feature."""
        return {
            feature: {agent for agent, until in held.values() if until is None or until > now}
            for feature, held in self._held.items()
            if held
        }
