"""The writer: the one connection of a store that writes, and the transactions on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import apsw

from genlock.errors import BadArgument, OutcomeUnknown
from genlock.failpoints import hit
from genlock.store import Change, Conflict, Key
from genlock.stores.sqlite.commit import POSITIONS, Answers, Batch, Memory, Misfit, Names
from genlock.stores.sqlite.connections import QUERIES, Connect
from genlock.stores.sqlite.errors import is_certain
from genlock.stores.sqlite.file_identity import FileIdentity, note_of
from genlock.stores.sqlite.write_lock import WriteLock

_BASE_OF, _SET_BASE = QUERIES["base_of"], QUERIES["set_base"]
_LAST_PURGED, _DROP_EVENTS, _NOTE_PURGE = (
    QUERIES["last_purged"],
    QUERIES["drop_events"],
    QUERIES["note_purge"],
)
_PROJECT_ID, _EPOCH, _RAISE_EPOCH = QUERIES["project_id"], QUERIES["epoch"], QUERIES["raise_epoch"]

Write = Callable[[Batch, apsw.Connection], Answers]


class Writer:
    """The writing connection of a store, used by the thread that holds `lock`."""

    def __init__(
        self, db: apsw.Connection, connect: Connect, write_lock: WriteLock, path: Path
    ) -> None:
        self.lock = threading.Lock()
        self.memory = Memory()
        self.db = db
        self._connect = connect
        self._write_lock = write_lock
        self._path = path
        self._names = Names()
        self.file_identity = FileIdentity(path)

    def commit(self, changes: Sequence[Change], epoch: int | None) -> Answers:
        """Writes each change that still fits. Nearly always all of them fit, which one row count
        shows."""
        with self.lock:
            batch = self._plan(changes)
            if batch is not None and batch.is_hopeless:
                return [Conflict()] * len(changes)
            hit("sqlite.commit.before_lock")
            return self._write_lock.pass_through(partial(self._commit, changes, batch, epoch))

    def _commit(self, changes: Sequence[Change], batch: Batch | None, epoch: int | None) -> Answers:
        hit("sqlite.commit.after_lock")
        try:
            return self._write(changes, batch, epoch, Batch.write_all)
        except Misfit:
            return self._write(changes, None, epoch, Batch.write_each)

    def _plan(self, changes: Sequence[Change]) -> Batch | None:
        """Returns the rows; None if names must be interned first."""
        try:
            return Batch(self.db, changes, self.memory, self._names)
        except KeyError:
            return None

    def _write(
        self, changes: Sequence[Change], batch: Batch | None, epoch: int | None, write: Write
    ) -> Answers:
        with self._transaction() as db:
            if epoch is not None and db.execute(_EPOCH).get != epoch:
                return [Conflict()] * len(changes)
            if batch is None:
                self._names.learn(db, changes)
                batch = Batch(db, changes, self.memory, self._names)
            answers = write(batch, db)
        if batch.place:
            # After the commit: the note in the lock file is never ahead of the store.
            self._write_lock.write_place(batch.place)
        return answers

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops events and swaps the base in. A late call, after a larger purge, changes
        nothing."""
        with self.lock:
            self._write_lock.pass_through(partial(self._purge, key, before_version, base))

    def _purge(self, key: Key, before_version: int, base: bytes) -> None:
        tenant, project, kind, name = key
        with self._transaction() as db:
            project_id = db.execute(_PROJECT_ID, (tenant, project)).get
            found = db.execute(_BASE_OF, (project_id, kind, name)).fetchone()
            if found is None:
                return
            record = found[0]
            last = db.execute(_LAST_PURGED, (record, before_version)).get
            if last is None:
                return
            db.execute(_DROP_EVENTS, (record, before_version))
            hit("sqlite.purge.dropped")
            db.execute(_SET_BASE, (base, record))
            db.execute(_NOTE_PURGE, (last & POSITIONS, project_id))

    def set_epoch(self, epoch: int) -> None:
        """Raises the epoch. Never lowers it."""
        with self.lock:
            self._write_lock.pass_through(partial(self._set_epoch, epoch))

    def _set_epoch(self, epoch: int) -> None:
        with self._transaction() as db:
            db.execute(_RAISE_EPOCH, (epoch,))
            if not db.changes():
                raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it")
            note = note_of(db)
        self._write_lock.write_note(note)

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """Runs the block in one transaction."""
        db = self.db
        db.execute("BEGIN IMMEDIATE")
        hit("sqlite.commit.begun")
        try:
            self.file_identity.check()
            yield db
            hit("sqlite.commit.before_commit")
        except BaseException:
            self._roll_back()
            raise
        try:
            db.execute("COMMIT")
        except apsw.Error as error:
            self._roll_back()
            if is_certain(error):
                raise
            raise OutcomeUnknown(
                f"{self._path}: the commit broke off ({error}); it may have been done or not"
            ) from error
        self._names.keep()
        hit("sqlite.commit.after_commit")

    def _roll_back(self) -> None:
        # Drops the names first: if an interrupt comes here, no uncommitted number may stay.
        self._names.forget()
        try:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
        except apsw.Error:
            self._reconnect()

    def _reconnect(self) -> None:
        """Replaces a connection that cannot even roll back."""
        with suppress(apsw.Error):
            self.db.close(True)
        self.db = self._connect()

    def close(self) -> None:
        """Closes the connection after the current commit."""
        with self.lock:
            self.db.close()
            self._write_lock.close()

    def abandon(self) -> list[apsw.Connection]:
        """In a forked child: see `connections.spare_forks`."""
        self._write_lock.close_inherited()
        return [self.db]
