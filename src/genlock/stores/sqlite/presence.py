"""Is the file that a store has open still the one that has its name? And its log?

A file that was deleted, moved or replaced can be written by whoever has it open as if nothing had happened. But nobody else sees
what he writes: the next who opens the store finds another file, or makes one, and grants what he has granted. So he must be told.

The log holds what was committed last, and nothing else does until it is copied into the file. Whoever has it open may still do that, and
does when he closes the store; if he is killed instead, all of it is lost, whether it was committed before the log was deleted or after.
SQLite makes a log when the store is opened, and leaves it where it is as long as one connection is open. If ours has to be opened anew,
the log may be another one by then: only one that this process still has open was taken away from it.
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

    def check(self) -> None:
        """`StoreForeign` if one of the names leads elsewhere by now, or nowhere."""
        if self._known is not None and _identity(self._path) != self._known:
            raise StoreForeign(
                f"{self._path} was deleted, moved or replaced while it was open; nothing was written: "
                "end whatever still works on it, see whether the right file is there, and open it anew"
            )
        if self._log is not None and _identity(self._log_path) != self._log:
            self._look_at_log(self._log)

    def _look_at_log(self, known: Identity) -> None:
        if _is_open(known):
            raise StoreForeign(
                f"{self._log_path}, the log of the store, was deleted, moved or replaced while it was open; nothing was written: end "
                "whatever works on it, and not by kill -9: what was committed last is saved by whoever closes it, and lost if he is killed"
            )
        self._log = _identity(self._log_path)


def _is_open(known: Identity) -> bool:
    """Does this process have this file open? Where that cannot be seen, nobody is accused."""
    try:
        descriptors = os.listdir(_OPEN_FILES)
    except OSError:
        return False
    return any(_identity(f"{_OPEN_FILES}/{descriptor}") == known for descriptor in descriptors)


def _identity(path: str) -> Identity | None:
    """As long as it is open, no other file can have the same."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
