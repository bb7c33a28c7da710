"""A layout: how tasks are stored in a folder as files that other tools also read and write.

A layout lists, reads and writes files. It has no rules: the core decides what a change by another
tool means (`genlock.core.task.observe`). It keeps no state either: the store remembers the last
known state of each file.

A store calls a layout in this order, under its writer lock:

    read        the present files
    wanted      the files that this record should have
    reserve     writes what must be on disk before the journal: another tool's lock
    (the journal entry, durable)
    write       writes the rest, which can be repeated after a crash
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from genlock.core.model import Process, TaskRecord
from genlock.core.observation import FileLock, Sighting
from genlock.core.policy import Policy

LOCK_GONE: Final = b"gone "
"""Prefix of a lock's content if its process has ended, in a layout that can tell."""


class TaskFiles(NamedTuple):
    """The files of one task, as they are or should be."""

    file: bytes | None = None
    """The content of the task's file; None if there is none."""
    lock: bytes | None = None
    """The content of the other tool's lock, where that is a file of its own."""
    place: str = ""
    """Where the task's file is, in a layout that moves it."""


class Fingerprint(NamedTuple):
    """The metadata of a task's files. While it is unchanged and not fresh, the content is
    unchanged, too."""

    parts: tuple[tuple[int, ...] | str | None, ...]
    """Inode, size and mtime_ns of each file, and its place."""
    newest: int = 0
    """The latest mtime_ns. A file written within the last two seconds may be written again in the
    same tick of the filesystem's clock."""
    newest_file: int = 0
    """The same for the task's file alone."""


class Numbers(Protocol):
    """Counters that other tools use, too."""

    def take(self, prefix: str, count: int) -> int:
        """Takes `count` numbers that no other caller gets. Returns the last of them."""


class Layout(Protocol):
    """One layout of one workspace."""

    name: str
    """The name in the URL; also the source of observations and the prefix of foreign sessions."""
    state_folder: Path
    """The folder of the journal, which the other tool does not read."""
    policy: Policy
    """The policy of a new project."""

    @property
    def numbers(self) -> Numbers | None:
        """The counters from which other tools make ids, if they have any."""

    def ids(self) -> Iterable[str]:
        """Lists every task that has a file. Invalid names are included: `read` and `interpret`
        report what is wrong with them."""

    def fingerprint(self, id: str) -> Fingerprint:
        """Returns the metadata by one `stat` per file, without reading the content."""

    def read(self, id: str) -> TaskFiles:
        """Reads the content. Follows no symbolic link."""

    def interpret(self, id: str, files: TaskFiles) -> Sighting | None:
        """Returns the meaning of the files; None if they contain no task. Raises nothing: an
        unreadable file becomes a sighting with a fault."""

    def lock_of(self, lock: bytes | None) -> FileLock | None:
        """Returns the other tool's lock, expired or not; None if there is none that the tool would
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
        """Returns the files that this record should have. A file that already says the same stays
        unchanged, to the byte. A missing file stays missing, unless the task is new. `own_lock`:
        the present lock is Genlock's, and is removed when the claim ends. `holder` is the process
        of the session that has the claim, if it is known."""

    def reserve(self, id: str, before: TaskFiles, after: TaskFiles) -> bool:
        """Writes or removes the lock, while holding the other tool's own lock on it. Returns False,
        and changes nothing, if the lock is no longer the one in `before`."""

    def write(self, id: str, before: TaskFiles, after: TaskFiles, aside: Path) -> None:
        """Writes the rest. The old file is first linked to `aside`, so that a concurrent write to
        it is not lost."""

    def watched(self) -> Iterable[tuple[str, str]]:
        """Lists the existing folders to watch for edits, each with the id of the task whose own
        folder it is, or an empty text."""

    def task_of(self, folder: str, name: str) -> str | None:
        """Returns the task that a name in one of the common folders belongs to, if any."""

    def mirror(self, id: str, was: Sighting | None, record: TaskRecord) -> None:
        """Shows other tools which agent has the task. Nothing depends on it."""
