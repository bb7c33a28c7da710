"""Our errors for those of MySQL and MariaDB."""

from __future__ import annotations

from genlock.errors import (
    BadArgument,
    GenlockError,
    OverLimit,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.stores.connection_pool import Refused
from genlock.stores.store_guard import ErrorMapping

PASSING = (1020, 1205, 1213, 1412, 3101)
"""Contention on the same rows or tables, here or on another server of a cluster. Nothing was done,
and an immediate retry is allowed."""
TOO_MANY_ROWS = 1242
"""A subquery has more than one row. Our statements use this error to stop."""
ENDED = (1053, 1077, 1152, 1184, 1317, 1927, 4031)
"""The server shuts down, or an operator has ended the connection or the statement."""
LOST = (0, 2006, 2013, 2014, 2055)
"""The driver's own numbers: the connection is lost, or the bytes received are invalid."""

IN_DOUBT = (1026, 1180, 1598, 3100)
"""The log could not be written, or other nodes of a cluster could not be notified. This happens at
the end of a commit, which may have been done nevertheless."""

READ_ONLY = 1290
"""The error number of a read-only server."""

_READ_ONLY = (READ_ONLY, 1792, 1836)
_DENIED = (1044, 1142, 1143, 1227, 1370, *_READ_ONLY)
_SLOW = (1969, 3024)
_MISSING = (1049, 1051, 1146)
_FULL = (1021, 1030, 1041, 1114, 1534, 3675)
_DAMAGED = (
    1032, 1033, 1034, 1035, 1048, 1052, 1054, 1062, 1064, 1072, 1136, 1194, 1195, 1216, 1217,
    1242, 1292, 1305, 1364, 1366, 1451, 1452,
    1526, 1712, 1813, 1877, 1932, 3140, 3819, 4025,
)  # fmt: skip
"""Unreadable files, statements that do not match the tables, values that do not match each
other."""


def _refusal(error: Refused, where: str) -> GenlockError:
    """Our error, by the server's error number."""
    code, message = error.code, f"{where}: {error}"
    if code in PASSING:
        return StoreUnavailable(f"{message}: others hold it locked; nothing was written")
    if code in _SLOW:
        return StoreUnavailable(
            f"{message}; nothing was written: if this goes on, give it more time "
            "(statement_timeout=… in the URL)"
        )
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
        return StoreCorrupt(
            f"{message} ({code}): the tables hold what should not be there, or lack what should"
        )
    # A proxy, or a cluster node that is not ready, has error numbers of its own.
    return StoreUnavailable(f"{message} ({code}); nothing was written")


ERRORS = ErrorMapping(
    _refusal,
    # A server that shuts down may have executed a commit before.
    may_be_done=lambda error: error.code in (*ENDED, *IN_DOUBT),
    stepped_down=lambda error: error.code in _READ_ONLY,
    unstorable=(UnicodeEncodeError,),
)
