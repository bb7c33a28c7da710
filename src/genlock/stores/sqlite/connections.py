"""Connections: how they are opened, and how readers share them. Also the SQL statements by name.

A forked child has copies of its parent's connections, and must neither use nor close them. Closing
one would checkpoint and remove the log while the parent uses it, once the parent's locks are gone.
Python closes the objects that it frees, also at exit, so a child gives every inherited connection
one extra reference that is never released.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote as quoted
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import apsw

from genlock.errors import StoreForeign
from genlock.stores.files import ensure_file, open_file
from genlock.stores.migrations import named_statements, newest_of, read_migrations

_HERE = Path(__file__).parent

QUERIES = named_statements((_HERE / "queries.sql").read_text("utf-8"))
"""The statements of queries.sql by name."""

MIGRATIONS = read_migrations(_HERE / "migrations")

FORMAT = newest_of(MIGRATIONS)
"""The format that this version writes."""

IDLE_READERS = 4
"""Connections kept open for the next reader. More are opened if more read at once, and closed
afterwards."""

BACK_SECONDS = 1.0
"""How long `close` waits for readers."""

WRITER_CACHE_KIB = 4 * 1024
"""Room for the pages of one commit. A larger cache slows down every commit.

A commit ends by dropping pages beyond the file's end. Balancing a tree numbers pages far beyond it
for a moment, and from then on SQLite searches the whole cache for such pages: with 16 MiB, 5 % of
the time of 64 claims over HTTP. The operating system caches the file anyway.
"""
READER_CACHE_KIB = 8 * 1024

Connect = Callable[[], apsw.Connection]

_JOURNAL_END: Final = bytes.fromhex("d9d505f920a163d7")
"""The last bytes of a journal that names a file for SQLite to delete."""


class Settings(NamedTuple):
    """The settings that all connections of one store share."""

    path: Path
    vfs: str | None
    synchronous: str
    busy_seconds: float
    immutable: bool = False
    """The folder cannot be written and there is no log. SQLite must be told that the file does not
    change."""


def open_writer(settings: Settings) -> apsw.Connection:
    """Opens a connection that may write, and creates the file if there is none."""
    if settings.vfs is None:
        ensure_file(settings.path)  # SQLite would make it readable for everyone
    db = _open(settings, str(settings.path), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    db.execute(
        f"PRAGMA synchronous = {settings.synchronous}; PRAGMA cache_size = -{WRITER_CACHE_KIB}; "
        "PRAGMA temp_store = MEMORY"
    )
    return db


def open_reader(
    settings: Settings, kind: type[apsw.Connection] = apsw.Connection
) -> apsw.Connection:
    """Opens a read-only connection."""
    name, flags = str(settings.path), apsw.SQLITE_OPEN_READONLY
    if settings.immutable:
        name, flags = f"file:{quote(name)}?immutable=1", flags | apsw.SQLITE_OPEN_URI
    db = _open(settings, name, flags, kind)
    db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}; PRAGMA temp_store = MEMORY")
    return db


@contextmanager
def immediate(db: apsw.Connection) -> Iterator[None]:
    """Runs the block in one transaction, which an error rolls back."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def refuse_foreign_journal(path: Path) -> None:
    """Raises `StoreForeign` if a rollback journal beside this file names a super-journal.

    SQLite before 3.53 deletes whichever file has that name when it opens the database, and a
    repository may contain such a journal. Only a transaction on several databases writes such a
    name; ours use one database.
    """
    journal = Path(f"{path}-journal")
    with suppress(OSError):  # usually there is none; SQLite cannot read an unreadable one either
        with os.fdopen(open_file(journal, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            file.seek(-len(_JOURNAL_END), os.SEEK_END)
            end = file.read()
        if end == _JOURNAL_END:
            raise StoreForeign(
                f"{journal} names another file, which SQLite may delete, and no store has such a "
                "journal: look whether a repository put it "
                f"there; to remove it, type: rm {quoted(str(journal))}"
            )


def _open(
    settings: Settings, name: str, flags: int, kind: type[apsw.Connection] = apsw.Connection
) -> apsw.Connection:
    refuse_foreign_journal(settings.path)
    db = kind(name, flags=flags, vfs=settings.vfs)
    db.set_busy_timeout(int(settings.busy_seconds * 1000))
    # Otherwise SQLite recompiles some statements whenever their values change, in search of a
    # better plan. Ours have one plan each.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return db


class Readers:
    """Connections for reading, each used by one thread at a time. Each `reading` block sees its own
    snapshot."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._idle: list[apsw.Connection] = []
        self._all: list[apsw.Connection] = []
        self._closed = False
        self._all_back = threading.Event()

    @contextmanager
    def lent(self) -> Iterator[apsw.Connection]:
        """Lends a connection for the block. After an error the connection is discarded."""
        try:
            db = self._idle.pop()
        except IndexError:
            db = self._connect()
            self._all.append(db)
        try:
            yield db
        except BaseException:
            self._drop(db)
            raise
        if len(self._idle) >= IDLE_READERS:
            self._drop(db)
            return
        self._idle.append(db)
        if self._closed:  # checked last: `close` may have missed the one just returned
            self._drop_idle()

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """Lends a connection on which the block reads one snapshot."""
        with self.lent() as db:
            db.execute("BEGIN")
            yield db
            db.execute("COMMIT")

    def close(self) -> None:
        """Closes the idle connections, and waits for the lent ones to be returned and closed.

        Threads that wait for a feed have been told to stop. Only the last connection to be closed
        removes the log, and a process that ends does not wait for its threads.
        """
        self._closed = True
        self._drop_idle()
        if self._all:
            self._all_back.wait(BACK_SECONDS)

    def inherited(self) -> list[apsw.Connection]:
        """All open connections, for a forked child to leave alone."""
        return self._all

    def _drop_idle(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:
                return

    def _drop(self, db: apsw.Connection) -> None:
        try:
            db.close()
        finally:
            self._all.remove(db)
            if self._closed and not self._all:
                self._all_back.set()


_BOUNDS = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})


class _Frozen(apsw.Connection):
    """A connection inside one transaction, which only closing it ends."""

    frozen = False

    def execute(self, statements: str, *args: Any, **options: Any) -> apsw.Cursor:
        if self.frozen and statements in _BOUNDS:
            return super().execute("")
        return super().execute(statements, *args, **options)


class SnapshotReader(Readers):
    """Lends one connection, to one thread at a time, on which everything is read from one snapshot.

    The replay check and an export compare all records with each other, so they need one snapshot
    while other processes keep writing. Meanwhile the log cannot restart, and grows.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(lambda: open_reader(settings, _Frozen))
        self._turn = threading.RLock()
        db = self._connect()
        db.execute("BEGIN")
        # BEGIN alone takes no snapshot.
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        assert isinstance(db, _Frozen)
        db.frozen = True
        self._all.append(db)
        self._idle.append(db)

    @contextmanager
    def lent(self) -> Iterator[apsw.Connection]:
        """Lends the connection, also after an error: no other has this snapshot."""
        with self._turn:
            yield self._all[0]


class Inheritable(Protocol):
    """A store, as a forked child sees it."""

    def abandon(self) -> Iterable[apsw.Connection]:
        """In the child: drops its locks, and returns the connections."""


_open_stores: weakref.WeakSet[Inheritable] = weakref.WeakSet()


def spare_forks(store: Inheritable) -> None:
    """Makes forked children leave this store's connections alone."""
    _open_stores.add(store)


def _prepare() -> None:
    """Imports in the parent, where it is safe. Most programs never fork and need no ctypes."""
    if _open_stores:
        import ctypes  # noqa: F401


def _leave_alone() -> None:
    if not _open_stores:
        return
    import ctypes

    for store in list(_open_stores):
        for db in store.abandon():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    _open_stores.clear()


os.register_at_fork(before=_prepare, after_in_child=_leave_alone)
