"""Opening a file: whose it is, of which format, and whether it can be written.

A file belongs to one machine, so whoever opens it for writing brings it up to date.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import apsw

from genlock.errors import StoreError, StoreForeign, StoreMissing, StoreUnavailable
from genlock.failpoints import hit
from genlock.stores.files import make_folder, sync_folder
from genlock.stores.migrations import outdated, refuse_newer, this_version
from genlock.stores.sqlite.connections import Settings, open_reader, open_writer
from genlock.stores.sqlite.filesystem import refuse_network
from genlock.stores.sqlite.gate import Gate
from genlock.stores.sqlite.queries import FORMAT, MIGRATIONS, QUERIES

APPLICATION = 1195724364
"""`PRAGMA application_id` of our files."""

_MAGIC = b"SQLite format 3\0"


def can_write(path: Path) -> bool:
    """May this process write the file? The log stands beside it, so the folder must be writable too."""
    return os.access(_above(path), os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.W_OK))


def _above(path: Path) -> Path:
    """The folder that it is in, or the one in which that would be made."""
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    return folder


def open_for_writing(settings: Settings, gate: Gate, *, create: bool = True) -> apsw.Connection:
    """A connection to a file of the present format: migrated if need be, and with `create` created or completed."""
    path = settings.path
    db = open_writer(settings)
    try:
        found = format_of(db, path)
        if not found and not create:
            raise missing(path)
        if found < FORMAT or not _has_its_journal(db):
            gate.pass_through(partial(prepare, db, path))
            sync_folder(path.parent)
    except BaseException:
        db.close()
        raise
    return db


def open_for_reading(settings: Settings, *, older: bool = False) -> Settings:
    """The settings with which readers can open the file as it lies there; an error if they cannot. With `older` its format may be."""
    path = settings.path
    if not path.exists():
        why = "nothing can be created for a store that is only read" if can_write(path) else f"this user may not write in {_above(path)}"
        raise StoreUnavailable(f"{path} does not exist, and {why}")
    if path.stat().st_size == 0:
        raise StoreUnavailable(f"{path} is empty: there is nothing to read yet")
    settings = settings._replace(immutable=not os.access(path.parent, os.W_OK) and not _has_log(path))
    db = open_reader(settings)
    try:
        found = format_of(db, path)
        if found < FORMAT and not (older and found):
            raise outdated(path, found, FORMAT, _url(path)) if found else missing(path)
    finally:
        db.close()
    return settings


def make_place(path: Path, *, read_only: bool) -> None:
    """The folder, if it may be missing, and the certainty that it is a local one."""
    if not read_only:
        make_folder(path.parent)
    if path.parent.is_dir():
        refuse_network(path.parent)
    if path.is_dir():
        raise StoreForeign(f"{path} is a folder: name a file in it")
    if not _may_be_a_database(path):
        raise StoreForeign(f"{path} is not an SQLite database: name another file")


def _may_be_a_database(path: Path) -> bool:
    """SQLite takes what is too short to be anything for an empty database, and would write over it."""
    if not path.exists() or path.with_name(path.name + "-journal").exists():
        return True  # a journal may be what gives it its beginning
    # By SQLite's own means: to open and close a file by any other drops all locks that this process has on it, also those of SQLite.
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        return file.xRead(len(_MAGIC), 0) in (b"", _MAGIC)
    finally:
        file.xClose()


def missing(path: Path) -> StoreMissing:
    """The error where there is no store."""
    return StoreMissing(f"there is no store at {path}; to make one, type: genlock init --url {_url(path)}")


def _url(path: Path) -> str:
    return f"sqlite://{quote(os.fsencode(path))}"


def format_of(db: apsw.Connection, path: Path) -> int:
    """Its format; 0 if there is nothing in it yet. `StoreForeign` if it is somebody else's, or of a newer one."""
    with _one_state(db):
        application = db.execute("PRAGMA application_id").get
        found = int(db.execute("PRAGMA user_version").get)
        tables = db.execute("SELECT count(*) FROM sqlite_schema").get
        applied = list(db.execute(QUERIES["migrations"])) if found > FORMAT and db.execute(QUERIES["has_migrations"]).get else []
    if application != APPLICATION and (application or found or tables):
        raise StoreForeign(f"{path} is an SQLite database of another program: name another file")
    refuse_newer(path, found, FORMAT, str(applied[-1][3]) if applied else None)
    return found


def _has_its_journal(db: apsw.Connection) -> bool:
    """Has it a write-ahead log? A backup has none until it is used as a store."""
    return bool(db.execute("PRAGMA journal_mode").get == "wal")


@contextmanager
def _one_state(db: apsw.Connection) -> Iterator[None]:
    """Lets the block read one state of the file: another process may be creating it just now."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def prepare(db: apsw.Connection, path: Path) -> int:
    """Sets the log up and runs the migrations that are missing; of which format it was before. Whoever comes second finds all done."""
    if format_of(db, path) == FORMAT and _has_its_journal(db):
        return FORMAT
    hit("sqlite.open.before_log")
    if db.execute("PRAGMA journal_mode = WAL").get != "wal":
        raise StoreError(f"{path} cannot have a write-ahead log here")
    hit("sqlite.open.after_log")
    db.execute("BEGIN IMMEDIATE")
    try:
        before = run_migrations(db)
        hit("sqlite.open.before_commit")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    hit("sqlite.open.after_commit")
    return before


def run_migrations(db: apsw.Connection) -> int:
    """Those that are missing, inside the caller's transaction; the format before them."""
    found = int(db.execute("PRAGMA user_version").get)
    for migration in MIGRATIONS:
        if migration.number > found:
            db.execute(migration.script)
            db.execute(f"PRAGMA user_version = {migration.number}")
    db.executemany(QUERIES["note_migration"], [(each.number, each.name, this_version()) for each in MIGRATIONS])
    return found


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0
