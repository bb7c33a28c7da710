"""Is the file that a store has open still the one that has its name?

A file that was deleted, moved or replaced can be written by whoever has it open as if nothing had happened. But nobody else sees
what he writes: the next who opens the store finds another file, or makes one, and grants what he has granted. So he must be told.
"""

from __future__ import annotations

import os
from pathlib import Path

from genlock.errors import StoreForeign


class Presence:
    """Of one file, from now on. One that cannot be seen now, as a VFS may keep it elsewhere, is not looked for."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._known = _identity(self._path)

    def check(self) -> None:
        """`StoreForeign` if the name leads elsewhere by now, or nowhere."""
        if self._known is not None and _identity(self._path) != self._known:
            raise StoreForeign(
                f"{self._path} was deleted, moved or replaced while it was open; nothing was written: "
                "end whatever still works on it, see whether the right file is there, and open it anew"
            )


def _identity(path: str) -> tuple[int, int] | None:
    """As long as it is open, no other file can have the same."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
