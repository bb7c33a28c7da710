"""A layout: how tasks lie in a folder as files that other tools read and write, too.

A layout lists, reads and writes. It has no rules: what a change by another tool means, the core
decides (`genlock.core.task.observe`). It keeps no state either: what a file was when it was last
known, the store remembers.

A store calls a layout in this order, under its writer lock:

    read        what the files are
    wanted      what they should be for this record
    reserve     what must be on disk before the journal: another tool's lock
    (the journal entry, durable)
    write       the rest, which can be repeated after a crash
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from genlock.core.model import Process, TaskRecord
from genlock.core.observation import FileLock, Sighting
from genlock.core.policy import Policy

LOCK_GONE: Final = b"gone "
"""Before the content of a lock whose process is gone, in a layout that can tell."""


class TaskFiles(NamedTuple):
    """The files of one task, as they are or should be."""

    file: bytes | None = None
    """The content of the task's file; None if there is none."""
    lock: bytes | None = None
    """The content of the other tool's lock, where that is a file of its own."""
    place: str = ""
    """Where the task's file is, in a layout that moves it."""


class Fingerprint(NamedTuple):
    """What a file looks like from outside: as long as this is the same and not fresh, the content
    is the same."""

    parts: tuple[tuple[int, ...] | str | None, ...]
    """Inode, size and mtime_ns of each file, and its place."""
    newest: int = 0
    """The latest mtime_ns. A file that was written within the last two seconds may be written again
    in the same tick of the filesystem's clock."""
    newest_file: int = 0
    """The same of the task's file alone."""


class Numbers(Protocol):
    """Counters that other tools count on, too."""

    def take(self, prefix: str, count: int) -> int:
        """Takes `count` numbers, which nobody else is given; the last of them."""


class Layout(Protocol):
    """One layout of one workspace."""

    name: str
    """As the URL has it; also the source of observations and the prefix of foreign sessions."""
    state_folder: Path
    """Where the journal goes, out of sight of the other tool."""
    policy: Policy
    """What a new project begins with."""

    @property
    def numbers(self) -> Numbers | None:
        """The counters that other tools make ids of, where they have any."""

    def ids(self) -> Iterable[str]:
        """Every task that has a file. Names that cannot be a task's are in it: `read` and
        `interpret` say what is wrong with them."""

    def fingerprint(self, id: str) -> Fingerprint:
        """Without reading: one `stat` for each file."""

    def read(self, id: str) -> TaskFiles:
        """The content. No symbolic link is followed."""

    def interpret(self, id: str, files: TaskFiles) -> Sighting | None:
        """What the files say; None if there is no task in them. It raises nothing: what cannot be
        read is a sighting with a fault."""

    def lock_of(self, lock: bytes | None) -> FileLock | None:
        """The other tool's lock, whether or not it has run out; None if there is none that it would
        honour."""

    def wanted(
        self,
        id: str,
        record: TaskRecord,
        files: TaskFiles,
        *,
        new: bool,
        own_lock: bool,
        holder: Process | None = None,
    ) -> TaskFiles:
        """What the files should be for this record. What says the same already stays as it is, to
        the byte. A file that is missing stays missing, unless the task is new. `own_lock`: the lock
        that is there is Genlock's, and goes when the claim ends. `holder` is the process of the
        session that has the claim, if it is known."""

    def reserve(self, id: str, before: TaskFiles, after: TaskFiles) -> bool:
        """Makes the lock what it should be, under the other tool's own lock on it. False if it is
        no longer what it was before; then nothing was done."""

    def write(self, id: str, before: TaskFiles, after: TaskFiles, aside: Path) -> None:
        """Writes the rest. The old file is linked to `aside` first, so that a write that landed in
        it meanwhile is not lost."""

    def watched(self) -> Iterable[tuple[str, str]]:
        """The folders to watch for edits, as far as they are there: each with the id of the task
        whose own folder it is, or an empty text."""

    def task_of(self, folder: str, name: str) -> str | None:
        """The task that a name in one of the common folders belongs to, if it does to any."""

    def mirror(self, id: str, was: Sighting | None, record: TaskRecord) -> None:
        """Shows other tools who is at work. Nothing rests on it."""
