"""Notifications between processes by NOTIFY and LISTEN.

NOTIFY takes a database-wide lock when it commits, so it is never part of a commit. A thread sends
it afterwards, for many commits at once, and only if there are listeners. A notification is a hint:
waiters also poll at long intervals, and at short ones while they have no listener.
"""

from __future__ import annotations

import os
import secrets
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial

from genlock.errors import GenlockError
from genlock.stores.connection_pool import ConnectionBroken, Refused, ServerUnreachable
from genlock.stores.notifications import LINGER_SECONDS, Listener, Notifications, marks_in
from genlock.stores.postgres.connection import PostgresConnection
from genlock.stores.postgres.queries import Statement
from genlock.stores.postgres.settings import Settings
from genlock.threads import started

HEARD_PAUSE = 0.004
"""The pause, in seconds, between two notifications while there are listeners."""
UNHEARD_PAUSE = 0.05
"""The same while there are no listeners. A new listener may be detected this late."""
IDLE_SECONDS = 60.0
"""Seconds without a commit after which the notifying thread ends."""
CLOSE_SECONDS = 1.0
"""How long `close` waits for a notification that is being sent."""
MOST_MARKS = 500
"""The most feeds named in one notification. If there are more, none is named and all count as
moved."""

Lend = Callable[[], AbstractContextManager[PostgresConnection]]


def new_name() -> int:
    """Returns a name for a process, by which it recognises its own notifications. It is negative,
    because no feed's mark is."""
    return -1 - secrets.randbits(62)


class Notifier:
    """Notifies other processes, from a thread of its own, of the feeds that have moved, soon after
    the commit."""

    def __init__(
        self, lend: Lend, statement: Statement, name: int, listener: PostgresListener
    ) -> None:
        """`listener` belongs to this process, and needs no notification."""
        self._lend = lend
        self._statement = statement
        self._name = name
        self._listener = listener
        self._pending: set[int] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._rests = False
        """Is the thread in a sleep that commits must not interrupt? Waking it would take the
        interpreter from the thread that has just committed."""
        self._closed = False

    def changed(self, marks: Iterable[int]) -> None:
        """Queues a notification that these feeds have moved."""
        with self._changed:
            self._pending.update(marks)
            if self._thread is None:
                self._thread = started(self._run, "genlock-notifier")
            elif not self._rests:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if (
                    not self._changed.wait_for(lambda: self._pending or self._closed, IDLE_SECONDS)
                    or self._closed
                ):
                    self._thread = None
                    return
            heard = self._send()
            with self._changed:
                self._rests = True
                self._changed.wait_for(
                    lambda: self._closed, HEARD_PAUSE if heard else UNHEARD_PAUSE
                )
                self._rests = False

    def _send(self) -> bool:
        with self._changed:
            marks, self._pending = self._pending, set()
        message = " ".join(map(str, (self._name, *marks))) if len(marks) <= MOST_MARKS else ""
        # Feeds that are not named are found by polling.
        with (
            suppress(ServerUnreachable, Refused, ConnectionBroken, GenlockError),
            self._lend() as connection,
        ):
            own = self._listener.backend
            return bool(connection.rows(self._statement, message=message, own=own))
        return False

    def close(self) -> None:
        """Sends the queued notifications, so that no process has to poll for them."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        if self._pending:
            self._send()


class PostgresListener(Listener[PostgresConnection]):
    """Receives notifications of commits by other processes."""

    def __init__(
        self, settings: Settings, channel: Statement, notifications: Notifications, name: int
    ) -> None:
        super().__init__(partial(PostgresConnection, settings, settings.listen), notifications)
        self._can_listen = settings.listen is not None
        self._channel = channel
        self._name = name
        self._stop_read, self._stop_write = os.pipe()
        self.backend = 0
        """The server process of its connection, while it listens."""

    def want(self) -> None:
        """Keeps the listener running for a waiter."""
        if self._can_listen:
            super().want()

    def _listen(self, connection: PostgresConnection) -> None:
        try:
            ((channel, _),) = connection.rows(self._channel)
            connection.command(f"LISTEN {channel}")
            self.hears, self.backend = True, connection.pg.backend_pid
            self._notifications.tell(None)  # a feed may have moved before LISTEN took effect
            ready = select.poll()  # select() cannot handle descriptors above 1024
            ready.register(self._stop_read, select.POLLIN)
            ready.register(connection.pg.socket, select.POLLIN)
            while self._is_wanted():
                ready.poll(LINGER_SECONDS * 1000)
                for message in connection.notified():
                    marks = marks_in(message)
                    if not marks or marks[0] != self._name:  # skips its own notifications
                        self._notifications.tell(marks or None)
        finally:
            self.backend = 0

    def close(self) -> None:
        """Ends the thread, after the notifications are closed."""
        os.write(self._stop_write, b"!")

    def __del__(self) -> None:
        os.close(self._stop_read)
        os.close(self._stop_write)
