"""Reading: records by key, records by index field, and events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec

from genlock.errors import StoreCorrupt
from genlock.store import EventPage, EventQuery, Index, Key, Page, Query, RecordedEvent, Stored
from genlock.stores.cursors import (
    FeedState,
    Row,
    check_cursor,
    decode_cursor,
    decode_token,
    encode_cursor,
    feed_mark,
    page_of,
    records_of,
    tail_page,
)
from genlock.stores.sqlite.commit import POSITION_BITS, POSITIONS, Memory
from genlock.stores.sqlite.connections import QUERIES
from genlock.typed_json import decoder

# Records by key: half of the hot path

_EPOCH, _PROJECT_ID = QUERIES["epoch"], QUERIES["project_id"]
_LOAD_ONE, _LOAD, _LOAD_MANY, _LOAD_INDEX = (
    QUERIES["load_one"],
    QUERIES["load"],
    QUERIES["load_many"],
    QUERIES["load_index"],
)

_encode = msgspec.json.Encoder().encode
_decode = decoder(tuple[str, ...]).decode
_stored = partial(tuple.__new__, Stored)  # half the time of the class itself

FEW = 4
"""Up to this many records of one kind are looked up one by one. Reading a list takes longer."""


class Loader:
    """Finds records by key, and records their rows in the writer's memory. Any thread may use
    it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # Filled by committed reads only, unlike the names of the writer.
        self._projects: dict[tuple[str, ...], int] = {}

    def load(
        self, db: apsw.Connection, keys: Sequence[Key], *, with_index: bool
    ) -> tuple[dict[Key, Stored], int]:
        """Returns the records and the epoch, from one snapshot."""
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

    def _plain(
        self,
        db: apsw.Connection,
        project: int,
        kind: str,
        group: list[Key],
        found: dict[Key, Stored],
    ) -> None:
        """Reads all records of one kind in one statement. One statement per record took a third
        longer."""
        known = self._memory.room_for(len(group))
        if len(group) > FEW:
            rows = db.execute(
                _LOAD_MANY, (project, kind, _encode([key[3] for key in group]).decode())
            )
        else:
            rows = db.executemany(
                _LOAD, [(at, project, kind, key[3]) for at, key in enumerate(group)]
            )
        for at, row, version, digest, body, parent, waits in rows:
            key = group[at]
            found[key] = _stored((key, version, digest, body, None, None, None))
            known[key] = (row, version, digest, parent, waits)

    def _one(self, db: apsw.Connection, key: Key) -> tuple[dict[Key, Stored], int]:
        """Reads one record. This is the most frequent call: one statement, which needs no
        transaction around it."""
        for epoch, row, version, digest, body, parent, waits in db.execute(_LOAD_ONE, key):
            if row is None:
                return {}, epoch
            self._memory.room_for(1)[key] = (row, version, digest, parent, waits)
            return {key: _stored((key, version, digest, body, None, None, None))}, epoch
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")


def _grouped(keys: Sequence[Key]) -> dict[tuple[str, ...], list[Key]]:
    """Groups the keys by tenant, project and kind."""
    groups: dict[tuple[str, ...], list[Key]] = {}
    for key in keys:
        group = groups.get(key[:3])
        if group is None:
            groups[key[:3]] = [key]
        else:
            group.append(key)
    return groups


def _with_index(
    db: apsw.Connection, project: int, group: list[Key], found: dict[Key, Stored]
) -> None:
    """Reads the records one by one, so that an error can name the damaged record."""
    for key in group:
        try:
            for (
                version,
                digest,
                body,
                state,
                pool,
                order,
                due_at,
                session,
                parent,
                waits,
            ) in db.execute(_LOAD_INDEX, (project, *key[2:])):
                index = Index(state, pool, order, due_at, session, parent, _decode(waits))
                found[key] = Stored(key, version, digest, body, index=index)
        except UnicodeDecodeError as error:
            raise StoreCorrupt(f"{name_of(key)} has {error.object!r} in place of a text") from error
        except (apsw.SQLError, msgspec.DecodeError) as error:
            raise StoreCorrupt(
                f"{name_of(key)} has a field that cannot be read ({error})"
            ) from error


def name_of(key: Key) -> str:
    """A record's name in messages."""
    return f"{key.tenant}/{key.project} {key.kind} {key.id}"


# Records by index field

_POOL_ID, _SESSION_ID = (
    QUERIES["pool_id"],
    QUERIES["session_id"],
)
_PROJECTS_OF = QUERIES["projects_of"]

_BEFORE_ALL = (-(2**63), -1)

Values = dict[str, str | int | None]


def find(db: apsw.Connection, query: Query) -> Page:
    """Finds one page, in a transaction of the caller. One extra row tells whether the page is the
    last."""
    values: Values = {
        "project": query.project,
        "kind": query.kind,
        "state": query.state,
        "limit": query.limit + 1,
    }
    if query.session is not None:
        return page_of(query, _by_session(db, query, values), names=True)
    if query.project is None:
        return page_of(query, _by_project(db, query, values), names=True)
    project = db.execute(_PROJECT_ID, (query.tenant, query.project)).get
    if project is None:
        return Page()
    values["project_id"] = project
    if query.heads:
        rows = db.execute(QUERIES["find_heads"], values | {"heads": query.heads}).fetchall()
        return Page(records_of(query, rows))
    if query.pool is not None:
        return page_of(query, _by_pool(db, query, values), names=False)
    if query.due_before is not None:
        return page_of(query, _by_due(db, query, values), names=False)
    return page_of(query, _by_name(db, query, values), names=True)


def count(db: apsw.Connection, query: Query, count_by: str) -> Page:
    """Counts the records of the whole query by the value of a field."""
    counting = QUERIES[f"count_by_{count_by}"].format(among=QUERIES[_among(query, count_by)])
    values = {
        "tenant": query.tenant, "project": query.project, "kind": query.kind,
        "state": query.state, "pool": query.pool,
        "due_before": query.due_before, "session": query.session, "parent": query.parent,
        "waits_on": _encode(query.waits_on).decode(),
    }  # fmt: skip
    counts: list[Any] = db.execute(counting, values).fetchall()
    return Page(counts=dict(counts))


def _among(query: Query, count_by: str) -> str:
    """Chooses the smallest set of rows that contains every record to count."""
    for field in ("pool", "session", "parent", "waits_on", "due_before"):
        if getattr(query, field) not in (None, ()):
            return "among_" + field.partition("_")[0]
    if query.heads or count_by == "pool":
        return "among_offered"
    return "among_claimed" if count_by == "session" else "among_all"


def _by_session(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    values["session_id"] = db.execute(_SESSION_ID, (query.tenant, query.session)).get
    values["last_project"], values["last_name"] = (
        decode_token(query.after, tuple[str, str]) if query.after is not None else (None, None)
    )
    return db.execute(QUERIES["find_session"], values).fetchall()


def _by_project(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    """Searches all projects of the tenant in turn, from the one at which the previous page
    ended."""
    after = decode_token(query.after, tuple[str, str]) if query.after is not None else None
    rows: list[Row] = []
    projects: list[Row] = db.execute(
        _PROJECTS_OF, (query.tenant, after[0] if after else "")
    ).fetchall()
    for number, project in projects:
        last = after[1] if after and after[0] == project else None
        values |= {
            "project_id": number,
            "project": project,
            "from_name": last or "",
            "last_name": last,
        }
        values["limit"] = query.limit + 1 - len(rows)
        rows += db.execute(QUERIES["find_all"], values)
        if len(rows) > query.limit:
            break
    return rows


def _by_name(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    last = decode_token(query.after, tuple[str, str])[1] if query.after is not None else None
    values |= {
        "from_name": last or "",
        "last_name": last,
        "parent": query.parent,
        "waits_on": _encode(query.waits_on).decode(),
    }
    name = (
        "find_parent"
        if query.parent is not None
        else "find_waits"
        if query.waits_on
        else "find_all"
    )
    return db.execute(QUERIES[name], values).fetchall()


def _by_pool(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    values |= {
        "pool": query.pool,
        "pool_id": db.execute(_POOL_ID, (values["project_id"], query.pool)).get,
    }
    order, last = (
        decode_token(query.after, tuple[str | None, int])
        if query.after is not None
        else (None, None)
    )
    values |= {"last_order": order, "last_id": last}
    return db.execute(
        QUERIES["find_pool" if order is None else "find_pool_after"], values
    ).fetchall()


def _by_due(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    values["due_before"] = query.due_before
    values["last_due"], values["last_id"] = (
        decode_token(query.after, tuple[int, int]) if query.after is not None else _BEFORE_ALL
    )
    return db.execute(QUERIES["find_due"], values).fetchall()


# Events: a project's feed after a cursor, or one record's by version

_FEED_STATE, _READ_FEED = QUERIES["feed_state"], QUERIES["read_feed"]
_BASE_OF, _READ_RECORD = QUERIES["base_of"], QUERIES["read_record"]

Rows = list[tuple[Any, ...]]


def read_events(db: apsw.Connection, query: EventQuery, path: Path) -> EventPage:
    """Reads a page of events, in a transaction of the caller."""
    state, project = feed_state(db, query.tenant, query.project)
    if query.record is not None:
        return _read_record(db, query, query.record, state, project)
    if query.tail:
        return tail_page(query, state, state.head)
    position = 0
    if query.after is not None:
        place = decode_cursor(query.after)
        check_cursor(place, state)
        position = place.position
    start = project << POSITION_BITS
    rows: Rows = db.execute(
        _READ_FEED, (start + position, start + POSITIONS + 1, query.limit + 1)
    ).fetchall()
    more = len(rows) > query.limit
    feed = f"{query.tenant}/{query.project}"
    events = []
    for at, kind, name, version, digest, body, record in rows[: query.limit]:
        here = at & POSITIONS
        if here > state.head:
            raise StoreCorrupt(
                f"{path}: the event at position {here} of {feed} is beyond the feed's end, which "
                f"is {state.head}"
            )
        if name is None:
            raise StoreCorrupt(
                f"{path}: the event at position {here} of {feed} belongs to record {record}, which "
                "is not there"
            )
        events.append(
            RecordedEvent(Key(query.tenant, query.project, kind, name), version, digest, body, here)
        )
    end = events[-1].position if events else position
    if not more:
        # The last position has its event, unless that was purged. Then the feed ends beyond its
        # last event.
        if end != state.head != state.purged_to:
            raise StoreCorrupt(
                f"{path}: the event at position {state.head} of {feed} is missing; the last is at "
                f"{end}"
            )
        end = state.head
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(events, encode_cursor(state, end), more, position=end, cursors=cursors)


def _read_record(
    db: apsw.Connection, query: EventQuery, key: Key, state: FeedState, project: int
) -> EventPage:
    cursor = encode_cursor(state, state.head)
    found = db.execute(_BASE_OF, (project, key.kind, key.id)).fetchone()
    if found is None:
        return EventPage((), cursor, more=False)
    record, base = found
    rows: Rows = db.execute(_READ_RECORD, (record, query.after_version, query.limit + 1)).fetchall()
    events = [
        RecordedEvent(key, version, digest, body, at & POSITIONS)
        for at, version, digest, body in rows[: query.limit]
    ]
    return EventPage(events, cursor, more=len(rows) > query.limit, base=base)


def feed_state(db: apsw.Connection, tenant: str, project: str) -> tuple[FeedState, int]:
    """Returns the state of a project's feed, and the project's number. Positions and number are 0
    for a project without records."""
    row = db.execute(_FEED_STATE, (tenant, project)).fetchone()
    if row is None:
        raise StoreCorrupt("the row that says of which birth and epoch the store is, is missing")
    birth, epoch, head, purged_to, purges, number = row
    return FeedState(birth, epoch, feed_mark(tenant, project), head, purged_to, purges), number
