"""Checks that every store makes first: commits within its limits, and queries that make sense."""

from __future__ import annotations

from collections.abc import Sequence

from genlock.errors import BadArgument, OverLimit
from genlock.store import MOST_WAITED_ON, Change, EventQuery, Limits, Query

COUNTABLE = ("state", "pool", "session", "project")


def check_changes(changes: Sequence[Change], limits: Limits) -> None:
    """Raises `OverLimit` if the commit exceeds the store's limits."""
    if len(changes) > limits.batch:
        raise OverLimit(f"{len(changes)} changes in one commit; this store takes {limits.batch}")
    most, bodies = limits.events, limits.body_bytes
    for change in changes:
        # Indexes, not names: attribute access costs more than the comparisons, and this runs once
        # for every change.
        events = change[7]
        if len(change[5]) > bodies or len(events) > most:
            raise OverLimit(_excess(change, limits))
        for event in events:
            if len(event[2]) > bodies:
                raise OverLimit(_excess(change, limits))


def _excess(change: Change, limits: Limits) -> str:
    name = "/".join(change.key)
    if len(change.events) > limits.events:
        return (
            f"{len(change.events)} events in one change of {name}; this store takes {limits.events}"
        )
    largest = max(len(body) for body in (change.body, *(event.body for event in change.events)))
    return f"a body of {name} has {largest} bytes; this store takes {limits.body_bytes}"


def check_query(query: Query, count_by: str | None) -> None:
    """Raises `BadArgument` unless the query is by one field, and within a project where it needs
    one."""
    asked = {
        "pool": query.pool is not None,
        "heads": query.heads != 0,
        "due_before": query.due_before is not None,
        "parent": query.parent is not None,
        "waits_on": bool(query.waits_on),
        "session": query.session is not None,
    }
    given = [name for name, is_given in asked.items() if is_given]
    if len(given) > 1:
        raise BadArgument(f"a query is by one field, not by {' and '.join(given)}")
    if query.project is None and given and given != ["session"]:
        raise BadArgument(f"a query by {given[0]} needs a project")
    if len(query.waits_on) > MOST_WAITED_ON:
        raise BadArgument(
            f"who waits on one of {len(query.waits_on)} cannot be found at once; at most "
            f"{MOST_WAITED_ON}"
        )
    if query.limit < 1 or query.heads < 0:
        raise BadArgument(
            f"a page of {query.limit} records, or {query.heads} heads, cannot be found"
        )
    if count_by is not None and count_by not in COUNTABLE:
        raise BadArgument(
            f"records are counted by one of {', '.join(COUNTABLE)}, not by {count_by!r}"
        )


def check_event_query(query: EventQuery) -> None:
    """Raises `BadArgument` unless the query stays within its project."""
    if query.limit < 1:
        raise BadArgument(f"a page of {query.limit} events cannot be read")
    if query.record is not None and query.record[:2] != (query.tenant, query.project):
        raise BadArgument(
            f"{'/'.join(query.record)} is not a record of {query.tenant}/{query.project}"
        )
