"""The journal: every commit in order. It is the whole state of a folder store.

A crash during a write leaves a torn entry, always at the end of the file. Readers stop before it,
and the next writer truncates it. A damaged entry that is followed by a sound one was not torn, so
it is an error.

There are two kinds:

`AppendedJournal`   one file, which writers append to under the store's writer lock. To compact it
                    is to replace it by one that begins with the records as they are
                    (`compacted_part`).
`NumberedJournal`   for filesystems without `flock`: each entry is a file of its own with the next
                    number as its name, which is made by linking it there. Only one writer can make
                    number n, so a writer that was stopped and takes its lock for valid still cannot
                    overwrite what others have written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from genlock.errors import OutcomeUnknown, StoreCorrupt, StoreFull
from genlock.failpoints import hit
from genlock.private_files import create_file
from genlock.shortages import shortage_of
from genlock.stores.files import os_errors_translated, refuse_link, sync_folder
from genlock.stores.folder.compacted_part import CompactedPart, write_all, write_compacted
from genlock.stores.folder.entries import (
    Begun,
    Born,
    Entry,
    KeptFeed,
    KeptImage,
    KeptRow,
    entries_in,
    entry_in,
    frame,
    sound_end,
)


class Raced(Exception):
    """Another writer has written this number."""


class Replaced(Exception):
    """The journal has been replaced by another file: everything must be read again."""


_BEGINNING = 512
"""The first two entries of a compacted journal fit in this many bytes."""


class AppendedJournal:
    """One file, appended to under the writer lock."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self._fd: int | None = None
        self._read = 0
        """How many bytes have been read. All of them are sound."""
        self.compacted_size = 0
        """The size of the part that a compaction has written."""

    @staticmethod
    def exists(folder: Path) -> bool:
        """Does the folder contain such a journal?"""
        return (folder / "journal").exists()

    @property
    def size(self) -> int:
        """The number of bytes read."""
        return self._read

    def create(self, born: Born) -> None:
        """Creates a journal with its first entry, atomically. An existing journal stays."""
        temporary = self.path.with_name(f".journal-{os.getpid()}-{os.urandom(4).hex()}")
        fd = create_file(temporary)
        try:
            write_all(fd, frame(born))
            os.fsync(fd)
            with suppress(FileExistsError):
                os.link(temporary, self.path, follow_symlinks=False)
        finally:
            os.close(fd)
            os.unlink(temporary)
        sync_folder(self.path.parent)

    def read_new(self) -> Iterator[Entry | CompactedPart]:
        """Yields the entries since the last call. Raises `Replaced` if the journal was compacted
        since; the next call then yields all of them."""
        self._check_same()
        assert self._fd is not None
        if self._read < _BEGINNING:
            yield from self._read_beginning(self._fd)
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
        for entry, end in entries_in(data, self.path, base):
            self._read = base + end
            yield entry

    def _read_beginning(self, fd: int) -> Iterator[Entry | CompactedPart]:
        """Yields the beginning of a compacted journal: the first entry, and the part that is read
        on demand."""
        data = os.pread(fd, _BEGINNING, 0)
        first = sound_end(data, 0)
        second = None if first is None else sound_end(data, first)
        if first is None or second is None:
            return
        begun = entry_in(data, first, second, self.path)
        if not isinstance(begun, Begun):
            return
        if self._read == 0:
            self._read = first
            yield entry_in(data, 0, first, self.path)
        part = CompactedPart(self.path, fd, second, begun)
        self._read = self.compacted_size = part.end
        yield part

    def has_grown(self) -> bool:
        """May there be new entries? Checked without the lock."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
            here = os.fstat(self._fd) if self._fd is not None else None
        except OSError:
            return True
        return here is None or found.st_ino != here.st_ino or found.st_size != self._read

    def append(self, entry: Entry) -> None:
        """Appends an entry. Durable on return. The caller holds the writer lock and has read
        everything."""
        assert self._fd is not None
        data = frame(entry)
        at = self._read
        try:
            if os.fstat(self._fd).st_size != at:
                os.ftruncate(self._fd, at)  # truncates a torn entry of a killed writer
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
        """Removes a partly written entry. If that fails, the entry is torn, and the next writer
        truncates it."""
        assert self._fd is not None
        with suppress(OSError):
            os.ftruncate(self._fd, at)
        raise shortage_of(error, self.path) or StoreFull(
            f"{self.path} could not be written ({error.strerror}); nothing was written"
        ) from error

    def replace(
        self,
        born: Born,
        kept: Iterable[KeptRow | KeptImage],
        feeds: tuple[KeptFeed, ...],
        commits: int,
    ) -> None:
        """Replaces the journal by one that begins with these entries. The caller holds the writer
        lock."""
        temporary = self.path.with_name(f".journal-{os.getpid()}-{os.urandom(4).hex()}")
        fd = create_file(temporary)
        try:
            write_compacted(fd, born, kept, feeds, commits)
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
        """Opens the file, and raises `Replaced` if it is another one by now."""
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
    """Opens the file for writing, or for reading only if the permissions allow nothing else."""
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


class NumberedJournal:
    """A folder with one file for each entry."""

    compacted_size = 0

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal.d"
        self._next = 1
        self._size = 0

    @staticmethod
    def exists(folder: Path) -> bool:
        """Does the folder contain such a journal?"""
        return (folder / "journal.d" / _number(1)).exists()

    @property
    def size(self) -> int:
        """The number of bytes read."""
        return self._size

    def create(self, born: Born) -> None:
        """Creates a journal with its first entry. An existing journal stays."""
        refuse_link(self.path)
        self.path.mkdir(0o700, exist_ok=True)
        sync_folder(self.path.parent)
        with suppress(Raced):
            self._link(1, frame(born))

    def read_new(self) -> Iterator[Entry]:
        """Yields the entries since the last call."""
        while True:
            path = self.path / _number(self._next)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            with os.fdopen(fd, "rb") as file:
                data = file.read()
            if sound_end(data, 0) != len(data):
                raise StoreCorrupt(f"{path} is damaged; restore it from a backup")
            entry = entry_in(data, 0, len(data), path)
            self._next += 1
            self._size += len(data)
            yield entry

    def has_grown(self) -> bool:
        """Are there new entries?"""
        return (self.path / _number(self._next)).exists()

    def append(self, entry: Entry) -> None:
        """Appends an entry. Durable on return. Raises `Raced` if another writer has written this
        number."""
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
                write_all(fd, data)
                os.fsync(fd)
                hit("journal.written")
                os.link(temporary, self.path / _number(number), follow_symlinks=False)
            except FileExistsError:
                raise Raced from None
            except OSError:
                # A network filesystem may have created the link and lost the answer.
                if os.fstat(fd).st_nlink != 2:
                    raise
            finally:
                os.close(fd)
                with suppress(OSError):
                    os.unlink(temporary)
            sync_folder(self.path)

    def close(self) -> None:
        """Does nothing: no file is open."""
        self._next, self._size = 1, 0


def _number(number: int) -> str:
    return f"{number:012d}"


Journal: TypeAlias = AppendedJournal | NumberedJournal
