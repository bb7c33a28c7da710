"""The entries of a journal, and how they are written.

Each entry is a frame: a mark, the length, a checksum, the bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from genlock.errors import StoreCorrupt
from genlock.store import Change, Index, Key
from genlock.typed_json import packed_decoder

MARK = b"\nGJ1"
HEAD = struct.Struct(">4sII")


class Image(Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """What the files of a task were when the store last wrote or observed them."""

    file: bytes | None
    """The digest of the task's file; None if there was none."""
    lock: bytes | None
    sighting: bytes = b""
    """Their meaning as an encoded sighting; empty if they contained no task."""
    own_lock: bool = False
    """Is the lock Genlock's?"""
    earlier: tuple[bytes, ...] = ()
    """The earlier digests of the task's file. A file that has one of them again was checked out."""


class Born(Struct, frozen=True, array_like=True, tag="born"):
    """The first entry of every journal."""

    birth: bytes
    epoch: int
    format: int = 1


class Wrote(Struct, frozen=True, array_like=True, tag="wrote"):
    """A commit: the changes that fitted, and the images of their files after it. Positions in the
    feeds follow from the entry's place in the journal."""

    changes: tuple[Change, ...]
    images: dict[str, Image] = {}


class Purged(Struct, frozen=True, array_like=True, tag="purged"):
    """Events were dropped."""

    key: Key
    before_version: int
    base: bytes


class Raised(Struct, frozen=True, array_like=True, tag="raised"):
    """A new epoch has begun."""

    epoch: int


class Noted(Struct, frozen=True, array_like=True, tag="noted"):
    """New images of files, without a change of the records: an operator has decided which side is
    right."""

    images: dict[str, Image]


class KeptEvent(Struct, frozen=True, gc=False, array_like=True):
    """An event of a compacted record."""

    version: int
    digest: bytes
    body: bytes
    position: int


class Begun(Struct, frozen=True, array_like=True, tag="begun"):
    """The second entry of a journal that was compacted."""

    end: bytes
    """The offset of the entry `Kept`, in eight bytes."""


class KeptRow(Struct, frozen=True, array_like=True, tag="row"):
    """A record at the time of the compaction."""

    key: Key
    version: int
    digest: bytes
    body: bytes
    index: Index
    base: bytes | None
    events: tuple[KeptEvent, ...]


class KeptFeed(Struct, frozen=True, array_like=True):
    """A feed's numbers."""

    tenant: str
    project: str
    head: int
    purged_to: int
    purges: int


class KeptImage(Struct, frozen=True, array_like=True, tag="image"):
    """The image of a task's files at the time of the compaction."""

    id: str
    image: Image


class Kept(Struct, frozen=True, array_like=True, tag="kept"):
    """The last entry of the compacted part, with the offset of every entry in it."""

    feeds: tuple[KeptFeed, ...]
    commits: int
    """How many commits there were before the compaction."""
    hashes: bytes
    """The hashes of the keys of all entries, in order."""
    offsets: bytes
    """The offsets of the entries, in the order of their hashes."""


Entry: TypeAlias = Born | Wrote | Purged | Raised | Noted | Begun | KeptRow | KeptImage | Kept

_encode = msgspec.msgpack.Encoder().encode
_decoder = packed_decoder(Entry)


def frame(entry: Entry) -> bytes:
    """Encodes an entry as a frame."""
    body = _encode(entry)
    return HEAD.pack(MARK, len(body), zlib.crc32(body)) + body


def entries_in(data: bytes, path: Path, base: int) -> Iterator[tuple[Entry, int]]:
    """Yields the sound entries from the beginning of `data`, each with the offset of its end. Stops
    before a torn entry."""
    at = 0
    while (end := sound_end(data, at)) is not None:
        entry = entry_in(data, at, end, path, base)
        at = end
        yield entry, at
    _check_torn(data, at, path, base)


def entry_in(data: bytes, at: int, end: int, path: Path, base: int = 0) -> Entry:
    """Decodes the entry of a sound frame. `base` is the offset of `data` in the file."""
    try:
        entry: Entry = _decoder.decode(memoryview(data)[at + HEAD.size : end])
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(
            f"{path} has an entry at byte {base + at} that this version cannot read ({error}); "
            "was it written by a newer genlock?"
        ) from None
    return entry


def sound_end(data: bytes, at: int) -> int | None:
    """Returns the end of the frame at this offset; None if it is not whole and sound."""
    if at + HEAD.size > len(data):
        return None
    mark, length, check = HEAD.unpack_from(data, at)
    end = at + HEAD.size + length
    if mark != MARK or end > len(data):
        return None
    return end if zlib.crc32(memoryview(data)[at + HEAD.size : end]) == check else None


def _check_torn(data: bytes, at: int, path: Path, base: int) -> None:
    """Raises StoreCorrupt if a sound frame follows the unreadable bytes."""
    next = at
    while (next := data.find(MARK, next + 1)) >= 0:
        if sound_end(data, next) is not None:
            raise StoreCorrupt(
                f"{path} is damaged at byte {base + at}: {next - at} bytes there cannot be read, "
                "and what follows can; restore it from a backup"
            )
