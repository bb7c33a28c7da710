"""The few connections that all threads of one store share, and the patience with a server that is away."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from genlock.errors import Closed

FIRST_PAUSE = 0.01
LONGEST_PAUSE = 0.5
FULL_SECONDS = 5.0
"""How long one waits for a connection while others use them all."""


class Unreachable(Exception):
    """There is no connection: nothing was sent."""


class Connected(Protocol):
    """One connection, used by one thread at a time."""

    @property
    def is_whole(self) -> bool:
        """Is it as good as new, as far as it has shown?"""

    @property
    def is_alive(self) -> bool:
        """The same, and is there nothing to be heard from it either, such as farewell?"""

    def close(self) -> None:
        """Ends it; calling it again is fine."""


L = TypeVar("L", bound=Connected)


class Backoff:
    """When to try again what has just failed: a random pause that grows from failure to failure."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE
        self._until = 0.0

    def wait(self) -> None:
        """Sleeps until it is time."""
        left = self._until - time.monotonic()
        if left > 0:
            time.sleep(left)

    def failed(self) -> None:
        """Once more in vain."""
        self._until = time.monotonic() + random.uniform(self._pause / 2, self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def succeeded(self) -> None:
        """From now on failures count anew."""
        self._pause = FIRST_PAUSE


class Links(Generic[L]):
    """Connections, each used by one thread at a time; the one used last is used next."""

    def __init__(self, connect: Callable[[], L], most: int, where: str) -> None:
        """`connect` opens one, or raises `Unreachable`; `where` is for messages."""
        self._connect = connect
        self._most = most
        self._where = where
        self._idle: list[L] = []
        self._room = threading.BoundedSemaphore(most)
        self.ahead, self.under_way = threading.BoundedSemaphore(most // 4), threading.BoundedSemaphore(most - 1 - most // 4)
        """For loads and for commits that keep their connection between two steps: one is always left to others. See sending.py."""
        self._backoff = Backoff()
        self._closed = False
        self._era = 0
        """How often connections were given up that worked."""

    @contextmanager
    def lent(self) -> Iterator[L]:
        """A connection for as long as the block lasts. One that saw an error stays only if it is as good as new."""
        if not self._room.acquire(timeout=FULL_SECONDS):
            raise Unreachable(f"all {self._most} connections have been in use for {FULL_SECONDS:g} s (pool=… in the URL)")
        link: L | None = None
        era = self._era
        try:
            link = self._next()
            yield link
        finally:
            if link is not None:
                self._take_back(link, era)
            self._room.release()

    def close(self) -> None:
        """Closes what is idle now, and the rest when it comes back."""
        self._closed = True
        self.drop_idle()

    def renew(self) -> None:
        """Uses no connection again that there is now, idle or lent: where they lead to is not the right place any more."""
        self._era += 1
        self.drop_idle()

    def drop_idle(self) -> None:
        """Closes what is idle; whoever comes next connects anew."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _next(self) -> L:
        while self._idle:
            try:
                link = self._idle.pop()
            except IndexError:
                break
            if link.is_alive:
                return link
            link.close()
        if self._closed:
            raise Closed(f"{self._where} is closed")
        self._backoff.wait()
        try:
            link = self._connect()
        except Unreachable:
            self._backoff.failed()
            raise
        self._backoff.succeeded()
        return link

    def _take_back(self, link: L, era: int) -> None:
        if era != self._era:
            link.close()
        elif link.is_whole:  # whether it stays so, whoever takes it next has to look in any case
            self._idle.append(link)
        else:
            link.close()
            # Whatever broke this one has often broken the others too, and a connection that is only silent takes long to find out about.
            self.drop_idle()
        if self._closed:  # looked at last: whoever closes takes what is idle, and we take what came after that
            self.drop_idle()
