"""The thread that polls the ends of feeds for all waiters in this process: MySQL sends no
notifications."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from genlock.errors import GenlockError
from genlock.stores.cursors import feed_mark
from genlock.stores.mysql.connection import MySQLConnection
from genlock.stores.mysql.queries import Queries
from genlock.stores.notifications import LINGER_SECONDS, Notifications
from genlock.stores.server import FeedEnd, Project
from genlock.threads import started

LOOK_SECONDS = 0.05
"""The polling interval."""

Lend = Callable[[], AbstractContextManager[MySQLConnection]]


class Watcher:
    """Polls the ends of all feeds that have waiters, while there are any."""

    def __init__(self, lend: Lend, queries: Queries, notifications: Notifications) -> None:
        self._lend = lend
        self._queries = queries
        self._notifications = notifications
        self._changed = threading.Condition()
        self._wanted: Counter[Project] = Counter()
        self._known: dict[Project, FeedEnd] = {}
        self._thread: threading.Thread | None = None

    @property
    def look_seconds(self) -> float:
        """The interval at which a waiter polls for itself: infinite while the thread runs."""
        return LOOK_SECONDS if self._thread is None else float("inf")

    def want(self) -> None:
        """Does nothing: `watched` starts the thread, and keeps it running for the whole wait."""

    def close(self) -> None:
        """Ends the thread, after the notifications are closed."""
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def watched(self, projects: Sequence[Project]) -> Iterator[None]:
        """Polls these feeds for the duration of the block."""
        with self._changed:
            self._wanted.update(projects)
            self._changed.notify_all()
            if self._thread is None and not self._notifications.closed:
                self._thread = started(self._run, "genlock-watcher")
        try:
            yield
        finally:
            with self._changed:
                self._wanted.subtract(projects)
                self._wanted = +self._wanted
                for project in set(projects).difference(self._wanted):
                    self._known.pop(project, None)

    def _run(self) -> None:
        while self._is_wanted():
            with self._changed:
                projects = list(self._wanted)
            try:
                self.look(projects)
            except GenlockError:
                # Each waiter polls for itself, and gets the error.
                self._notifications.tell(None)
            with self._changed:
                self._changed.wait_for(lambda: self._notifications.closed, LOOK_SECONDS)

    def _is_wanted(self) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: self._wanted or self._notifications.closed, LINGER_SECONDS
            )
            wanted = bool(self._wanted) and not self._notifications.closed
            if not wanted:
                self._thread = None
            return wanted

    def look(self, projects: Sequence[Project]) -> dict[Project, FeedEnd]:
        """Reads where these feeds end. Notifies the waiters of those that have moved since the last
        poll."""
        ends = self._ends(projects)
        with self._changed:
            moved = [
                project for project, end in ends.items() if self._known.get(project, end) != end
            ]
            self._known.update(
                {project: end for project, end in ends.items() if project in self._wanted}
            )
        if moved:
            self._notifications.tell([feed_mark(*project) for project in moved])
        return ends

    def _ends(self, projects: Sequence[Project]) -> dict[Project, FeedEnd]:
        queries = self._queries
        parts = [queries["heads"].filled()]
        parts += [
            queries["head_of"].filled(at=at, tenant=tenant, project=project)
            for at, (tenant, project) in enumerate(projects)
        ]
        with self._lend() as connection:
            (_, epoch, birth), *rows = connection.run(b"\nUNION ALL\n".join(parts))[0].rows
        heads = {at: head for at, head, _ in rows}
        return {
            project: FeedEnd(birth, epoch, heads.get(at, 0)) for at, project in enumerate(projects)
        }
