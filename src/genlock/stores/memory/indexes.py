"""By what records are found: shelves of keys, each in one order. A change touches only the shelves on which its record moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, takewhile

from genlock.store import Index, Key, Query
from genlock.stores.memory.ordered import Item, Ordered
from genlock.stores.places import decode_token

Shelf = tuple[str, ...]


class Indexes:
    """All shelves of one memory."""

    def __init__(self) -> None:
        self._shelves: defaultdict[Shelf, Ordered] = defaultdict(Ordered)
        self._pools: defaultdict[Shelf, set[str]] = defaultdict(set)

    def move(self, key: Key, old: Index | None, new: Index) -> None:
        """The record had this index, and now has that."""
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
        """Those with anything in them."""
        return self._pools.get((tenant, project, kind), ())

    def items(self, query: Query) -> Iterator[Item]:
        """What the query finds, if nothing else is asked, from where its last page ended; see `key_of`."""
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
        """Whoever is on one of several shelves, once, in one order."""
        after = decode_token(query.after, tuple[str]) if query.after is not None else ()
        shelves = [("waits", query.tenant, query.project or "", query.kind, dependency) for dependency in set(query.waits_on)]
        found = merge(*(self._shelves[shelf].after(after) for shelf in shelves if shelf in self._shelves))
        return (item for item, _ in groupby(found))


def key_of(query: Query, item: Item) -> Key:
    """Every item ends in an id, and in project and id where it may be of several projects."""
    project = query.project if query.project is not None else item[-2]
    return Key(query.tenant, project, query.kind, item[-1])


def _asked(query: Query) -> tuple[Shelf, type[Item], Item]:
    """The shelf, the shape of its items, and what is before the first that is asked for."""
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
    """Where a record with this index stands."""
    tenant, project, kind, id = key
    yield ("all", tenant, kind), (project, id)
    if index.pool is not None:
        yield ("pool", tenant, project, kind, index.pool), (index.order is not None, index.order or "", id)
    if index.due_at is not None:
        yield ("due", tenant, project, kind), (index.due_at, id)
    if index.session is not None:
        yield ("session", tenant, kind, index.session), (project, id)
    if index.parent is not None:
        yield ("parent", tenant, project, kind, index.parent), (id,)
    for dependency in index.waits_on:
        yield ("waits", tenant, project, kind, dependency), (id,)
