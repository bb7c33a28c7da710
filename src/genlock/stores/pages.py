"""Pages: of what `find` found, for stores that answer in rows (project, id, version, digest, body, pool, order, row number, instant), and
of events, for stores that have them at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from genlock.store import EventPage, EventQuery, Key, Page, Query, Recorded, Stored
from genlock.stores.places import FeedState, check_place, decode_cursor, encode_cursor, encode_token, tail_page

Row = tuple[Any, ...]


def page_of(query: Query, rows: list[Row], *, names: bool) -> Page:
    """The page, continued by name, or else by the last column and the row: order or instant. One row too many says that there are more."""
    records = records_of(query, rows[: query.limit])
    if len(rows) <= query.limit:
        return Page(records)
    last = rows[query.limit - 1]
    return Page(records, encode_token(last[0], last[1]) if names else encode_token(last[-1], last[7]))


def records_of(query: Query, rows: list[Row]) -> list[Stored]:
    """The records in these rows."""
    tenant, kind = query.tenant, query.kind
    return [Stored(Key(tenant, row[0], kind, row[1]), *row[2:7]) for row in rows]


def record_page(query: EventQuery, state: FeedState, events: Sequence[Recorded], base: bytes | None) -> EventPage:
    """A page of a record's events; these are all that are kept of it."""
    kept = [event for event in events if event.version > query.after_version]
    return EventPage(kept[: query.limit], encode_cursor(state, state.head), more=len(kept) > query.limit, base=base)


def feed_page(query: EventQuery, state: FeedState, kept_after: Callable[[int], Iterable[Recorded]]) -> EventPage:
    """A page of a feed in this state; `kept_after` gives its events after a position. `CursorLost` if it cannot be continued."""
    if query.tail:
        return tail_page(query, state, state.head)
    position = 0
    if query.after is not None:
        place = decode_cursor(query.after)
        check_place(place, state)
        position = place.position
    events = list(islice(kept_after(position), query.limit + 1))
    more = len(events) > query.limit
    del events[query.limit :]
    position = events[-1].position if more else state.head
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(events, encode_cursor(state, position), more, position=position, cursors=cursors)
