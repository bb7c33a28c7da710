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
"""Between attempts to connect to a server that is away."""
FULL_SECONDS = 5.0
"""How long a call waits for a connection while others use them all."""


class ServerUnreachable(Exception):
    """There is no connection: nothing was sent."""


class ConnectionBroken(Exception):
    """The connection was lost, or the server fell silent, after a request had been sent: it may
    have been done or not."""


class Refused(Exception):
    """The server answered a request with an error: nothing of it was done."""

    def __init__(self, code: str | int, message: str, done: int = 0) -> None:
        """`done` requests that were sent in one piece with it were done before it."""
        self.code = code
        self.done = done
        super().__init__(message)


class PooledConnection(Protocol):
    """One connection, used by one thread at a time."""

    @property
    def is_whole(self) -> bool:
        """Is it as good as new, as far as is known?"""

    @property
    def is_alive(self) -> bool:
        """Is it whole, and has the server not closed it?"""

    def close(self) -> None:
        """Ends it; calling it again is fine."""


C = TypeVar("C", bound=PooledConnection)


class ConnectionPool(Generic[C]):
    """Connections, each used by one thread at a time; the one used last is used next."""

    def __init__(self, connect: Callable[[], C], most: int, where: str) -> None:
        """`connect` opens one, or raises `ServerUnreachable`; `where` is for messages."""
        self._connect = connect
        self._most = most
        self._where = where
        self._idle: list[C] = []
        self._room = threading.BoundedSemaphore(most)
        self.started_loads = threading.BoundedSemaphore(most // 4)
        self.started_commits = threading.BoundedSemaphore(most - 1 - most // 4)
        """Calls that keep their connection between two steps. One connection is always left to
        others: see round_trips.py."""
        self._failures = 0
        self._next_attempt = 0.0
        self._closed = False
        self._era = 0
        """How often connections were given up that worked."""

    @contextmanager
    def lent(self) -> Iterator[C]:
        """A connection for as long as the block lasts. One that saw an error stays only if it is as
        good as new."""
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
        """Closes the idle connections now, and the others when they come back."""
        self._closed = True
        self.drop_idle()

    def renew(self) -> None:
        """Uses none of the present connections again, idle or lent: they lead to the wrong
        server."""
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
        elif connection.is_whole:  # the next call looks in any case whether it has stayed so
            self._idle.append(connection)
        else:
            connection.close()
            # The cause has often broken the others, too, and it takes long to find out that a
            # connection is silent.
            self.drop_idle()
        # Looked at last: `close` drops what is idle, and this what came back after that.
        if self._closed:
            self.drop_idle()
