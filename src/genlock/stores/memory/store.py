"""The memory store: one lock, plain dicts, sorted lists.

Implementation notes:

- **One lock for everything**, so every read is of one instant and every commit is atomic.
- **Nothing is durable**. Several handles share one memory by `handle()`; it ends with the last one.
- **A fork would part the memories** silently, so in a child every call is an error.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    payload_name,
)
from genlock.stores.checks import check_changes
from genlock.stores.clock import SystemClock
from genlock.stores.cursors import decode_cursor
from genlock.stores.rows import Data


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

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """The records among `keys`, the clock and the epoch; then one page for each query."""
        with self._entered() as data:
            rows = {key: data.rows[key] for key in keys if key in data.rows}
            found = {
                key: Stored(
                    key, row.version, row.digest, row.body, index=row.index if with_index else None
                )
                for key, row in rows.items()
            }
            now, epoch = self._clock.now(), data.epoch
        return Snapshot(found, [self.find(query) for query in queries], now, epoch)

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits."""
        with self._entered() as data:
            check_changes(changes, self.limits)
            if epoch is not None and epoch != data.epoch:
                return [Conflict()] * len(changes)
            answers = [data.write(change) for change in changes]
            data.lock.notify_all()
            return answers

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Records by an index field, or how many there are by its value."""
        with self._entered() as data:
            return data.find(query, count_by)

    def read_events(self, query: EventQuery) -> EventPage:
        """Events of a record, or of a project after a cursor."""
        with self._entered() as data:
            return data.read_events(query)

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is
        closed."""
        with self._entered() as data:
            feeds = [
                (*place, decode_cursor(cursor))
                for place, cursor in zip(projects, after, strict=True)
            ]
            data.lock.wait_for(
                lambda: self._closed or any(data.has_moved(*feed) for feed in feeds), timeout
            )
        return ()

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        with self._entered() as data:
            data.purge(key, before_version, base)

    def payloads(self) -> Payloads:
        """The payloads of this memory."""
        with self._entered():
            return MemoryPayloads(self)

    def set_epoch(self, epoch: int) -> None:
        """Only upwards."""
        with self._entered() as data:
            if epoch <= data.epoch:
                raise BadArgument(
                    f"the epoch goes only upwards, and {epoch} is not above {data.epoch}"
                )
            data.epoch = epoch
            data.lock.notify_all()

    def audit(self) -> Audit:
        """All tenants and projects. No record can be misplaced here."""
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
            raise StoreError(
                f"this memory is of process {self._pid}; a store does not survive fork: open it "
                "again"
            )
        with self._data.lock:
            if self._closed:
                raise Closed("the store is closed")
            yield self._data


class MemoryPayloads:
    """`genlock.store.Payloads` of a memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def put(self, key: Key, digest: str, data: bytes) -> None:
        """Keeps a payload unless it is there already."""
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

    def names(self) -> list[str]:
        """The names of all payloads."""
        with self._store._entered() as memory:
            return [payload_name(key, digest) for key, digest in memory.payloads]
