"""Finding and counting records by their index fields."""

from __future__ import annotations

from typing import Any

import msgspec

from genlock.store import Page, Query
from genlock.stores.pages import Row, page_of, records_of
from genlock.stores.places import decode_token
from genlock.stores.postgres.link import Link
from genlock.stores.postgres.wire import Value

_encode = msgspec.json.Encoder().encode
_BEFORE_ALL = (-(2**63), -1)

Queries = dict[str, str]


def find(link: Link, queries: Queries, query: Query) -> Page:
    """One page. One row more than the page has tells whether it is the last."""
    if query.heads:
        rows: list[Row] = link.rows(queries["find_heads"], *_common(query), query.heads)
        return Page(records_of(query, rows))
    if query.pool is not None:
        return page_of(query, _by_pool(link, queries, query), names=False)
    if query.due_before is not None:
        last = decode_token(query.after, tuple[int, int]) if query.after is not None else _BEFORE_ALL
        rows = link.rows(queries["find_due"], *_common(query), query.due_before, *last, query.limit + 1)
        return page_of(query, rows, names=False)
    return page_of(query, _by_name(link, queries, query), names=True)


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


def _by_name(link: Link, queries: Queries, query: Query) -> list[Row]:
    """In order of project and id, by session, parent or dependency, or all there are."""
    project, name = decode_token(query.after, tuple[str, str]) if query.after is not None else (None, None)
    common, limit = _common(query), query.limit + 1
    if query.session is not None:
        return link.rows(queries["find_session"], *common, query.session, project, name, limit)
    if query.parent is not None:
        return link.rows(queries["find_parent"], *common, query.parent, name, limit)
    if query.waits_on:
        return link.rows(queries["find_waits"], *common, _encode(query.waits_on).decode(), name, limit)
    if query.project is not None:
        return link.rows(queries["find_one"], *common, name or "", name, limit)
    return link.rows(queries["find_all"], *common, project, name, limit)


def _by_pool(link: Link, queries: Queries, query: Query) -> list[Row]:
    order, last = decode_token(query.after, tuple[str | None, int]) if query.after is not None else (None, None)
    values = (*_common(query), query.pool, last, query.limit + 1)
    return link.rows(queries["find_pool"], *values) if order is None else link.rows(queries["find_pool_after"], *values, order)
