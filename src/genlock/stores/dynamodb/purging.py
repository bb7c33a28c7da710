"""Purging: the base of a record is swapped in and its older events are dropped, in one transaction if they are few enough for one."""

from __future__ import annotations

from genlock.errors import StoreUnavailable
from genlock.failpoints import hit
from genlock.store import Key
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.calls import Pauses
from genlock.stores.dynamodb.faults import Cancelled
from genlock.stores.dynamodb.feed import Entry, entry_in
from genlock.stores.dynamodb.holes import Holes
from genlock.stores.dynamodb.items import Item, binary, int_of, key_item, whole
from genlock.stores.dynamodb.keys import At
from genlock.stores.dynamodb.table import Table
from genlock.stores.dynamodb.writing import ACTIONS

_BASE_SAME = "#v = :v"
_BASE_ABSENT = "attribute_not_exists(#pk)"
_PURGES_SAME = "#pu = :seen"
_NEVER_PURGED = "attribute_not_exists(#pu)"
_NOTE_PURGE = "SET #pt = :pt, #pu = :pu, #so = :so"


def purge(table: Table, holes: Holes, key: Key, before_version: int, base: bytes) -> None:
    """Drops events and swaps the base in. One who comes late, when more has been purged already, changes nothing."""
    pauses = Pauses(table.calls.stop)
    while not _try(table, holes, key, before_version, base):
        if not pauses.pause():
            raise StoreUnavailable(f"table {table.name}: others kept purging the project of {'/'.join(key)}")


def _try(table: Table, holes: Holes, key: Key, before_version: int, base: bytes) -> bool:
    """False if another purge of the project came in between."""
    head_at, base_at = keys.head_at(*key.place), keys.base_at(key)
    items = table.get_many([head_at, base_at], "#pk, #sk, #v, #so, #pt, #pu")
    head, old = items.get(head_at, {}), items.get(base_at)
    entries = [entry_in(item) for item in table.query(keys.history_of(key), keys.numbers(0))]
    older = [entry for entry in entries if entry.first < before_version]
    kept_from = int_of(old or {}, "v", 1)
    if not older or before_version <= kept_from:
        return True
    last = older[-1].position_of(min(older[-1].last, before_version - 1))
    # Below what is solid nobody takes an event that is gone for one that is still to come.
    holes.close_up(key.place, last)
    dropped = _dropped(key, older, before_version)
    actions = [_swap(table, base_at, old, before_version, base), _note(table, head_at, head, max(last, holes.solid(key.place)), last)]
    room = ACTIONS - len(actions)
    try:
        table.calls.transact(actions + [table.deleting(at) for at in dropped[:room]])
    except Cancelled:
        return False
    hit("dynamodb.purge.swapped")
    table.write_many(deletes=dropped[room:])
    return True


def _dropped(key: Key, older: list[Entry], before_version: int) -> list[At]:
    """What goes: events first, then what says where they were, so that what a killed process leaves is found by the next purge."""
    feed = keys.feed_of(*key.place)
    events = [
        At(feed, keys.number(entry.position_of(version)))
        for entry in older
        for version in range(entry.first, min(entry.last + 1, before_version))
    ]
    return events + [At(keys.history_of(key), keys.number(entry.last)) for entry in older if entry.last < before_version]


def _swap(table: Table, at: At, old: Item | None, before_version: int, base: bytes) -> dict[str, object]:
    item = key_item(at) | {"v": whole(before_version), "b": binary(base)}
    if old is None:
        return table.putting(item, _BASE_ABSENT)
    return table.putting(item, _BASE_SAME, {":v": whole(int_of(old, "v"))})


def _note(table: Table, at: At, head: Item, solid: int, last: int) -> dict[str, object]:
    purges = int_of(head, "pu")
    values = {":pt": whole(max(last, int_of(head, "pt"))), ":pu": whole(purges + 1), ":so": whole(max(solid, int_of(head, "so")))}
    if purges:
        return table.updating(at, _NOTE_PURGE, values | {":seen": whole(purges)}, _PURGES_SAME)
    return table.updating(at, _NOTE_PURGE, values, _NEVER_PURGED)
