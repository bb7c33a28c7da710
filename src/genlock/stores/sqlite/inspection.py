"""Inspects a file for `genlock doctor` and `genlock db`. Only `checkpoint` and `migrate` write."""

from __future__ import annotations

import fcntl
import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

import apsw

from genlock.stores.files import open_file
from genlock.stores.migrations import About, Migrated, applied_of, migrated
from genlock.stores.sqlite.connections import (
    FORMAT,
    MIGRATIONS,
    QUERIES,
    Settings,
    open_reader,
    open_writer,
)
from genlock.stores.sqlite.errors import translated
from genlock.stores.sqlite.open import (
    MOUNTS,
    filesystem_of,
    format_of,
    is_network,
    make_place,
    missing,
    open_for_reading,
    prepare,
)
from genlock.stores.sqlite.write_lock import WriteLock, last_inside, state_of

_SECONDS = 2.0
_MOST_FAULTS = 20


class Inspection(NamedTuple):
    """A file as SQLite sees it."""

    journal: str
    format: int
    records: int
    faults: tuple[str, ...]
    """The findings of SQLite's own integrity check."""


def inspect(path: Path) -> Inspection:
    """Checks all pages of the file. Raises an error if it is foreign or cannot be opened."""
    with translated(path):
        make_place(path, read_only=True)
        db = open_reader(open_for_reading(Settings(path, None, "FULL", _SECONDS)))
        try:
            journal, version = (
                str(db.execute("PRAGMA journal_mode").get),
                int(db.execute("PRAGMA user_version").get),
            )
            found = [str(line) for (line,) in db.execute(f"PRAGMA integrity_check({_MOST_FAULTS})")]
            records = int(db.execute("SELECT count(*) FROM record").get)
        finally:
            db.close()
    return Inspection(journal, version, records, () if found == ["ok"] else tuple(found))


class LockState(NamedTuple):
    """Whether the write lock is taken, and if so, the pid in its file and the state of that process
    as `ps` shows it."""

    shut: bool
    pid: int | None = None
    state: str | None = None


def lock_state(path: Path) -> LockState | None:
    """Returns the state of this store's write lock; None if there is no lock file yet."""
    try:
        fd = open_file(Path(f"{path}.gate"), os.O_RDONLY)
    except OSError:
        return None
    try:
        # A shared lock, so that two observers do not see each other. Closing the file releases it.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = last_inside(fd)
        return LockState(shut=True, pid=pid, state=None if pid is None else state_of(pid))
    finally:
        os.close(fd)
    return LockState(shut=False)


def filesystem(path: Path) -> tuple[str | None, bool]:
    """Returns the filesystem that a file is on, if known, and whether it is on another machine."""
    try:
        table = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return None, False
    kind = filesystem_of(os.path.realpath(path.parent), table)
    return kind, is_network(kind)


def log_bytes(path: Path) -> int:
    """Returns the size of the log beside the file."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except OSError:
        return 0


def checkpoint(path: Path) -> bool:
    """Copies the log into the file and empties it. Returns False if a reader prevents that."""
    with translated(path):
        db = open_writer(Settings(path, None, "FULL", _SECONDS))
        try:
            busy, _, _ = next(iter(db.execute("PRAGMA wal_checkpoint(TRUNCATE)")))
        except apsw.BusyError:
            return False
        finally:
            db.close()
    return not busy


_MIGRATION_SECONDS = 5.0


def about(path: Path) -> About:
    """Returns the format and migrations of a file without changing it."""
    with translated(path):
        if not path.exists() or not path.stat().st_size:
            raise missing(path)
        make_place(path, read_only=True)
        db = open_reader(open_for_reading(_settings(path), older=True))
        try:
            found = format_of(db, path)
            applied = (
                applied_of(db.execute(QUERIES["migrations"]))
                if db.execute(QUERIES["has_migrations"]).get
                else ()
            )
        finally:
            db.close()
    return About(f"SQLite {apsw.sqlite_lib_version()}", found, FORMAT, applied)


def migrate(path: Path) -> Migrated:
    """Brings the file up to date. A second process that does so at the same time changes
    nothing."""
    with translated(path):
        if not path.exists():
            raise missing(path)
        make_place(path, read_only=False)
        db = open_writer(_settings(path))
        try:
            if not format_of(db, path):
                raise missing(path)
            write_lock = WriteLock(Path(f"{path}.gate"), _MIGRATION_SECONDS)
            try:
                before = write_lock.pass_through(partial(prepare, db, path))
            finally:
                write_lock.close()
        finally:
            db.close()
    return migrated(before, MIGRATIONS)


def _settings(path: Path) -> Settings:
    return Settings(path, None, "FULL", _MIGRATION_SECONDS)
