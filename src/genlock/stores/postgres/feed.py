"""Reading events: a project's feed after a cursor, or one record's by version. One statement each: its rows are of one instant."""

from __future__ import annotations

from typing import Any

from genlock.errors import StoreCorrupt
from genlock.store import EventPage, EventQuery, Key, Recorded
from genlock.stores.places import FeedState, check_place, decode_cursor, encode_cursor, feed_mark, tail_page
from genlock.stores.postgres.link import Link

Rows = list[tuple[Any, ...]]


def read_events(link: Link, queries: dict[str, str], query: EventQuery, where: str) -> EventPage:
    """One page."""
    place = query.tenant, query.project
    if query.record is not None:
        return _read_record(link, queries["read_record"], query, query.record)
    if query.tail:
        state = feed_state(link.rows(queries["feed_state"], *place), *place)
        return tail_page(query, state, state.head)
    after = None if query.after is None else decode_cursor(query.after)
    position = 0 if after is None else after.position
    rows: Rows = link.rows(queries["read_feed"], *place, min(position, 2**40 - 1), query.limit + 1)
    state = feed_state([(row[4], row[3], *row[6:]) for row in rows[:1]], *place)
    if after is not None:
        check_place(after, state)
    return _page(query, state, rows[1:], position, where)


def _page(query: EventQuery, state: FeedState, rows: Rows, position: int, where: str) -> EventPage:
    feed = f"{where}: the event at position"
    more = len(rows) > query.limit
    events = []
    for at, kind, name, version, digest, body, record, _, _ in rows[: query.limit]:
        if name is None:
            raise StoreCorrupt(f"{feed} {at} of {query.tenant}/{query.project} belongs to record {record}, which is not there")
        events.append(Recorded(Key(query.tenant, query.project, kind, name), version, digest, body, at))
    end = events[-1].position if events else position
    if not more:
        end = state.head  # beyond the last event, if that was purged
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(events, encode_cursor(state, end), more, position=end, cursors=cursors)


def _read_record(link: Link, statement: str, query: EventQuery, key: Key) -> EventPage:
    rows: Rows = link.rows(statement, *key, query.after_version, query.limit + 1)
    state = feed_state([(row[2], row[1], *row[4:]) for row in rows[:1]], query.tenant, query.project)
    events = [Recorded(key, version, digest, body, at) for at, version, digest, body, *_ in rows[1 : query.limit + 1]]
    return EventPage(events, encode_cursor(state, state.head), more=len(rows) > query.limit + 1, base=rows[0][3])


def feed_state(rows: Rows, tenant: str, project: str) -> FeedState:
    """The state of a project's feed, from birth, epoch, head, purged_to and purges; all but the first two are 0 before its first event."""
    for birth, epoch, *counters in rows:
        return FeedState(birth, epoch, feed_mark(tenant, project), *counters)
    raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")
