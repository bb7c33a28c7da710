"""Loading records by their keys, all of one instant.

TransactGetItems does that, up to 100 items and 4 MB; but it is cancelled by whoever is just writing one of them. Then, and for more,
the records are read in batches, in which DynamoDB reads each item for itself. Whoever reads the same twice, and finds every record at
the same version and digest, knows that all of them stood there together in between: versions never come back. So it is done
until two readings agree.
"""

from __future__ import annotations

from collections.abc import Sequence

from genlock.errors import StoreCorrupt
from genlock.store import Key, Stored
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.items import Item, index_in, int_of, stored_in, waits_in
from genlock.stores.dynamodb.keys import META, At
from genlock.stores.dynamodb.table import READ_AT_ONCE, Table

MOST_READINGS = 40
"""After so many, what was read last is given: every record is fresh, and nothing that is decided on it is written unless it still is."""

Known = tuple[int, bytes, tuple[str, ...]]
"""Version, digest, and what the record waits on."""


class Memory:
    """What records waited on that were loaded lately: a change of one has to know. Only a help: whoever is not here is looked up."""

    MOST = 8192

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}

    def note(self, key: Key, known: Known) -> None:
        """The record stands there."""
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[key] = known

    def recall(self, key: Key, version: int, digest: bytes) -> tuple[str, ...] | None:
        """What the record waited on at that version and digest; None if that is not known."""
        known = self._known.get(key)
        return known[2] if known is not None and known[:2] == (version, digest) else None


def load(table: Table, memory: Memory, wanted: Sequence[Key], *, with_index: bool) -> tuple[dict[Key, Stored], int]:
    """The records that are there, and the epoch."""
    places = {keys.record_at(key): key for key in wanted}
    found = _read(table, [META, *places])
    epoch = epoch_of(found.pop(META, None), table.name)
    waits = {places[at]: waits_in(item) for at, item in found.items()}
    findable = _findable(table, waits) if with_index else {}
    records = {}
    for at, item in found.items():
        key = places[at]
        record = stored_in(item, key)
        memory.note(key, (record.version, record.digest, waits[key]))
        records[key] = record._replace(index=index_in(item, findable[key])) if with_index else record
    return {key: records[key] for key in places.values() if key in records}, epoch


def _read(table: Table, asked: Sequence[At]) -> dict[At, Item]:
    """The items that are there, all of one instant."""
    if len(asked) <= 2:  # the epoch and one record: which of them was read first tells nobody anything
        return table.get_many(asked)
    found = table.get_together(asked) if len(asked) <= READ_AT_ONCE else None
    return found if found is not None else _read_twice(table, asked)


def _read_twice(table: Table, asked: Sequence[At]) -> dict[At, Item]:
    found = table.get_many(asked)
    for _ in range(MOST_READINGS):
        before, found = found, table.get_many(asked)
        if _states(before) == _states(found):
            break
    return found


def epoch_of(meta: Item | None, table: str) -> int:
    """The epoch; `StoreCorrupt` if the item that has it is gone."""
    if meta is None:
        raise StoreCorrupt(f"table {table}: the item that says of which birth and epoch it is, is missing")
    return int_of(meta, "e")


def _states(items: dict[At, Item]) -> dict[At, object]:
    return {at: item["e"] if at == META else (item["v"], item["d"]) for at, item in items.items()}


def _findable(table: Table, waits: dict[Key, tuple[str, ...]]) -> dict[Key, tuple[str, ...]]:
    """Of what records wait on that by which they can be found: both must agree for it to be seen by a check."""
    entries = [keys.wait_at(key, name) for key, names in waits.items() for name in names]
    found = table.get_many(entries, "#pk, #sk") if entries else {}
    return {key: tuple([name for name in names if keys.wait_at(key, name) in found]) for key, names in waits.items()}
