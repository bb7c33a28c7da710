"""A store for whoever goes through all of its records one by one, as the replay check does: what he asks next has been asked already.

He lists records, and then asks for each of them alone and for its events: two or three round trips each, one after the other. Here the
records that were listed are loaded many at a time, and the events of several are read at once, some way ahead of him. He is given what
the store says of each, and of one that cannot be read the store itself tells him why.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType

from genlock.core.keys import Key
from genlock.errors import StoreCorrupt
from genlock.store import Audit, Change, Committed, Conflict, EventPage, EventQuery, Page, Payloads, Query, Snapshot, Store

CHUNK = 32
"""Records that are loaded at a time."""
WAYS = 2
"""Chunks that are asked for at once. With more the threads of one process wait for each other more than for a server that is near."""
AHEAD = 4
"""Chunks that are known or asked for, at most."""
EVENTS = 500
"""Of a record, at first: what the replay check asks for."""

Foreseen = dict[Key, tuple[Snapshot, EventPage]]


class Foresight:
    """The store, and what it will be asked."""

    def __init__(self, store: Store) -> None:
        self.limits = store.limits
        self._store = store
        self._threads = ThreadPoolExecutor(WAYS, thread_name_prefix="genlock-foresight")
        self._listed: list[Key] = []
        self._begun = 0
        """So many of those listed have been asked for."""
        self._chunks: dict[Key, Future[Foreseen]] = {}

    def __enter__(self) -> Foresight:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._threads.shutdown(cancel_futures=True)

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """As ever; and the records will be asked for in this order."""
        page = self._store.find(query, count_by=count_by)
        self._listed += [stored.key for stored in page.records]
        return page

    def load(self, keys: Sequence[Key], *, with_index: bool = False) -> Snapshot:
        """Of one record from what was foreseen."""
        foreseen = self._foreseen(keys[0]) if with_index and len(keys) == 1 else None
        if foreseen is None:
            return self._store.load(keys, with_index=with_index)
        records, now, epoch = foreseen[0]
        return Snapshot({key: records[key] for key in keys if key in records}, now, epoch)

    def read_events(self, query: EventQuery) -> EventPage:
        """The first events of a record from what was foreseen; after them it is forgotten."""
        if query.record is not None and query == self._first(query.record):
            foreseen = self._foreseen(query.record)
            if foreseen is not None:
                self._chunks.pop(query.record).result().pop(query.record)
                return foreseen[1]
        return self._store.read_events(query)

    def _first(self, key: Key) -> EventQuery:
        return EventQuery(key.tenant, key.project, record=key, limit=EVENTS)

    def _foreseen(self, key: Key) -> tuple[Snapshot, EventPage] | None:
        if key not in self._chunks and key in self._listed[self._begun : self._begun + CHUNK]:
            self._begin()
        chunk = self._chunks.get(key)
        if chunk is None:
            return None
        foreseen = chunk.result().get(key)
        if foreseen is None:
            del self._chunks[key]
        while self._begun < len(self._listed) and len(self._chunks) < AHEAD * CHUNK:
            self._begin()
        return foreseen

    def _begin(self) -> None:
        keys = self._listed[self._begun : self._begun + CHUNK]
        self._begun += len(keys)
        self._chunks.update(dict.fromkeys(keys, self._threads.submit(self._look, keys)))

    def _look(self, keys: list[Key]) -> Foreseen:
        """What there is of these; one that cannot be read is left out."""
        found: Foreseen = {}
        with suppress(StoreCorrupt):
            snapshot = self._store.load(keys, with_index=True)
            for key in keys:
                with suppress(StoreCorrupt):
                    found[key] = snapshot, self._store.read_events(self._first(key))
        return found

    # The rest is the store's.

    def commit(self, changes: Sequence[Change]) -> Sequence[Committed | Conflict]:
        return self._store.commit(changes)

    def wait(self, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
        self._store.wait(projects, after, timeout)

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
