"""Prefetches records and pages for callers that read a whole store.

The replay check lists records, and then loads each record and its events: two or three round trips
each, one after the other. `BulkReadStore` loads the listed records many at a time, and reads the
events of several at once, ahead of the caller. For a record that cannot be read, the store itself
raises the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from genlock.core.keys import Key
from genlock.errors import StoreCorrupt
from genlock.store import (
    Audit,
    Change,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Page,
    Payloads,
    Query,
    Snapshot,
    Store,
)

T = TypeVar("T")

_END: Any = object()


def prefetched(items: Iterable[T]) -> Iterator[T]:
    """Yields the same items. While the caller works on one, a thread fetches the next.

    Writing in parallel, too, brought no gain: the server is the bottleneck.
    """
    each = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="genlock-ahead") as thread:
        coming: Future[T] = thread.submit(next, each, _END)
        while (item := coming.result()) is not _END:
            coming = thread.submit(next, each, _END)
            yield item


CHUNK = 32
"""Records loaded at a time."""
WAYS = 2
"""Chunks loaded at once. With more, threads wait longer for each other than for a near server."""
AHEAD = 4
"""The most chunks ahead of the caller."""
EVENTS = 500
"""Events of a record in the first page, as the replay check asks for them."""

Prefetched = dict[Key, tuple[Snapshot, EventPage]]


class BulkReadStore:
    """A store that prefetches the answers to the next reads."""

    def __init__(self, store: Store) -> None:
        self.limits = store.limits
        self._store = store
        self._threads = ThreadPoolExecutor(WAYS, thread_name_prefix="genlock-prefetch")
        self._listed: list[Key] = []
        self._begun = 0
        """The number of listed records whose prefetch has begun."""
        self._chunks: dict[Key, Future[Prefetched]] = {}

    def __enter__(self) -> BulkReadStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown(cancel_futures=True)

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Passes the query on. The caller is expected to load the records in this order."""
        page = self._store.find(query, count_by=count_by)
        self._listed += [stored.key for stored in page.records]
        return page

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """Loads records. A load of one record with its index fields comes from the prefetch."""
        one = with_index and len(keys) == 1 and not queries
        prefetched = self._prefetched(keys[0]) if one else None
        if prefetched is None:
            return self._store.load(keys, queries, with_index=with_index)
        records = prefetched[0].records
        return prefetched[0]._replace(records={key: records[key] for key in keys if key in records})

    def read_events(self, query: EventQuery) -> EventPage:
        """Reads events. The first page of a record's events comes from the prefetch, and then the
        record is dropped from it."""
        if query.record is not None and query == self._first(query.record):
            prefetched = self._prefetched(query.record)
            if prefetched is not None:
                self._chunks.pop(query.record).result().pop(query.record)
                return prefetched[1]
        return self._store.read_events(query)

    def _first(self, key: Key) -> EventQuery:
        return EventQuery(key.tenant, key.project, record=key, limit=EVENTS)

    def _prefetched(self, key: Key) -> tuple[Snapshot, EventPage] | None:
        if key not in self._chunks and key in self._listed[self._begun : self._begun + CHUNK]:
            self._begin()
        chunk = self._chunks.get(key)
        if chunk is None:
            return None
        prefetched = chunk.result().get(key)
        if prefetched is None:
            del self._chunks[key]
        while self._begun < len(self._listed) and len(self._chunks) < AHEAD * CHUNK:
            self._begin()
        return prefetched

    def _begin(self) -> None:
        keys = self._listed[self._begun : self._begun + CHUNK]
        self._begun += len(keys)
        self._chunks.update(dict.fromkeys(keys, self._threads.submit(self._look, keys)))

    def _look(self, keys: list[Key]) -> Prefetched:
        """Returns the readable records, with their events."""
        found: Prefetched = {}
        with suppress(StoreCorrupt):
            snapshot = self._store.load(keys, with_index=True)
            for key in keys:
                with suppress(StoreCorrupt):
                    found[key] = snapshot, self._store.read_events(self._first(key))
        return found

    # All other calls are passed on.

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        return self._store.commit(changes, epoch=epoch)

    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        return self._store.wait(projects, after, timeout, others=others)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        self._store.purge(key, before_version, base)

    def payloads(self) -> Payloads:
        return self._store.payloads()

    def set_epoch(self, epoch: int) -> None:
        self._store.set_epoch(epoch)

    def audit(self) -> Audit:
        return self._store.audit()

    def close(self) -> None:
        self._store.close()
