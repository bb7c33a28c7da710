"""Copies of a file, and putting a copy in its place.

A copy is of one instant, whatever others write meanwhile, and has a name only when it is whole and durable. To put a copy in a file's
place its pages are written *into* the file, in one transaction of SQLite's: the file stays the same file, so nobody who is about to
open it can be left with another one under the same name, and whoever is killed in between leaves what was there.

Who has the file open is told by SQLite's own locks: in WAL mode every connection that has read anything keeps a shared one for as
long as it is open, idle or not.
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
from genlock.stores.files import sync_folder
from genlock.stores.sqlite.connections import Settings, open_reader, open_writer
from genlock.stores.sqlite.faults import translated
from genlock.stores.sqlite.opening import APPLICATION, make_place, open_for_reading, run_migrations
from genlock.stores.sqlite.queries import FORMAT, QUERIES
from genlock.stores.unfinished import remove_leftovers, unfinished

PAGES_AT_A_TIME = 1000
BUSY_SECONDS = 5.0
_ALONE_SECONDS = 0.2

Progress = Callable[[int, int], None]
"""Told how many pages are done, and how many there are."""

T = TypeVar("T")

_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
"""The bytes that SQLite locks in every file it has open."""

_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi4x"


class StoreInUse(NotAllowed):
    """A process has the store open."""


def copy_file(source: Path, target: Path, progress: Progress | None = None) -> None:
    """One instant of the store in the file `source`, under the name `target`. The copy of an older one is brought up to date."""
    with translated(source):
        make_place(source, read_only=True)
        db = open_reader(open_for_reading(Settings(source, None, "FULL", BUSY_SECONDS), older=True))
    try:
        copy_database(db, target, progress)
    finally:
        db.close()


def copy_database(db: apsw.Connection, target: Path, progress: Progress | None = None) -> None:
    """One instant of what `db` is connected to, whole and durable under the name `target`, or nothing. What had that name is replaced."""
    with translated(target), unfinished(target) as folder:
        copy = folder / "pages.db"
        _copy_pages(db, copy, progress)
        hit("sqlite.backup.copied")
        _sync(copy)
        copy.replace(target)
        sync_folder(target.parent)
        hit("sqlite.backup.named")


def _copy_pages(source: apsw.Connection, target: Path, progress: Progress | None) -> None:
    copy = apsw.Connection(str(target))
    try:
        # It has no name yet, so nothing about it need be safe before it is synced as a whole.
        copy.execute("PRAGMA synchronous = OFF")
        copy.execute("PRAGMA journal_mode = OFF").fetchall()
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # BEGIN alone chooses no instant
        _pour(copy, source, progress)
        source.execute("COMMIT")
    finally:
        copy.close()
    # A copy is one file, and stays one whoever reads it: it gets a log when it is first opened to be written.
    copy = apsw.Connection(str(target))
    try:
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()
        if 0 < copy.execute("PRAGMA user_version").get < FORMAT:
            with copy:
                run_migrations(copy)
    finally:
        copy.close()


def _pour(into: apsw.Connection, source: apsw.Connection, progress: Progress | None) -> None:
    """All pages of one file into another."""
    with into.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(PAGES_AT_A_TIME)
            hit("sqlite.backup.step")
            if progress is not None:
                progress(backup.page_count - backup.remaining, backup.page_count)


def copy_payloads(source: Path, target: Path, *, link: bool = False) -> None:
    """Every payload in the folder `source` that `target` lacks, durably. A payload never changes, so its name says whether it is there."""
    found = sorted(file.relative_to(source) for file in source.glob("[0-9a-f][0-9a-f]/*"))
    lacking = [file for file in found if not (target / file).exists()]
    if not lacking and not target.exists():
        return
    with translated(target):
        target.mkdir(exist_ok=True)
        _copy_lacking(source, target, lacking, link=link)


def _copy_lacking(source: Path, target: Path, lacking: list[Path], *, link: bool) -> None:
    copies = target / "copies"  # what would become of them, if they became one file
    if not lacking:
        remove_leftovers(copies)
        return
    with unfinished(copies) as folder:
        # First all are written, then all are synced: the first to be synced takes most of the others along.
        copied = [file for file in lacking if _copy_payload(source / file, folder / file.name, link=link)]
        for file in copied:
            _sync(folder / file.name)
        hit("sqlite.backup.payloads")
        for file in copied:
            (target / file).parent.mkdir(exist_ok=True)
            (folder / file.name).replace(target / file)
        for each in {(target / file).parent for file in copied}:
            sync_folder(each)
        sync_folder(target)
        sync_folder(target.parent)


def _copy_payload(file: Path, copy: Path, *, link: bool) -> bool:
    """False if it was discarded meanwhile: whether anyone misses it is seen when all are there."""
    try:
        if link:
            try:
                os.link(file, copy)
            except FileNotFoundError:
                raise
            except OSError:
                shutil.copyfile(file, copy)  # a filesystem without links
        else:
            shutil.copyfile(file, copy)
    except FileNotFoundError:
        return False
    return True


def user_of(path: Path) -> int | None:
    """A process that has the file open, None if there is none.

    Not for a process that has it open itself: closing the descriptor used here would drop that one's locks, too.
    """
    wanted = struct.pack(_FLOCK, *_in_order(kind=fcntl.F_WRLCK, whence=os.SEEK_SET, start=_SHARED_FIRST, length=_SHARED_SIZE, pid=0))
    with translated(path):
        fd = os.open(path, os.O_RDONLY)
        try:
            told = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
        finally:
            os.close(fd)
    found = dict(zip(_in_order(kind="kind", whence="whence", start="start", length="length", pid="pid"), told, strict=True))
    return None if found["kind"] == fcntl.F_UNLCK else int(found["pid"])


def _in_order(*, kind: T, whence: T, start: T, length: T, pid: T) -> tuple[T, ...]:
    """The fields of a lock as the system has them."""
    return (start, length, pid, kind, whence) if sys.platform == "darwin" else (kind, whence, start, length, pid)


@contextmanager
def alone(path: Path) -> Iterator[apsw.Connection]:
    """A connection that nobody can open another beside, until the block ends; `StoreInUse` if somebody has one."""
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
            if db.execute("PRAGMA application_id").get != APPLICATION and db.execute("SELECT count(*) FROM sqlite_schema").get:
                raise NotAllowed(f"{path} is an SQLite database of another program: name another file")
            yield db
        finally:
            db.close()


def epoch_of(db: apsw.Connection) -> int:
    """The epoch that a file is in; 0 if nothing was ever written to it."""
    if not db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'").get:
        return 0
    return int(db.execute(QUERIES["epoch"]).get or 0)


def raise_epoch(path: Path, epoch: int) -> None:
    """Makes a store of a copy that nobody else knows of: with a log, and in this epoch."""
    with translated(path):
        db = open_writer(Settings(path, None, "FULL", BUSY_SECONDS))
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchall()
            db.execute(QUERIES["raise_epoch"], (epoch,))
        finally:
            db.close()


def overwrite(db: apsw.Connection, staged: Path, progress: Progress | None = None) -> None:
    """All pages of `staged` into the file that `db` has for itself, in one transaction."""
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
