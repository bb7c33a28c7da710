"""Our errors for those of PostgreSQL."""

from __future__ import annotations

import struct

from genlock.errors import (
    BadArgument,
    GenlockError,
    OverLimit,
    StoreCorrupt,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.stores.connection_pool import Refused, ServerUnreachable
from genlock.stores.store_guard import ErrorMapping

STANDBY = "25006"
"""The SQLSTATE of a read-only server."""

_ADVICE = {
    "password": "write postgresql://user:password@host/database, or set PGPASSWORD or ~/.pgpass",
    'database "': "create it (createdb): a store makes its schema, and no database",
    "too many clients": (
        "raise max_connections, put a pooler in between (pooled=on), or take fewer connections "
        "(pool=…)"
    ),
    "connection slots": (
        "raise max_connections, put a pooler in between (pooled=on), or take fewer connections "
        "(pool=…)"
    ),
}
"""Advice, by words in the driver's message: it provides no SQLSTATE when it cannot connect."""


def _refusal(error: Refused, where: str) -> GenlockError:
    """Our error, by SQLSTATE, whose class is its first two characters."""
    state, message = str(error.code), f"{where}: {error}"
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
            return StoreUnavailable(
                f"{message}: if there is a transaction pooler in between, write pooled=on in the "
                "URL"
            )
        case _, "57014":
            return StoreUnavailable(
                f"{message}; nothing was written: if this goes on, give it more time "
                "(statement_timeout=… in the URL)"
            )
        case "3F", _:
            return StoreForeign(f"{message}: it is not there, or not a store of Genlock")
        case (("42" | "XX" | "23" | "22"), _):
            return StoreCorrupt(
                f"{message} ({state}): the schema holds what should not be there, or lacks what "
                "should"
            )
        case _:
            return StoreUnavailable(f"{message} ({state}); nothing was written")


def _advice(error: ServerUnreachable) -> str:
    return next((f": {what}" for words, what in _ADVICE.items() if words in str(error)), "")


ERRORS = ErrorMapping(
    _refusal,
    # A server that shuts down may have executed a commit before.
    may_be_done=lambda error: str(error.code).startswith(("57P", "08")),
    stepped_down=lambda error: error.code == STANDBY,
    unstorable=(UnicodeError, struct.error),
    advice=_advice,
)
