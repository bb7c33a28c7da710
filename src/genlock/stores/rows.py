"""Records, their indexes and feeds in memory: what the memory store and the folder store look
things up in.

Indexes are sorted lists in pieces (`Ordered`): the head of a pool costs the same whether it has ten
records or a million.
"""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby, islice, takewhile
from typing import Any

from genlock.store import (
    Change,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Index,
    Key,
    Page,
    Query,
    RecordedEvent,
    Stored,
)
from genlock.stores.checks import check_event_query, check_query
from genlock.stores.cursors import (
    CursorPosition,
    FeedState,
    decode_token,
    encode_token,
    feed_mark,
    feed_page,
    record_page,
)

PIECE = 512

Item = tuple[Any, ...]


class Ordered:
    """A sorted list of distinct items, in pieces of a few hundred, so that a long one stays
    cheap."""

    def __init__(self) -> None:
        self._pieces: list[list[Item]] = []
        self._lasts: list[Item] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, item: Item) -> None:
        """Adds an item in order."""
        if not self._pieces:
            self._pieces.append([])
            self._lasts.append(item)
        at = min(bisect_left(self._lasts, item), len(self._pieces) - 1)
        piece = self._pieces[at]
        insort(piece, item)
        if len(piece) > 2 * PIECE:
            self._pieces[at : at + 1] = [piece[:PIECE], piece[PIECE:]]
            self._lasts[at : at + 1] = [piece[PIECE - 1], piece[-1]]
        else:
            self._lasts[at] = piece[-1]

    def remove(self, item: Item) -> None:
        """Removes an item, which must be there."""
        at = bisect_left(self._lasts, item)
        piece = self._pieces[at]
        del piece[bisect_left(piece, item)]
        if piece:
            self._lasts[at] = piece[-1]
        else:
            del self._pieces[at], self._lasts[at]

    def after(self, item: Item) -> Iterator[Item]:
        """All greater items. A prefix of an item is less than the item, so () is before all."""
        at = bisect_right(self._lasts, item)
        if at == len(self._pieces):
            return
        piece = self._pieces[at]
        yield from piece[bisect_right(piece, item) :]
        for piece in self._pieces[at + 1 :]:
            yield from piece


Shelf = tuple[str, ...]


class Indexes:
    """The shelves of one memory: lists of keys, each in one order, by which records are found. A
    change touches only the shelves on which its record moves."""

    def __init__(self) -> None:
        self._shelves: defaultdict[Shelf, Ordered] = defaultdict(Ordered)
        self._pools: defaultdict[Shelf, set[str]] = defaultdict(set)

    def move(self, key: Key, old: Index | None, new: Index) -> None:
        """Moves a record from its old index to the new one."""
        before = set() if old is None else set(_entries(key, old))
        after = set(_entries(key, new))
        for shelf, item in before - after:
            self._shelves[shelf].remove(item)
            if not self._shelves[shelf]:
                del self._shelves[shelf]
                if shelf[0] == "pool":
                    self._pools[shelf[1:4]].remove(shelf[4])
        for shelf, item in after - before:
            self._shelves[shelf].add(item)
            if shelf[0] == "pool":
                self._pools[shelf[1:4]].add(shelf[4])

    def pools(self, tenant: str, project: str, kind: str) -> Iterable[str]:
        """The pools that have tasks."""
        return self._pools.get((tenant, project, kind), ())

    def items(self, query: Query) -> Iterator[Item]:
        """The items of the query from where its last page ended, but for other conditions; see
        `key_of`."""
        if query.waits_on:
            return self._waiting(query)
        shelf, shape, start = _asked(query)
        after = decode_token(query.after, shape) if query.after is not None else start
        found = self._shelves[shelf].after(after) if shelf in self._shelves else iter(())
        due = query.due_before
        if due is not None:
            return takewhile(lambda item: item[0] <= due, found)
        if query.project is not None and shelf[0] in ("all", "session"):
            return takewhile(lambda item: item[0] == query.project, found)
        return found

    def _waiting(self, query: Query) -> Iterator[Item]:
        """The items of several shelves, each once, in order."""
        after = decode_token(query.after, tuple[str]) if query.after is not None else ()
        shelves = [
            ("waits", query.tenant, query.project or "", query.kind, dependency)
            for dependency in set(query.waits_on)
        ]
        found = merge(
            *(self._shelves[shelf].after(after) for shelf in shelves if shelf in self._shelves)
        )
        return (item for item, _ in groupby(found))


def key_of(query: Query, item: Item) -> Key:
    """The key of an item, which ends in its id, or in project and id on a shelf of several
    projects."""
    project = query.project if query.project is not None else item[-2]
    return Key(query.tenant, project, query.kind, item[-1])


def _asked(query: Query) -> tuple[Shelf, type[Item], Item]:
    """The shelf, the shape of its items, and a prefix before the first item of the query."""
    tenant, project, kind = query.tenant, query.project or "", query.kind
    within: Item = () if query.project is None else (query.project,)
    if query.session is not None:
        return ("session", tenant, kind, query.session), tuple[str, str], within
    if query.pool is not None:
        return ("pool", tenant, project, kind, query.pool), tuple[bool, str, str], ()
    if query.due_before is not None:
        return ("due", tenant, project, kind), tuple[int, str], ()
    if query.parent is not None:
        return ("parent", tenant, project, kind, query.parent), tuple[str], ()
    return ("all", tenant, kind), tuple[str, str], within


def _entries(key: Key, index: Index) -> Iterator[tuple[Shelf, Item]]:
    """The shelves of a record with this index, and its item on each."""
    tenant, project, kind, id = key
    yield ("all", tenant, kind), (project, id)
    if index.pool is not None:
        yield (
            ("pool", tenant, project, kind, index.pool),
            (index.order is not None, index.order or "", id),
        )
    if index.due_at is not None:
        yield ("due", tenant, project, kind), (index.due_at, id)
    if index.session is not None:
        yield ("session", tenant, kind, index.session), (project, id)
    if index.parent is not None:
        yield ("parent", tenant, project, kind, index.parent), (id,)
    for dependency in index.waits_on:
        yield ("waits", tenant, project, kind, dependency), (id,)


@dataclass(slots=True)
class Row:
    """A record with its events."""

    version: int
    digest: bytes
    body: bytes
    index: Index
    base: bytes | None = None
    events: list[RecordedEvent] = field(default_factory=list)


@dataclass(slots=True)
class Feed:
    """A project's events by position. A purge leaves gaps."""

    head: int = 0
    purged_to: int = 0
    purges: int = 0
    first: int = 1
    events: dict[int, RecordedEvent] = field(default_factory=dict)

    def append(self, event: RecordedEvent) -> None:
        self.head = event.position
        self.events[event.position] = event

    def after(self, position: int) -> Iterator[RecordedEvent]:
        """The kept events after a position."""
        while self.first not in self.events and self.first <= self.head:
            self.first += 1
        for place in range(max(position + 1, self.first), self.head + 1):
            event = self.events.get(place)
            if event is not None:
                yield event

    def drop(self, events: list[RecordedEvent]) -> None:
        for event in events:
            del self.events[event.position]
        self.purged_to = max(self.purged_to, *(event.position for event in events))
        self.purges += 1


class Data:
    """All of it. Readers and writers hold `lock`; waiters wait on it."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.birth = secrets.token_bytes(8)
        self.epoch = 0
        self.rows: dict[Key, Row] = {}
        self.indexes = Indexes()
        self.payloads: dict[tuple[Key, str], bytes] = {}
        self._feeds: dict[tuple[str, str], Feed] = {}

    def feed(self, tenant: str, project: str) -> Feed:
        """A project's feed, perhaps empty."""
        return self._feeds.get((tenant, project)) or Feed()

    def state(self, tenant: str, project: str) -> FeedState:
        """Returns the state that decides whether a cursor can be continued."""
        feed = self.feed(tenant, project)
        return FeedState(
            self.birth,
            self.epoch,
            feed_mark(tenant, project),
            feed.head,
            feed.purged_to,
            feed.purges,
        )

    def has_moved(self, tenant: str, project: str, place: CursorPosition) -> bool:
        """Is the feed no longer where this cursor is? True for a lost cursor, too: reading will say
        so."""
        state = self.state(tenant, project)
        return (place.birth, place.epoch, place.feed, place.position) != (
            state.birth,
            state.epoch,
            state.feed,
            state.head,
        )

    def find(self, query: Query, count_by: str | None) -> Page:
        """Records by an index field, or how many there are by its value."""
        check_query(query, count_by)
        if count_by is not None:
            return Page(counts=self._count(query, count_by))
        if query.heads:
            return Page(self._heads(query))
        found = list(islice(self._matching(query), query.limit + 1))
        records = [_stored(key, row) for _, key, row in found[: query.limit]]
        return Page(
            records,
            encode_token(*found[query.limit - 1][0]) if len(found) > query.limit else None,
        )

    def _matching(self, query: Query) -> Iterator[tuple[Item, Key, Row]]:
        for item in self.indexes.items(query):
            key = key_of(query, item)
            row = self.rows[key]
            if query.state is None or row.index.state == query.state:
                yield item, key, row

    def _heads(self, query: Query) -> list[Stored]:
        found: list[tuple[Item, Key, Row]] = []
        for pool in self.indexes.pools(query.tenant, query.project or "", query.kind):
            of_pool = Query(query.tenant, query.project, query.kind, query.state, pool=pool)
            found += islice(self._matching(of_pool), query.heads)
        return [_stored(key, row) for _, key, row in sorted(found, key=lambda each: each[0])]

    def _count(self, query: Query, count_by: str) -> dict[str, int]:
        values: Counter[str] = Counter()
        for _, key, row in self._matching(query):
            if query.heads and row.index.pool is None:
                continue
            value = key.project if count_by == "project" else getattr(row.index, count_by)
            if value is not None:
                values[value] += 1
        return dict(values)

    def read_events(self, query: EventQuery) -> EventPage:
        """Events of a record, or of a project after a cursor."""
        check_event_query(query)
        state = self.state(query.tenant, query.project)
        if query.record is None:
            return feed_page(query, state, self.feed(query.tenant, query.project).after)
        row = self.rows.get(query.record)
        return record_page(query, state, row.events if row else (), row.base if row else None)

    def fits(self, change: Change) -> bool:
        """Is the record still the one that was read?"""
        row = self.rows.get(change.key)
        return (change.read_version, change.read_digest) == (
            (row.version, row.digest) if row else (0, b"")
        )

    def write(self, change: Change) -> Committed | Conflict:
        """Writes one change if it fits."""
        if not self.fits(change):
            return Conflict()
        row = self.rows.get(change.key)
        self._move(change.key, row.index if row else None, change.index)
        if row is None:
            row = self.rows[change.key] = Row(
                change.version, change.digest, change.body, change.index
            )
        else:
            row.version, row.digest, row.body, row.index = (
                change.version,
                change.digest,
                change.body,
                change.index,
            )
        feed = self._feeds.setdefault(change.key[:2], Feed())
        for event in change.events:
            recorded = RecordedEvent(
                change.key, event.version, event.digest, event.body, feed.head + 1
            )
            row.events.append(recorded)
            feed.append(recorded)
        return Committed(feed.head)

    def _move(self, key: Key, old: Index | None, new: Index) -> None:
        self.indexes.move(key, old, new)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops events and swaps the base in. A late call, after a larger purge, changes
        nothing."""
        row = self.rows.get(key)
        dropped = [event for event in row.events if event.version < before_version] if row else []
        if row and dropped:
            row.events = row.events[len(dropped) :]
            row.base = base
            self.feed(key.tenant, key.project).drop(dropped)


def _stored(key: Key, row: Row) -> Stored:
    index = row.index
    return Stored(key, row.version, row.digest, row.body, index.pool, index.order)
