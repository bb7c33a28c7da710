"""Notifications between processes by NOTIFY and LISTEN.

NOTIFY takes a lock of the whole database when it commits, so it is never part of a commit. A thread
sends it afterwards, for many commits at once, and only if anybody listens. A notification is a
hint: a waiter also looks for itself now and then, and often where nothing can be heard.
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
"""Seconds between two notifications while somebody listens."""
UNHEARD_PAUSE = 0.05
"""The same while nobody does. A new listener may be noticed so late."""
IDLE_SECONDS = 60.0
"""Seconds without a commit after which the notifying thread ends."""
CLOSE_SECONDS = 1.0
"""How long closing waits for a notification that is being sent."""
MOST_MARKS = 500
"""Feeds named in one notification. More are not named: then all count as moved."""

Lend = Callable[[], AbstractContextManager[PostgresConnection]]


def new_name() -> int:
    """A name for a process, by which it knows its own notifications. It is negative, because no
    feed's mark is."""
    return -1 - secrets.randbits(62)


class Notifier:
    """Tells other processes which feeds have moved, in a thread of its own, soon after the
    commit."""

    def __init__(
        self, lend: Lend, statement: Statement, name: int, listener: PostgresListener
    ) -> None:
        """`listener` is this process's own, which need not be told."""
        self._lend = lend
        self._statement = statement
        self._name = name
        self._listener = listener
        self._pending: set[int] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._rests = False
        """Does the thread sleep whatever comes? Waking it would take the interpreter from the
        thread that has just committed."""
        self._closed = False

    def changed(self, marks: Iterable[int]) -> None:
        """These feeds have moved."""
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
        # Those that are not told find out by looking.
        with (
            suppress(ServerUnreachable, Refused, ConnectionBroken, GenlockError),
            self._lend() as connection,
        ):
            own = self._listener.backend
            return bool(connection.rows(self._statement, message=message, own=own))
        return False

    def close(self) -> None:
        """Sends what has not been sent yet, so that nobody has to wait for it."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        if self._pending:
            self._send()


class PostgresListener(Listener[PostgresConnection]):
    """Hears of commits by other processes."""

    def __init__(
        self, settings: Settings, channel: Statement, notifications: Notifications, name: int
    ) -> None:
        super().__init__(partial(PostgresConnection, settings, settings.listen), notifications)
        self._can_listen = settings.listen is not None
        self._channel = channel
        self._name = name
        self._stop_read, self._stop_write = os.pipe()
        self.backend = 0
        """The server's process that it listens to, while it does."""

    def want(self) -> None:
        """Somebody waits."""
        if self._can_listen:
            super().want()

    def _listen(self, connection: PostgresConnection) -> None:
        try:
            ((channel, _),) = connection.rows(self._channel)
            connection.command(f"LISTEN {channel}")
            self.hears, self.backend = True, connection.pg.backend_pid
            self._notifications.tell(None)  # something may have moved before it could be heard
            ready = select.poll()  # select() knows no files beyond the first thousand
            ready.register(self._stop_read, select.POLLIN)
            ready.register(connection.pg.socket, select.POLLIN)
            while self._is_wanted():
                ready.poll(LINGER_SECONDS * 1000)
                for message in connection.notified():
                    marks = marks_in(message)
                    if not marks or marks[0] != self._name:  # its own are known
                        self._notifications.tell(marks or None)
        finally:
            self.backend = 0

    def close(self) -> None:
        """Ends the thread, after the notifications are closed."""
        os.write(self._stop_write, b"!")

    def __del__(self) -> None:
        os.close(self._stop_read)
        os.close(self._stop_write)
