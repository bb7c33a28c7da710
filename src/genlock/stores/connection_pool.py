"""The few connections that all threads of one store share, and what a connection raises."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from genlock.errors import Closed
from genlock.retry import Backoff

RECONNECT = Backoff(first=0.01, longest=0.5, jitter=0.5)
"""The pause between attempts to connect to a server that is unavailable."""
FULL_SECONDS = 5.0
"""How long a call waits for a connection while all of them are in use."""


class ServerUnreachable(Exception):
    """No connection could be made, so nothing was sent."""


class ConnectionBroken(Exception):
    """The connection was lost, or the server stopped responding, after a request had been sent. The
    request may or may not have been executed."""


class Refused(Exception):
    """The server answered a request with an error and executed no part of it."""

    def __init__(self, code: str | int, message: str, done: int = 0) -> None:
        """`done` is how many earlier requests of the same batch were executed."""
        self.code = code
        self.done = done
        super().__init__(message)


class PooledConnection(Protocol):
    """One connection, used by one thread at a time."""

    @property
    def is_whole(self) -> bool:
        """Is the connection in a clean state, as far as is known?"""

    @property
    def is_alive(self) -> bool:
        """Is the connection clean, and not closed by the server?"""

    def close(self) -> None:
        """Closes the connection. Calling it again has no effect."""


C = TypeVar("C", bound=PooledConnection)


class ConnectionPool(Generic[C]):
    """A pool of connections, each used by one thread at a time. The most recently used is lent
    first."""

    def __init__(self, connect: Callable[[], C], most: int, where: str) -> None:
        """`connect` opens a connection or raises `ServerUnreachable`. `where` names the server in
        messages."""
        self._connect = connect
        self._most = most
        self._where = where
        self._idle: list[C] = []
        self._room = threading.BoundedSemaphore(most)
        self.started_loads = threading.BoundedSemaphore(most // 4)
        self.started_commits = threading.BoundedSemaphore(most - 1 - most // 4)
        """Limits the started commits, which keep their connection between two steps. One connection
        is always left for other calls: see round_trips.py."""
        self._failures = 0
        self._next_attempt = 0.0
        self._closed = False
        self._era = 0
        """How often working connections were discarded."""

    @contextmanager
    def lent(self) -> Iterator[C]:
        """Lends a connection for the block. After an error the pool keeps it only if it is in a
        clean state."""
        if not self._room.acquire(timeout=FULL_SECONDS):
            raise ServerUnreachable(
                f"all {self._most} connections have been in use for {FULL_SECONDS:g} s (pool=… in "
                "the URL)"
            )
        connection: C | None = None
        era = self._era
        try:
            connection = self._next()
            yield connection
        finally:
            if connection is not None:
                self._take_back(connection, era)
            self._room.release()

    def close(self) -> None:
        """Closes the idle connections now, and lent ones when they are returned."""
        self._closed = True
        self.drop_idle()

    def renew(self) -> None:
        """Stops using all present connections, idle or lent: they lead to the wrong server."""
        self._era += 1
        self.drop_idle()

    def drop_idle(self) -> None:
        """Closes the idle connections; the next call connects again."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _next(self) -> C:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if connection.is_alive:
                return connection
            connection.close()
        if self._closed:
            raise Closed(f"{self._where} is closed")
        left = self._next_attempt - time.monotonic()
        if left > 0:
            time.sleep(left)
        try:
            connection = self._connect()
        except ServerUnreachable:
            self._failures += 1
            self._next_attempt = time.monotonic() + RECONNECT.pause(self._failures)
            raise
        self._failures = 0
        return connection

    def _take_back(self, connection: C, era: int) -> None:
        if era != self._era:
            connection.close()
        elif connection.is_whole:  # the next call checks again
            self._idle.append(connection)
        else:
            connection.close()
            # The cause has often broken the other connections, too, and it takes long to find out
            # that a connection no longer responds.
            self.drop_idle()
        # Checked last: `close` drops the idle connections, and this one may have been returned
        # after that.
        if self._closed:
            self.drop_idle()
