"""The way into a store on a server: only while it is open, only in the process that opened it, and
with errors of `genlock.errors` instead of the driver's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from genlock.errors import (
    BadArgument,
    Closed,
    GenlockError,
    OutcomeUnknown,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from genlock.stores.connection_pool import (
    ConnectionBroken,
    ConnectionPool,
    PooledConnection,
    Refused,
    ServerUnreachable,
)

C = TypeVar("C", bound=PooledConnection)

FAILURES = (Refused, ConnectionBroken, ServerUnreachable)
"""What a connection raises."""


class ErrorMapping(NamedTuple):
    """Our errors for those of one kind of server."""

    refusal: Callable[[Refused, str], GenlockError]
    """Our error for what the server refused; the text says where."""
    may_be_done: Callable[[Refused], bool]
    """May a commit that got this answer have been done?"""
    stepped_down: Callable[[Refused], bool]
    """Does the answer say that the server can only be read, such as a primary that has become a
    replica?"""
    unstorable: tuple[type[Exception], ...] = (UnicodeError,)
    """Exceptions for values that the server cannot take."""
    advice: Callable[[ServerUnreachable], str] = lambda error: ""
    """Advice for a server that accepts no connections."""

    def fault(self, error: Exception, where: str, *, writing: bool = False) -> GenlockError:
        """Our error for one of `FAILURES`. While writing, a commit whose answer is lost is never
        reported as not done."""
        if writing and (
            isinstance(error, ConnectionBroken)
            or (isinstance(error, Refused) and self.may_be_done(error))
        ):
            return OutcomeUnknown(
                f"{where}: the commit broke off ({error}); it may have been done or not"
            )
        if isinstance(error, Refused):
            return self.refusal(error, where)
        advice = self.advice(error) if isinstance(error, ServerUnreachable) else ""
        return StoreUnavailable(f"{where}: {error}{advice}; nothing was written")


@contextmanager
def connected(connect: Callable[[], C], errors: ErrorMapping, where: str) -> Iterator[C]:
    """Opens a connection outside of any store for the block."""
    try:
        connection = connect()
        try:
            yield connection
        finally:
            connection.close()
    except FAILURES as error:
        raise errors.fault(error, where, writing=True) from error


class StoreGuard(Generic[C]):
    """The way into one store."""

    def __init__(self, pool: ConnectionPool[C], where: str, errors: ErrorMapping) -> None:
        self._pool = pool
        self._where = where
        self._errors = errors
        self._pid = os.getpid()
        self.is_shut = False
        self.read_only = ""
        """Why the store is read-only; empty if it is writable."""
        self.look_again: Callable[[C], object] = lambda connection: None
        """Asks the server again, because a replica may have been promoted, and sets `read_only`."""

    @property
    def is_ours(self) -> bool:
        """Is this the process that opened it? A forked child must not use inherited connections."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises an error unless the store may be used."""
        if self.is_shut:
            raise Closed(f"{self._where} is closed")
        if not self.is_ours:
            raise StoreError(
                f"{self._where} was opened by process {self._pid}; a store does not survive fork: "
                "open it again"
            )

    @contextmanager
    def entered(self, *, writes: bool = False) -> Iterator[C]:
        """Lends a connection for the block."""
        self.check()
        writing = False
        try:
            with self._pool.lent() as connection:
                try:
                    if writes:
                        self._refuse_reader(connection)
                        writing = True  # set only here: nothing that writes was sent before
                    yield connection
                except Refused as error:
                    if self._errors.stepped_down(error):
                        self._pool.renew()  # the URL may lead to another server by now
                    raise
        except GenlockError:
            raise
        except FAILURES as error:
            if self.is_shut and isinstance(error, ServerUnreachable):
                raise Closed(f"{self._where} was closed during this call") from error
            raise self._errors.fault(error, self._where, writing=writing) from error
        except self._errors.unstorable as error:
            raise BadArgument(f"there is something that cannot be stored ({error})") from error

    def _refuse_reader(self, connection: C) -> None:
        """Raises `StoreReadOnly` if the store is read-only, unless that has changed."""
        if self.read_only:
            self.look_again(connection)
        if self.read_only:
            raise StoreReadOnly(f"{self._where} {self.read_only}")
