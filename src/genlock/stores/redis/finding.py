"""Finding and counting records by their index fields: every query is one range of a project's index, or a few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from genlock.errors import StoreCorrupt
from genlock.store import Key, Page, Query, Stored
from genlock.stores.places import decode_token, encode_token
from genlock.stores.redis.link import Run
from genlock.stores.redis.wire import Names, due_text, pool_and_order, split_head
from genlock.stores.talks import Talk

BUDGET = 5000
"""So many records one script looks at; the server does nothing else meanwhile."""

_pack = msgspec.msgpack.Encoder().encode

Range = tuple[str, str]
Found = tuple[bytes, Stored]
"""What follows the range's prefix, by which pages are continued, and the record."""


def find(names: Names, query: Query) -> Talk[Page]:
    """One page. One record more than the page has tells whether it is the last."""
    if query.heads:
        said = yield Run("heads", [names.place(query.tenant, query.project or "")], [_pack((query.kind, _state(query), query.heads))])
        return Page([record for _, record in sorted(_found(query, query.project or "", said))])
    place, after = decode_token(query.after, tuple[str, str]) if query.after is not None else (None, None)
    records: list[tuple[str, Found]] = []
    for project in (yield from _projects(names, query, place)):
        start = after if project == place or query.project is not None else None
        some = yield from _of_project(names, query, project, start, query.limit + 1 - len(records))
        records += [(project, found) for found in some]
        if len(records) > query.limit:
            del records[query.limit :]
            project, (tail, _) = records[-1]
            return Page([found[1] for _, found in records], encode_token(project, tail.decode()))
    return Page([found[1] for _, found in records])


def _of_project(names: Names, query: Query, project: str, after: str | None, limit: int) -> Talk[list[Found]]:
    """At most so many of one project, in order."""
    records: list[Found] = []
    while True:
        told = (query.kind, _state(query), after, limit - len(records), BUDGET, _ranges(query))
        said: list[Any] = yield Run("find", [names.place(query.tenant, project)], [_pack(told)])
        records += sorted(_found(query, project, said), key=_tail)
        if said[0] is None or len(records) >= limit:
            return records[:limit]
        after = said[0].decode()


def _tail(found: Found) -> bytes:
    return found[0]


def _found(query: Query, project: str, said: list[Any]) -> Iterator[Found]:
    for tail, head, body in zip(said[1::3], said[2::3], said[3::3], strict=True):
        version, digest, packed = split_head(head)
        key = Key(query.tenant, project, query.kind, tail.rpartition(b"\0")[2].decode())
        if body is None:
            raise StoreCorrupt(f"{'/'.join(key[:2])} {key.kind} {key.id} has no body")
        yield tail, Stored(key, version, digest, body, *pool_and_order(packed))


def _projects(names: Names, query: Query, start: str | None) -> Talk[list[str]]:
    """The project that is asked for, or those of the tenant from one on, in order."""
    if query.project is not None:
        return [query.project]
    said: list[bytes] = yield "ZRANGEBYLEX", names.projects(query.tenant), "-" if start is None else f"[{start}", "+"
    return [name.decode() for name in said]


def _state(query: Query) -> str | None:
    """How the wanted state's entry begins. What is found by its state alone need not be looked at once more."""
    if query.state is None or _is_plain(query):
        return None
    return f"t{query.kind}\0{query.state}\0"


def _is_plain(query: Query) -> bool:
    asked = (query.pool, query.session, query.parent, query.due_before)
    return not (query.heads or query.waits_on) and all(value is None for value in asked)


def _ranges(query: Query) -> list[Range]:
    """Where the entries lie: how they begin, and what comes after the last."""
    kind = query.kind
    for letter, value in (("p", query.pool), ("s", query.session), ("c", query.parent)):
        if value is not None:
            return [_named(letter, kind, value)]
    if query.waits_on:
        return [_named("w", kind, dependency) for dependency in dict.fromkeys(query.waits_on)]
    if query.due_before is not None:
        return [(f"d{kind}\0", f"(d{kind}\0{due_text(query.due_before)}\1")]
    if query.heads:
        return [(f"p{kind}\0", f"(p{kind}\1")]
    return [_named("t", kind, query.state) if query.state is not None else (f"a{kind}\0", f"(a{kind}\1")]


def _named(letter: str, kind: str, value: str) -> Range:
    return f"{letter}{kind}\0{value}\0", f"({letter}{kind}\0{value}\1"


def count(names: Names, query: Query, count_by: str) -> Talk[Page]:
    """How many records the whole query has, by the value of a field."""
    counts: Counter[str] = Counter()
    for project in (yield from _projects(names, query, None)):
        place = names.place(query.tenant, project)
        for value, number in (yield from _counted(place, query, count_by)):
            counts[project if count_by == "project" else value] += number
    return Page(counts={value: number for value, number in counts.items() if number})


def _counted(place: str, query: Query, count_by: str) -> Talk[list[tuple[str, int]]]:
    letter = {"state": "t", "pool": "p", "session": "s", "project": ""}[count_by]
    if _is_plain(query) and (query.state is None or letter in ("", "t")):
        ranges = _ranges(query) if query.state is not None or not letter else [(f"{letter}{query.kind}\0", f"({letter}{query.kind}\1")]
        (start, end) = ranges[0]
        said: list[Any] = yield Run("count", [place], [_pack((f"[{start}", end, 1 if letter else 0))])
        return [(value.decode(), number) for value, number in zip(said[::2], said[1::2], strict=True)]
    tallied = yield from _tallied(place, query, letter)
    return [(value, len(ids)) for value, ids in tallied.items()]


def _tallied(place: str, query: Query, letter: str) -> Talk[dict[str, set[bytes]]]:
    """By looking at each record, which counts once in however many ranges it is."""
    ranges = _ranges(query)
    if _is_plain(query):  # all have the state, and few the field
        ranges = [(f"{letter}{query.kind}\0", f"({letter}{query.kind}\1")]
    state = f"t{query.kind}\0{query.state}\0" if query.state is not None else None
    found: dict[str, set[bytes]] = {}
    for each in ranges:
        after = None
        while True:
            said: list[Any] = yield Run("tally", [place], [_pack((query.kind, state, letter, after, BUDGET, each))])
            for id, value in zip(said[1::2], said[2::2], strict=True):
                found.setdefault(value.decode(), set()).add(id)
            if said[0] is None:
                break
            after = said[0].decode()
    return found
