"""The cursors of streams: one for one project, or a combined cursor for several.

A project's cursor comes from the store and is opaque here. A combined cursor has the common prefix
of all cursors once, then the rest of each. A project that is read from its first kept event has no
cursor. The encoding is Base64 of a compressed text; its checksum reveals truncation.
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
"""A client sends this to read from the first kept event on."""
_SEVERAL = "~"
_LONGEST = 64 * 1024

Place = tuple[str, str]


class Cursors:
    """A stream's cursor in the feed of each project; None means before the first kept event."""

    def __init__(self, *, several: bool) -> None:
        self.several = several
        self._at: dict[Place, str | None] = {}

    def set(self, place: Place, cursor: str | None) -> None:
        """Moves the stream's cursor in this project."""
        self._at[place] = cursor

    def id(self) -> str | None:
        """The id with which a client resumes. None: the client resumes by its URL alone."""
        if self.several:
            return encode_several({project: cursor for (_, project), cursor in self._at.items()})
        return next(iter(self._at.values()), None)


def encode_several(cursors: Mapping[str, str | None]) -> str:
    """Encodes a combined cursor."""
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
    """Decodes a combined cursor; `BadArgument` if it is none."""
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
    """The cursor from which each project is read, as the client asked. Projects without one begin
    now.

    A project that a combined cursor does not name was made since, or was not visible: it is read
    from its beginning, because all of it is new to the client.
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
    """The common prefix of all texts, which is that of the first and the last in sorted order."""
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
