"""What the server and the connection say when something goes wrong, in our words. The only place that knows both."""

from __future__ import annotations

from redis import exceptions as driver

from genlock.errors import (
    GenlockError,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from genlock.stores.links import Unreachable


class Refused(Exception):
    """The server answered with an error: nothing of that command was done."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Broken(Exception):
    """The connection was lost, or the server fell silent, after a command had been sent: it may have been done or not."""


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
"""Of these the driver leaves the code out of the text."""


def refusal_of(error: Exception) -> Refused | None:
    """The server's own words, if this error is an answer; None if the connection failed."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return Refused(_CODES[kind], _one_line(error))
    if "user executing the script" in str(error):
        return Refused("NOPERM", _one_line(error))
    if "SCRIPT KILL" in str(error):  # which the server allows only as long as the script has written nothing
        return Refused("KILLED", _one_line(error))
    if isinstance(error, driver.ResponseError):
        return Refused(str(error).partition(" ")[0], _one_line(error))
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def fault_of(error: Refused | Broken | Unreachable, where: str) -> GenlockError:
    """Our error for what happened outside of a commit, or in a commit of which nothing was done."""
    if not isinstance(error, Refused):
        return StoreUnavailable(f"{where}: {error}; nothing was written")
    message = f"{where}: {error}"
    match error.code:
        case "OOM":
            return StoreFull(f"{message}; nothing was written: give the server more memory, or purge")
        case "READONLY":
            return StoreUnavailable(f"{message}: the server has become a replica; nothing was written: name its master in the URL")
        case "NOAUTH":
            return StoreError(f"{message} (see whether user and password in the URL are right: redis://user:password@host)")
        case "NOPERM":
            return StoreError(f"{message}: the user in the URL may not do that; docs/how-to/redis.md says what it needs")
        case "WRONGTYPE":
            return StoreCorrupt(f"{message}: a key of the store holds what should not be there")
        case "LOADING" | "BUSY" | "MISCONF" | "MASTERDOWN" | "NOREPLICAS" | "TRYAGAIN" | "CLUSTERDOWN" | "KILLED":
            return StoreUnavailable(f"{message}; nothing was written")
        case _:
            return StoreError(f"{message}; nothing was written")


def stepped_down(error: Refused | Broken | Unreachable) -> bool:
    """Is it a server that can only be read, such as a primary that has become a replica?"""
    return isinstance(error, Refused) and error.code in ("READONLY", "MASTERDOWN")


def commit_fault_of(error: Refused | Broken | Unreachable, where: str) -> GenlockError:
    """Our error for what happened in a commit."""
    if isinstance(error, Broken):
        return OutcomeUnknown(f"{where}: the commit broke off ({error}); it may have been done or not")
    return fault_of(error, where)
