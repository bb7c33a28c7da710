"""Audit and purge.

An audit returns all tenants and projects, and the items that belong to none. The former are listed
in the table. The latter need a scan of the table, which is deferred until the caller reads the
faults, because most callers never do.

A purge swaps a record's base in and drops its older events, in one transaction if they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import overload

from genlock.errors import StoreUnavailable
from genlock.failpoints import hit
from genlock.store import Key
from genlock.stores.dynamodb import keys, reads
from genlock.stores.dynamodb.calls import Cancelled, Pauses
from genlock.stores.dynamodb.commit import ACTIONS
from genlock.stores.dynamodb.feed import Entry, entry_in
from genlock.stores.dynamodb.keys import At, Item, binary, int_of, key_item, whole
from genlock.stores.dynamodb.position_gaps import PositionGaps
from genlock.stores.dynamodb.table import Table

_KINDS = {
    "head": "the head of a feed",
    "feed": "an event",
    "record": "a record",
    "history": "a history",
    "waits": "an entry of who waits",
}


class Faults(Sequence[str]):
    """The faults, found by a scan at the first access."""

    def __init__(self, find: Callable[[], list[str]]) -> None:
        self._find = find

    @cached_property
    def _found(self) -> list[str]:
        return self._find()

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._found[at]

    def __len__(self) -> int:
        return len(self._found)


def places_in(table: Table) -> list[tuple[str, str]]:
    """All tenants and projects that have events."""
    listed = reads.places(table)
    heads = table.get_many([keys.head_at(*place) for place in listed])
    return [place for place in listed if int_of(heads.get(keys.head_at(*place), {}), "h")]


def faults_of(table: Table) -> list[str]:
    """Scans the keys of all items."""
    return sorted(set(_strays(table, set(reads.places(table)))))


def _strays(table: Table, places: set[tuple[str, str]]) -> Iterator[str]:
    for item in table.scan("#pk, #sk"):
        what, *names = keys.parted(item["pk"]["S"])
        if what in _KINDS and tuple(names[:2]) not in places:
            yield f"{_KINDS[what]} belongs to {'/'.join(names[:2])}, which is not listed"
        elif what not in _KINDS and what not in (keys.META.pk, keys.PLACES):
            yield f"the item {item['pk']['S']!r} {item['sk']['S']!r} is not Genlock's"


_BASE_SAME = "#v = :v"
_BASE_ABSENT = "attribute_not_exists(#pk)"
_PURGES_SAME = "#pu = :seen"
_NEVER_PURGED = "attribute_not_exists(#pu)"
_NOTE_PURGE = "SET #pt = :pt, #pu = :pu, #so = :so"


def purge(table: Table, gaps: PositionGaps, key: Key, before_version: int, base: bytes) -> None:
    """Drops events and swaps the base in. A late call, after a larger purge, changes nothing."""
    pauses = Pauses(table.calls.stop)
    while not _try(table, gaps, key, before_version, base):
        if not pauses.pause():
            raise StoreUnavailable(
                f"table {table.name}: others kept purging the project of {'/'.join(key)}"
            )


def _try(table: Table, gaps: PositionGaps, key: Key, before_version: int, base: bytes) -> bool:
    """Returns False if another purge of the project came in between."""
    head_at, base_at = keys.head_at(*key.place), keys.base_at(key)
    items = table.get_many([head_at, base_at], "#pk, #sk, #v, #so, #pt, #pu")
    head, old = items.get(head_at, {}), items.get(base_at)
    entries = [entry_in(item) for item in table.query(keys.history_of(key), keys.numbers(0))]
    older = [entry for entry in entries if entry.first < before_version]
    kept_from = int_of(old or {}, "v", 1)
    if not older or before_version <= kept_from:
        return True
    last = older[-1].position_of(min(older[-1].last, before_version - 1))
    # Up to the solid position no reader mistakes a purged event for one that is not written yet.
    gaps.close_up(key.place, last)
    dropped = _dropped(key, older, before_version)
    actions = [
        _swap(table, base_at, old, before_version, base),
        _note(table, head_at, head, max(last, gaps.solid(key.place)), last),
    ]
    room = ACTIONS - len(actions)
    try:
        table.calls.transact(actions + [table.deleting(at) for at in dropped[:room]])
    except Cancelled:
        return False
    hit("dynamodb.purge.swapped")
    table.write_many(deletes=dropped[room:])
    return True


def _dropped(key: Key, older: list[Entry], before_version: int) -> list[At]:
    """Returns the items to delete: events before their history entries, so that the next purge
    finds the items that a killed one has left."""
    feed = keys.feed_of(*key.place)
    events = [
        At(feed, keys.number(entry.position_of(version)))
        for entry in older
        for version in range(entry.first, min(entry.last + 1, before_version))
    ]
    return events + [
        At(keys.history_of(key), keys.number(entry.last))
        for entry in older
        if entry.last < before_version
    ]


def _swap(
    table: Table, at: At, old: Item | None, before_version: int, base: bytes
) -> dict[str, object]:
    item = key_item(at) | {"v": whole(before_version), "b": binary(base)}
    if old is None:
        return table.putting(item, _BASE_ABSENT)
    return table.putting(item, _BASE_SAME, {":v": whole(int_of(old, "v"))})


def _note(table: Table, at: At, head: Item, solid: int, last: int) -> dict[str, object]:
    purges = int_of(head, "pu")
    values = {
        ":pt": whole(max(last, int_of(head, "pt"))),
        ":pu": whole(purges + 1),
        ":so": whole(max(solid, int_of(head, "so"))),
    }
    if purges:
        return table.updating(at, _NOTE_PURGE, values | {":seen": whole(purges)}, _PURGES_SAME)
    return table.updating(at, _NOTE_PURGE, values, _NEVER_PURGED)
