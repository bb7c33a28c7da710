"""The compacted part of a journal: the records and images at the last compaction, read on demand.

    Born, Begun, one entry for each record and each image, Kept

`Begun` says where `Kept` is, and `Kept` where everything else is: the hashes of all keys in order,
and the offset of each key's entry. So a process that claims one task reads a few entries, however
many tasks there are.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from genlock.errors import StoreCorrupt
from genlock.store import Key
from genlock.stores.files import os_errors_translated
from genlock.stores.folder.entries import (
    HEAD,
    MARK,
    Begun,
    Born,
    Entry,
    Image,
    Kept,
    KeptFeed,
    KeptImage,
    KeptRow,
    entries_in,
    entry_in,
    frame,
    sound_end,
)

_OFFSET = struct.Struct(">Q")
_WRITTEN_AT_ONCE = 1 << 20


class CompactedPart:
    """The compacted part of one journal file, which it keeps open."""

    def __init__(self, path: Path, fd: int, start: int, begun: Begun) -> None:
        """`start` is the offset of the first entry."""
        self._path = path
        self._start = start
        (self._kept_at,) = _OFFSET.unpack(begun.end)
        self._fd = -1
        self._fd = os.dup(fd)
        kept, self.end = self._entry(self._kept_at)
        if not isinstance(kept, Kept):
            raise self._damage(self._kept_at)
        self.feeds, self.commits = kept.feeds, kept.commits
        self._hashes, self._offsets = array("Q", kept.hashes), array("Q", kept.offsets)

    def row(self, key: Key) -> KeptRow | None:
        """Returns a record; None if there was none."""
        for entry in self._found(_hash_of_row(key)):
            if isinstance(entry, KeptRow) and entry.key == key:
                return entry
        return None

    def image(self, id: str) -> Image | None:
        """Returns the image of a task's files."""
        for entry in self._found(_hash_of_image(id)):
            if isinstance(entry, KeptImage) and entry.id == id:
                return entry.image
        return None

    def entries(self) -> Iterator[Entry]:
        """Yields all entries."""
        size = self._kept_at - self._start
        with os_errors_translated(self._path):
            data = _read(self._fd, size, self._start)
        read = 0
        for entry, end in entries_in(data, self._path, self._start):
            yield entry
            read = end
        if read != size:
            raise self._damage(self._start + read)

    def _found(self, hash: int) -> Iterator[Entry]:
        at = bisect_left(self._hashes, hash)
        while at < len(self._hashes) and self._hashes[at] == hash:
            yield self._entry(self._offsets[at])[0]
            at += 1

    def _entry(self, at: int) -> tuple[Entry, int]:
        """Returns the entry at this offset, and the offset of its end."""
        with os_errors_translated(self._path):
            head = _read(self._fd, HEAD.size, at)
            mark, length, _ = HEAD.unpack(head) if len(head) == HEAD.size else (b"", 0, 0)
            if mark != MARK or at + HEAD.size + length > os.fstat(self._fd).st_size:
                raise self._damage(at)
            data = head + _read(self._fd, length, at + HEAD.size)
        end = sound_end(data, 0)
        if end is None:
            raise self._damage(at)
        return entry_in(data, 0, end, self._path, at), at + end

    def _damage(self, at: int) -> StoreCorrupt:
        return StoreCorrupt(f"{self._path} is damaged at byte {at}; restore it from a backup")

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def write_compacted(
    fd: int,
    born: Born,
    kept: Iterable[KeptRow | KeptImage],
    feeds: tuple[KeptFeed, ...],
    commits: int,
) -> None:
    """Writes the compacted beginning of a journal."""
    pending = bytearray(frame(born))
    begun_at = len(pending)
    pending += frame(Begun(_OFFSET.pack(0)))
    written, found = 0, []
    for entry in kept:
        hash = _hash_of_row(entry.key) if isinstance(entry, KeptRow) else _hash_of_image(entry.id)
        found.append((hash, written + len(pending)))
        pending += frame(entry)
        if len(pending) > _WRITTEN_AT_ONCE:
            write_all(fd, pending)
            written += len(pending)
            pending.clear()
    end = written + len(pending)
    found.sort()
    hashes = array("Q", [hash for hash, _ in found])
    offsets = array("Q", [offset for _, offset in found])
    pending += frame(Kept(feeds, commits, hashes.tobytes(), offsets.tobytes()))
    write_all(fd, pending)
    os.pwrite(fd, frame(Begun(_OFFSET.pack(end))), begun_at)


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Writes all of the data, in several calls if needed."""
    with memoryview(data) as view:
        at = 0
        while at < len(view):
            at += os.write(fd, view[at:])


def _read(fd: int, size: int, at: int) -> bytes:
    """Reads `size` bytes, or fewer at the end of the file."""
    data = os.pread(fd, size, at)
    while len(data) < size and (more := os.pread(fd, size - len(data), at + len(data))):
        data += more
    return data


def _hash_of_row(key: Key) -> int:
    return _hash("\0".join(key))


def _hash_of_image(id: str) -> int:
    return _hash(id)


def _hash(text: str) -> int:
    return int.from_bytes(
        blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big"
    )
