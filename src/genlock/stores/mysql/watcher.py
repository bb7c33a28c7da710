"""The thread that looks where feeds end, for all that wait in this process: MySQL notifies
nobody."""

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
"""Between two looks."""

Lend = Callable[[], AbstractContextManager[MySQLConnection]]


class Watcher:
    """Looks where the feeds end that somebody waits for, as long as somebody does."""

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
        """After so many seconds a waiter looks for itself: never, while the thread does."""
        return LOOK_SECONDS if self._thread is None else float("inf")

    def want(self) -> None:
        """Somebody waits. `watched` says so for longer."""

    def close(self) -> None:
        """Ends the thread, after the notifications are closed."""
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def watched(self, projects: Sequence[Project]) -> Iterator[None]:
        """Looks for these feeds as long as the block lasts."""
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
                # Each waiter looks for itself, and learns what is wrong.
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
        """Where these feeds end. Those that wait are told if one has moved since the last look."""
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
