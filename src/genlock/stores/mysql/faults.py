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

PASSING = (1020, 1205, 1213, 1412, 3101)
"""Others were at the same rows or tables, here or on another server of a cluster: nothing was done, and it may be tried again at once."""
TOO_MANY_ROWS = 1242
"""A subquery has more than one row: how our statements say stop."""
ENDED = (1053, 1077, 1152, 1184, 1317, 1927, 4031)
"""The server shuts down, or an operator has ended the connection or the statement."""
LOST = (0, 2006, 2013, 2014, 2055)
"""The driver's own numbers: the connection is gone, or what comes over it makes no sense."""

IN_DOUBT = (1026, 1180, 1598, 3100)
"""The log could not be written, or others of a cluster not be told: at the end of a commit, where it may have been done all the same."""

READ_ONLY = 1290
"""What a server says that can only be read."""

_READ_ONLY = (READ_ONLY, 1792, 1836)
_DENIED = (1044, 1142, 1143, 1227, 1370, *_READ_ONLY)
_SLOW = (1969, 3024)
_MISSING = (1049, 1051, 1146)
_FULL = (1021, 1030, 1041, 1114, 1534, 3675)
_DAMAGED = (
    1032, 1033, 1034, 1035, 1048, 1052, 1054, 1062, 1064, 1072, 1136, 1194, 1195, 1216, 1217, 1242, 1292, 1305, 1364, 1366, 1451, 1452,
    1526, 1712, 1813, 1877, 1932, 3140, 3819, 4025,
)  # fmt: skip
"""Files that cannot be read, statements that do not fit the tables, values that do not fit each other."""


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
    if isinstance(error, Broken) or (isinstance(error, Refused) and error.code in (*ENDED, *IN_DOUBT)):
        return OutcomeUnknown(f"{where}: the commit broke off ({error}); it may have been done or not")
    return fault_of(error, where)


def _refusal(code: int, message: str) -> GenlockError:
    """By the server's error number."""
    if code in PASSING:
        return StoreUnavailable(f"{message}: others hold it locked; nothing was written")
    if code in _SLOW:
        return StoreUnavailable(f"{message}; nothing was written: if this goes on, give it more time (statement_timeout=… in the URL)")
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
    if code in _DAMAGED:
        return StoreCorrupt(f"{message} ({code}): the tables hold what should not be there, or lack what should")
    # Whoever stands between us and the tables has words of his own: a proxy, or a node of a cluster that is not ready.
    return StoreUnavailable(f"{message} ({code}); nothing was written")
