"""Waiting for a feed to move. Every commit is published by its script; whoever listens is told, and looks now and then all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from genlock.stores.links import FIRST_PAUSE, LONGEST_PAUSE, Unreachable
from genlock.stores.moves import Moves, marks_in
from genlock.stores.places import decode_cursor
from genlock.stores.redis.faults import Broken, Refused
from genlock.stores.redis.link import Link
from genlock.stores.redis.settings import Settings
from genlock.stores.redis.wire import Names
from genlock.threads import started

LOOK = 0.5
"""Seconds between looks while we can hear: only in case a message is lost."""
DEAF = 0.05
"""Seconds between looks while we cannot."""
LINGER = 5.0
"""Seconds that the listener stays after the last one who waited."""
GLANCE = 0.2
"""Seconds after which the listener sees that the store was closed."""

Lend = Callable[[], AbstractContextManager[Link]]


class Listener:
    """Hears what is published, in a thread of its own, while anybody waits."""

    def __init__(self, settings: Settings, channel: str, moves: Moves) -> None:
        self._settings = settings
        self._channel = channel
        self._moves = moves
        self._lock = threading.Lock()
        self._wanted_until = 0.0
        self._thread: threading.Thread | None = None
        self.hears = False

    def want(self) -> None:
        """Somebody waits."""
        with self._lock:
            self._wanted_until = time.monotonic() + LINGER
            if self._thread is None and not self._moves.closed:
                self._thread = started(self._run, "genlock-listener")

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while self._is_wanted():
            link: Link | None = None
            try:
                link = Link(self._settings)
                self._listen(link)
            except (Unreachable, Refused, Broken):
                self._moves.wait({}, pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            finally:
                self.hears = False
                if link is not None:
                    link.close()

    def _listen(self, link: Link) -> None:
        link.listen(self._channel)
        self.hears = True
        self._moves.tell(None)  # what was told before we could hear it
        while self._is_wanted():
            told = link.heard(GLANCE)
            if told is not None:
                self._moves.tell(marks_in(told) or None)

    def _is_wanted(self) -> bool:
        with self._lock:
            wanted = not self._moves.closed and time.monotonic() < self._wanted_until
            if not wanted:
                self._thread = None
            return wanted

    def close(self) -> None:
        """Ends the thread, after `moves` is closed."""
        with self._lock:  # not between its making and its start
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * GLANCE)


def wait(
    lend: Lend, names: Names, moves: Moves, listener: Listener, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float
) -> None:
    """Returns when one of the feeds is no longer where its cursor is, after `timeout` seconds, or when the store is closed."""
    deadline = time.monotonic() + timeout
    places = [decode_cursor(cursor) for cursor in after]
    marks = {place.feed for place in places}
    keys = [names.store, *(names.place(*project) for project in projects)]
    known = [(place.birth, place.epoch, place.position) for place in places]
    while not moves.closed:
        # The number before the look: what moves in between counts as later.
        since = moves.now()
        with lend() as link:
            (birth, epoch), *feeds = link.run("heads_of_feeds", keys)
        if known != [(birth, int(epoch or 0), int(feed[0] or 0)) for feed in feeds]:
            return
        left = deadline - time.monotonic()
        if left <= 0:
            return
        listener.want()
        if moves.wait(dict.fromkeys(marks, since), min(left, LOOK if listener.hears else DEAF)):
            return
