"""Our errors for those of Redis and Valkey."""

from __future__ import annotations

from redis import exceptions as driver

from genlock.errors import (
    GenlockError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from genlock.stores.connection_pool import Refused
from genlock.stores.store_guard import ErrorMapping

_CODES: dict[type[Exception], str] = {
    driver.NoScriptError: "NOSCRIPT",
    driver.ReadOnlyError: "READONLY",
    driver.BusyLoadingError: "LOADING",
    driver.OutOfMemoryError: "OOM",
    driver.NoPermissionError: "NOPERM",
    driver.AuthenticationError: "NOAUTH",
    driver.AuthenticationWrongNumberOfArgsError: "NOAUTH",
    driver.MasterDownError: "MASTERDOWN",
    driver.ClusterDownError: "CLUSTERDOWN",
    driver.TryAgainError: "TRYAGAIN",
}
"""The codes of errors that the driver reports without their code."""


def refusal_of(error: Exception) -> Refused | None:
    """Returns the server's refusal if this error is an answer; None if the connection failed."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return Refused(_CODES[kind], _one_line(error))
    if "user executing the script" in str(error):
        return Refused("NOPERM", _one_line(error))
    # The server allows killing a script only before it has written anything.
    if "SCRIPT KILL" in str(error):
        return Refused("KILLED", _one_line(error))
    if isinstance(error, driver.ResponseError):
        return Refused(str(error).partition(" ")[0], _one_line(error))
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _refusal(error: Refused, where: str) -> GenlockError:
    """Our error, by the server's error code."""
    message = f"{where}: {error}"
    match error.code:
        case "OOM":
            return StoreFull(
                f"{message}; nothing was written: give the server more memory, or purge"
            )
        case "READONLY":
            return StoreUnavailable(
                f"{message}: the server has become a replica; nothing was written: name its master "
                "in the URL"
            )
        case "NOAUTH":
            return StoreError(
                f"{message} (see whether user and password in the URL are right: "
                "redis://user:password@host)"
            )
        case "NOPERM":
            return StoreError(
                f"{message}: the user in the URL may not do that; docs/how-to/redis.md says what "
                "it needs"
            )
        case "WRONGTYPE":
            return StoreCorrupt(f"{message}: a key of the store holds what should not be there")
        case (
            "LOADING"
            | "BUSY"
            | "MISCONF"
            | "MASTERDOWN"
            | "NOREPLICAS"
            | "TRYAGAIN"
            | "CLUSTERDOWN"
            | "KILLED"
        ):
            return StoreUnavailable(f"{message}; nothing was written")
        case _:
            return StoreError(f"{message}; nothing was written")


ERRORS = ErrorMapping(
    _refusal,
    may_be_done=lambda error: False,
    stepped_down=lambda error: error.code in ("READONLY", "MASTERDOWN"),
    unstorable=(UnicodeError, OverflowError, ValueError),
)
