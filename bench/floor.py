"""The floor: the engine's own commits, recorded to the byte, replayed with plain statements on the
same schema.

The replay knows everything beforehand (row values, numbers of names); it does nothing but BEGIN,
executemany, COMMIT, with the same durability. What the engine costs beyond it is what the engine
costs.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from genlock.store import Change, Committed, Conflict, Deferred, PendingCommit, Store
from genlock.stores.sqlite import SQLiteStore

_UPDATE = """UPDATE record SET version = ?, digest = ?, state = ?, pool = ?, ord = ?, due_at = ?, session = ?, waits = ?, body = ?
WHERE project = ? AND kind = ? AND name = ? AND version = ? AND digest = ?"""
_CREATE = """INSERT INTO record (version, digest, state, pool, ord, due_at, session, waits, body, project, kind, name, parent)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_EVENT = """INSERT INTO event (at, record, version, digest, body)
VALUES (?, (SELECT id FROM record WHERE project = ? AND kind = ? AND name = ?), ?, ?, ?)"""
_EVENT_BY_ROW = "INSERT INTO event (at, record, version, digest, body) VALUES (?, ?, ?, ?, ?)"
_HEAD = "UPDATE project SET head = head + ? WHERE id = ? RETURNING head"
_SECONDARY = (
    "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND "
    "tbl_name = 'record'"
)
_LOAD = "SELECT version, digest, body FROM record WHERE project = ? AND kind = ? AND name = ?"


class Recorder:
    """A store that notes every commit it passes on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.limits = store.limits
        self.commits: list[Sequence[Change]] = []
        self.loads: list[Sequence[Any]] = []
        self.calls: list[tuple[Callable[..., Any], Sequence[Any]]] = []
        """Both, in the order in which they came, as methods of a store."""

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        self.commits.append(list(changes))
        self.calls.append((SQLiteStore.commit, self.commits[-1]))
        return self._store.commit(changes, epoch=epoch)

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        return Deferred(partial(self.commit, epoch=epoch), changes)

    def load(
        self, keys: Sequence[Any], queries: Sequence[Any] = (), *, with_index: bool = False
    ) -> Any:
        self.loads.append(list(keys))
        self.calls.append((SQLiteStore.load, self.loads[-1]))
        return self._store.load(keys, queries, with_index=with_index)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def recorded(path: Path) -> tuple[Recorder, Store]:
    """A recording store on this file, and the same as the port."""
    recorder = Recorder(SQLiteStore(path))
    store: Any = recorder
    return recorder, store


def copy_of(path: Path, target: Path) -> Path:
    """A copy of a store that nobody has open."""
    shutil.copyfile(path, target)
    return target


def by_the_store_alone(path: Path, recorder: Recorder) -> float:
    """Loads and commits again through the store what was loaded and committed in a recorded run,
    one after the other; the seconds.

    Whatever an engine does comes on top of this: it is the most that any could reach.
    """
    store = SQLiteStore(path)
    gc.disable()  # what was recorded stays in memory, and is not to be walked through meanwhile
    start = time.perf_counter()
    for call, argument in recorder.calls:
        call(store, argument)
    took = time.perf_counter() - start
    gc.enable()
    store.close()
    return took


class Replay:
    """The commits as plain rows, ready to be run against a copy of the store as it was before
    them."""

    def __init__(
        self, path: Path, commits: Sequence[Sequence[Change]], *, indexes: bool = True
    ) -> None:
        self._db = apsw.Connection(str(path))
        self._db.execute(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536"
        )
        if not indexes:
            for (name,) in list(
                self._db.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND "
                    "tbl_name = 'record'"
                )
            ):
                self._db.execute(f"DROP INDEX {name}")
        self._projects = {
            (tenant, project): number
            for number, tenant, project in self._db.execute(
                "SELECT id, tenant, project FROM project"
            )
        }
        for tenant, name in {
            (change.key.tenant, change.index.session)
            for commit in commits
            for change in commit
            if change.index.session
        }:
            self._db.execute(
                "INSERT INTO session (tenant, name) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (tenant, name),
            )
        self._pools = {
            (project, name): number
            for number, project, name in self._db.execute("SELECT id, project, name FROM pool")
        }
        self._sessions = {
            (tenant, name): number
            for number, tenant, name in self._db.execute("SELECT id, tenant, name FROM session")
        }
        self._rows = {
            (project, kind, name): number
            for number, project, kind, name in self._db.execute(
                "SELECT id, project, kind, name FROM record"
            )
        }
        self.batches = [self._batch(commit) for commit in commits]
        self.changes = sum(len(commit) for commit in commits)

    def _batch(self, commit: Sequence[Change]) -> tuple[list[Any], list[Any], list[Any], int, int]:
        updates, creates, events = [], [], []
        project = 0
        for change in commit:
            key, index = change.key, change.index
            project = self._projects[key.tenant, key.project]
            pool = None if index.pool is None else self._pools[project, index.pool]
            session = None if index.session is None else self._sessions[key.tenant, index.session]
            place = (project, key.kind, key.id)
            row = (
                change.version,
                change.digest,
                str(index.state),
                pool,
                index.order,
                index.due_at,
                session,
                None,
                change.body,
            )
            if change.read_version:
                updates.append((*row, *place, change.read_version, change.read_digest))
            else:
                creates.append((*row, *place, index.parent))
            events += [(place, self._rows.get(place), *event) for event in change.events]
        return updates, creates, events, project, len(events)

    def run(self) -> float:
        """Replays everything; the seconds it took."""
        db = self._db
        start = time.perf_counter()
        for updates, creates, events, project, number in self.batches:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(_UPDATE, updates)
            if creates:
                db.executemany(_CREATE, creates)
            first = (project << 40) + db.execute(_HEAD, (number, project)).get - number + 1
            if creates:
                db.executemany(
                    _EVENT,
                    [(first + at, *place, *event) for at, (place, _, *event) in enumerate(events)],
                )
            else:
                db.executemany(
                    _EVENT_BY_ROW,
                    [(first + at, row, *event) for at, (_, row, *event) in enumerate(events)],
                )
            db.execute("COMMIT")
        took = time.perf_counter() - start
        self._db.close()
        return took

    def run_one_by_one(self, loads: Sequence[Sequence[Any]]) -> list[float]:
        """Loads what the engine loaded, then commits, one commit at a time; the seconds of each."""
        db = self._db
        times = []
        for (updates, _, events, project, number), keys in zip(self.batches, loads, strict=True):
            wanted = [(self._projects[key.tenant, key.project], key.kind, key.id) for key in keys]
            start = time.perf_counter()
            for place in wanted:
                db.execute(_LOAD, place).fetchall()
            db.execute("BEGIN IMMEDIATE")
            db.executemany(_UPDATE, updates)
            first = (project << 40) + db.execute(_HEAD, (number, project)).get - number + 1
            db.executemany(
                _EVENT_BY_ROW,
                [(first + at, row, *event) for at, (_, row, *event) in enumerate(events)],
            )
            db.execute("COMMIT")
            times.append(time.perf_counter() - start)
        db.close()
        return times
