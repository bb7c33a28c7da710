"""Reads records by key, all from one instant, and records by index field.

TransactGetItems reads up to 100 items and 4 MB from one instant, but a write to one of them cancels
it. Then, and for more items, the records are read in batches, in which DynamoDB reads each item by
itself, until two readings agree. If every record has the same version and digest twice, all of them
existed together in between, because versions never recur.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from genlock.errors import BadArgument, StoreCorrupt
from genlock.store import Key, Page, Query, Stored
from genlock.stores.cursors import decode_token, encode_token
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.keys import (
    INDEX_FIELDS,
    META,
    At,
    Item,
    Span,
    at_of,
    index_in,
    int_of,
    stored_in,
    waits_in,
)
from genlock.stores.dynamodb.table import DUE, INDEXES, PARENT, READ_AT_ONCE, READY, SESSION, Table

MOST_READINGS = 40
"""After this many readings the last one is returned: every record in it was current, and a commit
checks that it still is."""

Known = tuple[int, bytes, tuple[str, ...]]
"""Version, digest and waits."""


class Memory:
    """A cache of the waits of recently loaded records, for their next change. Other waits are
    looked up."""

    MOST = 8192

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}

    def note(self, key: Key, known: Known) -> None:
        """Adds a record to the cache."""
        if len(self._known) >= self.MOST:
            self._known.clear()
        self._known[key] = known

    def recall(self, key: Key, version: int, digest: bytes) -> tuple[str, ...] | None:
        """Returns the waits of a record at that version and digest; None if they are not known."""
        known = self._known.get(key)
        return known[2] if known is not None and known[:2] == (version, digest) else None


def load(
    table: Table, memory: Memory, wanted: Sequence[Key], *, with_index: bool
) -> tuple[dict[Key, Stored], int]:
    """Returns the existing records, and the epoch."""
    places = {keys.record_at(key): key for key in wanted}
    found = _read_items(table, [META, *places])
    epoch = epoch_of(found.pop(META, None), table.name)
    waits = {places[at]: waits_in(item) for at, item in found.items()}
    findable = _findable(table, waits) if with_index else {}
    records = {}
    for at, item in found.items():
        key = places[at]
        record = stored_in(item, key)
        memory.note(key, (record.version, record.digest, waits[key]))
        records[key] = (
            record._replace(index=index_in(item, findable[key])) if with_index else record
        )
    return {key: records[key] for key in places.values() if key in records}, epoch


def _read_items(table: Table, asked: Sequence[At]) -> dict[At, Item]:
    """Returns the existing items, all from one instant."""
    if len(asked) <= 2:  # the epoch and one record, in whichever order
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
    """Returns the epoch. Raises `StoreCorrupt` if its item is missing."""
    if meta is None:
        raise StoreCorrupt(
            f"table {table}: the item that says of which birth and epoch it is, is missing"
        )
    return int_of(meta, "e")


def _states(items: dict[At, Item]) -> dict[At, object]:
    return {at: item["e"] if at == META else (item["v"], item["d"]) for at, item in items.items()}


def _findable(table: Table, waits: dict[Key, tuple[str, ...]]) -> dict[Key, tuple[str, ...]]:
    """Returns, for each record, those of its dependencies under which it can be found: a check sees
    a dependency only if both agree."""
    entries = [keys.wait_at(key, name) for key, names in waits.items() for name in names]
    found = table.get_many(entries, "#pk, #sk") if entries else {}
    return {
        key: tuple([name for name in names if keys.wait_at(key, name) in found])
        for key, names in waits.items()
    }


# Records by index field
#
# "All of a project" and `waits_on` come from the table itself, and are exact. Pool, time, session
# and parent come from a global index, which may lag. It gives keys only. The records are read from
# the table, and those that have left the range are dropped. So a find may miss the latest writes,
# but never returns a record that no longer matches.


HEADS_AT_ONCE = 100
"""Index entries read in one step along the pools of a project."""
EVERYTHING = Span("\0", "\U0010ffff")


class Way(NamedTuple):
    """A range of a collection that is searched for records, in the table or in an index."""

    hash: str
    span: Span
    listing: str | None = None
    """The index; None is the table."""
    waits_on: tuple[str, ...] = ()
    """The dependencies of the wanted records. If empty, the collection has the records
    themselves."""

    @property
    def sort(self) -> str:
        """The attribute by which the range is sorted."""
        return INDEXES[self.listing][1] if self.listing else "sk"

    def after(self, last: str) -> Way:
        """Returns the rest of the range after this key. Raises `BadArgument` if the key is not in
        it."""
        if not self.span.low <= last <= self.span.high:
            raise BadArgument(f"{last[:80]!r} is not the end of a page of this query")
        # No text sorts between a text and the same text followed by the least character.
        return self._replace(span=Span(last + "\0", self.span.high))


class Found(NamedTuple):
    """A record, with its sort key in the range."""

    sort: str
    item: Item
    key: Key


def find(table: Table, query: Query) -> Page:
    """Finds one page. One extra record tells whether the page is the last."""
    if query.heads:
        return Page(_heads(table, query))
    if query.project is None and query.session is None:
        return _find_in_tenant(table, query)
    way = way_of(query, query.project)
    if query.after is not None:
        way = way.after(decode_token(query.after, tuple[str])[0])
    found = list(islice(_matching(table, query, way, chunk=query.limit + 1), query.limit + 1))
    return _page(query, found, lambda last: encode_token(last.sort))


def count(table: Table, query: Query, count_by: str) -> Page:
    """Counts the records of the whole query by the value of a field."""
    field = {"state": "st", "pool": "po", "session": "se"}.get(count_by)
    counts: Counter[str] = Counter()
    # A session is found in all projects at once.
    at_once = query.project is not None or query.session is not None
    for project in [query.project] if at_once else _projects(table, query.tenant):
        for found in _matching(
            table, query, way_of(query, project), chunk=1000, fields=INDEX_FIELDS
        ):
            value = (
                found.key.project
                if field is None
                else found.item[field]["S"]
                if field in found.item
                else None
            )
            if value is not None:
                counts[value] += 1
    return Page(counts=dict(counts))


def way_of(query: Query, project: str | None) -> Way:
    """Returns the smallest range that contains all records of the query."""
    if query.session is not None:
        span = keys.beginning_with(project) if project is not None else EVERYTHING
        return Way(keys.session_hash(query.tenant, query.kind, query.session), span, SESSION)
    assert project is not None
    tenant, kind = query.tenant, query.kind
    records = keys.records_of(tenant, project, kind)
    if query.pool is not None:
        return Way(records, keys.beginning_with(keys.pool_name(query.pool)), READY)
    if query.heads:
        return Way(records, EVERYTHING, READY)
    if query.due_before is not None:
        return Way(records, keys.due_until(query.due_before), DUE)
    if query.parent is not None:
        return Way(
            keys.parent_hash(Key(tenant, project, kind, ""), query.parent),
            keys.EVERY_NAME,
            PARENT,
        )
    return Way(records, keys.EVERY_NAME, waits_on=tuple(dict.fromkeys(query.waits_on)))


def _find_in_tenant(table: Table, query: Query) -> Page:
    """Searches all projects of the tenant in turn, from the one at which the previous page
    ended."""
    after = decode_token(query.after, tuple[str, str]) if query.after is not None else None
    found: list[Found] = []
    for project in _projects(table, query.tenant):
        if after is not None and project < after[0]:
            continue
        way = way_of(query, project)
        if after is not None and project == after[0]:
            way = way.after(after[1])
        wanted = query.limit + 1 - len(found)
        found += islice(_matching(table, query, way, chunk=wanted), wanted)
        if len(found) > query.limit:
            break
    return _page(query, found, lambda last: encode_token(last.key.project, last.sort))


def _projects(table: Table, tenant: str) -> list[str]:
    return [project for _, project in places(table, tenant)]


def places(table: Table, tenant: str | None = None) -> list[tuple[str, str]]:
    """Every tenant and project, or every project of one tenant."""
    span = keys.beginning_with(tenant) if tenant is not None else EVERYTHING
    found = [keys.parted(item["sk"]["S"]) for item in table.query(keys.PLACES, span)]
    return [(names[0], names[1]) for names in found]


def _page(query: Query, found: list[Found], token: Callable[[Found], str]) -> Page:
    records = [stored_in(each.item, each.key, found=True) for each in found[: query.limit]]
    return Page(records, token(found[query.limit - 1]) if len(found) > query.limit else None)


def _matching(
    table: Table, query: Query, way: Way, *, chunk: int, fields: str | None = None
) -> Iterator[Found]:
    """Yields the records of a range that still belong there, read `chunk` at a time."""
    if way.listing is None and not way.waits_on:
        listed = table.query(way.hash, way.span, limit=chunk, fields=fields)
        yield from (
            Found(item["sk"]["S"], item, _key_of(query, at_of(item)))
            for item in listed
            if _has_state(item, query)
        )
        return
    entries = (
        _waiting(table, query, way, chunk)
        if way.waits_on
        else table.query(way.hash, way.span, index=way.listing, limit=chunk)
    )
    while piece := list(islice(entries, chunk)):
        yield from _read(table, query, way, piece, fields)


def _waiting(table: Table, query: Query, way: Way, chunk: int) -> Iterator[Item]:
    """Yields the records that wait on any of several dependencies, each once, in order. Reads all
    collections in parallel, step by step."""
    assert query.project is not None
    hashes = [keys.waits_of(query.tenant, query.project, query.kind, name) for name in way.waits_on]
    span = way.span
    while hashes:
        ask = partial(_first, table, span=span, most=chunk)
        steps = dict(zip(hashes, table.at_once(ask, hashes), strict=True))
        # A collection may have more items after a full chunk: the step is complete up to its end.
        ends = [entries[-1]["sk"]["S"] for entries in steps.values() if len(entries) == chunk]
        end = min(ends, default=span.high)
        found = {
            entry["sk"]["S"]: entry
            for entries in steps.values()
            for entry in entries
            if entry["sk"]["S"] <= end
        }
        yield from (found[sort] for sort in sorted(found))
        hashes = [
            hash
            for hash, entries in steps.items()
            if len(entries) == chunk or (entries and entries[-1]["sk"]["S"] > end)
        ]
        span = Span(end + "\0", span.high)


def _first(table: Table, hash: str, *, span: Span, most: int) -> list[Item]:
    return list(islice(table.query(hash, span, limit=most), most))


def _read(
    table: Table, query: Query, way: Way, entries: list[Item], fields: str | None = None
) -> list[Found]:
    """Returns the records of these entries, in order, without records that have left the range."""
    places = [At(way.hash, entry["sk"]["S"]) if way.waits_on else at_of(entry) for entry in entries]
    items = table.get_many(places, fields)
    found = []
    for entry, at in zip(entries, places, strict=True):
        item = items.get(at)
        sort = entry[way.sort]["S"]
        if item is not None and _has_state(item, query) and _is_listed(item, way, sort):
            found.append(Found(sort, item, _key_of(query, at)))
    return found


def _is_listed(item: Item, way: Way, sort: str) -> bool:
    """Does the record still belong to the range?"""
    if way.waits_on:
        return not set(way.waits_on).isdisjoint(waits_in(item))
    hash, range = INDEXES[way.listing or READY]
    return (
        hash in item and item[hash]["S"] == way.hash and range in item and item[range]["S"] == sort
    )


def _has_state(item: Item, query: Query) -> bool:
    return query.state is None or item["st"]["S"] == query.state


def _key_of(query: Query, at: At) -> Key:
    _, tenant, project, kind = keys.parted(at.pk)
    return Key(tenant, project, kind, keys.name_of(at.sk))


def _heads(table: Table, query: Query) -> list[Stored]:
    """Returns the first records of every pool. The others are never read, however many there
    are."""
    found: list[Found] = []
    way = way_of(query, query.project)
    for pool, seen, whole in _pools(table, way):
        heads = _read(table, query, way, seen[: query.heads])
        if len(heads) < query.heads and not (whole and len(seen) <= query.heads):
            # There are more, or some were just taken and the index lags.
            rest = way._replace(span=keys.beginning_with(pool))
            heads = list(islice(_matching(table, query, rest, chunk=query.heads + 1), query.heads))
        found += heads
    return [stored_in(each.item, each.key, found=True) for each in sorted(found, key=_order_of)]


def _pools(table: Table, way: Way) -> Iterator[tuple[str, list[Item], bool]]:
    """Yields every pool by its name in the index, with its first entries, and whether these are
    all. Steps through the index from pool to pool."""
    low = way.span.low
    while True:
        entries = list(
            islice(
                table.query(way.hash, Span(low, way.span.high), index=READY, limit=HEADS_AT_ONCE),
                HEADS_AT_ONCE,
            )
        )
        pools: dict[str, list[Item]] = {}
        for entry in entries:
            pools.setdefault(keys.parted(entry["rs"]["S"])[0], []).append(entry)
        last = next(reversed(pools), None)
        ended = len(entries) < HEADS_AT_ONCE
        yield from ((pool, seen, ended or pool != last) for pool, seen in pools.items())
        if ended or last is None:
            return
        low = keys.beginning_with(last).high


def _order_of(found: Found) -> list[str]:
    """Returns the sort key within a pool: order and id. Records without an order come first."""
    return keys.parted(found.sort)[1:]
