"""The write lock: a lock file that lets one writer at a time into its transaction, in turn.

SQLite's own lock excludes other writers, but a writer that finds it taken sleeps and tries again,
so that among many writers some starve. The kernel queues the processes that wait for an flock. The
lock is for fairness only: where the file cannot be locked, writers work without it.

The kernel's queue has no time limit. So if the lock is taken, a separate thread waits in the queue
and does the work when its turn comes, while the caller waits up to its time limit. That thread must
do the work itself. If it woke the caller first, the lock would be held during another thread
switch, which cost a third of the throughput with 16 processes.

The lock file (`<file>.gate`) also identifies its store, so that an older file under the store's
name is detected:

    4711                       the process that holds the lock, or held it last
    genlock1 <inode> <number>  which lock file this note was written in
    <birth> <epoch>            the store's history
    <place>                    of the last event: its project's number << 40 | its position

Each commit ends by writing its place, so a store that lacks anything lacks that event. The place is
written after the commit is durable: the note may be behind the store, never ahead of it. It is not
synced, so after a power failure it is behind, too.

The note contains the lock file's own inode, and the inode's generation number, which some
filesystems assign when a file is created. So a lock file that was copied, or restored together with
its store, is recognised as a copy, even if the inode's number was reused.
"""

from __future__ import annotations

import fcntl
import os
import queue
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from genlock.errors import StoreUnavailable
from genlock.shortages import NO_DESCRIPTORS
from genlock.stores.files import create_file, mode_like, open_file, refuse_link
from genlock.threads import started

_AT = 11
"""The first line names a process."""

_MARK = "genlock1"
_FORM = _MARK + " %020d %010d\n%s %020d\n%020d\n"
_SIZE = len(_FORM % (0, 0, "0" * 16, 0, 0))
_PLACE_AT = _AT + _SIZE - 21

_GET_GENERATION = 0x80087601
"""FS_IOC_GETVERSION."""


class Note(NamedTuple):
    """The store that a lock file belongs to."""

    birth: bytes
    epoch: int
    place: int


class CopiedLockFile(Exception):
    """The note was written in a different file than the one that contains it."""


class UnreadableLockFile(Exception):
    """The file cannot be read, or it is empty and cannot be written."""


def read_note(file: Path) -> Note | None:
    """Returns the note; None if there is none yet. Raises FileNotFoundError, `CopiedLockFile` or
    `UnreadableLockFile`."""
    fd, writable = _open_note(file)
    try:
        text = os.pread(fd, _SIZE, _AT)
        own = _identity(fd)
    finally:
        os.close(fd)
    try:
        mark, inode, generation, birth, epoch, place = text.decode("ascii").split()
        written_in, note = (
            (int(inode), int(generation)),
            Note(bytes.fromhex(birth), int(epoch), int(place)),
        )
    except ValueError:
        mark, written_in, note = "", own, None
    if mark != _MARK:
        if not writable:
            raise UnreadableLockFile
        return None
    if written_in != own:
        raise CopiedLockFile
    return note


def _open_note(file: Path) -> tuple[int, bool]:
    """Opens the file. Returns its descriptor, and whether it can be written."""
    for access in (os.O_RDWR, os.O_RDONLY):
        try:
            return open_file(file, access), access == os.O_RDWR
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise
            refuse_link(file)
    raise UnreadableLockFile


def write_note(fd: int, note: Note) -> None:
    """Writes the note. The caller holds the lock. Does nothing if the file cannot be written."""
    with suppress(OSError):
        text = _FORM % (*_identity(fd), note.birth.hex(), note.epoch, note.place)
        os.pwrite(fd, text.encode(), _AT)


def write_place(fd: int, place: int) -> None:
    """Writes only the place, after a commit."""
    with suppress(OSError):
        os.pwrite(fd, b"%020d\n" % place, _PLACE_AT)


def _identity(fd: int) -> tuple[int, int]:
    """Returns the file's inode, and the inode's generation if the filesystem reports it."""
    generation = bytearray(8)
    try:
        fcntl.ioctl(fd, _GET_GENERATION, generation)
    except OSError:
        generation = bytearray(8)
    return os.fstat(fd).st_ino, int(struct.unpack_from("=I", generation)[0])


R = TypeVar("R")


class LockTurn(Generic[R]):
    """Work that the queueing thread does once, unless the caller gives up first."""

    def __init__(self, work: Callable[[], R]) -> None:
        self._work = work
        self._untouched = threading.Lock()
        self._finished = threading.Lock()
        self._finished.acquire()
        self._error: BaseException | None = None
        self._result: list[R] = []

    def take(self) -> None:
        """Does the work. Called by the queueing thread, which holds the lock."""
        if self._untouched.acquire(blocking=False):
            try:
                self._result.append(self._work())
            except BaseException as error:  # noqa: BLE001 - raised again in the caller
                self._error = error
        self._finished.release()

    def await_(self, seconds: float) -> bool:
        """Waits, in the caller: was the work done? If not, it never will be. An interrupt also
        cancels the work, or waits for its end."""
        done = False
        try:
            done = self._finished.acquire(timeout=seconds)
        finally:
            if not done and not self._untouched.acquire(blocking=False):
                done = self._finished.acquire()
        return done

    @property
    def result(self) -> R:
        """The result of the work, or its error."""
        if self._error is not None:
            raise self._error
        return self._result[0]


class WriteLock:
    """The write lock of one handle. One thread at a time uses it: the one that holds
    `Writer.lock`."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._file = file
        self._seconds = seconds
        self._fd: int | None = None
        self._opened = False
        self._pid = b"%-10d\n" % os.getpid()
        self._turns: queue.SimpleQueue[LockTurn[Any] | None] = queue.SimpleQueue()
        self._queuer: threading.Thread | None = None
        self._outstanding = 0
        self._count = threading.Lock()

    def pass_through(self, work: Callable[[], R]) -> R:
        """Does the work under the lock. Raises `StoreUnavailable` if others hold it for too
        long."""
        if not self._opened:  # opened only when needed: a reader leaves no file behind
            self._fd, self._opened = _open(self._file), True
        fd = self._fd
        if fd is None:
            return work()
        # While the queueing thread waits for the lock, this thread may not touch it: they share it.
        if self._outstanding or not _lock_at_once(fd):
            return self._queue(fd, work)
        try:
            self._sign(fd)
            return work()
        finally:
            _unlock(fd)

    def read_note(self) -> Note | None:
        """Returns the note in the lock file."""
        return read_note(self._file)

    def noted_epoch(self) -> int:
        """Returns the epoch in the lock file; 0 if there is none."""
        return _epoch_in(self._file)

    def write_note(self, note: Note) -> None:
        """Writes the note. Called by work under the lock."""
        if self._fd is not None:
            write_note(self._fd, note)

    def write_place(self, place: int) -> None:
        """Writes the place. Called by work under the lock that has committed."""
        if self._fd is not None:
            write_place(self._fd, place)

    def _sign(self, fd: int) -> None:
        with suppress(OSError):  # a read-only file can be locked, but the pid cannot be written
            # Checked first, because reading is cheaper than writing, and usually we were the last
            # holder.
            if os.pread(fd, len(self._pid), 0) != self._pid:
                os.pwrite(fd, self._pid, 0)

    def _queue(self, fd: int, work: Callable[[], R]) -> R:
        if self._queuer is None:
            self._queuer = started(partial(self._wait_in_queue, fd), "genlock-write-lock")
            if self._queuer is None:
                raise StoreUnavailable(
                    f"others hold {self._file}, and no thread can be started to wait for them; "
                    "nothing was written"
                )
        turn = LockTurn(work)
        with self._count:
            self._outstanding += 1
        self._turns.put(turn)
        if not turn.await_(self._seconds):
            raise StoreUnavailable(
                f"waited {self._seconds:g} s for {self._file}, which {_holder(fd, self._file)}; "
                "nothing was written"
            )
        return turn.result

    def _wait_in_queue(self, fd: int) -> None:
        """Runs the queueing thread."""
        while (turn := self._turns.get()) is not None:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
            self._sign(fd)
            try:
                turn.take()
            finally:
                _unlock(fd)
            with self._count:
                self._outstanding -= 1
        os.close(fd)

    def close(self) -> None:
        """Closes the file. If there is a queueing thread, it does so after its last turn."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        if self._queuer is None:
            os.close(fd)
        else:
            self._turns.put(None)

    def close_inherited(self) -> None:
        """In a forked child: closes the inherited descriptor. Otherwise the lock would stay taken
        if the parent died with it."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def noted_epoch(path: Path) -> int:
    """Returns the epoch in the lock file of this store; 0 if there is none."""
    return _epoch_in(Path(f"{path}.gate"))


def _epoch_in(file: Path) -> int:
    try:
        note = read_note(file)
    except (OSError, CopiedLockFile, UnreadableLockFile):
        return 0
    return 0 if note is None else note.epoch


def note_in_lock_file(path: Path, note: Note) -> None:
    """Writes the note, in a process that has exclusive use of the store and has replaced it."""
    fd = _open(Path(f"{path}.gate"))
    if fd is not None:
        try:
            write_note(fd, note)
        finally:
            os.close(fd)


def _open(file: Path) -> int | None:
    """Opens or creates the lock file, with the permissions of the store's file."""
    opening: tuple[Callable[[], int], ...] = (
        lambda: create_file(file, mode_like(file.with_suffix(""))),
        lambda: open_file(file, os.O_RDWR),
        lambda: open_file(file, os.O_RDONLY),
    )
    for attempt in opening:
        try:
            return attempt()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise  # temporary: without the file we would work without the lock permanently
            refuse_link(file)
    return None


def _lock_at_once(fd: int) -> bool:
    """Is the lock ours now, or can the file not be locked?"""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _unlock(fd: int) -> None:
    with suppress(OSError):  # where it could not be locked
        fcntl.flock(fd, fcntl.LOCK_UN)


def last_inside(fd: int) -> int | None:
    """Returns the process that holds the lock, or held it last: the first line of the file."""
    try:
        return int(os.pread(fd, 20, 0).partition(b"\n")[0])
    except (OSError, ValueError):
        return None


def _holder(fd: int, file: Path) -> str:
    """Describes the process that holds the lock, and its state."""
    pid = last_inside(fd)
    if pid is None:
        return "someone has locked"
    # In another container the pid belongs to a different process, which must not be killed.
    state = state_of(pid) if _has_locked(pid, file) else None
    if state is None:
        return (
            f"process {pid} has locked (it cannot be seen from here: it may be in another "
            "container)"
        )
    if state in "Tt":
        return f"process {pid} has locked and is stopped: continue it (kill -CONT {pid}) or end it"
    return f"process {pid} has locked (its state is {state})"


def _has_locked(pid: int, file: Path) -> bool:
    """Does the kernel say that this process holds it? /proc/locks shows pids as we see them, and
    leaves other namespaces out."""
    try:
        inode = str(file.stat().st_ino)
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return False
    # 1: FLOCK ADVISORY WRITE 1234 08:02:131099 0 EOF; waiters have "->" behind the number.
    return any(
        words[1] == "FLOCK" and words[4] == str(pid) and words[5].rpartition(":")[2] == inode
        for words in lines
        if len(words) > 5
    )


def state_of(pid: int) -> str | None:
    """Returns the letter of the process's state, as ps shows it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name stands in brackets and may contain brackets; the state follows the last.
    return status[status.rindex(b")") + 2 :][:1].decode()
