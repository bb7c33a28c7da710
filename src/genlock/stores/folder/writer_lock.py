"""The writer lock of a folder store: one writer at a time, and no reader during a write.

`FlockLock` locks a file that is never deleted, so no process can hold a lock on an obsolete file.
The kernel releases the lock when its process ends.

`NameLock` is for filesystems that cannot lock (some NFS mounts): the lock is a name created by
linking, and its file names the process that created it. A writer breaks a lock whose process is
known to have ended, and one of another machine that was not touched for a minute. It may be wrong
about that, or the owner may be stalled while it holds the lock. So this lock only reduces
contention between writers; `NumberedJournal` ensures that no writer overwrites another's entry.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import msgspec

from genlock.errors import StoreUnavailable
from genlock.retry import Backoff
from genlock.shortages import shortage_of
from genlock.stores.files import create_file, open_file, os_fault_of, refuse_link

WAIT_SECONDS = 10.0
"""How long a caller waits for the lock."""
ABANDONED_SECONDS = 60.0
"""A lock of another machine that was not touched for this long is considered abandoned."""

_BACKOFF = Backoff(first=0.0004, longest=0.01)
_CANNOT_LOCK = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def can_flock(folder: Path) -> bool:
    """Can files be locked in this folder?"""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno in _CANNOT_LOCK:
            return False
        raise
    finally:
        os.close(fd)
    return True


class FlockLock:
    """A lock on a file."""

    shared_reads = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._turn_path = folder / "lock.turn"
        self._fds: tuple[int, int] | None = None

    @contextmanager
    def held(self, *, writes: bool) -> Iterator[None]:
        """Holds the lock for the block: exclusively to write, shared with other readers to read.
        Raises `StoreUnavailable` if others keep it for too long.

        A waiting writer holds a second lock, the turn, which readers pass through. Otherwise
        overlapping readers could keep the writer waiting for ever.
        """
        fd, turn = self._opened()
        kind = fcntl.LOCK_EX if writes else fcntl.LOCK_SH
        self._acquire(turn, kind)
        try:
            self._acquire(fd, kind)
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            if writes:
                self._sign(fd)
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _opened(self) -> tuple[int, int]:
        if self._fds is None:
            fd = _open_lock(self.path)
            try:
                self._fds = fd, _open_lock(self._turn_path)
            except BaseException:
                os.close(fd)
                raise
        return self._fds

    def _acquire(self, fd: int, kind: int) -> None:
        end, failures = time.monotonic() + WAIT_SECONDS, 0
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise StoreUnavailable(
                        f"waited {WAIT_SECONDS:g} s for {self.path}, which {self.holder()}; "
                        "nothing was written"
                    ) from None
            except OSError as error:
                raise StoreUnavailable(
                    f"{self.path} cannot be locked any more ({error.strerror}): mount the folder "
                    "with locks, or copy the store to a folder that has them"
                ) from error
            else:
                return
            failures += 1
            time.sleep(_BACKOFF.pause(failures))

    def _sign(self, fd: int) -> None:
        with suppress(OSError):  # used only in the message for waiters
            pid = b"%010d\n" % os.getpid()
            if os.pread(fd, len(pid), 0) != pid:
                os.pwrite(fd, pid, 0)

    def holder(self) -> str:
        """Describes the process that holds the lock, for a message."""
        try:
            pid = int(self.path.read_text())
        except (OSError, ValueError):
            return "somebody has locked"
        return f"process {pid} has locked, or had last: is it stopped?"

    def close(self) -> None:
        """Closes the file, which releases a lock."""
        fds, self._fds = self._fds, None
        for fd in fds or ():
            os.close(fd)


def _open_lock(path: Path) -> int:
    """Opens the file, and creates it if it is missing. Opens it for reading only if the permissions
    allow nothing else."""
    try:
        try:
            return create_file(path)
        except FileExistsError:
            refuse_link(path)
            return open_file(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise shortage_of(error, path) or os_fault_of(error, path) from error
        return open_file(path, os.O_RDONLY)


class LockHolder(msgspec.Struct):
    """The process that made a link lock."""

    host: str
    pid: int
    started: int
    token: str
    """Identifies the handle: one process may have several."""
    at: str = ""
    """When the lock was taken, for people."""


class NameLock:
    """A lock by a name that only one process can create. Readers need no lock: each entry of the
    journal appears whole."""

    shared_reads = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock.link"
        self._token = os.urandom(8).hex()

    @contextmanager
    def held(self, *, writes: bool) -> Iterator[None]:
        """Holds the lock for the block, to write."""
        if not writes:
            yield
            return
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def _acquire(self) -> None:
        own = self.path.with_name(f".lock-{os.getpid()}-{self._token}")
        end, failures = time.monotonic() + WAIT_SECONDS, 0
        owner = LockHolder(
            os.uname().nodename,
            os.getpid(),
            start_time(os.getpid()) or 0,
            self._token,
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        try:
            with suppress(FileNotFoundError):
                os.unlink(own)
            fd = create_file(own)
        except OSError as error:
            raise os_fault_of(error, own) from error
        try:
            os.write(fd, msgspec.json.encode(owner))
            while True:
                try:
                    os.link(own, self.path, follow_symlinks=False)
                    return
                except FileExistsError:
                    pass
                except OSError as error:
                    # A network filesystem may have created the link and lost the answer.
                    if os.fstat(fd).st_nlink == 2:
                        return
                    raise os_fault_of(error, self.path) from error
                if self._is_left_over():
                    with suppress(OSError):
                        os.unlink(self.path)
                elif time.monotonic() > end:
                    raise StoreUnavailable(
                        f"waited {WAIT_SECONDS:g} s for {self.path}, which {self.holder()}; "
                        "nothing was written"
                    )
                failures += 1
                time.sleep(_BACKOFF.pause(failures))
        finally:
            os.close(fd)
            with suppress(OSError):
                os.unlink(own)

    def _is_left_over(self) -> bool:
        """Is the lock's process known to have ended?"""
        owner = self._owner()
        if owner is None:
            return False
        if owner.host == os.uname().nodename:
            return start_time(owner.pid) != owner.started
        with suppress(OSError):
            return time.time() - self.path.lstat().st_mtime > ABANDONED_SECONDS
        return False

    def _owner(self) -> LockHolder | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=LockHolder)
        except (OSError, msgspec.MsgspecError):
            return None

    def holder(self) -> str:
        """Describes the process that holds the lock, for a message."""
        owner = self._owner()
        if owner is None:
            return "somebody has locked"
        return f"process {owner.pid} on {owner.host} has locked since {owner.at}"

    def _release(self) -> None:
        owner = self._owner()
        if owner is not None and owner.token == self._token:
            with suppress(OSError):
                os.unlink(self.path)

    def close(self) -> None:
        """Does nothing: no file is open."""


WriterLock: TypeAlias = FlockLock | NameLock


def start_time(pid: int) -> int | None:
    """Returns when this process started, in ticks since boot; None if there is no such process or
    it cannot be seen."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    return int(text[text.rindex(b")") + 2 :].split()[19])
