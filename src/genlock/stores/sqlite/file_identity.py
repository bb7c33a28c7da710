"""Checks that the file and the log that a store has open are still the ones with their names.

A process that has a file open can write it after it was deleted, moved or replaced, but no other
process sees these writes. The next process that opens the store finds another file, or creates one,
and grants the same claims again. So every write checks.

Only the log contains the last commits, until they are copied into the file. A process that has the
log open copies them when it closes the store; if it is killed instead, they are lost, whether they
were committed before the log was deleted or after. SQLite creates a log when the store is opened,
and keeps it while one connection is open. After a reconnect the log may legitimately be another
one: only a log that this process still has open can have been deleted under it.

The check reads the name of the descriptor under which this process has the log open. It avoids
`stat`, which reads times: newer kernels (6.13) then record a new time at the next write, which
makes a commit a quarter slower.

A file may also be a copy, or an older state of itself. Then its history diverges from another one,
and both would grant the same generations. So a process that opens a file for writing first checks
the file's identity:

- The store records the number of its file's inode. A copy has another one. The device number is
  ignored, because it may change at a reboot.
- A backup, which is a copy made by us, has '' instead.
- The lock file beside it has the store's birth, its epoch and its last event (write_lock.py). A
  store that lacks any of these is an older or a different one. A lock file that was copied or is
  missing proves nothing, so the store counts as a copy.

For a copy the epoch is raised and the store gets a new birth, so that cursors of the other history
become invalid. Raising the epoch needlessly does no harm: claims that are still held can be
submitted.

One case cannot be detected: a restored snapshot of the whole disk. See docs/adr/0043.
"""

from __future__ import annotations

import os
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw

from genlock.errors import StoreCorrupt, StoreForeign
from genlock.shortages import NO_DESCRIPTORS
from genlock.stores.epoch_guard import EpochNumber
from genlock.stores.sqlite.connections import QUERIES, immediate
from genlock.stores.sqlite.write_lock import CopiedLockFile, Note, UnreadableLockFile, WriteLock

Identity = tuple[int, int]

_OPEN_FILES = "/proc/self/fd"


class FileIdentity:
    """The identity of a file and its log when this object is created. A file that cannot be seen (a
    VFS may keep it elsewhere) is not checked."""

    def __init__(self, path: Path) -> None:
        """Call it after the file was read, so that it has its log."""
        self._path = str(path)
        self._log_path = f"{path}-wal"
        self._known = _identity(self._path)
        self._log = _identity(self._log_path)
        self._log_name = os.path.realpath(self._log_path)
        self._descriptor = self._open_log()

    def check(self) -> None:
        """Raises `StoreForeign` if one of the names is gone or refers to another file."""
        if self._known is not None and _identity(self._path) != self._known:
            raise StoreForeign(
                f"{self._path} was deleted, moved or replaced while it was open; nothing was "
                "written: end whatever still works on it, see whether the right file is there, "
                "and open it again"
            )
        if (
            self._log is not None
            and not self._has_its_name()
            and _identity(self._log_path) != self._log
        ):
            self._look_at_log(self._log)

    def _has_its_name(self) -> bool:
        """Does the descriptor of the log still have its name? If not, the log may be open under
        another descriptor."""
        if self._descriptor is None:
            return False
        if _name_of(self._descriptor) == self._log_name:
            return True
        self._descriptor = self._open_log()
        return False

    def _open_log(self) -> str | None:
        """Returns the descriptor under which this process has the log open, if that can be seen."""
        return next((open_ for open_ in _open_files() if _name_of(open_) == self._log_name), None)

    def _look_at_log(self, known: Identity) -> None:
        if _is_open(known):
            raise StoreForeign(
                f"{self._log_path}, the log of the store, was deleted, moved or replaced while it "
                "was open; nothing was written: end "
                "whatever works on it, but not by kill -9: a process that closes the store saves "
                "the last commits, and one that is killed loses them"
            )
        self._log = _identity(self._log_path)


def _is_open(known: Identity) -> bool:
    """Does this process have this file open? False if that cannot be seen."""
    return any(_identity(open_) == known for open_ in _open_files())


def _open_files() -> list[str]:
    try:
        return [f"{_OPEN_FILES}/{descriptor}" for descriptor in os.listdir(_OPEN_FILES)]
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise  # a temporary shortage
        return []


def _name_of(descriptor: str) -> str | None:
    """Returns the system's name for the file, which tells whether the file was deleted."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return None


def _identity(path: str) -> Identity | None:
    """Returns the file's identity, which no other file can have while the file is open."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


COPY = ""
"""The inode of a copy that was not opened for writing yet."""

_EPOCH, _SELF, _LAST, _HEAD_OF = (
    QUERIES["epoch"],
    QUERIES["own_file"],
    QUERIES["last_place"],
    QUERIES["head_of"],
)
_NOTE_FILE, _RAISE_EPOCH, _NEW_BIRTH = (
    QUERIES["note_file"],
    QUERIES["raise_epoch"],
    QUERIES["new_birth"],
)


class _Found(Enum):
    SAME = "the file that it was"
    UNNOTED = "nothing was noted before"
    COPY = "a copy or an older state, as far as can be seen"


class _File(NamedTuple):
    """The birth, epoch and inode recorded in a store."""

    birth: bytes
    epoch: int
    inode: str | None


def adopt_copy(db: apsw.Connection, path: Path, write_lock: WriteLock) -> None:
    """Raises the epoch if the file is a copy, or an older state of itself. Records inode and
    history for the next check."""
    inode = inode_of(path)
    if inode is None:  # a VFS keeps the file elsewhere
        return
    found = _examine(db, write_lock, inode)
    if found is _Found.SAME:
        return
    number = EpochNumber()
    if found is _Found.COPY:
        number.wait()
    write_lock.pass_through(partial(_settle, db, write_lock, inode, number))


def _settle(db: apsw.Connection, write_lock: WriteLock, inode: str, number: EpochNumber) -> None:
    """Updates the store and the lock file. If several processes detect a copy, one writes and the
    others find it done."""
    with immediate(db):
        found = _examine(db, write_lock, inode)
        if found is _Found.COPY:
            # If the clock was set back, its number may be below an epoch that began here.
            raise_epoch(db, number, write_lock.noted_epoch())
        if found is not _Found.SAME:
            db.execute(_NOTE_FILE, (inode,))
        note = note_of(db)
    if found is not _Found.SAME:
        write_lock.write_note(note)


def _examine(db: apsw.Connection, write_lock: WriteLock, inode: str) -> _Found:
    note: Note | None = None
    blind = False
    try:
        note = write_lock.read_note()  # read before the store, which may only be ahead of it
    except FileNotFoundError:
        pass  # removed, or left behind
    except UnreadableLockFile:
        blind = True
    except CopiedLockFile:
        return _Found.COPY
    file = _read(db)
    if note is not None and not _has_all(db, file, note):
        return _Found.COPY
    if file.inode is None:
        # The store gets its inode before the lock file gets a note. So with a note this is an older
        # state.
        return _Found.UNNOTED if note is None else _Found.COPY
    return _Found.SAME if file.inode == inode and (note is not None or blind) else _Found.COPY


def _has_all(db: apsw.Connection, file: _File, note: Note) -> bool:
    """Does the store contain everything that the lock file's note names?"""
    if file.birth != note.birth or file.epoch < note.epoch:
        return False
    project, position = note.place >> 40, note.place & (1 << 40) - 1
    return not position or (db.execute(_HEAD_OF, (project,)).get or 0) >= position


def raise_epoch(db: apsw.Connection, number: EpochNumber, *others: int) -> int:
    """Sets a new birth, and an epoch above its own and all `others`, in the caller's
    transaction."""
    epoch = number.above(max(db.execute(_EPOCH).get, *others, 0))
    db.execute(_RAISE_EPOCH, (epoch,))
    db.execute(_NEW_BIRTH)
    return epoch


def note_of(db: apsw.Connection) -> Note:
    """Returns the note for the present state of the store."""
    birth, epoch, _ = _read(db)
    return Note(birth, epoch, db.execute(_LAST).get or 0)


def _read(db: apsw.Connection) -> _File:
    row = db.execute(_SELF).fetchone()
    if row is None:
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")
    return _File(*row)


def inode_of(path: Path) -> str | None:
    """Returns the number of the file's inode as text, because it may exceed an integer of
    SQLite."""
    try:
        return str(os.stat(path).st_ino)
    except OSError:
        return None
