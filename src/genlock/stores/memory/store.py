"""The memory store: one lock, plain dicts, sorted lists.

Implementation notes:

- **Everything happens under one lock**, so every read is of one instant and every commit is all at once.
- **Nothing lasts**: `limits.durable` is False. Several handles share one memory by `handle()`; it is gone with the last of them.
- **Indexes are sorted lists in pieces** (ordered.py): the head of a pool costs the same whether it has ten records or a million.
- **A fork parts the memories** silently, so in a child every call is an error, as with the other stores.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO

from genlock.errors import BadArgument, Closed, ResultNotFound, StoreError
from genlock.store import (
    Audit,
    Change,
    Clock,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Key,
    Limits,
    Page,
    Payloads,
    Query,
    Snapshot,
    Stored,
)
from genlock.stores.checks import check_changes, check_event_query, check_query
from genlock.stores.clock import SystemClock
from genlock.stores.memory.data import Data, Row
from genlock.stores.memory.indexes import key_of
from genlock.stores.memory.ordered import Item
from genlock.stores.pages import feed_page, record_page
from genlock.stores.places import Place, decode_cursor, encode_token


class MemoryStore:
    """`genlock.store.Store` in this process."""

    limits: Limits

    def __init__(self, *, clock: Clock | None = None, shared: MemoryStore | None = None) -> None:
        """With `shared`, another handle on that store's memory."""
        self.limits = Limits(durable=False)
        self._data: Data = shared._data if shared is not None else Data()
        self._clock: Clock = clock or SystemClock()
        self._pid = os.getpid()
        self._closed = False

    def handle(self, *, clock: Clock | None = None) -> MemoryStore:
        """Another handle on the same memory, as another process would have on a file."""
        return MemoryStore(clock=clock, shared=self)

    def load(self, keys: Sequence[Key], *, with_index: bool = False) -> Snapshot:
        """The records found among `keys`, the clock and the epoch."""
        with self._entered() as data:
            rows = {key: data.rows[key] for key in keys if key in data.rows}
            found = {
                key: Stored(key, row.version, row.digest, row.body, index=row.index if with_index else None) for key, row in rows.items()
            }
            return Snapshot(found, self._clock.now(), data.epoch)

    def commit(self, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits."""
        with self._entered() as data:
            check_changes(changes, self.limits)
            answers = [data.write(change) for change in changes]
            data.lock.notify_all()
            return answers

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field, or how many there are by its value."""
        with self._entered() as data:
            check_query(query, count_by)
            if count_by is not None:
                return Page(counts=_count(data, query, count_by))
            if query.heads:
                return Page(_heads(data, query))
            found = list(islice(_matching(data, query), query.limit + 1))
            records = [_stored(key, row) for _, key, row in found[: query.limit]]
            return Page(records, encode_token(*found[query.limit - 1][0]) if len(found) > query.limit else None)

    def read_events(self, query: EventQuery) -> EventPage:
        """Events of a record, or of a project after a cursor."""
        with self._entered() as data:
            check_event_query(query)
            state = data.state(query.tenant, query.project)
            if query.record is None:
                return feed_page(query, state, data.feed(query.tenant, query.project).after)
            row = data.rows.get(query.record)
            return record_page(query, state, row.events if row else (), row.base if row else None)

    def wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is closed."""
        with self._entered() as data:
            feeds = [(*place, decode_cursor(cursor)) for place, cursor in zip(projects, after, strict=True)]
            data.lock.wait_for(lambda: self._closed or any(_has_moved(data, *feed) for feed in feeds), timeout)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        with self._entered() as data:
            data.purge(key, before_version, base)

    def payloads(self) -> Payloads:
        """Beside the records."""
        with self._entered():
            return MemoryPayloads(self)

    def set_epoch(self, epoch: int) -> None:
        """Only upwards."""
        with self._entered() as data:
            if epoch <= data.epoch:
                raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above {data.epoch}")
            data.epoch = epoch
            data.lock.notify_all()

    def audit(self) -> Audit:
        """Nothing can be misplaced here."""
        with self._entered() as data:
            return Audit(sorted({key.place for key in data.rows}))

    def close(self) -> None:
        """The other handles stay open."""
        self._closed = True
        if os.getpid() == self._pid:
            with self._data.lock:
                self._data.lock.notify_all()

    @contextmanager
    def _entered(self) -> Iterator[Data]:
        """The memory, under its lock."""
        if os.getpid() != self._pid:
            raise StoreError(f"this memory is of process {self._pid}; a store does not survive fork: open it anew")
        with self._data.lock:
            if self._closed:
                raise Closed("the store is closed")
            yield self._data


class MemoryPayloads:
    """`genlock.store.Payloads` of a memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """What is there stays."""
        with self._store._entered() as memory:
            memory.payloads.setdefault((key, digest), bytes(data))

    def open(self, key: Key, digest: str) -> BinaryIO:
        """A binary reader; `ResultNotFound` if there is none."""
        with self._store._entered() as memory:
            try:
                return io.BytesIO(memory.payloads[key, digest])
            except KeyError:
                raise ResultNotFound(f"{'/'.join(key)} has no payload {digest}") from None

    def drop(self, key: Key, digest: str) -> None:
        """Removes it; absent is fine."""
        with self._store._entered() as memory:
            memory.payloads.pop((key, digest), None)


def _matching(data: Data, query: Query) -> Iterator[tuple[Item, Key, Row]]:
    for item in data.indexes.items(query):
        key = key_of(query, item)
        row = data.rows[key]
        if query.state is None or row.index.state == query.state:
            yield item, key, row


def _heads(data: Data, query: Query) -> list[Stored]:
    found: list[tuple[Item, Key, Row]] = []
    for pool in data.indexes.pools(query.tenant, query.project or "", query.kind):
        of_pool = Query(query.tenant, query.project, query.kind, query.state, pool=pool)
        found += islice(_matching(data, of_pool), query.heads)
    return [_stored(key, row) for _, key, row in sorted(found, key=lambda each: each[0])]


def _count(data: Data, query: Query, count_by: str) -> dict[str, int]:
    values: Counter[str] = Counter()
    for _, key, row in _matching(data, query):
        if query.heads and row.index.pool is None:
            continue
        value = key.project if count_by == "project" else getattr(row.index, count_by)
        if value is not None:
            values[value] += 1
    return dict(values)


def _stored(key: Key, row: Row) -> Stored:
    return Stored(key, row.version, row.digest, row.body, row.index.pool, row.index.order)


def _has_moved(data: Data, tenant: str, project: str, place: Place) -> bool:
    """Also if the cursor is lost: reading will say so."""
    state = data.state(tenant, project)
    return (place.birth, place.epoch, place.feed, place.position) != (state.birth, state.epoch, state.feed, state.head)
