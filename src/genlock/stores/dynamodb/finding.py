"""Finding and counting records.

All of a project and who waits on whom: from the table itself, exactly. By pool, time, session and parent: from a global index,
which may lag behind. An index gives keys only; the records are read from the table, and one whose key in the index is another
by now is left out. So a find may miss what was written in the last moments, but never shows what is no longer so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple

from genlock.errors import BadArgument
from genlock.store import Key, Page, Query, Stored
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.items import INDEX_FIELDS, Item, at_of, stored_in, waits_in
from genlock.stores.dynamodb.keys import At, Span
from genlock.stores.dynamodb.table import DUE, INDEXES, PARENT, READY, SESSION, Table
from genlock.stores.places import decode_token, encode_token

HEADS_AT_ONCE = 100
"""Index entries looked at in one step along the pools of a project."""
EVERYTHING = Span("\0", "\U0010ffff")


class Way(NamedTuple):
    """A way to records: a range of a collection, in the table or in an index."""

    hash: str
    span: Span
    listing: str | None = None
    """The index; None is the table."""
    waits_on: tuple[str, ...] = ()
    """On whom those wait that are looked for; the records themselves are in the collection."""

    @property
    def sort(self) -> str:
        """The attribute that the way is sorted by."""
        return INDEXES[self.listing][1] if self.listing else "sk"

    def after(self, last: str) -> Way:
        """The rest of it; `BadArgument` if there is no such place on it."""
        if not self.span.low <= last <= self.span.high:
            raise BadArgument(f"{last[:80]!r} is not the end of a page of this query")
        # Nothing sorts between a text and the same text with the least sign behind it.
        return self._replace(span=Span(last + "\0", self.span.high))


class Found(NamedTuple):
    """A record on its way."""

    sort: str
    item: Item
    key: Key


def find(table: Table, query: Query) -> Page:
    """One page. One record more than the page has tells whether it is the last."""
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
    """How many records the whole query has, by the value of a field."""
    field = {"state": "st", "pool": "po", "session": "se"}.get(count_by)
    counts: Counter[str] = Counter()
    # A session is found in all projects at once.
    at_once = query.project is not None or query.session is not None
    for project in [query.project] if at_once else _projects(table, query.tenant):
        for found in _matching(table, query, way_of(query, project), chunk=1000, fields=INDEX_FIELDS):
            value = found.key.project if field is None else found.item[field]["S"] if field in found.item else None
            if value is not None:
                counts[value] += 1
    return Page(counts=dict(counts))


def way_of(query: Query, project: str | None) -> Way:
    """The shortest way to what is asked for."""
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
        return Way(keys.parent_hash(Key(tenant, project, kind, ""), query.parent), keys.EVERY_NAME, PARENT)
    return Way(records, keys.EVERY_NAME, waits_on=tuple(dict.fromkeys(query.waits_on)))


def _find_in_tenant(table: Table, query: Query) -> Page:
    """All projects of the tenant in turn, from the one at which the page before ended."""
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


def _matching(table: Table, query: Query, way: Way, *, chunk: int, fields: str | None = None) -> Iterator[Found]:
    """The records along a way that are still what they are listed as; `chunk` of them are read at a time."""
    if way.listing is None and not way.waits_on:
        listed = table.query(way.hash, way.span, limit=chunk, fields=fields)
        yield from (Found(item["sk"]["S"], item, _key_of(query, at_of(item))) for item in listed if _has_state(item, query))
        return
    entries = _waiting(table, query, way, chunk) if way.waits_on else table.query(way.hash, way.span, index=way.listing, limit=chunk)
    while piece := list(islice(entries, chunk)):
        yield from _read(table, query, way, piece, fields)


def _waiting(table: Table, query: Query, way: Way, chunk: int) -> Iterator[Item]:
    """Entries of those who wait on any of several, each once, in order: all collections are asked beside each other, a step at a time."""
    assert query.project is not None
    hashes = [keys.waits_of(query.tenant, query.project, query.kind, name) for name in way.waits_on]
    span = way.span
    while hashes:
        ask = partial(_first, table, span=span, most=chunk)
        steps = dict(zip(hashes, table.at_once(ask, hashes), strict=True))
        # Of a collection that has more, nothing is known behind what it gave: up to there the step is whole.
        ends = [entries[-1]["sk"]["S"] for entries in steps.values() if len(entries) == chunk]
        end = min(ends, default=span.high)
        found = {entry["sk"]["S"]: entry for entries in steps.values() for entry in entries if entry["sk"]["S"] <= end}
        yield from (found[sort] for sort in sorted(found))
        hashes = [hash for hash, entries in steps.items() if len(entries) == chunk or (entries and entries[-1]["sk"]["S"] > end)]
        span = Span(end + "\0", span.high)


def _first(table: Table, hash: str, *, span: Span, most: int) -> list[Item]:
    return list(islice(table.query(hash, span, limit=most), most))


def _read(table: Table, query: Query, way: Way, entries: list[Item], fields: str | None = None) -> list[Found]:
    """The records of these entries, in their order, without those that have moved."""
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
    """Is the record still where the way has led to it?"""
    if way.waits_on:
        return not set(way.waits_on).isdisjoint(waits_in(item))
    hash, range = INDEXES[way.listing or READY]
    return hash in item and item[hash]["S"] == way.hash and range in item and item[range]["S"] == sort


def _has_state(item: Item, query: Query) -> bool:
    return query.state is None or item["st"]["S"] == query.state


def _key_of(query: Query, at: At) -> Key:
    _, tenant, project, kind = keys.parted(at.pk)
    return Key(tenant, project, kind, keys.name_of(at.sk))


def _heads(table: Table, query: Query) -> list[Stored]:
    """The first of every pool. What is behind them is never looked at, however many there are."""
    found: list[Found] = []
    way = way_of(query, query.project)
    for pool, seen, whole in _pools(table, way):
        heads = _read(table, query, way, seen[: query.heads])
        if len(heads) < query.heads and not (whole and len(seen) <= query.heads):
            # There are more, or some have just been taken and the index does not know it yet.
            rest = way._replace(span=keys.beginning_with(pool))
            heads = list(islice(_matching(table, query, rest, chunk=query.heads + 1), query.heads))
        found += heads
    return [stored_in(each.item, each.key, found=True) for each in sorted(found, key=_order_of)]


def _pools(table: Table, way: Way) -> Iterator[tuple[str, list[Item], bool]]:
    """Every pool, as the index calls it, with its first entries, and whether these are all. Steps along the index from pool to pool."""
    low = way.span.low
    while True:
        entries = list(islice(table.query(way.hash, Span(low, way.span.high), index=READY, limit=HEADS_AT_ONCE), HEADS_AT_ONCE))
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
    """The order within a pool, and the id; whoever has no order comes first."""
    return keys.parted(found.sort)[1:]
