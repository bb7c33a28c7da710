"""What the server and the connection say when something goes wrong, in our words. The only place that knows both."""

from __future__ import annotations

from genlock.errors import (
    BadArgument,
    GenlockError,
    OutcomeUnknown,
    OverLimit,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.stores.links import Unreachable as Unreachable

DEADLOCK = 1213
LOCK_WAIT = 1205
TOO_MANY_ROWS = 1242
"""A subquery has more than one row: how our statements say stop."""
ENDED = (1053, 1077, 1152, 1184, 1317, 1927, 4031)
"""The server shuts down, or an operator has ended the connection or the statement."""
LOST = (0, 2006, 2013, 2014, 2055)
"""The driver's own numbers: the connection is gone, or what comes over it makes no sense."""

_READ_ONLY = (1290, 1792, 1836)
_DENIED = (1044, 1142, 1143, 1227, 1370, *_READ_ONLY)
_MISSING = (1049, 1051, 1146)
_FULL = (1021, 1030, 1041, 1114, 1534, 3675)


class Broken(Exception):
    """The connection was lost, or the server fell silent, after a statement had been sent: it may have been done or not."""


class Refused(Exception):
    """The server answered a statement with an error: nothing of it was done. `done` statements of the same packet were done before it."""

    def __init__(self, code: int, message: str, done: int = 0) -> None:
        self.code = code
        self.done = done
        super().__init__(message)


def fault_of(error: Refused | Broken | Unreachable, where: str) -> GenlockError:
    """Our error for what happened outside of a commit."""
    match error:
        case Refused(code=code):
            return _refusal(code, f"{where}: {error}")
        case _:
            return StoreUnavailable(f"{where}: {error}; nothing was written")


def stepped_down(error: Refused | Broken | Unreachable) -> bool:
    """Is it a server that can only be read, such as a primary that has become a replica?"""
    return isinstance(error, Refused) and error.code in _READ_ONLY


def commit_fault_of(error: Refused | Broken | Unreachable, where: str) -> GenlockError:
    """Our error for what happened in a commit. A server that shuts down may have heard us: then nobody knows."""
    if isinstance(error, Broken) or (isinstance(error, Refused) and error.code in ENDED):
        return OutcomeUnknown(f"{where}: the commit broke off ({error}); it may have been done or not")
    return fault_of(error, where)


def _refusal(code: int, message: str) -> GenlockError:
    """By the server's error number."""
    if code in (DEADLOCK, LOCK_WAIT):
        return StoreUnavailable(f"{message}: others hold it locked; nothing was written")
    if code in _FULL:
        return StoreFull(f"{message}; nothing was written")
    if code in _DENIED:
        return StoreReadOnly(message)
    if code in (1071, 1406):
        return OverLimit(f"a name is too long ({message}); nothing was written")
    if code == 1153:
        return OverLimit(f"{message}: raise max_allowed_packet of the server; nothing was written")
    if code in (1264, 1690):
        return BadArgument(f"there is a number that cannot be stored ({message})")
    if code == 1665:
        return StoreError(f"{message}: set binlog_format to ROW or MIXED; nothing was written")
    if code in _MISSING:
        return StoreForeign(f"{message}: it is not there, or not a store of Genlock")
    if code in ENDED or code in (1040, 1203, 1226, 1969, 3024):
        return StoreUnavailable(f"{message} ({code}); nothing was written")
    return StoreCorrupt(f"{message} ({code}): the tables hold what should not be there, or lack what should")
