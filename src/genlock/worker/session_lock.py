"""Session locks: one file for each named session, which other wrappers read and write as well.

    ~/.claude/locks/NAME.lock      pid
                                   time, ISO 8601 with seconds
                                   name of the session

1. A lock counts while its process runs. A process that started after the lock was written has only
   the same pid, so the lock is stale.
2. A wrapper that takes or removes a lock holds an flock on `.NAME.guard` meanwhile, a file that is
   never deleted. So exactly one of our own wrappers wins. Shell scripts that follow the document
   check and write in two steps, without the guard: two of those may both win, as they may without
   us.
3. A lock is removed only by the process that it names.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from genlock.core.process_identity import Sight
from genlock.engine.processes import look
from genlock.errors import BadArgument, StoreError
from genlock.private_files import create_file, make_private_folder, read_regular

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_LATE: Final = timedelta(seconds=2)
"""A process may start in the second after the one that its lock names."""


class Lock(NamedTuple):
    """The content of a lock file."""

    pid: int
    written_at: datetime | None
    session: str


def locks_folder() -> Path:
    """Returns the folder of this user's locks."""
    return Path.home() / ".claude" / "locks"


def check_lock_name(name: str) -> str:
    """Returns the name. Raises BadArgument if it is invalid: it becomes part of a file's name."""
    if not _NAME.fullmatch(name):
        raise BadArgument(
            f"{name!r} is no name of a session lock: it has up to 100 of A-Z a-z 0-9 . _ -, and "
            "does not begin with . or -"
        )
    return name


class SessionLocks:
    """The locks in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def acquire(self, name: str) -> bool:
        """Takes this lock for this process. Returns False if another process has it."""
        with self._guarded(name):
            held = self.read(name)
            if held is not None and held.pid != os.getpid() and is_running(held):
                return False
            self._write(name)
            return True

    def acquire_fork(self, name: str) -> str:
        """Takes this lock, or if it is taken, one with a new name. Returns the name."""
        if self.acquire(name):
            return name
        fork = f"{name}_fork_{os.getpid()}_{int(time.time())}"
        self.acquire(fork)
        return fork

    def release(self, name: str) -> None:
        """Removes the lock if it belongs to this process."""
        with self._guarded(name):
            held = self.read(name)
            if held is not None and held.pid == os.getpid():
                with suppress(FileNotFoundError):
                    self._file(name).unlink()

    def read(self, name: str) -> Lock | None:
        """Returns the content of the lock; None if there is no lock, or no pid in it."""
        try:
            text = read_regular(self._file(name), follow=False).decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"{self._file(name)} cannot be read: {error.strerror}; remove it"
            ) from None
        lines = [line.strip() for line in text.splitlines()] + ["", "", ""]
        if not lines[0].isdecimal() or len(lines[0]) > 10:
            return None
        return Lock(int(lines[0]), _instant(lines[1]), lines[2])

    def _write(self, name: str) -> None:
        text = (
            f"{os.getpid()}\n{datetime.now().astimezone().isoformat(timespec='seconds')}\n{name}\n"
        )
        beside = self.folder / f".{name}.{os.getpid()}"
        with suppress(FileNotFoundError):
            beside.unlink()
        with os.fdopen(create_file(beside), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, self._file(name))

    def _file(self, name: str) -> Path:
        return self.folder / f"{check_lock_name(name)}.lock"

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        check_lock_name(name)
        try:
            make_private_folder(self.folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            guard = os.open(self.folder / f".{name}.guard", flags, 0o600)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield
        finally:
            os.close(guard)


def is_running(lock: Lock) -> bool:
    """Is the process that wrote this lock still running? Assumed if that cannot be determined."""
    seen = look(lock.pid)
    if isinstance(seen, Sight):
        return seen is Sight.HIDDEN
    started = _started_at(seen)
    return lock.written_at is None or started is None or started <= lock.written_at + _LATE


def _started_at(ticks: int) -> datetime | None:
    """Converts a start time in /proc to an instant; None on other systems."""
    if sys.platform != "linux":
        return None
    try:
        with open("/proc/stat", encoding="ascii") as file:
            boot = next(int(line.split()[1]) for line in file if line.startswith("btime "))
    except (OSError, StopIteration, ValueError):
        return None
    return datetime.fromtimestamp(boot + ticks / os.sysconf("SC_CLK_TCK"), UTC)


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.astimezone()
