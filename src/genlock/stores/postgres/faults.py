"""What the server and the connection say when something goes wrong, in our words. The only place that knows both."""

from __future__ import annotations

from genlock.errors import (
    BadArgument,
    GenlockError,
    OutcomeUnknown,
    OverLimit,
    StoreCorrupt,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.stores.links import Unreachable


class Refused(Exception):
    """The server answered a statement with an error: nothing of it was done."""

    def __init__(self, state: str, message: str) -> None:
        self.state = state
        super().__init__(message)


class Broken(Exception):
    """The connection was lost, or the server fell silent, after a statement had been sent: it may have been done or not."""


STANDBY = "25006"
"""What a server says that can only be read."""

_ADVICE = {
    "password": "write postgresql://user:password@host/database, or set PGPASSWORD or ~/.pgpass",
    'database "': "create it (createdb): a store makes its schema, and no database",
    "too many clients": "raise max_connections, put a pooler in between (pooled=on), or take fewer connections (pool=…)",
    "connection slots": "raise max_connections, put a pooler in between (pooled=on), or take fewer connections (pool=…)",
}
"""What to do, by words of the server. A refusal to connect has no SQLSTATE that the driver would pass on."""


def fault_of(error: Refused | Broken | Unreachable, where: str) -> GenlockError:
    """Our error for what happened outside of a commit."""
    match error:
        case Refused(state=state):
            return _refusal(state, f"{where}: {error}")
        case Unreachable():
            advice = next((f": {what}" for words, what in _ADVICE.items() if words in str(error)), "")
            return StoreUnavailable(f"{where}: {error}{advice}; nothing was written")
        case _:
            return StoreUnavailable(f"{where}: {error}; nothing was written")


def stepped_down(error: Refused | Broken | Unreachable) -> bool:
    """Is it a server that can only be read, such as a primary that has become a replica?"""
    return isinstance(error, Refused) and error.state == STANDBY


def commit_fault_of(error: Refused | Broken | Unreachable, where: str) -> GenlockError:
    """Our error for what happened in a commit. A server that shuts down may have heard us: then nobody knows."""
    if isinstance(error, Broken) or (isinstance(error, Refused) and error.state.startswith(("57P", "08"))):
        return OutcomeUnknown(f"{where}: the commit broke off ({error}); it may have been done or not")
    return fault_of(error, where)


def _refusal(state: str, message: str) -> GenlockError:
    """By SQLSTATE: the class is its first two characters."""
    match state[:2], state:
        case "53", "53100":
            return StoreFull(f"{message}; nothing was written")
        case _, "25006" | "42501":
            return StoreReadOnly(message)
        case _, "22021" | "22P05":
            return BadArgument(f"there is text that cannot be stored ({message})")
        case _, "54000":
            return OverLimit(f"a name is too long ({message}); nothing was written")
        case _, "26000" | "42P05":
            return StoreUnavailable(f"{message}: if there is a transaction pooler in between, write pooled=on in the URL")
        case _, "57014":
            return StoreUnavailable(f"{message}; nothing was written: if this goes on, give it more time (statement_timeout=… in the URL)")
        case "3F", _:
            return StoreForeign(f"{message}: it is not there, or not a store of Genlock")
        case (("42" | "XX" | "23" | "22"), _):
            return StoreCorrupt(f"{message} ({state}): the schema holds what should not be there, or lacks what should")
        case _:
            return StoreUnavailable(f"{message} ({state}); nothing was written")
