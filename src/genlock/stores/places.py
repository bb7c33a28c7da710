"""Opaque texts for places: where a feed continues, and where a page of records ended.

A cursor has the store's birth and epoch, a position, how many purges there had been when its reader began, and a mark of its feed. It
is of one length and ends in a check over itself, so that no piece of a cursor is taken for one.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import NamedTuple, TypeVar

import msgspec

from genlock.errors import BadArgument, CursorLost
from genlock.store import EventPage, EventQuery
from genlock.typed_json import decode

_FIELDS = struct.Struct(">8sQQII")
_CHECK = struct.Struct(">I")

T = TypeVar("T")


class Place(NamedTuple):
    """A place in a feed: after `position`, for someone to whom only the first `purges` purges are known."""

    birth: bytes
    epoch: int
    position: int
    purges: int
    feed: int


class FeedState(NamedTuple):
    """What decides whether a feed can be continued: its last position, the last purged one, and how often it was purged."""

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
    """The cursor after `position`, for someone who has just read the feed in this state."""
    fields = _FIELDS.pack(state.birth, state.epoch, position, state.purges & 0xFFFFFFFF, state.feed)
    return base64.urlsafe_b64encode(fields + _CHECK.pack(zlib.crc32(fields))).decode()


def decode_cursor(cursor: str) -> Place:
    """The place; `BadArgument` if the text is no cursor."""
    try:
        data = base64.urlsafe_b64decode(cursor.encode("ascii"))
    except (UnicodeEncodeError, binascii.Error):
        data = b""
    fields, check = data[: _FIELDS.size], data[_FIELDS.size :]
    # Decoding forgives signs that do not belong; what was given out encodes to itself.
    whole = len(check) == _CHECK.size and base64.urlsafe_b64encode(data).decode() == cursor
    if not whole or _CHECK.unpack(check)[0] != zlib.crc32(fields):
        raise BadArgument(f"{cursor[:80]!r} is no cursor; one is given with every event, and with every page of them")
    return Place(*_FIELDS.unpack(fields))


def check_place(place: Place, state: FeedState) -> None:
    """`CursorLost` if events after the place may be missing.

    Positions purged before a reader began are none of its business: it began with what was kept. So a place below the last purged
    position is good as long as nothing has been purged since.
    """
    if place.birth != state.birth:
        raise CursorLost("the cursor is of another store")
    if place.feed != state.feed:
        raise CursorLost("the cursor is of another project's feed")
    if place.epoch != state.epoch:
        raise CursorLost(f"the cursor is of epoch {place.epoch}, and the store is in epoch {state.epoch}")
    if place.position > state.head:
        raise CursorLost(f"the cursor is at {place.position}, and the feed ends at {state.head}: the store is an older copy")
    if place.position < state.purged_to and place.purges != state.purges & 0xFFFFFFFF:
        raise CursorLost(f"the cursor is at {place.position}, and events up to {state.purged_to} have been purged since")


def tail_page(query: EventQuery, state: FeedState, end: int) -> EventPage:
    """The page of who asks for the cursor of a feed's end, or of some way back from it."""
    position = max(0, end - query.back)
    return EventPage((), encode_cursor(state, position), more=position < end, position=position)


def encode_token(*last: str | int | None) -> str:
    """The text of the sort key at which a page ended."""
    return base64.urlsafe_b64encode(msgspec.json.encode(last)).decode()


def decode_token(token: str, shape: type[T]) -> T:
    """The sort key, of this shape; `BadArgument` if the text is none."""
    try:
        return decode(base64.urlsafe_b64decode(token.encode("ascii")), shape)
    except (UnicodeEncodeError, binascii.Error, msgspec.DecodeError) as error:
        raise BadArgument(f"{token[:80]!r} is not the end of a page of this query") from error
