"""Reading events: a project's feed after a cursor, or one record's by version. One statement each: its rows are of one instant."""

from __future__ import annotations

from typing import Any

from genlock.errors import StoreCorrupt
from genlock.store import EventPage, EventQuery, Key, Recorded
from genlock.stores.mysql.link import Link, Row
from genlock.stores.mysql.queries import Queries
from genlock.stores.places import FeedState, check_place, decode_cursor, encode_cursor, feed_mark, tail_page


def read_events(link: Link, queries: Queries, query: EventQuery) -> EventPage:
    """One page."""
    place = {"tenant": query.tenant, "project": query.project}
    if query.record is not None:
        return _read_record(link, queries, query, query.record)
    if query.tail:
        state = feed_state(link.rows(queries["feed_state"], **place), query)
        return tail_page(query, state, state.head)
    after = None if query.after is None else decode_cursor(query.after)
    position = 0 if after is None else after.position
    rows = link.rows(queries["read_feed"], position=min(position, 2**40 - 1), most=query.limit + 1, **place)
    state = feed_state([(row[2], row[0], *row[3:]) for row in rows[:1]], query)
    if after is not None:
        check_place(after, state)
    return _page(query, state, rows[1:], position)


def _page(query: EventQuery, state: FeedState, rows: tuple[Row, ...], position: int) -> EventPage:
    more = len(rows) > query.limit
    tenant, project = query.tenant, query.project
    events = [
        Recorded(Key(tenant, project, kind.decode(), name.decode()), version, digest, body, at)
        for at, kind, name, version, digest, body in rows[: query.limit]
    ]
    end = events[-1].position if events else position
    if not more:
        end = state.head  # beyond the last event, if that was purged
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(events, encode_cursor(state, end), more, position=end, cursors=cursors)


def _read_record(link: Link, queries: Queries, query: EventQuery, key: Key) -> EventPage:
    rows = link.rows(
        queries["read_record"],
        tenant=key.tenant,
        project=key.project,
        kind=key.kind,
        name=key.id,
        after=query.after_version,
        most=query.limit + 1,
    )
    state = feed_state([(row[2], row[0], row[1], *row[4:]) for row in rows[:1]], query)
    events = [Recorded(key, version, digest, body, at) for at, version, digest, body, *_ in rows[1 : query.limit + 1]]
    return EventPage(events, encode_cursor(state, state.head), more=len(rows) > query.limit + 1, base=rows[0][3])


def feed_state(rows: Any, query: EventQuery) -> FeedState:
    """The state of a project's feed, from birth, epoch, head, purged_to and purges; all but the first two are 0 before its first event."""
    for birth, *numbers in rows:
        epoch, *counters = map(int, numbers)
        return FeedState(birth, epoch, feed_mark(query.tenant, query.project), *counters)
    raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")
