"""Copies a store's file, and restores a copy.

A copy is a snapshot of one instant, even while others write, and gets its name when it is complete
and durable. A restore writes the pages of the copy *into* the file, in one transaction of SQLite.
So the file keeps its inode: a process that is about to open it cannot end up with an obsolete file,
and a killed restore leaves the file unchanged.

SQLite's own locks tell which processes have the file open: in WAL mode every connection that has
read anything keeps a shared lock while it is open, idle or not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from genlock.errors import NotAllowed
from genlock.failpoints import hit
from genlock.stores.epoch_guard import EpochNumber
from genlock.stores.files import (
    FILE_MODE,
    create_file,
    ensure_file,
    folder_mode,
    open_file,
    opened_folder,
    refuse_links_in,
    remove_leftovers,
    sync_folder,
    unfinished,
)
from genlock.stores.sqlite.connections import FORMAT, QUERIES, Settings, open_reader, open_writer
from genlock.stores.sqlite.errors import translated
from genlock.stores.sqlite.file_identity import COPY, inode_of, note_of, raise_epoch
from genlock.stores.sqlite.open import APPLICATION, make_place, open_for_reading, run_migrations
from genlock.stores.sqlite.write_lock import Note

PAGES_AT_A_TIME = 1000
BUSY_SECONDS = 5.0
_ALONE_SECONDS = 0.2

Progress = Callable[[int, int], None]
"""Called with the number of pages done, and of all pages."""

T = TypeVar("T")

_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
"""The bytes that SQLite locks in every file it has open."""

_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi4x"


class StoreInUse(NotAllowed):
    """A process has the store open."""


def copy_file(source: Path, target: Path, progress: Progress | None = None) -> None:
    """Copies one instant of the store in `source` to `target`, and migrates the copy if need be."""
    with translated(source):
        make_place(source, read_only=True)
        db = open_reader(open_for_reading(Settings(source, None, "FULL", BUSY_SECONDS), older=True))
    try:
        copy_database(db, target, progress)
    finally:
        db.close()


def copy_database(db: apsw.Connection, target: Path, progress: Progress | None = None) -> None:
    """Copies one instant of the database to `target`. The copy appears complete and durable, or not
    at all. Replaces an existing file."""
    with translated(target), unfinished(target) as folder:
        copy = folder / "pages.db"
        _copy_pages(db, copy, progress)
        hit("sqlite.backup.copied")
        _sync(copy)
        copy.replace(target)
        sync_folder(target.parent)
        hit("sqlite.backup.named")


def _copy_pages(source: apsw.Connection, target: Path, progress: Progress | None) -> None:
    ensure_file(target)
    copy = apsw.Connection(str(target))
    try:
        # The copy has no name yet, so it only needs to be durable when it is synced as a whole.
        copy.execute("PRAGMA synchronous = OFF")
        copy.execute("PRAGMA journal_mode = OFF").fetchall()
        source.execute("BEGIN")
        # BEGIN alone takes no snapshot.
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        _pour(copy, source, progress)
        source.execute("COMMIT")
    finally:
        copy.close()
    # A copy is one file, and readers create no log beside it. It gets a log when it is first opened
    # for writing.
    copy = apsw.Connection(str(target))
    try:
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        found = copy.execute("PRAGMA user_version").get
        if found:
            with copy:
                if found < FORMAT:
                    run_migrations(copy)
                copy.execute(QUERIES["note_file"], (COPY,))
    finally:
        copy.close()


def _pour(into: apsw.Connection, source: apsw.Connection, progress: Progress | None) -> None:
    """Copies all pages of one database into another."""
    with into.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(PAGES_AT_A_TIME)
            hit("sqlite.backup.step")
            if progress is not None:
                progress(backup.page_count - backup.remaining, backup.page_count)


def copy_payloads(source: Path, target: Path, *, link: bool = False, mode: int = FILE_MODE) -> None:
    """Copies every payload that `target` lacks, durably. A payload never changes, so a file with
    its name needs no copy."""
    refuse_links_of_payloads(source)
    refuse_links_of_payloads(target)
    found = sorted(file.relative_to(source) for file in source.glob("[0-9a-f][0-9a-f]/*"))
    lacking = [file for file in found if not (target / file).exists()]
    if not lacking and not target.exists():
        return
    with translated(target), opened_folder(target, make=folder_mode(mode)):
        _copy_lacking(source, target, lacking, link=link, mode=mode)


def refuse_links_of_payloads(folder: Path) -> None:
    """Raises `StoreForeign` if the folder of payloads, or a folder in it, is a symbolic link."""
    refuse_links_in(folder)
    for each in folder.glob("[0-9a-f][0-9a-f]"):
        refuse_links_in(each)


def _copy_lacking(
    source: Path, target: Path, lacking: list[Path], *, link: bool, mode: int
) -> None:
    copies = target / "copies"
    if not lacking:
        remove_leftovers(copies)
        return
    with unfinished(copies) as folder:
        # Writes all files before syncing any: the first sync usually writes most of the others,
        # too.
        copied = [
            file
            for file in lacking
            if _copy_payload(source / file, folder / file.name, link=link, mode=mode)
        ]
        for file in copied:
            _sync(folder / file.name)
        hit("sqlite.backup.payloads")
        for file in copied:
            with opened_folder((target / file).parent, make=folder_mode(mode)) as into:
                os.replace(folder / file.name, file.name, dst_dir_fd=into)
        for each in {(target / file).parent for file in copied}:
            sync_folder(each)
        sync_folder(target)
        sync_folder(target.parent)


def _copy_payload(file: Path, copy: Path, *, link: bool, mode: int) -> bool:
    """Returns False if the payload was discarded in the meantime. The check after the copy finds
    out whether it is missing."""
    try:
        if link:
            try:
                os.link(file, copy, follow_symlinks=False)
            except FileNotFoundError:
                raise
            except OSError:
                _copy_bytes(file, copy, mode)  # the filesystem has no links
        else:
            _copy_bytes(file, copy, mode)
    except FileNotFoundError:
        return False
    return True


def _copy_bytes(file: Path, copy: Path, mode: int) -> None:
    with (
        os.fdopen(open_file(file, os.O_RDONLY), "rb") as source,
        os.fdopen(create_file(copy, mode), "wb") as target,
    ):
        shutil.copyfileobj(source, target)


def user_of(path: Path) -> int | None:
    """Returns the pid of a process that has the file open; None if there is none.

    A process must not have the file open when it calls this: closing the descriptor used here would
    drop its own locks.
    """
    wanted = struct.pack(
        _FLOCK,
        *_in_order(
            kind=fcntl.F_WRLCK, whence=os.SEEK_SET, start=_SHARED_FIRST, length=_SHARED_SIZE, pid=0
        ),
    )
    with translated(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            told = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
        finally:
            os.close(fd)
    found = dict(
        zip(
            _in_order(kind="kind", whence="whence", start="start", length="length", pid="pid"),
            told,
            strict=True,
        )
    )
    return None if found["kind"] == fcntl.F_UNLCK else int(found["pid"])


def _in_order(*, kind: T, whence: T, start: T, length: T, pid: T) -> tuple[T, ...]:
    """Returns the fields of a lock in the order of the system."""
    return (
        (start, length, pid, kind, whence)
        if sys.platform == "darwin"
        else (kind, whence, start, length, pid)
    )


@contextmanager
def alone(path: Path) -> Iterator[apsw.Connection]:
    """Opens the only connection to the file for the block. Raises `StoreInUse` if there is
    another."""
    with translated(path):
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(int(_ALONE_SECONDS * 1000))
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            try:
                db.execute("BEGIN EXCLUSIVE; ROLLBACK")
            except apsw.BusyError:
                raise StoreInUse(f"{path} is open in another process") from None
            if (
                db.execute("PRAGMA application_id").get != APPLICATION
                and db.execute("SELECT count(*) FROM sqlite_schema").get
            ):
                raise NotAllowed(
                    f"{path} is an SQLite database of another program: name another file"
                )
            yield db
        finally:
            db.close()


def epoch_of(db: apsw.Connection) -> int:
    """Returns the epoch of a file; 0 if it has no tables yet."""
    if not db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'").get:
        return 0
    return int(db.execute(QUERIES["epoch"]).get or 0)


def begin_history(copy: Path, target: Path, number: EpochNumber, *others: int) -> tuple[int, Note]:
    """Turns a private copy into a store with a log, which becomes `target` or is written into it.

    Its birth is new, and its epoch is above those of the backup and `others`. Returns the epoch,
    and the note for the lock file.
    """
    with translated(copy):
        db = open_writer(Settings(copy, None, "FULL", BUSY_SECONDS))
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchall()
            with db:
                epoch = raise_epoch(db, number, *others)
                db.execute(QUERIES["note_file"], (inode_of(target),))
                note = note_of(db)
        finally:
            db.close()
    return epoch, note


def overwrite(db: apsw.Connection, staged: Path, progress: Progress | None = None) -> None:
    """Writes all pages of `staged` into the database of `db`, which is `alone`, in one
    transaction."""
    source = open_reader(Settings(staged, None, "FULL", BUSY_SECONDS))
    try:
        _pour(db, source, progress)
        hit("sqlite.restore.committed")
    finally:
        source.close()


def _sync(file: Path) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
