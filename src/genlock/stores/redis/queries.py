"""Reads records by their keys, by their index fields, and events.

Every query is one range of a project's index, or a few. Each page of events is one script, so it is
a snapshot of one instant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from genlock.errors import StoreCorrupt
from genlock.store import EventPage, EventQuery, Key, Page, Query, RecordedEvent, Stored
from genlock.stores.cursors import (
    FeedState,
    check_cursor,
    decode_cursor,
    decode_token,
    encode_cursor,
    encode_token,
    feed_mark,
    tail_page,
)
from genlock.stores.redis.commit import gone
from genlock.stores.redis.connection import Argument, Run
from genlock.stores.redis.wire import (
    Names,
    due_text,
    field_of,
    index_in,
    key_in,
    pool_and_order,
    split_head,
)
from genlock.stores.round_trips import Exchange
from genlock.stores.server import Loaded

_LAST = 2**63 - 1
BUDGET = 5000
"""The most records that one script reads: the server runs no other command during a script."""

_pack = msgspec.msgpack.Encoder().encode

Range = tuple[str, str]
Found = tuple[bytes, Stored]
"""The part of an index entry after the range's prefix, which continues a page, and the record."""
_stored = partial(tuple.__new__, Stored)  # takes half the time of the class itself


def load(
    names: Names, birth: bytes, keys: Sequence[Key], where: str, *, with_index: bool = False
) -> Exchange[Loaded]:
    """Loads the records, the epoch and the time in one script. This is half of the hot path."""
    places: dict[tuple[str, str], list[Key]] = {}
    for key in keys:
        places.setdefault(key[:2], []).append(key)
    told: list[Argument] = []
    for mine in places.values():
        told.append(len(mine))
        told += [field_of(kind, id) for _, _, kind, id in mine]
    said: list[Any] = yield Run(
        "load", [names.store, *(names.place(*place) for place in places)], told
    )
    epoch = epoch_in(said[0], birth, where)
    seconds, microseconds = said[1]
    found: dict[Key, Stored] = {}
    for at, mine in enumerate(places.values()):
        for key, head, body in zip(mine, said[2 + 2 * at], said[3 + 2 * at], strict=True):
            if head is not None:
                found[key] = _record(key, head, body, with_index)
    return Loaded(found, epoch, int(seconds) * 1_000_000 + int(microseconds))


def epoch_in(store: list[Any], birth: bytes, where: str) -> int:
    """Returns the epoch, if this is still the store that was opened."""
    if store[0] != birth:
        raise gone(where)
    return int(store[1])


def _record(key: Key, head: bytes, body: bytes | None, with_index: bool) -> Stored:
    version, digest, packed = split_head(head)
    if body is None:
        raise StoreCorrupt(f"{'/'.join(key[:2])} {key.kind} {key.id} has no body")
    return _stored(
        (key, version, digest, body, None, None, index_in(packed) if with_index else None)
    )


def find(names: Names, query: Query) -> Exchange[Page]:
    """Finds one page. One extra record tells whether the page is the last."""
    if query.heads:
        said = yield Run(
            "heads",
            [names.place(query.tenant, query.project or "")],
            [_pack((query.kind, _state(query), query.heads))],
        )
        return Page([record for _, record in sorted(_found(query, query.project or "", said))])
    place, after = (
        decode_token(query.after, tuple[str, str]) if query.after is not None else (None, None)
    )
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


def _of_project(
    names: Names, query: Query, project: str, after: str | None, limit: int
) -> Exchange[list[Found]]:
    """Finds records of one project, in order, up to a limit."""
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


def _projects(names: Names, query: Query, start: str | None) -> Exchange[list[str]]:
    """Returns the queried project, or those of the tenant from `start` on, in order."""
    if query.project is not None:
        return [query.project]
    said: list[bytes] = yield (
        "ZRANGEBYLEX",
        names.projects(query.tenant),
        "-" if start is None else f"[{start}",
        "+",
    )
    return [name.decode() for name in said]


def _state(query: Query) -> str | None:
    """Returns the prefix of the wanted state's entry. None if the range contains that state
    alone."""
    if query.state is None or _is_plain(query):
        return None
    return f"t{query.kind}\0{query.state}\0"


def _is_plain(query: Query) -> bool:
    asked = (query.pool, query.session, query.parent, query.due_before)
    return not (query.heads or query.waits_on) and all(value is None for value in asked)


def _ranges(query: Query) -> list[Range]:
    """Returns the ranges of the entries: their prefix, and the end of each range."""
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
    return [
        _named("t", kind, query.state) if query.state is not None else (f"a{kind}\0", f"(a{kind}\1")
    ]


def _named(letter: str, kind: str, value: str) -> Range:
    return f"{letter}{kind}\0{value}\0", f"({letter}{kind}\0{value}\1"


def count(names: Names, query: Query, count_by: str) -> Exchange[Page]:
    """Counts the records of the whole query by the value of a field."""
    counts: Counter[str] = Counter()
    for project in (yield from _projects(names, query, None)):
        place = names.place(query.tenant, project)
        for value, number in (yield from _counted(place, query, count_by)):
            counts[project if count_by == "project" else value] += number
    return Page(counts={value: number for value, number in counts.items() if number})


def _counted(place: str, query: Query, count_by: str) -> Exchange[list[tuple[str, int]]]:
    letter = {"state": "t", "pool": "p", "session": "s", "project": ""}[count_by]
    if _is_plain(query) and (query.state is None or letter in ("", "t")):
        ranges = (
            _ranges(query)
            if query.state is not None or not letter
            else [(f"{letter}{query.kind}\0", f"({letter}{query.kind}\1")]
        )
        (start, end) = ranges[0]
        said: list[Any] = yield Run(
            "count", [place], [_pack((f"[{start}", end, 1 if letter else 0))]
        )
        return [
            (value.decode(), number) for value, number in zip(said[::2], said[1::2], strict=True)
        ]
    tallied = yield from _tallied(place, query, letter)
    return [(value, len(ids)) for value, ids in tallied.items()]


def _tallied(place: str, query: Query, letter: str) -> Exchange[dict[str, set[bytes]]]:
    """Reads each record, and counts it once even if several ranges contain it."""
    ranges = _ranges(query)
    if _is_plain(query):  # all have the state, and few the field
        ranges = [(f"{letter}{query.kind}\0", f"({letter}{query.kind}\1")]
    state = f"t{query.kind}\0{query.state}\0" if query.state is not None else None
    found: dict[str, set[bytes]] = {}
    for each in ranges:
        after = None
        while True:
            said: list[Any] = yield Run(
                "tally", [place], [_pack((query.kind, state, letter, after, BUDGET, each))]
            )
            for id, value in zip(said[1::2], said[2::2], strict=True):
                found.setdefault(value.decode(), set()).add(id)
            if said[0] is None:
                break
            after = said[0].decode()
    return found


def read_events(names: Names, birth: bytes, query: EventQuery, where: str) -> Exchange[EventPage]:
    """Reads one page of events."""
    keys = [names.store, names.place(query.tenant, query.project)]
    if query.record is not None:
        field = field_of(query.record.kind, query.record.id)
        said = yield Run("record", keys, [field, query.after_version, query.limit + 1])
        return _record_page(query, query.record, _feed_state(said, birth, query, where), said)
    after = None if query.after is None else decode_cursor(query.after)
    if query.tail:
        said = yield Run("heads_of_feeds", keys, [])
        state = _feed_state(said, birth, query, where)
        return tail_page(query, state, state.head)
    position = 0 if after is None else min(after.position, _LAST)
    said = yield Run("feed", keys, [position, query.limit + 1])
    state = _feed_state(said, birth, query, where)
    if after is not None:
        check_cursor(after, state)
    return _feed_page(query, state, said[2], position)


def _feed_state(said: list[Any], birth: bytes, query: EventQuery, where: str) -> FeedState:
    """Returns the state of a project's feed. All counters are 0 before its first event."""
    epoch = epoch_in(said[0], birth, where)
    return FeedState(
        birth,
        epoch,
        feed_mark(query.tenant, query.project),
        *(int(counter or 0) for counter in said[1]),
    )


def _feed_page(query: EventQuery, state: FeedState, entries: list[Any], position: int) -> EventPage:
    more = len(entries) > query.limit
    events = [_event(query, entry) for entry in entries[: query.limit]]
    end = events[-1].position if events else position
    if not more:
        end = state.head  # beyond the last event, if that was purged
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(events, encode_cursor(state, end), more, position=end, cursors=cursors)


def _record_page(query: EventQuery, key: Key, state: FeedState, said: list[Any]) -> EventPage:
    for place in said[2]:
        if not isinstance(place, list):
            raise StoreCorrupt(
                f"the event of {'/'.join(key)} at position {int(place)} is not in the feed"
            )
    events = [_event(query, entry) for entry in said[2][: query.limit]]
    return EventPage(
        events, encode_cursor(state, state.head), more=len(said[2]) > query.limit, base=said[3]
    )


def _event(query: EventQuery, entry: list[Any]) -> RecordedEvent:
    place, (_, field, _, data) = entry
    version, digest, body = split_head(data)
    return RecordedEvent(
        key_in(field, query.tenant, query.project),
        version,
        digest,
        body,
        int(place.partition(b"-")[0]),
    )
