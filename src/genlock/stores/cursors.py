"""Cursors and page tokens: opaque texts for the position where a feed continues and where a page of
records ended. Also builds the pages themselves.

A cursor holds the store's birth and epoch, a position, the number of purges when its reader began,
and a mark of its feed. All cursors have the same length and end in a checksum, so that a truncated
cursor is never taken for a valid one.

Stores that answer in rows return these columns: project, id, version, digest, body, pool, order,
row number and, for pages by order or instant, that value.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from genlock.errors import BadArgument, CursorLost
from genlock.store import EventPage, EventQuery, Key, Page, Query, RecordedEvent, Stored
from genlock.typed_json import decode

_FIELDS = struct.Struct(">8sQQII")
_CHECK = struct.Struct(">I")

T = TypeVar("T")


class CursorPosition(NamedTuple):
    """A position in a feed, after the event `position`, for a reader that knows of the first
    `purges` purges."""

    birth: bytes
    epoch: int
    position: int
    purges: int
    feed: int


class FeedState(NamedTuple):
    """Decides whether a reader can continue a feed: its last position, the last purged position,
    and the number of purges."""

    birth: bytes
    epoch: int
    feed: int
    head: int = 0
    purged_to: int = 0
    purges: int = 0


def feed_mark(tenant: str, project: str) -> int:
    """A number that distinguishes one feed's cursors from another's."""
    return zlib.crc32(f"{tenant}/{project}".encode())


def encode_cursor(state: FeedState, position: int) -> str:
    """Returns the cursor after `position`, for a reader that has just read the feed in this
    state."""
    fields = _FIELDS.pack(state.birth, state.epoch, position, state.purges & 0xFFFFFFFF, state.feed)
    return base64.urlsafe_b64encode(fields + _CHECK.pack(zlib.crc32(fields))).decode()


def decode_cursor(cursor: str) -> CursorPosition:
    """Returns the position. Raises `BadArgument` if the text is not a cursor."""
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error):
        data = b""
    fields, check = data[: _FIELDS.size], data[_FIELDS.size :]
    # Decoding ignores foreign characters. A genuine cursor encodes to itself.
    whole = len(check) == _CHECK.size and base64.urlsafe_b64encode(data).decode() == cursor
    if not whole or _CHECK.unpack(check)[0] != zlib.crc32(fields):
        raise BadArgument(
            f"{cursor[:80]!r} is no cursor; one is given with every event, and with every page of "
            "them"
        )
    return CursorPosition(*_FIELDS.unpack(fields))


def check_cursor(place: CursorPosition, state: FeedState) -> None:
    """Raises `CursorLost` if events after the position may be missing.

    A reader began with the events that were kept, so earlier purges do not concern it. A cursor
    below the last purged position is good as long as nothing has been purged since.
    """
    if place.birth != state.birth:
        raise CursorLost("the cursor is of another store")
    if place.feed != state.feed:
        raise CursorLost("the cursor is of another project's feed")
    if place.epoch != state.epoch:
        raise CursorLost(
            f"the cursor is of epoch {place.epoch}, and the store is in epoch {state.epoch}"
        )
    if place.position > state.head:
        raise CursorLost(
            f"the cursor is at {place.position}, and the feed ends at {state.head}: the store is "
            "an older copy"
        )
    if place.position < state.purged_to and place.purges != state.purges & 0xFFFFFFFF:
        raise CursorLost(
            f"the cursor is at {place.position}, and events up to {state.purged_to} have been "
            "purged since"
        )


def tail_page(query: EventQuery, state: FeedState, end: int) -> EventPage:
    """Returns the page for a query that asks for the cursor at a feed's end, or some events before
    it."""
    position = max(0, end - query.back)
    return EventPage((), encode_cursor(state, position), more=position < end, position=position)


def encode_token(*last: str | int | None) -> str:
    """Encodes the sort key at which a page ended."""
    return base64.urlsafe_b64encode(msgspec.json.encode(last)).decode()


def decode_token(token: str, shape: type[T]) -> T:
    """Decodes a sort key of this shape. Raises `BadArgument` if the text is not a token."""
    try:
        return decode(base64.urlsafe_b64decode(token.encode("ascii")), shape)
    except (UnicodeEncodeError, binascii.Error, msgspec.DecodeError) as error:
        raise BadArgument(f"{token[:80]!r} is not the end of a page of this query") from error


Row = tuple[Any, ...]


def text(value: Any) -> Any:
    """Converts a value to text. MySQL returns text as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def page_of(query: Query, rows: Sequence[Row], *, names: bool) -> Page:
    """Builds the page. It continues by name, or by the last column (order or instant) and the row
    number. One extra row indicates that there are more."""
    records = records_of(query, rows[: query.limit])
    if len(rows) <= query.limit:
        return Page(records)
    last = rows[query.limit - 1]
    token = (last[0], last[1]) if names else (last[-1], last[7])
    return Page(records, encode_token(*map(text, token)))


def records_of(query: Query, rows: Sequence[Row]) -> list[Stored]:
    """Returns the records in these rows."""
    tenant, kind = query.tenant, query.kind
    return [
        Stored(Key(tenant, text(row[0]), kind, text(row[1])), *row[2:5], *map(text, row[5:7]))
        for row in rows
    ]


def record_page(
    query: EventQuery, state: FeedState, events: Sequence[RecordedEvent], base: bytes | None
) -> EventPage:
    """Returns a page of a record's events, out of all that are kept."""
    kept = [event for event in events if event.version > query.after_version]
    return EventPage(
        kept[: query.limit],
        encode_cursor(state, state.head),
        more=len(kept) > query.limit,
        base=base,
    )


def feed_page(
    query: EventQuery, state: FeedState, kept_after: Callable[[int], Iterable[RecordedEvent]]
) -> EventPage:
    """Returns a page of a feed in this state. `kept_after` returns its events after a position.
    Raises `CursorLost` if the feed cannot be continued there."""
    if query.tail:
        return tail_page(query, state, state.head)
    position = 0
    if query.after is not None:
        place = decode_cursor(query.after)
        check_cursor(place, state)
        position = place.position
    events = list(islice(kept_after(position), query.limit + 1))
    more = len(events) > query.limit
    del events[query.limit :]
    position = events[-1].position if more else state.head
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(
        events, encode_cursor(state, position), more, position=position, cursors=cursors
    )
