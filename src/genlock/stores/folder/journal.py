"""The journal: every commit in order, and all that a folder store knows.

Each entry is a frame: a mark, the length, a checksum, the bytes. A crash in the middle of a write
leaves a frame that is torn, at the end of the file and nowhere else. Readers stop before it, and
the next writer cuts it off. A frame that is damaged and followed by a sound one was not torn: that
is an error.

There are two kinds:

`AppendedJournal`   one file, which writers append to under the store's writer lock. To compact it
                    is to replace it by one that begins with the records as they are.
`NumberedJournal`   for filesystems without `flock`: each entry is a file of its own with the next
                    number as its name, which is made by linking it there. Only one writer can make
                    number n, so a writer that was stopped and takes its lock for valid still cannot
                    overwrite what others have written.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from genlock.errors import OutcomeUnknown, StoreCorrupt, StoreFull
from genlock.failpoints import hit
from genlock.private_files import create_file
from genlock.shortages import shortage_of
from genlock.store import Change, Index, Key
from genlock.stores.files import os_errors_translated, refuse_link, sync_folder
from genlock.typed_json import packed_decoder

_MARK = b"\nGJ1"
_HEAD = struct.Struct(">4sII")


class Image(Struct, frozen=True, gc=False, array_like=True, omit_defaults=True):
    """What the files of a task were when the store last wrote or observed them."""

    file: bytes | None
    """The digest of the task's file; None if there was none."""
    lock: bytes | None
    sighting: bytes = b""
    """What they said, encoded; empty if there was no task in them."""
    own_lock: bool = False
    """Is the lock Genlock's?"""
    earlier: tuple[bytes, ...] = ()
    """The digests of the task's file before: a file that is one of them again was checked out."""


class Born(Struct, frozen=True, array_like=True, tag="born"):
    """The first entry of every journal."""

    birth: bytes
    epoch: int
    format: int = 1


class Wrote(Struct, frozen=True, array_like=True, tag="wrote"):
    """A commit: the changes that fitted, and what their files look like after it. Positions in the
    feeds follow from the place in the journal."""

    changes: tuple[Change, ...]
    images: dict[str, Image] = {}


class Purged(Struct, frozen=True, array_like=True, tag="purged"):
    """Events were dropped."""

    key: Key
    before_version: int
    base: bytes


class Raised(Struct, frozen=True, array_like=True, tag="raised"):
    """Another epoch has begun."""

    epoch: int


class Noted(Struct, frozen=True, array_like=True, tag="noted"):
    """What files look like, without a change of the records: somebody has said which is right."""

    images: dict[str, Image]


class KeptEvent(Struct, frozen=True, gc=False, array_like=True):
    """An event of a compacted record."""

    version: int
    digest: bytes
    body: bytes
    position: int


class KeptRow(Struct, frozen=True, array_like=True, tag="row"):
    """A record as it was when the journal was compacted."""

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


class Kept(Struct, frozen=True, array_like=True, tag="kept"):
    """The end of the compacted part."""

    feeds: tuple[KeptFeed, ...]
    images: dict[str, Image]
    commits: int
    """How many commits there had been."""


Entry: TypeAlias = Born | Wrote | Purged | Raised | Noted | KeptRow | Kept

_encode = msgspec.msgpack.Encoder().encode
_decoder = packed_decoder(Entry)


def frame(entry: Entry) -> bytes:
    """The entry as it is written."""
    body = _encode(entry)
    return _HEAD.pack(_MARK, len(body), zlib.crc32(body)) + body


class Raced(Exception):
    """Somebody else has written this number."""


class Replaced(Exception):
    """The journal is another file by now: everything must be read again."""


def _entries(data: bytes, path: Path, base: int) -> Iterator[tuple[Entry, int]]:
    """The sound entries from the beginning of `data`, each with the offset behind it. Ends before a
    torn one."""
    at = 0
    while True:
        end = _sound(data, at)
        if end is None:
            break
        try:
            entry = _decoder.decode(memoryview(data)[at + _HEAD.size : end])
        except msgspec.MsgspecError as error:
            raise StoreCorrupt(
                f"{path} has an entry at byte {base + at} that this version cannot read ({error}); "
                "was it written by a newer genlock?"
            ) from None
        at = end
        yield entry, at
    _check_torn(data, at, path, base)


def _sound(data: bytes, at: int) -> int | None:
    """The end of the frame at this offset; None if it is not whole and sound."""
    if at + _HEAD.size > len(data):
        return None
    mark, length, check = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + length
    if mark != _MARK or end > len(data):
        return None
    return end if zlib.crc32(memoryview(data)[at + _HEAD.size : end]) == check else None


def _check_torn(data: bytes, at: int, path: Path, base: int) -> None:
    """StoreCorrupt if anything sound follows what cannot be read."""
    next = at
    while (next := data.find(_MARK, next + 1)) >= 0:
        if _sound(data, next) is not None:
            raise StoreCorrupt(
                f"{path} is damaged at byte {base + at}: {next - at} bytes there cannot be read, "
                "and what follows can; restore it from a backup"
            )


class AppendedJournal:
    """One file, appended to under the writer lock."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self._fd: int | None = None
        self._read = 0
        """How many bytes have been read: all of them sound."""
        self.compacted_size = 0
        """Of the part that a compaction has written."""

    @staticmethod
    def exists(folder: Path) -> bool:
        """Is there one?"""
        return (folder / "journal").exists()

    @property
    def size(self) -> int:
        """Bytes that were read."""
        return self._read

    def create(self, born: Born) -> None:
        """A new one with its first entry, whole or not at all. What is there already stays."""
        temporary = self.path.with_name(f".journal-{os.getpid()}-{os.urandom(4).hex()}")
        fd = create_file(temporary)
        try:
            _write_all(fd, frame(born))
            os.fsync(fd)
            with suppress(FileExistsError):
                os.link(temporary, self.path, follow_symlinks=False)
        finally:
            os.close(fd)
            os.unlink(temporary)
        sync_folder(self.path.parent)

    def read_new(self) -> Iterator[Entry]:
        """The entries since the last call. `Replaced` if it was compacted since, and then, at the
        next call, all of them."""
        self._check_same()
        assert self._fd is not None
        size = os.fstat(self._fd).st_size
        if size < self._read:
            raise StoreCorrupt(
                f"{self.path} has become shorter ({size} bytes, {self._read} were read): it was "
                "replaced by an older copy; restore it, or begin a new history with a backup"
            )
        if size == self._read:
            return
        data = os.pread(self._fd, size - self._read, self._read)
        while len(data) < size - self._read:
            more = os.pread(self._fd, size - self._read - len(data), self._read + len(data))
            if not more:
                break
            data += more
        base = self._read
        for entry, end in _entries(data, self.path, base):
            self._read = base + end
            if isinstance(entry, Kept):
                self.compacted_size = self._read
            yield entry

    def has_grown(self) -> bool:
        """May there be anything new? Asked without the lock."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
            here = os.fstat(self._fd) if self._fd is not None else None
        except OSError:
            return True
        return here is None or found.st_ino != here.st_ino or found.st_size != self._read

    def append(self, entry: Entry) -> None:
        """Durable on return. For the holder of the writer lock, who has read everything."""
        assert self._fd is not None
        data = frame(entry)
        at = self._read
        try:
            if os.fstat(self._fd).st_size != at:
                os.ftruncate(self._fd, at)  # a torn entry of a killed writer
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], at + written)
                hit("journal.piece")
            hit("journal.written")
        except OSError as error:
            self._take_back(at, error)
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise OutcomeUnknown(
                f"{self.path} could not be synced ({error.strerror}): what was written may be "
                "there or not"
            ) from error
        self._read = at + len(data)
        hit("journal.synced")

    def _take_back(self, at: int, error: OSError) -> None:
        """Removes what was written of an entry. What cannot be removed is torn, and the next writer
        cuts it off."""
        assert self._fd is not None
        with suppress(OSError):
            os.ftruncate(self._fd, at)
        raise shortage_of(error, self.path) or StoreFull(
            f"{self.path} could not be written ({error.strerror}); nothing was written"
        ) from error

    def replace(self, entries: Iterator[Entry]) -> None:
        """Another journal with these entries in its place. For the holder of the writer lock."""
        temporary = self.path.with_name(f".journal-{os.getpid()}-{os.urandom(4).hex()}")
        fd = create_file(temporary)
        try:
            for entry in entries:
                _write_all(fd, frame(entry))
            os.fsync(fd)
            size = os.fstat(fd).st_size
            hit("journal.compacted")
            os.replace(temporary, self.path)
        except BaseException:
            os.close(fd)
            with suppress(OSError):
                os.unlink(temporary)
            raise
        sync_folder(self.path.parent)
        self.close()
        self._fd, self._read, self.compacted_size = fd, size, size
        hit("journal.replaced")

    def _check_same(self) -> None:
        """Opens the file, or notices that it is another by now."""
        refuse_link(self.path)
        if self._fd is not None:
            found = os.stat(self.path, follow_symlinks=False)
            here = os.fstat(self._fd)
            if (found.st_ino, found.st_dev) == (here.st_ino, here.st_dev):
                return
            self.close()
            raise Replaced
        self._fd = _open_for_writing(self.path)
        self._read = self.compacted_size = 0

    def close(self) -> None:
        """Closes the file."""
        fd, self._fd, self._read = self._fd, None, 0
        if fd is not None:
            os.close(fd)


def _open_for_writing(path: Path) -> int:
    """A descriptor; one that only reads where nothing else is allowed."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | flags)
    except PermissionError:
        return os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        import errno

        if error.errno != errno.EROFS:
            raise
        return os.open(path, os.O_RDONLY | flags)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class NumberedJournal:
    """A folder with one file for each entry."""

    compacted_size = 0

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.d"
        self._next = 1
        self._size = 0

    @staticmethod
    def exists(folder: Path) -> bool:
        """Is there one?"""
        return (folder / "journal.d" / _number(1)).exists()

    @property
    def size(self) -> int:
        """Bytes that were read."""
        return self._size

    def create(self, born: Born) -> None:
        """A new one with its first entry. What is there already stays."""
        refuse_link(self.path)
        self.path.mkdir(0o700, exist_ok=True)
        sync_folder(self.path.parent)
        with suppress(Raced):
            self._link(1, frame(born))

    def read_new(self) -> Iterator[Entry]:
        """The entries since the last call."""
        while True:
            path = self.path / _number(self._next)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            with os.fdopen(fd, "rb") as file:
                data = file.read()
            if _sound(data, 0) != len(data):
                raise StoreCorrupt(f"{path} is damaged; restore it from a backup")
            entry = _decoder.decode(memoryview(data)[_HEAD.size :])
            self._next += 1
            self._size += len(data)
            yield entry

    def has_grown(self) -> bool:
        """Is there anything new?"""
        return (self.path / _number(self._next)).exists()

    def append(self, entry: Entry) -> None:
        """Durable on return; `Raced` if somebody else has made this number."""
        data = frame(entry)
        self._link(self._next, data)
        self._next += 1
        self._size += len(data)
        hit("journal.synced")

    def _link(self, number: int, data: bytes) -> None:
        temporary = self.path / f".{os.getpid()}-{os.urandom(6).hex()}"
        with os_errors_translated(self.path):
            fd = create_file(temporary)
            try:
                _write_all(fd, data)
                os.fsync(fd)
                hit("journal.written")
                os.link(temporary, self.path / _number(number), follow_symlinks=False)
            except FileExistsError:
                raise Raced from None
            except OSError:
                # A network filesystem may have made the link and lost the answer.
                if os.fstat(fd).st_nlink != 2:
                    raise
            finally:
                os.close(fd)
                with suppress(OSError):
                    os.unlink(temporary)
            sync_folder(self.path)

    def replace(self, entries: Iterator[Entry]) -> None:
        """Does nothing: a writer that was stopped could write a number that was removed."""

    def close(self) -> None:
        """There is nothing open."""
        self._next, self._size = 1, 0


def _number(number: int) -> str:
    return f"{number:012d}"


Journal: TypeAlias = AppendedJournal | NumberedJournal
