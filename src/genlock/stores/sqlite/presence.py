"""Is the file that a store has open still the one that has its name? And its log?

A file that was deleted, moved or replaced can be written by whoever has it open as if nothing had happened. But nobody else sees
what he writes: the next who opens the store finds another file, or makes one, and grants what he has granted. So he must be told.

The log holds what was committed last, and nothing else does until it is copied into the file. Whoever has it open may still do that, and
does when he closes the store; if he is killed instead, all of it is lost, whether it was committed before the log was deleted or after.
SQLite makes a log when the store is opened, and leaves it where it is as long as one connection is open. If ours has to be opened anew,
the log may be another one by then: only one that this process still has open was taken away from it.

The log is looked at by the name that the system has for it where this process has it open. Asking for its times, as `stat` does, would
have newer kernels (6.13) note a new one at the next write, and that costs a commit a quarter of its time.
"""

from __future__ import annotations

import os
from pathlib import Path

from genlock.errors import StoreForeign

Identity = tuple[int, int]

_OPEN_FILES = "/proc/self/fd"


class Presence:
    """Of one file and its log, from now on. One that cannot be seen now, as a VFS may keep it elsewhere, is not looked for."""

    def __init__(self, path: Path) -> None:
        """To be called when the file has been read."""
        self._path = str(path)
        self._log_path = f"{path}-wal"
        self._known = _identity(self._path)
        self._log = _identity(self._log_path)
        self._log_name = os.path.realpath(self._log_path)
        self._descriptor = self._open_log()

    def check(self) -> None:
        """`StoreForeign` if one of the names leads elsewhere by now, or nowhere."""
        if self._known is not None and _identity(self._path) != self._known:
            raise StoreForeign(
                f"{self._path} was deleted, moved or replaced while it was open; nothing was written: "
                "end whatever still works on it, see whether the right file is there, and open it anew"
            )
        if self._log is not None and not self._has_its_name() and _identity(self._log_path) != self._log:
            self._look_at_log(self._log)

    def _has_its_name(self) -> bool:
        """Does the system say that the log is where it was? If it does not, it may be open elsewhere by now."""
        if self._descriptor is None:
            return False
        if _name_of(self._descriptor) == self._log_name:
            return True
        self._descriptor = self._open_log()
        return False

    def _open_log(self) -> str | None:
        """Where this process has the log open, if that can be seen."""
        return next((open_ for open_ in _open_files() if _name_of(open_) == self._log_name), None)

    def _look_at_log(self, known: Identity) -> None:
        if _is_open(known):
            raise StoreForeign(
                f"{self._log_path}, the log of the store, was deleted, moved or replaced while it was open; nothing was written: end "
                "whatever works on it, and not by kill -9: what was committed last is saved by whoever closes it, and lost if he is killed"
            )
        self._log = _identity(self._log_path)


def _is_open(known: Identity) -> bool:
    """Does this process have this file open? Where that cannot be seen, nobody is accused."""
    return any(_identity(open_) == known for open_ in _open_files())


def _open_files() -> list[str]:
    try:
        return [f"{_OPEN_FILES}/{descriptor}" for descriptor in os.listdir(_OPEN_FILES)]
    except OSError:
        return []


def _name_of(descriptor: str) -> str | None:
    """What the system calls the file; of one that was deleted it says so."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return None


def _identity(path: str) -> Identity | None:
    """As long as it is open, no other file can have the same."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
