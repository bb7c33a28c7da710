"""Pages of what `find` found, for stores that answer in rows: project, id, version, digest, body, pool, order, row number, instant."""

from __future__ import annotations

from typing import Any

from genlock.store import Key, Page, Query, Stored
from genlock.stores.places import encode_token

Row = tuple[Any, ...]


def page_of(query: Query, rows: list[Row], *, names: bool) -> Page:
    """The page, continued by name, or else by the last column and the row: order or instant. One row too many says that there are more."""
    records = records_of(query, rows[: query.limit])
    if len(rows) <= query.limit:
        return Page(records)
    last = rows[query.limit - 1]
    return Page(records, encode_token(last[0], last[1]) if names else encode_token(last[-1], last[7]))


def records_of(query: Query, rows: list[Row]) -> list[Stored]:
    """The records in these rows."""
    tenant, kind = query.tenant, query.kind
    return [Stored(Key(tenant, row[0], kind, row[1]), *row[2:7]) for row in rows]
