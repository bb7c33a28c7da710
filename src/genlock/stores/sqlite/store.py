"""The SQLite store: one file, any number of processes of one machine.

Implementation notes:

- **One writer, many readers.** A handle has one connection that writes, and lends others to
  readers. Readers' transactions are short, so that checkpoints get through. Exception: `load` uses
  the writer's connection when no write is in progress. Every commit empties a reader's page cache,
  but not the writer's, which saves a third of a load between two commits.
- **The write lock.** Before BEGIN IMMEDIATE a writer takes an flock on `<file>.gate`, and holds it
  for the transaction only; see write_lock.py.
- **WAL and synchronous=FULL**: a commit is one fsync of the log, and durable when it returns.
- **All at once, then one by one.** One executemany updates all records of a commit, and its row
  count tells whether all changes fitted. If not, the transaction is rolled back and each change is
  tried by itself.
- **The rowid is the feed.** An event's rowid is its project's number << 40 | its position: the feed
  is a range of the table itself.
- **Rows are cached.** `load` notes each record's rowid, parent and waits, by version and digest.
  The commit that follows writes by rowid, and touches the indexes of parent and waits only if they
  change. Records that this handle did not load are looked up.
- **Plans are fixed** (SQLITE_DBCONFIG_ENABLE_QPSG): without it SQLite compiles some statements
  again at every call, for 15 µs each.
- **Names are interned**: projects, pools and sessions are integers. Their numbers are cached,
  except those of a transaction that was rolled back.
- **A file that was deleted or replaced** while it is open is detected before every decision based
  on it and every write; see file_identity.py.
- **data_version** tells a waiter that something was committed. The waiter watches the log to know
  when to check it; see wait.py.
- **Forks**: a child must neither use nor close inherited connections. Its every call is an error,
  and its interpreter never frees the connections; see connections.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from genlock.errors import BadArgument, Closed, StoreError, StoreReadOnly
from genlock.store import (
    Audit,
    Change,
    Clock,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Key,
    Limits,
    Page,
    Payloads,
    Query,
    Snapshot,
    Stored,
)
from genlock.stores.checks import check_changes, check_event_query, check_query
from genlock.stores.clock import SystemClock
from genlock.stores.file_watch import FileWatch, Stop
from genlock.stores.files import os_fault_of
from genlock.stores.payloads import FolderPayloads
from genlock.stores.sqlite import reads
from genlock.stores.sqlite import wait as waiting
from genlock.stores.sqlite.commit import Memory
from genlock.stores.sqlite.connections import (
    QUERIES,
    Readers,
    Settings,
    SnapshotReader,
    open_reader,
    open_writer,
    spare_forks,
)
from genlock.stores.sqlite.errors import fault_of, text_fault_of, translated
from genlock.stores.sqlite.open import (
    can_write,
    make_place,
    missing,
    open_for_reading,
    open_for_writing,
)
from genlock.stores.sqlite.reads import Loader
from genlock.stores.sqlite.write_lock import WriteLock
from genlock.stores.sqlite.writer import Writer

P = ParamSpec("P")
R = TypeVar("R")

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def _entry(
    method: Callable[Concatenate[SQLiteStore, P], R],
) -> Callable[Concatenate[SQLiteStore, P], R]:
    """Wraps a call of the store: it works only while the store is open, only in the process that
    opened it, and raises only our errors."""

    @wraps(method)
    def enter(self: SQLiteStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check()
        try:
            return method(self, *args, **kwargs)
        except apsw.Error as error:
            if self._closed:
                raise Closed(f"{self._path} was closed during this call") from error
            raise fault_of(error, self._path) from error
        except UnicodeError as error:
            raise text_fault_of(error, self._path) from error
        except OSError as error:
            raise os_fault_of(error, self._path) from error

    return enter


class SQLiteStore:
    """`genlock.store.Store` in a file. Creates the file and its folder unless `create` is false."""

    limits: Limits

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        create: bool = True,
        read_only: bool = False,
        vfs: str | None = None,
        synchronous: str = "FULL",
        lock_seconds: float = 5.0,
        instant: bool = False,
    ) -> None:
        """`vfs` and `synchronous` are for tests: anything but FULL loses acknowledged commits when
        the power fails.

        A file or folder that this process may not write is opened for reading, as with `read_only`.
        With `instant` it is opened for reading, and every read is of the instant of opening.
        """
        if synchronous not in SYNCHRONOUS:
            raise BadArgument(
                f"synchronous is one of {', '.join(SYNCHRONOUS)}, not {synchronous!r}"
            )
        self._path = Path(os.path.abspath(path))
        self._pid = os.getpid()
        self._clock: Clock = clock or SystemClock()
        self._closed = False
        self._stop = Stop()
        self._watches = FileWatch(Path(f"{self._path}-wal"), self._stop)
        self._writer: Writer | None = None
        settings = Settings(self._path, vfs, synchronous, lock_seconds)
        with translated(self._path):
            if not create and not self._path.exists():
                raise missing(self._path)
            read_only = read_only or instant or not can_write(self._path)
            make_place(self._path, read_only=read_only)
            if read_only:
                settings = open_for_reading(settings)
            else:
                write_lock = WriteLock(Path(f"{self._path}.gate"), lock_seconds)
                self._writer = Writer(
                    open_for_writing(settings, write_lock, create=create),
                    partial(open_writer, settings),
                    write_lock,
                    self._path,
                )
            self._readers = (
                SnapshotReader(settings) if instant else Readers(partial(open_reader, settings))
            )
        self._loader = Loader(self._writer.memory if self._writer else Memory())
        self.limits = Limits(durable=synchronous in ("FULL", "EXTRA"), read_only=read_only)
        spare_forks(self)

    @_entry
    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        """Returns the records among `keys`, the clock and the epoch; then one page for each
        query."""
        writer = self._writer
        records: dict[Key, Stored]
        if writer is not None:
            # checked on reads, too: a caller may be refused something based on loaded records, and
            # never write
            writer.file_identity.check()
        if writer is not None and writer.lock.acquire(blocking=False):
            try:
                records, epoch = self._loader.load(writer.db, keys, with_index=with_index)
            finally:
                writer.lock.release()
        else:
            with self._readers.lent() as db:
                records, epoch = self._loader.load(db, keys, with_index=with_index)
        now = self._clock.now()
        return Snapshot(records, [self.find(query) for query in queries], now, epoch)

    @_entry
    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        """Writes each change that still fits, durably."""
        writer = self._for_writing()
        check_changes(changes, self.limits)
        return writer.commit(changes, epoch)

    @_entry
    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        """Finds records by an index field, or counts them by its value."""
        check_query(query, count_by)
        with self._readers.reading() as db:
            return reads.find(db, query) if count_by is None else reads.count(db, query, count_by)

    @_entry
    def read_events(self, query: EventQuery) -> EventPage:
        """Reads events of a record, or of a project after a cursor."""
        check_event_query(query)
        with self._readers.reading() as db:
            return reads.read_events(db, query, self._path)

    @_entry
    def wait(
        self,
        projects: Sequence[tuple[str, str]],
        after: Sequence[str],
        timeout: float,
        *,
        others: bool = False,
    ) -> Sequence[tuple[str, str]]:
        """Returns when one of the feeds has moved, after `timeout` seconds, or when the store is
        closed."""
        with self._readers.lent() as db, self._watches.lent() as watched:
            waiting.wait(db, watched, projects, after, timeout)
        return ()

    @_entry
    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops the record's events below `before_version` and swaps `base` in."""
        self._for_writing().purge(key, before_version, base)

    @_entry
    def payloads(self) -> Payloads:
        """The folder beside the file."""
        return FolderPayloads(
            Path(f"{self._path}.payloads"),
            read_only=self.limits.read_only,
            check=self._check,
            beside=self._path,
        )

    @_entry
    def set_epoch(self, epoch: int) -> None:
        """Raises the epoch. Never lowers it."""
        self._for_writing().set_epoch(epoch)

    @_entry
    def audit(self) -> Audit:
        """Returns all tenants and projects, and the rows that belong to none of them."""
        with self._readers.reading() as db:
            places = [(tenant, project) for tenant, project in db.execute(QUERIES["all_places"])]
            return Audit(places, [what for (what,) in db.execute(QUERIES["audit"])])

    def close(self) -> None:
        """Closes the store after the current commit. In a forked child it only drops its
        references."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            return
        with translated(self._path):
            self._stop.give()
            self._watches.close()
            self._readers.close()
            if self._writer is not None:
                self._writer.close()

    def abandon(self) -> list[apsw.Connection]:
        """Returns, for `spare_forks`, the connections that a child must leave alone."""
        if self._writer is None:
            return self._readers.inherited()
        return [*self._readers.inherited(), *self._writer.abandon()]

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"{self._path} is closed")
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self._path} was opened by process {self._pid}; a store does not survive fork: "
                "open it again"
            )

    def _for_writing(self) -> Writer:
        if self._writer is None:
            why = (
                ""
                if can_write(self._path)
                else f": this user may not write it, or not in {self._path.parent}"
            )
            raise StoreReadOnly(f"{self._path} was opened for reading{why}")
        return self._writer
