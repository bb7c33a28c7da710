"""Counters that Genlock shares with shell scripts.

    ai_comms/counters/<prefix>.NextId                  the next number, in four characters
    ai_comms/counters/<prefix>.NextId.claimed.<pid>    while a script takes it

A script renames the counter, writes the next number under the old name, and removes the renamed
file. If it finds no counter, it creates one. So while one script has the counter renamed, another
may start from the beginning: scripts that count at the same time lose ids, with or without Genlock.
Three rules keep that from becoming worse, and from affecting Genlock:

1. Genlock never makes the name disappear. It *exchanges* the counter with a file that has the
   following number (`renameat2`). Where that call does not exist, it renames as the scripts do.
2. Genlock's own processes take turns under a lock of their own, and record the highest number that
   they have taken. A counter that has gone back is raised above it.
3. A counter is created exclusively, with its number in it. If a process has renamed the counter and
   died, Genlock creates it again, with a number above any that the process may have used.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from genlock.core.ids import format_root, parse_root
from genlock.errors import BadArgument, StoreCorrupt, StoreUnavailable
from genlock.failpoints import hit
from genlock.private_files import read_regular
from genlock.retry import Backoff
from genlock.stores.files import os_errors_translated, refuse_link
from genlock.stores.folder.layouts.spool_processes import ticks_at_start

_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_WAIT_SECONDS: Final = 10.0
_PAUSES: Final = Backoff(first=0.001, longest=0.02)


class SpoolCounters:
    """The counters in one folder."""

    def __init__(self, folder: Path, marks: Path) -> None:
        """`marks` is the folder in which Genlock records the numbers it has taken."""
        self.folder = folder
        self._marks = marks

    def take(self, prefix: str, count: int) -> int:
        """Takes `count` numbers. Returns the last of them."""
        with os_errors_translated(self.folder):
            refuse_link(self.folder)
            os.makedirs(self.folder, exist_ok=True)
            with self._turn(prefix) as mark:
                taken = int(os.pread(mark, 20, 0) or b"0")
                first = self._advance(prefix, taken + 1, count)
                last = first + count - 1
                os.pwrite(mark, b"%020d" % last, 0)
                os.fsync(mark)
        return last

    @contextmanager
    def _turn(self, prefix: str) -> Iterator[int]:
        """Lets in one Genlock process at a time. The kernel releases the lock of a process that
        dies."""
        self._marks.mkdir(0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._marks / prefix, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _advance(self, prefix: str, least: int, count: int) -> int:
        """Takes `count` numbers from the counter, none below `least`. Returns the first."""
        path = self.folder / f"{prefix}.NextId"
        new = self.folder / f".{prefix}.NextId.genlock"
        give_up, looks = time.monotonic() + _WAIT_SECONDS, 0
        while True:
            found = self._number(path)
            if found is not None:
                first = max(found, least, 1)
                new.write_text(f"{format_root(first + count)}\n")
                hit("counter.prepared")
                before = self._swap(new, path)
                if before is not None:
                    hit("counter.swapped")
                    if before <= first:
                        new.unlink()
                        return first
                    # A script has taken a number since we read the counter, so the number that we
                    # have written is too low.
                    least = max(least, before)
                    continue
            elif not path.exists() and self._is_missing(prefix):
                self._begin(prefix, least)
                continue
            looks += 1
            if time.monotonic() > give_up:
                raise StoreUnavailable(self._complaint(prefix))
            time.sleep(_PAUSES.pause(looks))

    def _swap(self, new: Path, path: Path) -> int | None:
        """Replaces the old counter by the new one. Returns the number in the old one; None if a
        script has renamed it."""
        try:
            if not exchanged(new, path):
                claimed = path.with_name(f"{path.name}.claimed.{os.getpid()}")
                os.rename(path, claimed)
                before = self._number(claimed)
                os.replace(new, path)
                os.rename(claimed, new)
                return before or 0
        except FileNotFoundError:
            return None
        return self._number(new) or 0

    def _number(self, path: Path) -> int | None:
        """Returns the number in a counter; None if the counter is missing, or not written yet."""
        try:
            text = read_regular(path, follow=False).decode(errors="replace").strip()
        except FileNotFoundError:
            return None
        try:
            return int(text) if text.isdecimal() else parse_root(text) if text else None
        except BadArgument:
            raise StoreCorrupt(
                f"{path} says {text[:20]!r}, and not which number is next: write one there, as in "
                "0042 or A000"
            ) from None

    # Missing counters

    def _claimers(self, prefix: str) -> dict[str, int]:
        """Returns the files of processes that have renamed the counter, with their pids."""
        start = f"{prefix}.NextId.claimed."
        names = [name for name in os.listdir(self.folder) if name.startswith(start)]
        return {name: int(name[len(start) :]) for name in names if name[len(start) :].isdigit()}

    def _is_missing(self, prefix: str) -> bool:
        """Is the counter missing, with no live process that would restore it? Checked twice: a
        listing of the folder during a rename may show neither name."""
        for _ in range(2):
            pids = self._claimers(prefix).values()
            if any(ticks_at_start(pid) is not None for pid in pids):
                return False
            if (self.folder / f"{prefix}.NextId").exists():
                return False
            time.sleep(0.002)
        return True

    def _begin(self, prefix: str, least: int) -> None:
        """Creates the counter, unless another process does. A process that died after renaming the
        counter may have used its number."""
        claimers = self._claimers(prefix)
        used = [self._number(self.folder / name) or 0 for name in claimers]
        new = self.folder / f".{prefix}.NextId.genlock"
        new.write_text(f"{format_root(max(least, 1, *(number + 1 for number in used)))}\n")
        hit("counter.begins")
        with suppress(FileExistsError):
            os.link(new, self.folder / f"{prefix}.NextId")
        for name in claimers:
            with suppress(FileNotFoundError):
                os.unlink(self.folder / name)
        new.unlink()

    def _complaint(self, prefix: str) -> str:
        path = self.folder / f"{prefix}.NextId"
        pids = sorted(self._claimers(prefix).values())
        if not pids:
            return f"{path} stays empty: write the next number there, as in 0042"
        return (
            f"process {pids[0]} has {path} and has not given it back for "
            f"{_WAIT_SECONDS:.0f} seconds: if it hangs, end it"
        )


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    found.argtypes = [
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    ]
    return found


def exchanged(one: Path, other: Path) -> bool:
    """Exchanges two files. Both names exist at every moment. Returns False if the system cannot do
    that. Raises `FileNotFoundError` if one of them is missing."""
    rename = _renameat2()
    if rename is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(other))
