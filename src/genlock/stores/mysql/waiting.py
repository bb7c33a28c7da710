"""Waiting for a feed to move. MySQL calls nobody: one thread looks for all who wait here, and what is committed here is told at once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from genlock.errors import GenlockError
from genlock.stores.moves import Moves
from genlock.stores.mysql.link import Link
from genlock.stores.mysql.queries import Queries
from genlock.stores.places import decode_cursor, feed_mark
from genlock.threads import started

LOOK = 0.05
"""Seconds between two looks."""
LINGER = 5.0
"""Seconds without anybody who waits after which the thread ends."""

Project = tuple[str, str]
Lend = Callable[[], AbstractContextManager[Link]]


class State(NamedTuple):
    """Where a feed is."""

    birth: bytes
    epoch: int
    head: int


class Watcher:
    """Looks where the feeds are that somebody waits for, as long as somebody does."""

    def __init__(self, lend: Lend, queries: Queries, moves: Moves) -> None:
        self._lend = lend
        self._queries = queries
        self._moves = moves
        self._bell = threading.Condition()
        self._wanted: Counter[Project] = Counter()
        self._known: dict[Project, State] = {}
        self._thread: threading.Thread | None = None

    def wait(self, projects: Sequence[Project], after: Sequence[str], timeout: float) -> None:
        """Returns when one of the feeds is no longer where its cursor is, after `timeout` seconds, or when the store is closed."""
        deadline = time.monotonic() + timeout
        cursors = [decode_cursor(cursor) for cursor in after]
        with self._watched(projects):
            # The number before the look: what moves in between counts as later.
            since = self._moves.now()
            states = self._look(list(projects))
            if any(State(*cursor[:3]) != states[project] for project, cursor in zip(projects, cursors, strict=True)):
                return
            left = max(0.0, deadline - time.monotonic())
            # Where there is no thread to look for us, we come back soon, and look ourselves.
            self._moves.wait({cursor.feed: since for cursor in cursors}, left if self._thread is not None else min(left, LOOK))

    def close(self) -> None:
        """Ends the thread, after `moves` is closed."""
        with self._bell:
            self._bell.notify_all()

    @contextmanager
    def _watched(self, projects: Sequence[Project]) -> Iterator[None]:
        with self._bell:
            self._wanted.update(projects)
            self._bell.notify_all()
            if self._thread is None and not self._moves.closed:
                self._thread = started(self._run, "genlock-watcher")
        try:
            yield
        finally:
            with self._bell:
                self._wanted.subtract(projects)
                self._wanted = +self._wanted
                for project in set(projects).difference(self._wanted):
                    self._known.pop(project, None)

    def _run(self) -> None:
        while self._is_wanted():
            with self._bell:
                projects = list(self._wanted)
            try:
                self._look(projects)
            except GenlockError:
                self._moves.tell(None)  # whoever waits looks for himself, and learns what is wrong
            with self._bell:
                self._bell.wait_for(lambda: self._moves.closed, LOOK)

    def _is_wanted(self) -> bool:
        with self._bell:
            self._bell.wait_for(lambda: self._wanted or self._moves.closed, LINGER)
            wanted = bool(self._wanted) and not self._moves.closed
            if not wanted:
                self._thread = None
            return wanted

    def _look(self, projects: list[Project]) -> dict[Project, State]:
        """Where these feeds are. Who looked before and saw another state is told."""
        states = self._states(projects)
        with self._bell:
            moved = [project for project, state in states.items() if self._known.get(project, state) != state]
            self._known.update({project: state for project, state in states.items() if project in self._wanted})
        if moved:
            self._moves.tell([feed_mark(*project) for project in moved])
        return states

    def _states(self, projects: list[Project]) -> dict[Project, State]:
        queries = self._queries
        parts = [queries["heads"].filled()]
        parts += [queries["head_of"].filled(at=at, tenant=tenant, project=project) for at, (tenant, project) in enumerate(projects)]
        with self._lend() as link:
            (_, epoch, birth), *rows = link.run(b"\nUNION ALL\n".join(parts))[0].rows
        heads = {at: head for at, head, _ in rows}
        return {project: State(birth, epoch, heads.get(at, 0)) for at, project in enumerate(projects)}
