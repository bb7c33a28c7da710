"""A commit's rows: writes one batch of changes to the tables.

This is the hot path. Its loops run once for every change, so they unpack tuples instead of naming
fields, and make hardly any calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count
from typing import TypeVar

import apsw
import msgspec

from genlock.failpoints import hit
from genlock.store import Change, Committed, Conflict, Key
from genlock.stores.sqlite.connections import QUERIES
from genlock.typed_json import decoder

POSITION_BITS = 40
POSITIONS = (1 << POSITION_BITS) - 1

_FIND_WRITTEN = QUERIES["find_written"]
_UPDATE, _MOVE = QUERIES["update_record"], QUERIES["move_record"]
_LAST_RECORD, _CREATE = QUERIES["last_record"], QUERIES["create_record"]
_ADD_WAIT, _REMOVE_WAIT = QUERIES["add_wait"], QUERIES["remove_wait"]
_TAKE_POSITIONS, _ADD_EVENT = QUERIES["take_positions"], QUERIES["add_event"]
_PROJECT_ID, _ADD_PROJECT = QUERIES["project_id"], QUERIES["add_project"]
_POOL_ID, _ADD_POOL = QUERIES["pool_id"], QUERIES["add_pool"]
_SESSION_ID, _ADD_SESSION = QUERIES["session_id"], QUERIES["add_session"]

_encode = msgspec.json.Encoder().encode
_decode = decoder(set[str]).decode
_astuple = msgspec.structs.astuple

_CONFLICT = Conflict()
_committed = partial(tuple.__new__, Committed)  # half the time of the class itself

Answers = list[Committed | Conflict]
Row = tuple[str | int | bytes | None, ...]


class Misfit(Exception):
    """Not every change fitted: the batch must be rolled back, and each change tried by itself."""


Known = tuple[int, int, bytes, str | None, str | None]
"""A record's row, version and digest, and its parent and waits, which a change is compared with."""

N = TypeVar("N", tuple[str, str], tuple[int, str])

NEW_ROW = 0
GONE = -1
NEW: Known = (NEW_ROW, 0, b"", None, None)
"""A record that does not exist."""


class Memory:
    """A cache of the rows of recently loaded records. Other rows are looked up."""

    MOST = 8192

    def __init__(self) -> None:
        self._known: dict[Key, Known] = {}

    def room_for(self, number: int) -> dict[Key, Known]:
        """Returns the cache after making room for `number` more records."""
        if len(self._known) + number > self.MOST:
            self._known.clear()
        return self._known

    def recall(self, db: apsw.Connection, changes: Sequence[Change]) -> list[Known | None]:
        """Returns the records that the changes were decided on. None: no record has that version
        and digest, and none ever will again."""
        known = self._known.get
        records: list[Known | None] = []
        for change in changes:
            record = known(change[0])
            if record is None or record[1] != change[1] or record[2] != change[2]:
                record = _look_up(db, change)
            records.append(record)
        return records


def _look_up(db: apsw.Connection, change: Change) -> Known | None:
    key, version, digest = change[:3]
    if not version and not digest:
        return NEW
    for row, parent, waits in db.execute(_FIND_WRITTEN, (*key, version, digest)):
        return row, version, digest, parent, waits
    return None


class Names:
    """Names as numbers: projects, pools and sessions are interned by their first writer, and a
    number never changes. A missing one is a KeyError: then `learn`, inside the transaction."""

    MOST = 65536  # limit of the cache; sessions come and go

    def __init__(self) -> None:
        self.projects: dict[tuple[str, str], int] = {}
        self.pools: dict[tuple[int, str], int] = {}
        self.sessions: dict[tuple[str, str], int] = {}
        self._given: list[Callable[[], object]] = []

    def learn(self, db: apsw.Connection, changes: Sequence[Change]) -> None:
        """Finds or assigns the numbers of all names in these changes. When the transaction ends,
        the caller calls `keep` or `forget`."""
        if len(self.pools) + len(self.sessions) > self.MOST:
            self.pools.clear()
            self.sessions.clear()
        for change in changes:
            tenant, project, _, _ = change.key
            index = change.index
            number = self._number(db, self.projects, (tenant, project), _PROJECT_ID, _ADD_PROJECT)
            if index.pool is not None:
                self._number(db, self.pools, (number, index.pool), _POOL_ID, _ADD_POOL)
            if index.session is not None:
                self._number(db, self.sessions, (tenant, index.session), _SESSION_ID, _ADD_SESSION)

    def _number(
        self, db: apsw.Connection, known: dict[N, int], name: N, find: str, add: str
    ) -> int:
        number = known.get(name) or db.execute(find, name).get
        if number is None:
            db.execute(add, name)
            number = db.last_insert_rowid()
            self._given.append(partial(known.pop, name, None))
        known[name] = number
        return number

    def keep(self) -> None:
        """Keeps the new numbers, after their transaction was committed."""
        self._given.clear()

    def forget(self) -> None:
        """Drops the numbers that were assigned but not committed: other names may get them."""
        for drop in self._given:
            drop()
        self._given.clear()


class Batch:
    """The rows of one commit, in the order of its changes."""

    def __init__(
        self, db: apsw.Connection, changes: Sequence[Change], memory: Memory, names: Names
    ) -> None:
        """Raises KeyError if a name has no number yet."""
        self.place = 0
        """The place of the last event written: its project's number << 40 | its position."""
        self._changes = changes
        self._rows = rows = [GONE] * len(changes)
        self._projects = projects = [GONE] * len(changes)
        self._updates: list[Row] = []
        self._creates: list[Row] = []
        self._moved: dict[int, str | None] = {}
        self._waiting: dict[int, tuple[str | None, str | None]] = {}
        project_ids, pool_ids, session_ids = names.projects, names.pools, names.sessions
        for at, record in enumerate(memory.recall(db, changes)):
            if record is None:
                continue
            (
                (tenant, place, kind, name),
                read_version,
                read_digest,
                version,
                digest,
                body,
                index,
                _,
                _,
            ) = changes[at]
            row, _, _, old_parent, old_waits = record
            state, pool, order, due_at, session, parent, waits_on = _astuple(index)
            rows[at] = row
            projects[at] = project = project_ids[tenant, place]
            pool_id = None if pool is None else pool_ids[project, pool]
            session_id = None if session is None else session_ids[tenant, session]
            waits = _encode(waits_on).decode() if waits_on else None
            if waits != old_waits:
                self._waiting[at] = (old_waits, waits)
            if row == NEW_ROW:
                self._creates.append(
                    (
                        project,
                        kind,
                        name,
                        version,
                        digest,
                        state,
                        pool_id,
                        order,
                        due_at,
                        session_id,
                        parent,
                        waits,
                        body,
                    )
                )
                continue
            self._updates.append(
                (
                    version,
                    digest,
                    state,
                    pool_id,
                    order,
                    due_at,
                    session_id,
                    waits,
                    body,
                    row,
                    read_version,
                    read_digest,
                )
            )
            if parent != old_parent:
                self._moved[at] = parent

    @property
    def is_hopeless(self) -> bool:
        """Is it already certain that no change fits?"""
        return not self._updates and not self._creates

    def write_all(self, db: apsw.Connection) -> Answers:
        """Writes every change that may fit. Raises `Misfit` if one did not."""
        before = db.total_changes()
        db.executemany(_UPDATE, self._updates)
        if self._creates:
            rows = count(db.execute(_LAST_RECORD).get + 1)
            self._rows = [next(rows) if row == NEW_ROW else row for row in self._rows]
            first = next(rows) - len(self._creates)
            db.executemany(
                _CREATE, [(row, *values) for row, values in enumerate(self._creates, first)]
            )
        written = db.total_changes() - before
        if written != len(self._updates) + len(self._creates):
            raise Misfit
        hit("sqlite.commit.records")
        places = range(len(self._rows))
        return self._finish(
            db,
            places if written == len(places) else [at for at in places if self._rows[at] != GONE],
        )

    def write_each(self, db: apsw.Connection) -> Answers:
        """Writes each change that fits."""
        fitting = []
        updates, creates = iter(self._updates), iter(self._creates)
        new = db.execute(_LAST_RECORD).get + 1
        for at, row in enumerate(self._rows):
            if row == GONE:
                continue
            if row == NEW_ROW:
                db.execute(_CREATE, (new, *next(creates)))
                self._rows[at] = new
                new += db.changes()
            else:
                db.execute(_UPDATE, next(updates))
            if db.changes():
                fitting.append(at)
        hit("sqlite.commit.records")
        return self._finish(db, fitting)

    def _finish(self, db: apsw.Connection, fitting: Collection[int]) -> Answers:
        """Writes the data that depends on the records: their waits, their parents, and last their
        events."""
        for at, (old, new) in self._waiting.items():
            if at in fitting:
                project, row = self._projects[at], self._rows[at]
                before, after = _set_of(old), _set_of(new)
                db.executemany(_REMOVE_WAIT, [(project, name, row) for name in before - after])
                db.executemany(_ADD_WAIT, [(project, name, row) for name in after - before])
        for at, parent in self._moved.items():
            if at in fitting:
                db.execute(_MOVE, (parent, self._rows[at]))
        return self._add_events(db, fitting)

    def _add_events(self, db: apsw.Connection, fitting: Collection[int]) -> Answers:
        """Writes the events at new positions, project by project (nearly always there is one)."""
        changes, rows, projects = self._changes, self._rows, self._projects
        answers: Answers = [_CONFLICT] * len(rows)
        events: list[Row] = []
        for project in sorted({projects[at] for at in fitting}):
            number = sum([len(changes[at][7]) for at in fitting if projects[at] == project])
            place = (
                (project << POSITION_BITS)
                + db.execute(_TAKE_POSITIONS, (number, project)).get
                - number
            )
            for at in fitting:
                if projects[at] == project:
                    row = rows[at]
                    for version, digest, body in changes[at][7]:
                        place += 1
                        events.append((place, row, version, digest, body))
                    answers[at] = _committed((place & POSITIONS,))
            self.place = place
        db.executemany(_ADD_EVENT, events)
        hit("sqlite.commit.events")
        return answers


def _set_of(waits: str | None) -> set[str]:
    return set() if waits is None else _decode(waits)
