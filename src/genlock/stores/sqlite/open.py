"""Opening a file: is it a store, of which format, on which filesystem, and can it be written?

A file belongs to one machine, so a process that opens it for writing also migrates it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote as quoted
from urllib.parse import quote

import apsw

from genlock.errors import StoreError, StoreForeign, StoreMissing, StoreUnavailable
from genlock.failpoints import hit
from genlock.stores.files import make_folder, refuse_links_beside, sync_folder
from genlock.stores.migrations import outdated, refuse_newer, this_version
from genlock.stores.sqlite.connections import (
    FORMAT,
    MIGRATIONS,
    QUERIES,
    Settings,
    immediate,
    open_reader,
    open_writer,
)
from genlock.stores.sqlite.file_identity import COPY, adopt_copy
from genlock.stores.sqlite.write_lock import WriteLock

APPLICATION = 1195724364
"""`PRAGMA application_id` of our files."""

_MAGIC = b"SQLite format 3\0"


def can_write(path: Path) -> bool:
    """May this process write the file and its folder, which contains the log?"""
    return os.access(_above(path), os.W_OK | os.X_OK) and (
        not path.exists() or os.access(path, os.W_OK)
    )


def _above(path: Path) -> Path:
    """Returns the nearest existing parent folder."""
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    return folder


def open_for_writing(
    settings: Settings, write_lock: WriteLock, *, create: bool = True
) -> apsw.Connection:
    """Opens a connection to a file of the present format. Migrates the file if needed, and with
    `create` creates or completes it.

    A copy, or an older state of the file, begins an epoch of its own: see file_identity.py.
    """
    path = settings.path
    db = open_writer(settings)
    try:
        found = format_of(db, path)
        if not found and not create:
            raise missing(path)
        if found < FORMAT or not _has_its_journal(db):
            write_lock.pass_through(partial(prepare, db, path))
            sync_folder(path.parent)
        adopt_copy(db, path, write_lock)
    except BaseException:
        db.close()
        raise
    return db


def open_for_reading(settings: Settings, *, older: bool = False) -> Settings:
    """Returns the settings with which readers can open the file unchanged. Raises an error if they
    cannot. With `older` the file may have an older format."""
    path = settings.path
    if not path.exists():
        why = (
            "nothing can be created for a store that is only read"
            if can_write(path)
            else f"this user may not write in {_above(path)}"
        )
        raise StoreUnavailable(f"{path} does not exist, and {why}")
    if path.stat().st_size == 0:
        raise StoreUnavailable(f"{path} is empty: there is nothing to read yet")
    settings = settings._replace(
        immutable=not os.access(path.parent, os.W_OK) and not _has_log(path)
    )
    db = open_reader(settings)
    try:
        found = format_of(db, path)
        if found < FORMAT and not (older and found):
            raise outdated(path, found, FORMAT, _url(path)) if found else missing(path)
    finally:
        db.close()
    return settings


def make_place(path: Path, *, read_only: bool) -> None:
    """Creates the folder unless `read_only`, and refuses places where SQLite is not safe."""
    refuse_links_beside(path)
    if not read_only:
        make_folder(path.parent)
    if path.parent.is_dir():
        refuse_network(path.parent)
    if path.is_dir():
        raise StoreForeign(f"{path} is a folder: name a file in it")
    if not read_only:
        refuse_other_names(path)
    if not _may_be_a_database(path):
        raise StoreForeign(f"{path} is not an SQLite database: name another file")


def _may_be_a_database(path: Path) -> bool:
    """SQLite takes a very short file for an empty database, and would write over it."""
    if not path.exists() or path.with_name(path.name + "-journal").exists():
        return True  # the journal may contain its first page
    # Reads through SQLite, because closing the file after opening it otherwise drops all locks that
    # this process, including SQLite, has on it.
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        return file.xRead(len(_MAGIC), 0) in (b"", _MAGIC)
    finally:
        file.xClose()


def missing(path: Path) -> StoreMissing:
    """Returns the error for a missing store: no file, or an empty one."""
    where = f"at {path}" if not path.exists() else f"in {path}, which is an empty file"
    return StoreMissing(
        f"there is no store {where}; to make one, type: genlock init --url {_url(path)}"
    )


def _url(path: Path) -> str:
    return f"sqlite://{quote(os.fsencode(path))}"


def format_of(db: apsw.Connection, path: Path) -> int:
    """Returns the format of the file; 0 if it is empty. Raises `StoreForeign` for another program's
    database."""
    with _one_state(db):
        application = db.execute("PRAGMA application_id").get
        found = int(db.execute("PRAGMA user_version").get)
        tables = db.execute("SELECT count(*) FROM sqlite_schema").get
        applied = (
            list(db.execute(QUERIES["migrations"]))
            if found > FORMAT and db.execute(QUERIES["has_migrations"]).get
            else []
        )
    if application != APPLICATION and (application or found or tables):
        raise StoreForeign(f"{path} is an SQLite database of another program: name another file")
    refuse_newer(path, found, FORMAT, str(applied[-1][3]) if applied else None)
    return found


def _has_its_journal(db: apsw.Connection) -> bool:
    """Does the file have a write-ahead log? A backup has none until it is used as a store."""
    return bool(db.execute("PRAGMA journal_mode").get == "wal")


@contextmanager
def _one_state(db: apsw.Connection) -> Iterator[None]:
    """Lets the block read one consistent state of a file that another process may be creating."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")


def prepare(db: apsw.Connection, path: Path) -> int:
    """Sets up the log and runs the missing migrations. Returns the previous format. A second
    process finds all of it done."""
    before = format_of(db, path)
    if before == FORMAT and _has_its_journal(db):
        return FORMAT
    is_backup = bool(before) and not _has_its_journal(db)
    if is_backup:
        # Checked before the file has a log: afterwards a backup of an older format cannot be
        # recognised.
        before = _bring_up_to_date(db, is_backup=True)
    hit("sqlite.open.before_log")
    if db.execute("PRAGMA journal_mode = WAL").get != "wal":
        raise StoreError(f"{path} cannot have a write-ahead log here")
    hit("sqlite.open.after_log")
    return before if is_backup else _bring_up_to_date(db)


def _bring_up_to_date(db: apsw.Connection, *, is_backup: bool = False) -> int:
    """Runs the migrations in a transaction. Returns the previous format."""
    with immediate(db):
        before = run_migrations(db)
        if is_backup:
            db.execute(QUERIES["note_file"], (COPY,))
        hit("sqlite.open.before_commit")
    hit("sqlite.open.after_commit")
    return before


def run_migrations(db: apsw.Connection) -> int:
    """Runs the missing migrations inside the caller's transaction. Returns the previous format."""
    found = int(db.execute("PRAGMA user_version").get)
    for migration in MIGRATIONS:
        if migration.number > found:
            db.execute(migration.script)
            db.execute(f"PRAGMA user_version = {migration.number}")
    db.executemany(
        QUERIES["note_migration"], [(each.number, each.name, this_version()) for each in MIGRATIONS]
    )
    return found


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


MOUNTS = Path("/proc/self/mounts")

_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs",
    "smb2", "smb3", "smbfs", "fuse.ceph", "fuse.cifs", "fuse.davfs", "fuse.davfs2",
    "fuse.gcsfuse", "fuse.glusterfs", "fuse.juicefs",
    "fuse.nfs", "fuse.rclone", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
})  # fmt: skip


def refuse_network(folder: Path, mounts: Path = MOUNTS) -> None:
    """Raises `StoreUnavailable` if the folder is on another machine: the log of SQLite needs memory
    shared by all its users."""
    try:
        table = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return  # not Linux: nothing is known
    kind = filesystem_of(os.path.realpath(folder), table)
    if is_network(kind):
        raise StoreUnavailable(
            f"{folder} is on a network filesystem ({kind}), where SQLite cannot be shared safely: "
            "keep the file on a local disk, or use a server (postgresql://…) for several machines"
        )


def refuse_other_names(path: Path, mounts: Path = MOUNTS) -> None:
    """Raises `StoreForeign` if the file has a second name: its log has the name of one of them, so
    two writers that use different names would not see each other's writes."""
    if _has_other_links(path):
        raise StoreForeign(
            f"{path} has another name, by a hard link, and a user of that name would not see what "
            "is written here: remove the other name "
            f"(to find it, type: find / -xdev -samefile {quoted(str(path))}), or copy the file and "
            "use the copy"
        )
    try:
        table = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return
    if os.path.realpath(path) in (point for point, _ in _mounts_in(table)):
        raise StoreForeign(
            f"{path} is mounted as a single file, and its log would not be beside the original: "
            "mount the folder that it is in instead"
        )


def _has_other_links(path: Path) -> bool:
    try:
        found = os.stat(path)
        if found.st_nlink < 2:
            return False
        # A restore creates a second name for a moment, and leaves it behind if it is killed.
        staged = os.stat(f"{path}.restoring/store.db")
    except OSError:
        return path.exists() and os.stat(path).st_nlink > 1
    return found.st_nlink > 2 or not os.path.samestat(found, staged)


def is_network(kind: str | None) -> bool:
    """Is a filesystem of this type on another machine?"""
    return kind in _NETWORK


def filesystem_of(folder: str, table: str) -> str | None:
    """Returns the type of the filesystem that a folder is on, from a table like /proc/mounts."""
    best, found = "", None
    for point, kind in _mounts_in(table):
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # a later mount hides an earlier one
            best, found = point, kind
    return found


def _mounts_in(table: str) -> Iterator[tuple[str, str]]:
    """Yields mount points and their types."""
    for line in table.splitlines():
        _, point, kind, *_ = line.split(" ")
        yield re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point), kind
