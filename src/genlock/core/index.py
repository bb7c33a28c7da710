"""The index fields of a record: the only fields by which a store can find it.

Each kind of record computes them from the record alone; stores copy them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


NEVER_DUE = 2**62
"""Later than any instant: time alone changes nothing, only other records do. A claim without a
lease has this value, so that a query for claims by their due times finds it, last."""


class Index(Struct, frozen=True, gc=False):
    """The fields by which records are found."""

    state: str = ""
    pool: str | None = None
    """Set while the task is offered to workers that ask for one."""
    order: str | None = None
    """Its position in the pool; ASCII, compared as bytes."""
    due_at: int | None = None
    """Microseconds since 1970: the next instant at which time alone changes the answer."""
    session: str | None = None
    parent: str | None = None
    waits_on: tuple[str, ...] = ()
    """Ids of dependencies: unchanged while unmet, with the prefix MET once met. Also READY_IN."""


MET = "+"
"""No id starts with it. `waits_on` "X" finds the tasks that X blocks, "+X" those for which X counts
as met."""

READY_IN = "@"
"""No id starts with it, either. `waits_on` "@X" finds the tasks of feature X that are offered, if
the order is closest-to-done (docs/adr/0066)."""

KIND_POOL = "~"
"""A pool named "~kind" has records of that kind only. A store that looks for the heads of another
kind need not look there."""


def microseconds(instant: datetime) -> int:
    """Returns whole microseconds since 1970."""
    return (instant - _EPOCH) // _MICROSECOND
