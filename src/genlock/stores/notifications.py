"""Tracks which feeds have moved. Waiters are notified of commits in this process at once, and of
other processes' commits by a listener: a thread that runs while there are waiters."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from genlock.stores.connection_pool import (
    RECONNECT,
    ConnectionBroken,
    PooledConnection,
    Refused,
    ServerUnreachable,
)
from genlock.threads import started

C = TypeVar("C", bound=PooledConnection)

LOOK_SECONDS = 0.5
"""The polling interval while the listener is connected. Needed only if a message is lost."""
DEAF_SECONDS = 0.05
"""The polling interval while the listener is not connected."""
LINGER_SECONDS = 5.0
"""How long the listener keeps running after the last waiter."""

MOST_MARKS = 10_000
"""How many feeds are tracked one by one. Beyond that, all count as moved."""


def marks_in(message: str | bytes) -> list[int]:
    """Returns the numbers in a message; none if another program sent it, which is possible."""
    try:
        return [int(part) for part in message.split()]
    except ValueError:
        return []


class Notifications:
    """Which feeds have moved, by their marks, and since when."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._changed, self._elsewhere = threading.Condition(lock), threading.Condition(lock)
        """Signalled when any feed has moved, and when another process moved one. A waiter for
        others' commits is not woken by commits of this process."""
        self._marks: dict[int, int] = {}
        self._others: dict[int, int] = {}
        """The same, counting only commits of other processes."""
        self._all = 0
        self._serial = 0
        self._looks: dict[int, tuple[str, int, int]] = {}
        """By mark: the cursor that was found, and the numbers above which a move counts for `wait`
        and for `hear`."""
        self._heard: dict[int, int] = {}
        """The number at which `hear` last reported the feed."""
        self._closed = False

    def now(self) -> int:
        """Returns the present serial number. Later moves have greater numbers."""
        return self._serial

    def looked(self, mark: int, cursor: str, since: int) -> None:
        """Records that a reader found the end of the feed at this cursor, at some time after
        `since`.

        A caller of `hear` may have been notified of a move and read the feed only now. Events in
        between come before the cursor and have not been reported yet. So for `hear` every move
        after its last report counts.
        """
        with self._changed:
            if len(self._looks) > MOST_MARKS:
                self._looks.clear()
            self._looks[mark] = cursor, since, min(since, self._heard.get(mark, since))

    def since_look(
        self, cursors: Mapping[int, str], *, hearing: bool = False
    ) -> dict[int, int] | None:
        """Returns for each feed the number above which it has moved since a reader found it at its
        cursor; None if any of them was not found at its cursor."""
        known: dict[int, int] = {}
        with self._changed:
            for mark, cursor in cursors.items():
                found, waiting, heard = self._looks.get(mark, ("", 0, 0))
                if found != cursor:
                    return None
                known[mark] = heard if hearing else waiting
        return known

    def tell(self, marks: Iterable[int] | None, *, here: bool = False) -> None:
        """Records that these feeds have moved, by this process (`here`) or another. None: any feed
        may have moved."""
        with self._changed:
            self._serial += 1
            moved = dict.fromkeys(marks or (), self._serial)
            if marks is None or len(self._marks) > MOST_MARKS:
                self._all = self._serial
                for known in (self._marks, self._others, self._heard):
                    known.clear()
                self._elsewhere.notify_all()
            self._marks.update(moved)
            if not here:
                self._others.update(moved)
                self._elsewhere.notify_all()
            self._changed.notify_all()

    def wait(self, since: Mapping[int, int], seconds: float) -> list[int]:
        """Waits until one of the feeds has moved since its number, `seconds` have passed, or
        `close` is called. Returns the feeds that have moved."""
        return self._wait(self._changed, self._marks, since, seconds)

    def hear(self, since: Mapping[int, int], seconds: float) -> list[int]:
        """Like `wait`, for commits of other processes only."""
        moved = self._wait(self._elsewhere, self._others, since, seconds)
        with self._elsewhere:
            self._heard.update({mark: self._others.get(mark, 0) for mark in moved})
        return moved

    def _wait(
        self,
        told: threading.Condition,
        serials: dict[int, int],
        since: Mapping[int, int],
        seconds: float,
    ) -> list[int]:
        def moved() -> list[int]:
            return [mark for mark, number in since.items() if serials.get(mark, 0) > number]

        with told:
            first = min(since.values(), default=self._serial)
            told.wait_for(lambda: self._closed or self._all > first or moved(), seconds)
            return moved()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends all waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._elsewhere.notify_all()


class Listener(ABC, Generic[C]):
    """Receives notifications of commits by other processes, in a thread of its own, while there are
    waiters."""

    def __init__(self, connect: Callable[[], C], notifications: Notifications) -> None:
        self._connect = connect
        self._notifications = notifications
        self._lock = threading.Lock()
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self.hears = False

    @property
    def look_seconds(self) -> float:
        """The interval at which a waiter polls the feed itself."""
        return LOOK_SECONDS if self.hears else DEAF_SECONDS

    def want(self) -> None:
        """Starts the listener if it is not running, and keeps it running for `LINGER_SECONDS`."""
        with self._lock:
            self._wanted_until = time.monotonic() + LINGER_SECONDS
            if self._thread is None and not self._notifications.closed:
                self._thread = started(self._run, "genlock-listener")

    def _run(self) -> None:
        failures = 0
        while self._is_wanted():
            connection: C | None = None
            try:
                connection = self._connect()
                self._listen(connection)
            except (ServerUnreachable, Refused, ConnectionBroken):
                failures += 1
                self._notifications.wait({}, RECONNECT.pause(failures))
            finally:
                self.hears = False
                if connection is not None:
                    connection.close()

    @abstractmethod
    def _listen(self, connection: C) -> None:
        """Subscribes, sets `hears`, and passes notifications on while it is wanted."""

    def _is_wanted(self) -> bool:
        with self._lock:
            wanted = not self._notifications.closed and time.monotonic() < self._wanted_until
            if not wanted:
                self._thread = None
            return wanted

    @abstractmethod
    def close(self) -> None:
        """Ends the thread, after the notifications are closed."""
