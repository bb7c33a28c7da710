"""Waking whoever waits for a feed: what moved here is told at once, what moved elsewhere comes by NOTIFY.

NOTIFY takes a lock of the whole database when it commits, so it is never part of a commit: a thread sends it afterwards, for many
commits at once, and only if anybody listens. A notification is a hint. Who waits looks again now and then whatever he hears, and
often where nothing can be heard.
"""

from __future__ import annotations

import os
import secrets
import select
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any

from genlock.errors import GenlockError
from genlock.stores.links import FIRST_PAUSE, LONGEST_PAUSE, Unreachable
from genlock.stores.moves import Moves, marks_in
from genlock.stores.postgres.faults import Broken, Refused
from genlock.stores.postgres.link import Link
from genlock.stores.postgres.settings import Settings
from genlock.threads import started

HEARD_PAUSE = 0.004
"""Seconds between two notifications while somebody listens."""
UNHEARD_PAUSE = 0.05
"""The same while nobody does: so long it may take until a new listener is noticed."""
LINGER = 5.0
"""Seconds that the listener stays after the last one who waited."""
IDLE_SECONDS = 60.0
"""Seconds without a commit after which the thread that notifies ends."""
LAST_WORDS = 1.0
"""Seconds that closing waits for a notification under way."""
MOST_MARKS = 500
"""Feeds named in one notification; more are not named but meant all together."""

Lend = Callable[[], AbstractContextManager[Link]]


def new_name() -> int:
    """Who tells something, so that he knows his own words again. It is below zero: to whoever knows no names it is a feed that is none."""
    return -1 - secrets.randbits(62)


class Notifier:
    """Tells other processes what has moved here, in a thread of its own, soon after the commit."""

    def __init__(self, lend: Lend, statement: str, name: int, listener: Listener) -> None:
        """`listener` is this process's own, who need not be told."""
        self._lend = lend
        self._statement = statement
        self._name = name
        self._listener = listener
        self._pending: set[int] = set()
        self._bell = threading.Condition()
        self._thread: threading.Thread | None = None
        self._rests = False
        """Does the thread sleep, whatever comes? To wake it then would take the interpreter from whoever has just committed."""
        self._closed = False

    def changed(self, marks: Iterable[int]) -> None:
        """These feeds have moved."""
        with self._bell:
            self._pending.update(marks)
            if self._thread is None:
                self._thread = started(self._run, "genlock-notifier")
            elif not self._rests:
                self._bell.notify()

    def _run(self) -> None:
        while True:
            with self._bell:
                if not self._bell.wait_for(lambda: self._pending or self._closed, IDLE_SECONDS) or self._closed:
                    self._thread = None
                    return
            heard = self._send()
            with self._bell:
                self._rests = True
                self._bell.wait_for(lambda: self._closed, HEARD_PAUSE if heard else UNHEARD_PAUSE)
                self._rests = False

    def _send(self) -> bool:
        with self._bell:
            marks, self._pending = self._pending, set()
        payload = " ".join(map(str, (self._name, *marks))) if len(marks) <= MOST_MARKS else ""
        # Whoever is not told finds out by looking.
        with suppress(Unreachable, Refused, Broken, GenlockError), self._lend() as link:
            return bool(link.rows(self._statement, payload, self._listener.backend))
        return False

    def close(self) -> None:
        """Sends what has not been sent yet: others should not wait for it because we are leaving."""
        with self._bell:
            self._closed = True
            thread = self._thread
            self._bell.notify()
        if thread is not None:
            thread.join(LAST_WORDS)
        if self._pending:
            self._send()


class Listener:
    """Hears what other processes tell, in a thread of its own, while anybody waits."""

    def __init__(self, settings: Settings, channel: str, moves: Moves, name: int) -> None:
        self._settings = settings
        self._channel = channel
        self._moves = moves
        self._name = name
        self._lock = threading.Lock()
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self._stop_read, self._stop_write = os.pipe()
        self.hears = False
        self.backend = 0
        """The server's process that it listens to, while it does."""

    def want(self) -> None:
        """Somebody waits."""
        with self._lock:
            self._wanted_until = time.monotonic() + LINGER
            if self._thread is None and self._settings.listen is not None and not self._moves.closed:
                self._thread = started(self._run, "genlock-listener")

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._is_wanted():
            link: Link | None = None
            try:
                link = Link(self._settings, self._settings.listen)
                self._listen(link)
            except (Unreachable, Refused, Broken):
                self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            finally:
                self.hears, self.backend = False, 0
                if link is not None:
                    link.close()

    def _listen(self, link: Link) -> None:
        rows: Any = link.rows(self._channel)
        link.script(f"LISTEN {rows[0][0]}")
        self.hears, self.backend = True, link.pg.backend_pid
        self._moves.tell(None)  # what was told before we could hear it
        ready = select.poll()
        ready.register(self._stop_read, select.POLLIN)
        ready.register(link.pg.socket, select.POLLIN)
        while self._is_wanted():
            ready.poll(LINGER * 1000)
            for payload in link.notified():
                told = marks_in(payload)
                if not told or told[0] != self._name:  # our own we know of
                    self._moves.tell(told or None)

    def _is_wanted(self) -> bool:
        with self._lock:
            wanted = not self._moves.closed and time.monotonic() < self._wanted_until
            if not wanted:
                self._thread = None
            return wanted

    def _sleep(self, seconds: float) -> None:
        stopped = select.poll()  # select() knows no files beyond the first thousand
        stopped.register(self._stop_read, select.POLLIN)
        stopped.poll(seconds * 1000)

    def close(self) -> None:
        """Ends the thread, after `moves` is closed."""
        os.write(self._stop_write, b"!")

    def __del__(self) -> None:
        os.close(self._stop_read)
        os.close(self._stop_write)
