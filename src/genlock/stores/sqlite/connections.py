"""Connections: how they are opened, and the few that readers share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import apsw

IDLE_READERS = 4
"""Connections kept open for the next reader; more are opened when more read at once, and closed afterwards."""

BACK_SECONDS = 1.0
"""How long a store that is closed waits for those who still read."""

WRITER_CACHE_KIB = 4 * 1024
"""Room for what one commit touches. More would slow down every commit: what is not here the system has in its own cache.

A commit ends by dropping pages beyond the file's end. Balancing a tree gives pages numbers far beyond it for a moment, and from then on
SQLite goes through all that is in the cache to find such pages: with 16 MiB, a twentieth of what 64 claims over HTTP take.
"""
READER_CACHE_KIB = 8 * 1024

Connect = Callable[[], apsw.Connection]


class Settings(NamedTuple):
    """What all connections of one store have in common."""

    path: Path
    vfs: str | None
    synchronous: str
    busy_seconds: float
    immutable: bool = False
    """The folder cannot be written and there is no log: then SQLite must be told that nobody changes the file."""


def open_writer(settings: Settings) -> apsw.Connection:
    """A connection that may write, and creates the file if there is none."""
    db = _open(settings, str(settings.path), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    db.execute(f"PRAGMA synchronous = {settings.synchronous}; PRAGMA cache_size = -{WRITER_CACHE_KIB}; PRAGMA temp_store = MEMORY")
    return db


def open_reader(settings: Settings, kind: type[apsw.Connection] = apsw.Connection) -> apsw.Connection:
    """A connection that only reads."""
    name, flags = str(settings.path), apsw.SQLITE_OPEN_READONLY
    if settings.immutable:
        name, flags = f"file:{quote(name)}?immutable=1", flags | apsw.SQLITE_OPEN_URI
    db = _open(settings, name, flags, kind)
    db.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}; PRAGMA temp_store = MEMORY")
    return db


def _open(settings: Settings, name: str, flags: int, kind: type[apsw.Connection] = apsw.Connection) -> apsw.Connection:
    db = kind(name, flags=flags, vfs=settings.vfs)
    db.set_busy_timeout(int(settings.busy_seconds * 1000))
    # Otherwise some statements are compiled anew whenever their values change, in search of a better plan; ours have one plan each.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return db


class Readers:
    """Connections for reading, each used by one thread at a time."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._idle: list[apsw.Connection] = []
        self._all: list[apsw.Connection] = []
        self._closed = False
        self._all_back = threading.Event()

    @contextmanager
    def lent(self) -> Iterator[apsw.Connection]:
        """A connection for as long as the block lasts. One that saw an error is not used again."""
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
        if self._closed:  # looked at last: whoever closes takes what is idle, and we take what came after that
            self._drop_idle()

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A connection on which all that the block reads is of one instant."""
        with self.lent() as db:
            db.execute("BEGIN")
            yield db
            db.execute("COMMIT")

    def close(self) -> None:
        """Closes what is idle now, and the rest when it comes back, which is waited for: whoever waits for a feed has been told to stop.

        Only the last connection to be closed takes the log away, and a process that ends does not wait for its threads.
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
