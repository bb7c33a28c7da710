"""Finding and counting records by their index fields."""

from __future__ import annotations

from typing import Any

from genlock.store import Page, Query
from genlock.stores.mysql.link import Answer, Link
from genlock.stores.mysql.queries import Queries
from genlock.stores.mysql.text import Value
from genlock.stores.pages import Row, page_of, records_of
from genlock.stores.places import decode_token
from genlock.stores.talks import Talk

_BEFORE_ALL = (-(2**63), "")
_TEXTS = (0, 1, 5, 6, 7)
"""Which columns are names: project, id, pool, order, id."""


def find(queries: Queries, query: Query) -> Talk[Page]:
    """One page. One row more than the page has tells whether it is the last."""
    if query.heads:
        return Page(records_of(query, (yield from _heads(queries, query))))
    common, most = _common(query), query.limit + 1
    if query.pool is not None:
        order, after = decode_token(query.after, tuple[str | None, str]) if query.after is not None else (None, None)
        values = {**common, "pool": query.pool, "after": after, "most": most}
        statement = queries["find_pool"] if order is None else queries["find_pool_after"]
        rows = _decoded((yield statement.filled(ord=order, **values)))
        return page_of(query, [(*row[:8], row[6]) for row in rows], names=False)
    if query.due_before is not None:
        due, name = decode_token(query.after, tuple[int, str]) if query.after is not None else _BEFORE_ALL
        asked = queries["find_due"].filled(due=query.due_before, after_due=due, after=name, most=most, **common)
        return page_of(query, _decoded((yield asked)), names=False)
    return page_of(query, _decoded((yield _by_name(queries, query))), names=True)


def count(link: Link, queries: Queries, query: Query, count_by: str) -> Page:
    """How many records the whole query has, by the value of a field."""
    name, value = _among(query, count_by)
    common = _common(query)
    among = queries[name].filled(value=value, **common)
    rows: Any = link.rows(queries[f"count_by_{count_by}"], among=among, **common)
    return Page(counts={name.decode(): number for name, number in rows})


def _heads(queries: Queries, query: Query) -> Talk[list[Row]]:
    """The first of every pool, in order: which pools there are, and then one search each, all in one statement."""
    offered: Answer = yield queries["offered_pools"].filled(tenant=query.tenant, project=query.project)
    if not offered.rows:
        return []
    common = _common(query)
    parts = [queries["find_head"].filled(pool=pool, most=query.heads, **common) for (pool,) in offered.rows]
    rows = _decoded((yield b"\nUNION ALL\n".join(parts)))
    return sorted(rows, key=lambda row: (row[6] is not None, row[6], row[7]))


def _common(query: Query) -> dict[str, Value]:
    """The values that every statement has."""
    return {"tenant": query.tenant, "project": query.project, "kind": query.kind, "state": query.state}


def _among(query: Query, count_by: str) -> tuple[str, Value]:
    """The shortest way to all records that can count."""
    for field in ("pool", "session", "parent", "waits_on", "due_before"):
        value: Value = getattr(query, field)
        if value not in (None, ()):
            return "among_" + field.partition("_")[0], value
    if query.heads or count_by == "pool":
        return "among_offered", None
    return "among_claimed" if count_by == "session" else "among_all", None


def _by_name(queries: Queries, query: Query) -> bytes:
    """In order of project and id, by session, parent or dependency, or all there are."""
    project, name = decode_token(query.after, tuple[str, str]) if query.after is not None else (None, None)
    values: dict[str, Value] = {**_common(query), "after": name, "after_project": project, "most": query.limit + 1}
    if query.session is not None:
        return queries["find_session"].filled(session=query.session, **values)
    if query.parent is not None:
        return queries["find_parent"].filled(parent=query.parent, **values)
    if query.waits_on:
        return queries["find_waits"].filled(waits_on=query.waits_on, **values)
    return queries["find_one" if query.project is not None else "find_all"].filled(**values)


def _decoded(answer: Answer) -> list[Row]:
    """Its rows, bytes of names as texts."""
    return [tuple([field.decode() if at in _TEXTS and field is not None else field for at, field in enumerate(row)]) for row in answer.rows]
