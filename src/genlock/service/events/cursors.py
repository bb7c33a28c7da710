"""Where a stream stands: one cursor for one project, or one that holds those of several.

A cursor is the store's, and opaque here too. That of several projects has what all of them begin
with once, then each project's rest; a project that is to be read from its first kept event has
none. Base64 of a compressed text, whose check sum tells a piece from a whole.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping

import msgspec

from genlock.errors import BadArgument
from genlock.typed_json import decode

START = "start"
"""What a client types to read from the first kept event on."""
_SEVERAL = "~"
_LONGEST = 64 * 1024

Place = tuple[str, str]


class Cursors:
    """A stream's place in each of its projects' feeds; None is the first kept event."""

    def __init__(self, *, several: bool) -> None:
        self.several = several
        self._at: dict[Place, str | None] = {}

    def set(self, place: Place, cursor: str | None) -> None:
        """The stream has come so far."""
        self._at[place] = cursor

    def id(self) -> str | None:
        """What a client sends to go on from here. None: it has nothing to send yet, and its address
        says the rest."""
        if self.several:
            return encode_several({project: cursor for (_, project), cursor in self._at.items()})
        return next(iter(self._at.values()), None)


def encode_several(cursors: Mapping[str, str | None]) -> str:
    """One cursor of many."""
    common = _common([cursor for cursor in cursors.values() if cursor is not None])
    rests = {
        project: None if cursor is None else cursor[len(common) :]
        for project, cursor in cursors.items()
    }
    return (
        _SEVERAL
        + base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode((common, rests)), 1)).decode()
    )


def decode_several(cursor: str) -> dict[str, str | None]:
    """The many; `BadArgument` if this is no such cursor."""
    try:
        unpacked = zlib.decompressobj()
        text = unpacked.decompress(
            base64.urlsafe_b64decode(cursor.removeprefix(_SEVERAL).encode("ascii")), _LONGEST
        )
        if not unpacked.eof or not cursor.startswith(_SEVERAL):
            raise BadArgument(_no_cursor(cursor))
        common, rests = decode(text, tuple[str, dict[str, str | None]])
    except (UnicodeEncodeError, binascii.Error, zlib.error, msgspec.DecodeError) as error:
        raise BadArgument(_no_cursor(cursor)) from error
    return {project: None if rest is None else common + rest for project, rest in rests.items()}


def starts(after: str | None, places: Iterable[Place], *, several: bool) -> dict[Place, str | None]:
    """Where each project is to be read from, as the client has said; those that are not in it begin
    now.

    A project that the cursor of several does not know was made since, or was not visible: all of it
    is new to the client.
    """
    if after is None:
        return {}
    if after == START:
        return dict.fromkeys(places)
    if several:
        known = decode_several(after)
        return {place: known.get(place[1]) for place in places}
    if after.startswith(_SEVERAL):
        raise BadArgument(
            "the cursor is of a stream over several projects; a stream of one project takes the "
            "ids of its own events"
        )
    return dict.fromkeys(places, after)


def _common(texts: list[str]) -> str:
    """What all of them begin with: as much as the first and the last in order do."""
    if not texts:
        return ""
    first, last = min(texts), max(texts)
    return next(
        (
            first[:at]
            for at, (one, other) in enumerate(zip(first, last, strict=False))
            if one != other
        ),
        first,
    )


def _no_cursor(cursor: str) -> str:
    return (
        f"{cursor[:80]!r} is no cursor of a stream over several projects; send the id of its "
        f"last event, or {START!r}"
    )
