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
_LOAD_ONE, _LOAD, _LOAD_MANY, _LOAD_INDEX = QUERIES["load_one"], QUERIES["load"], QUERIES["load_many"], QUERIES["load_index"]

_encode = msgspec.json.Encoder().encode
_decode = decoder(tuple[str, ...]).decode
_stored = partial(tuple.__new__, Stored)  # half of what the class itself takes

FEW = 4
"""Up to so many records of one kind are looked for one by one: to read a list of them takes longer."""


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
            found: dict[Key, Stored] = {}
            for (tenant, project, kind), group in _grouped(keys).items():
                number = self._number_of(db, tenant, project)
                if number is None:
                    continue
                if with_index:
                    _with_index(db, number, group, found)
                else:
                    self._plain(db, number, kind, group, found)
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")
        return found, epoch

    def _number_of(self, db: apsw.Connection, tenant: str, project: str) -> int | None:
        number = self._projects.get((tenant, project))
        if number is None:
            number = db.execute(_PROJECT_ID, (tenant, project)).get
            if number is not None:
                self._projects[tenant, project] = number
        return number

    def _plain(self, db: apsw.Connection, project: int, kind: str, group: list[Key], found: dict[Key, Stored]) -> None:
        """All of one kind in one statement: with one for each, to begin and end them took a third of the time."""
        known = self._memory.room_for(len(group))
        if len(group) > FEW:
            rows = db.execute(_LOAD_MANY, (project, kind, _encode([key[3] for key in group]).decode()))
        else:
            rows = db.executemany(_LOAD, [(at, project, kind, key[3]) for at, key in enumerate(group)])
        for at, row, version, digest, body, parent, waits in rows:
            key = group[at]
            found[key] = _stored((key, version, digest, body, None, None, None))
            known[key] = (row, version, digest, parent, waits)

    def _one(self, db: apsw.Connection, key: Key) -> tuple[dict[Key, Stored], int]:
        """The commonest call of all, in one statement, which needs no transaction around it."""
        for epoch, row, version, digest, body, parent, waits in db.execute(_LOAD_ONE, key):
            if row is None:
                return {}, epoch
            self._memory.room_for(1)[key] = (row, version, digest, parent, waits)
            return {key: _stored((key, version, digest, body, None, None, None))}, epoch
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")


def _grouped(keys: Sequence[Key]) -> dict[tuple[str, ...], list[Key]]:
    """By tenant, project and kind."""
    groups: dict[tuple[str, ...], list[Key]] = {}
    for key in keys:
        group = groups.get(key[:3])
        if group is None:
            groups[key[:3]] = [key]
        else:
            group.append(key)
    return groups


def _with_index(db: apsw.Connection, project: int, group: list[Key], found: dict[Key, Stored]) -> None:
    """One by one, so that what is damaged can be named."""
    for key in group:
        try:
            for version, digest, body, state, pool, order, due_at, session, parent, waits in db.execute(_LOAD_INDEX, (project, *key[2:])):
                index = Index(state, pool, order, due_at, session, parent, _decode(waits))
                found[key] = Stored(key, version, digest, body, index=index)
        except UnicodeDecodeError as error:
            raise StoreCorrupt(f"{name_of(key)} has {error.object!r} in place of a text") from error
        except (apsw.SQLError, msgspec.DecodeError) as error:
            raise StoreCorrupt(f"{name_of(key)} has a field that cannot be read ({error})") from error


def name_of(key: Key) -> str:
    """What a record is called in messages."""
    return f"{key.tenant}/{key.project} {key.kind} {key.id}"
