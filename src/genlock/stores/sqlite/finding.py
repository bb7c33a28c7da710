"""Finding and counting records by their index fields."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from genlock.store import Page, Query
from genlock.stores.pages import Row, page_of, records_of
from genlock.stores.places import decode_token
from genlock.stores.sqlite.queries import QUERIES

_PROJECT_ID, _POOL_ID, _SESSION_ID = QUERIES["project_id"], QUERIES["pool_id"], QUERIES["session_id"]
_PROJECTS_OF = QUERIES["projects_of"]

_encode = msgspec.json.Encoder().encode
_BEFORE_ALL = (-(2**63), -1)

Values = dict[str, str | int | None]


def find(db: apsw.Connection, query: Query) -> Page:
    """One page, read in one transaction that the caller has begun. One row more than the page has tells whether it is the last."""
    values: Values = {"project": query.project, "kind": query.kind, "state": query.state, "limit": query.limit + 1}
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
    """How many records the whole query has, by the value of a field."""
    counting = QUERIES[f"count_by_{count_by}"].format(among=QUERIES[_among(query, count_by)])
    values = {
        "tenant": query.tenant, "project": query.project, "kind": query.kind, "state": query.state, "pool": query.pool,
        "due_before": query.due_before, "session": query.session, "parent": query.parent, "waits_on": _encode(query.waits_on).decode(),
    }  # fmt: skip
    counts: list[Any] = db.execute(counting, values).fetchall()
    return Page(counts=dict(counts))


def _among(query: Query, count_by: str) -> str:
    """The shortest way to all records that can count."""
    for field in ("pool", "session", "parent", "waits_on", "due_before"):
        if getattr(query, field) not in (None, ()):
            return "among_" + field.partition("_")[0]
    if query.heads or count_by == "pool":
        return "among_offered"
    return "among_claimed" if count_by == "session" else "among_all"


def _by_session(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    values["session_id"] = db.execute(_SESSION_ID, (query.tenant, query.session)).get
    values["last_project"], values["last_name"] = decode_token(query.after, tuple[str, str]) if query.after is not None else (None, None)
    return db.execute(QUERIES["find_session"], values).fetchall()


def _by_project(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    """All projects of the tenant in turn, from the one at which the page before ended."""
    after = decode_token(query.after, tuple[str, str]) if query.after is not None else None
    rows: list[Row] = []
    projects: list[Row] = db.execute(_PROJECTS_OF, (query.tenant, after[0] if after else "")).fetchall()
    for number, project in projects:
        last = after[1] if after and after[0] == project else None
        values |= {"project_id": number, "project": project, "from_name": last or "", "last_name": last}
        values["limit"] = query.limit + 1 - len(rows)
        rows += db.execute(QUERIES["find_all"], values)
        if len(rows) > query.limit:
            break
    return rows


def _by_name(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    last = decode_token(query.after, tuple[str, str])[1] if query.after is not None else None
    values |= {"from_name": last or "", "last_name": last, "parent": query.parent, "waits_on": _encode(query.waits_on).decode()}
    name = "find_parent" if query.parent is not None else "find_waits" if query.waits_on else "find_all"
    return db.execute(QUERIES[name], values).fetchall()


def _by_pool(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    values |= {"pool": query.pool, "pool_id": db.execute(_POOL_ID, (values["project_id"], query.pool)).get}
    order, last = decode_token(query.after, tuple[str | None, int]) if query.after is not None else (None, None)
    values |= {"last_order": order, "last_id": last}
    return db.execute(QUERIES["find_pool" if order is None else "find_pool_after"], values).fetchall()


def _by_due(db: apsw.Connection, query: Query, values: Values) -> list[Row]:
    values["due_before"] = query.due_before
    values["last_due"], values["last_id"] = decode_token(query.after, tuple[int, int]) if query.after is not None else _BEFORE_ALL
    return db.execute(QUERIES["find_due"], values).fetchall()
