"""Loading records by their keys: half of the hot path."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import apsw
import msgspec

from genlock.errors import StoreCorrupt
from genlock.store import Index, Key, Stored
from genlock.stores.sqlite.queries import QUERIES
from genlock.stores.sqlite.writing import Memory
from genlock.typed_json import decoder

_EPOCH, _PROJECT_ID = QUERIES["epoch"], QUERIES["project_id"]
_LOAD_ONE, _LOAD, _LOAD_INDEX = QUERIES["load_one"], QUERIES["load"], QUERIES["load_index"]

_decode = decoder(tuple[str, ...]).decode
_stored = partial(tuple.__new__, Stored)  # half of what the class itself takes

Asked = tuple[int, int, str, str]


class Loader:
    """Finds records by key, and tells the writer's memory where they are. Any thread may use it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # Filled from committed reads only, unlike the writer's names.
        self._projects: dict[tuple[str, ...], int] = {}

    def load(self, db: apsw.Connection, keys: Sequence[Key], *, with_index: bool) -> tuple[dict[Key, Stored], int]:
        """The records and the epoch, of one instant."""
        if len(keys) == 1 and not with_index:
            return self._one(db, keys[0])
        db.execute("BEGIN")
        try:
            epoch = db.execute(_EPOCH).get
            asked = self._asked(db, keys)
            found = _with_index(db, keys, asked) if with_index else self._plain(db, keys, asked)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        return found, epoch

    def _asked(self, db: apsw.Connection, keys: Sequence[Key]) -> list[Asked]:
        projects = self._projects
        asked = []
        for at, key in enumerate(keys):
            place = key[:2]
            project = projects.get(place)
            if project is None:
                project = db.execute(_PROJECT_ID, place).get
                if project is None:
                    continue
                projects[place] = project
            asked.append((at, project, key[2], key[3]))
        return asked

    def _plain(self, db: apsw.Connection, keys: Sequence[Key], asked: list[Asked]) -> dict[Key, Stored]:
        found = {}
        known = self._memory.room_for(len(keys))
        for at, row, version, digest, body, parent, waits in db.executemany(_LOAD, asked):
            key = keys[at]
            found[key] = _stored((key, version, digest, body, None, None, None))
            known[key] = (row, version, digest, parent, waits)
        return found

    def _one(self, db: apsw.Connection, key: Key) -> tuple[dict[Key, Stored], int]:
        """The commonest call of all, in one statement, which needs no transaction around it."""
        for epoch, row, version, digest, body, parent, waits in db.execute(_LOAD_ONE, key):
            if row is None:
                return {}, epoch
            self._memory.room_for(1)[key] = (row, version, digest, parent, waits)
            return {key: _stored((key, version, digest, body, None, None, None))}, epoch
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")


def _with_index(db: apsw.Connection, keys: Sequence[Key], asked: list[Asked]) -> dict[Key, Stored]:
    """One by one, so that what is damaged can be named."""
    found = {}
    for one in asked:
        key = keys[one[0]]
        try:
            for version, digest, body, state, pool, order, due_at, session, parent, waits in db.execute(_LOAD_INDEX, one[1:]):
                index = Index(state, pool, order, due_at, session, parent, _decode(waits))
                found[key] = Stored(key, version, digest, body, index=index)
        except UnicodeDecodeError as error:
            raise StoreCorrupt(f"{name_of(key)} has {error.object!r} in place of a text") from error
        except (apsw.SQLError, msgspec.DecodeError) as error:
            raise StoreCorrupt(f"{name_of(key)} has a field that cannot be read ({error})") from error
    return found


def name_of(key: Key) -> str:
    """What a record is called in messages."""
    return f"{key.tenant}/{key.project} {key.kind} {key.id}"
