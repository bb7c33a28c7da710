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
from genlock.stores.sqlite.connections import Connect
from genlock.stores.sqlite.faults import is_certain
from genlock.stores.sqlite.gate import Gate
from genlock.stores.sqlite.names import Names
from genlock.stores.sqlite.presence import Presence
from genlock.stores.sqlite.queries import QUERIES
from genlock.stores.sqlite.writing import POSITIONS, Answers, Batch, Memory, Misfit

_BASE_OF, _SET_BASE = QUERIES["base_of"], QUERIES["set_base"]
_LAST_PURGED, _DROP_EVENTS, _NOTE_PURGE = QUERIES["last_purged"], QUERIES["drop_events"], QUERIES["note_purge"]
_PROJECT_ID, _RAISE_EPOCH = QUERIES["project_id"], QUERIES["raise_epoch"]

Write = Callable[[Batch, apsw.Connection], Answers]


class Writer:
    """Used by one thread at a time: whoever has `lock`."""

    def __init__(self, db: apsw.Connection, connect: Connect, gate: Gate, path: Path) -> None:
        self.lock = threading.Lock()
        self.memory = Memory()
        self.db = db
        self._connect = connect
        self._gate = gate
        self._path = path
        self._names = Names()
        self.presence = Presence(path)

    def commit(self, changes: Sequence[Change]) -> Answers:
        """Writes each change that still fits. Nearly always that is all of them, and then it is known by one number."""
        with self.lock:
            batch = self._plan(changes)
            if batch is not None and batch.is_hopeless:
                return [Conflict()] * len(changes)
            hit("sqlite.commit.before_gate")
            return self._gate.pass_through(partial(self._commit, changes, batch))

    def _commit(self, changes: Sequence[Change], batch: Batch | None) -> Answers:
        hit("sqlite.commit.after_gate")
        try:
            return self._write(changes, batch, Batch.write_all)
        except Misfit:
            return self._write(changes, None, Batch.write_each)

    def _plan(self, changes: Sequence[Change]) -> Batch | None:
        """The rows; None if they have names that must be interned first."""
        try:
            return Batch(self.db, changes, self.memory, self._names)
        except KeyError:
            return None

    def _write(self, changes: Sequence[Change], batch: Batch | None, write: Write) -> Answers:
        with self._transaction() as db:
            if batch is None:
                self._names.learn(db, changes)
                batch = Batch(db, changes, self.memory, self._names)
            return write(batch, db)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops events and swaps the base in. One who comes late, when more has been purged already, changes nothing."""
        with self.lock:
            self._gate.pass_through(partial(self._purge, key, before_version, base))

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
        """Only upwards."""
        with self.lock:
            self._gate.pass_through(partial(self._set_epoch, epoch))

    def _set_epoch(self, epoch: int) -> None:
        with self._transaction() as db:
            db.execute(_RAISE_EPOCH, (epoch,))
            if not db.changes():
                raise BadArgument(f"the epoch goes only upwards, and {epoch} is not above it")

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """All of the block, or nothing of it."""
        db = self.db
        db.execute("BEGIN IMMEDIATE")
        hit("sqlite.commit.begun")
        try:
            self.presence.check()
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
            raise OutcomeUnknown(f"{self._path}: the commit broke off ({error}); it may have been done or not") from error
        self._names.keep()
        hit("sqlite.commit.after_commit")

    def _roll_back(self) -> None:
        # The numbers first: should anything interrupt us here, none may stay that was never committed.
        self._names.forget()
        try:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
        except apsw.Error:
            self._reconnect()

    def _reconnect(self) -> None:
        """A connection that cannot even roll back is given up."""
        with suppress(apsw.Error):
            self.db.close(True)
        self.db = self._connect()

    def close(self) -> None:
        """Waits for the commit under way."""
        with self.lock:
            self.db.close()
            self._gate.close()

    def abandon(self) -> list[apsw.Connection]:
        """In a forked child: see `forks`."""
        self._gate.close_inherited()
        return [self.db]
