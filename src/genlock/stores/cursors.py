"""Opaque texts for positions: where a feed continues, and where a page of records ended. And the
pages themselves.

A cursor has the store's birth and epoch, a position, how many purges there had been when its reader
began, and a mark of its feed. All cursors have one length and end in a checksum, so that no piece
of a cursor is taken for one.

Stores that answer in rows give: project, id, version, digest, body, pool, order, row number and,
for pages by order or instant, that one.
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
    """A position in a feed: after `position`, for a reader that knows of the first `purges`
    purges."""

    birth: bytes
    epoch: int
    position: int
    purges: int
    feed: int


class FeedState(NamedTuple):
    """What decides whether a feed can be continued: its last position, the last purged one, and how
    often it was purged."""

    birth: bytes
    epoch: int
    feed: int
    head: int = 0
    purged_to: int = 0
    purges: int = 0


def feed_mark(tenant: str, project: str) -> int:
    """A number that tells one feed's cursors from another's."""
    return zlib.crc32(f"{tenant}/{project}".encode())


def encode_cursor(state: FeedState, position: int) -> str:
    """The cursor after `position`, for a reader that has just read the feed in this state."""
    fields = _FIELDS.pack(state.birth, state.epoch, position, state.purges & 0xFFFFFFFF, state.feed)
    return base64.urlsafe_b64encode(fields + _CHECK.pack(zlib.crc32(fields))).decode()


def decode_cursor(cursor: str) -> CursorPosition:
    """The position; `BadArgument` if the text is no cursor."""
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error):
        data = b""
    fields, check = data[: _FIELDS.size], data[_FIELDS.size :]
    # Decoding ignores foreign characters; a cursor that was given out encodes to itself.
    whole = len(check) == _CHECK.size and base64.urlsafe_b64encode(data).decode() == cursor
    if not whole or _CHECK.unpack(check)[0] != zlib.crc32(fields):
        raise BadArgument(
            f"{cursor[:80]!r} is no cursor; one is given with every event, and with every page of "
            "them"
        )
    return CursorPosition(*_FIELDS.unpack(fields))


def check_cursor(place: CursorPosition, state: FeedState) -> None:
    """`CursorLost` if events after the position may be missing.

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
    """The page for a query for the cursor of a feed's end, or of some way back from it."""
    position = max(0, end - query.back)
    return EventPage((), encode_cursor(state, position), more=position < end, position=position)


def encode_token(*last: str | int | None) -> str:
    """The text of the sort key at which a page ended."""
    return base64.urlsafe_b64encode(msgspec.json.encode(last)).decode()


def decode_token(token: str, shape: type[T]) -> T:
    """The sort key, of this shape; `BadArgument` if the text is no token."""
    try:
        return decode(base64.urlsafe_b64decode(token.encode("ascii")), shape)
    except (UnicodeEncodeError, binascii.Error, msgspec.DecodeError) as error:
        raise BadArgument(f"{token[:80]!r} is not the end of a page of this query") from error


Row = tuple[Any, ...]


def text(value: Any) -> Any:
    """A value that may be text, which MySQL gives as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def page_of(query: Query, rows: Sequence[Row], *, names: bool) -> Page:
    """The page, continued by name, or else by the last column and the row: order or instant. One
    row too many says that there are more."""
    records = records_of(query, rows[: query.limit])
    if len(rows) <= query.limit:
        return Page(records)
    last = rows[query.limit - 1]
    token = (last[0], last[1]) if names else (last[-1], last[7])
    return Page(records, encode_token(*map(text, token)))


def records_of(query: Query, rows: Sequence[Row]) -> list[Stored]:
    """The records in these rows."""
    tenant, kind = query.tenant, query.kind
    return [
        Stored(Key(tenant, text(row[0]), kind, text(row[1])), *row[2:5], *map(text, row[5:7]))
        for row in rows
    ]


def record_page(
    query: EventQuery, state: FeedState, events: Sequence[RecordedEvent], base: bytes | None
) -> EventPage:
    """A page of a record's events, from all that are kept."""
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
    """A page of a feed in this state; `kept_after` gives its events after a position. `CursorLost`
    if it cannot be continued."""
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
