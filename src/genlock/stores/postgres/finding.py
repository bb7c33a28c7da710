"""Finding and counting records by their index fields."""

from __future__ import annotations

from typing import Any

import msgspec

from genlock.store import Page, Query
from genlock.stores.pages import Row, page_of, records_of
from genlock.stores.places import decode_token
from genlock.stores.postgres.link import Link
from genlock.stores.postgres.wire import Value, encode, rows_of
from genlock.stores.talks import Talk

_encode = msgspec.json.Encoder().encode
_BEFORE_ALL = (-(2**63), -1)

Queries = dict[str, str]


def find(queries: Queries, query: Query) -> Talk[Page]:
    """One page. One row more than the page has tells whether it is the last."""
    name, values = _asked(query)
    rows: list[Row] = rows_of((yield queries[name], [encode(value) for value in (*_common(query), *values)]))
    if query.heads:
        return Page(records_of(query, rows))
    return page_of(query, rows, names=query.pool is None and query.due_before is None)


def count(link: Link, queries: Queries, query: Query, count_by: str) -> Page:
    """How many records the whole query has, by the value of a field."""
    among, value = _among(query, count_by)
    rows: list[Any] = link.rows(queries[f"count_by_{count_by}"].format(among=queries[among]), *_common(query), value)
    return Page(counts=dict(rows))


def _common(query: Query) -> tuple[Value, Value, Value, Value]:
    """The first four values of every statement."""
    return query.tenant, query.project, query.kind, query.state


def _among(query: Query, count_by: str) -> tuple[str, str | None]:
    """The shortest way to all records that can count."""
    for field in ("pool", "session", "parent", "waits_on", "due_before"):
        value = getattr(query, field)
        if value not in (None, ()):
            text = _encode(value).decode() if field == "waits_on" else str(value)
            return "among_" + field.partition("_")[0], text
    if query.heads or count_by == "pool":
        return "among_offered", None
    return "among_claimed" if count_by == "session" else "among_all", None


def _asked(query: Query) -> tuple[str, tuple[Value, ...]]:
    """The statement's name, and its values after the first four."""
    if query.heads:
        return "find_heads", (query.heads,)
    if query.pool is not None:
        return _by_pool(query)
    if query.due_before is not None:
        last = decode_token(query.after, tuple[int, int]) if query.after is not None else _BEFORE_ALL
        return "find_due", (query.due_before, *last, query.limit + 1)
    return _by_name(query)


def _by_name(query: Query) -> tuple[str, tuple[Value, ...]]:
    """In order of project and id, by session, parent or dependency, or all there are."""
    project, name = decode_token(query.after, tuple[str, str]) if query.after is not None else (None, None)
    limit = query.limit + 1
    if query.session is not None:
        return "find_session", (query.session, project, name, limit)
    if query.parent is not None:
        return "find_parent", (query.parent, name, limit)
    if query.waits_on:
        return "find_waits", (_encode(query.waits_on).decode(), name, limit)
    if query.project is not None:
        return "find_one", (name or "", name, limit)
    return "find_all", (project, name, limit)


def _by_pool(query: Query) -> tuple[str, tuple[Value, ...]]:
    order, last = decode_token(query.after, tuple[str | None, int]) if query.after is not None else (None, None)
    values = (query.pool, last, query.limit + 1)
    return ("find_pool", values) if order is None else ("find_pool_after", (*values, order))
