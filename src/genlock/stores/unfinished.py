"""A place beside a file for what is to become it, which nobody finds there for ever.

It is a folder, removed when the work is over. If its process is killed, whoever next makes one for the same file removes it: that it is
ours is seen by its name, and that its process is gone by a lock on it, which ends with the process however that ends. A folder is
locked, and not a file in it, because SQLite and network filesystems have their own ideas about locks on files.

Where folders cannot be locked nothing could ever be known to be left over. There the folder has another name, and stays.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MARK, _UNLOCKED = ".genlock-unfinished-", ".genlock-unlocked-"


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A folder for what is written now and gets the name `target` when it is whole."""
    remove_leftovers(target)
    folder, fd = _made(target)
    try:
        yield folder
    finally:
        with suppress(OSError):  # what cannot be removed now is left to the next one
            _remove(folder)
        os.close(fd)


def remove_leftovers(target: Path) -> None:
    """Removes what killed processes have left beside this file; what belongs to one that lives, or is no folder of ours, stays."""
    name = re.compile(re.escape(target.name + _MARK) + "[0-9a-f]{8}")
    for found in [each for each in target.parent.iterdir() if name.fullmatch(each.name)]:
        try:
            fd = _opened(found)
        except OSError:
            continue  # gone meanwhile, a link, or not ours to open
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(found)
        except OSError:
            continue  # somebody is at work on it, or it may not be removed
        finally:
            os.close(fd)


def _made(target: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor by which it is locked."""
    while True:
        folder = target.with_name(f"{target.name}{_MARK}{os.urandom(4).hex()}")
        folder.mkdir()
        try:
            fd = _opened(folder)
        except FileNotFoundError:
            continue  # somebody has taken it for a left-over one before it was locked
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            return folder.rename(target.with_name(folder.name.replace(_MARK, _UNLOCKED))), fd
        try:
            if os.path.samestat(os.fstat(fd), folder.lstat()):
                return folder, fd
        except FileNotFoundError:
            pass
        os.close(fd)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _remove(folder: Path) -> None:
    """With the files in it, and with what copies of copies have put there. What else is in it keeps it there."""
    for file in list(folder.iterdir()):
        if stat.S_ISREG(file.lstat().st_mode):
            file.unlink()
        elif _MARK in file.name or _UNLOCKED in file.name:
            _remove(file)
    folder.rmdir()
