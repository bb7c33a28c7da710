"""Which server this is, and in which history: the epoch rises with it (ADR 35).

A connection leads to one server for as long as it lasts, and a primary cannot become a standby and stay up. So a connection asks once,
before it first writes. Behind a pooler the server may be another one at any time: there every commit says for which it was meant.

A standby may be promoted at any moment, and keeps its connections. So nothing is written after one has said that it is one: the next who
asks hears of the history that begins then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from genlock.stores.links import Unreachable
from genlock.stores.postgres.faults import STANDBY, Broken, Refused
from genlock.stores.postgres.link import Link

_UNSUPPORTED = "0A000"
"""What a server says that is built like PostgreSQL, but has no log of its own that could part into two histories."""


class Heeded(NamedTuple):
    """What a server has said."""

    mark: str
    """'' where it does not tell."""
    epoch: int | None


def heed(link: Link, statement: str) -> Heeded:
    """Asks; `Refused` by a standby. The epoch has been raised if the store was last written to on another server, or in another history."""
    try:
        rows: list[Any] = link.rows(statement)
    except Refused as refused:
        if refused.state != _UNSUPPORTED:
            raise
        return Heeded("", None)
    except Broken as broken:
        raise Unreachable(str(broken)) from None  # nothing of the commit has been sent yet
    ((mark, epoch),) = rows
    if mark is None:
        raise Refused(STANDBY, "the server is a standby, which can only be read")
    return Heeded(mark, epoch)
