"""Reading events: a project's feed after a cursor, or one record's by version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from genlock.errors import StoreCorrupt
from genlock.store import EventPage, EventQuery, Key, Recorded
from genlock.stores.places import FeedState, check_place, decode_cursor, encode_cursor, feed_mark, tail_page
from genlock.stores.sqlite.queries import QUERIES
from genlock.stores.sqlite.writing import POSITION_BITS, POSITIONS

_FEED_STATE, _READ_FEED = QUERIES["feed_state"], QUERIES["read_feed"]
_BASE_OF, _READ_RECORD = QUERIES["base_of"], QUERIES["read_record"]

Rows = list[tuple[Any, ...]]


def read_events(db: apsw.Connection, query: EventQuery, path: Path) -> EventPage:
    """The page, read in one transaction that the caller has begun."""
    state, project = feed_state(db, query.tenant, query.project)
    if query.record is not None:
        return _read_record(db, query, query.record, state, project)
    if query.tail:
        return tail_page(query, state, state.head)
    position = 0
    if query.after is not None:
        place = decode_cursor(query.after)
        check_place(place, state)
        position = place.position
    start = project << POSITION_BITS
    rows: Rows = db.execute(_READ_FEED, (start + position, start + POSITIONS + 1, query.limit + 1)).fetchall()
    more = len(rows) > query.limit
    feed = f"{query.tenant}/{query.project}"
    events = []
    for at, kind, name, version, digest, body, record in rows[: query.limit]:
        here = at & POSITIONS
        if here > state.head:
            raise StoreCorrupt(f"{path}: the event at position {here} of {feed} is beyond the feed's end, which is {state.head}")
        if name is None:
            raise StoreCorrupt(f"{path}: the event at position {here} of {feed} belongs to record {record}, which is not there")
        events.append(Recorded(Key(query.tenant, query.project, kind, name), version, digest, body, here))
    end = events[-1].position if events else position
    if not more:
        # The last position ever given has its event, unless that was purged: then the feed ends beyond its last event.
        if end != state.head != state.purged_to:
            raise StoreCorrupt(f"{path}: the event at position {state.head} of {feed} is missing; the last is at {end}")
        end = state.head
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(events, encode_cursor(state, end), more, position=end, cursors=cursors)


def _read_record(db: apsw.Connection, query: EventQuery, key: Key, state: FeedState, project: int) -> EventPage:
    cursor = encode_cursor(state, state.head)
    found = db.execute(_BASE_OF, (project, key.kind, key.id)).fetchone()
    if found is None:
        return EventPage((), cursor, more=False)
    record, base = found
    rows: Rows = db.execute(_READ_RECORD, (record, query.after_version, query.limit + 1)).fetchall()
    events = [Recorded(key, version, digest, body, at & POSITIONS) for at, version, digest, body in rows[: query.limit]]
    return EventPage(events, cursor, more=len(rows) > query.limit, base=base)


def feed_state(db: apsw.Connection, tenant: str, project: str) -> tuple[FeedState, int]:
    """The state of a project's feed, and the project's number; both are 0 for a project that nobody has written to."""
    row = db.execute(_FEED_STATE, (tenant, project)).fetchone()
    if row is None:
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")
    birth, epoch, head, purged_to, purges, number = row
    return FeedState(birth, epoch, feed_mark(tenant, project), head, purged_to, purges), number
