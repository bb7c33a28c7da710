"""Asking the store how many tasks are in which state, seldom and never for long.

It is done when somebody scrapes: at most once in ten seconds for a project in which this coordinator has changed something, once a
minute for the others, in which somebody else may have; those that have waited longest come first, and after a second it is enough
for this time. All of it in a thread of its own, for which a scrape waits two seconds at most: a store that is away makes old
figures, not a scrape that hangs.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from genlock.core.keys import NOWHERE, PROJECT, TENANT
from genlock.core.reasons import Status
from genlock.engine.walk import records_of
from genlock.errors import GenlockError
from genlock.service.metrics.tallies import OTHER, Place, Tallies
from genlock.store import Query, Store
from genlock.threads import started

MOVED_SECONDS = 10.0
OTHERS_SECONDS = 60.0
BUDGET_SECONDS = 1.0
WAIT_SECONDS = 2.0


class Counted(NamedTuple):
    """What there is of one project."""

    states: Mapping[str, int]
    """Tasks by state."""
    claims: int
    """Tasks that somebody has, those that are held meanwhile among them."""


class Census:
    """Of one store, for the projects that are tallied."""

    def __init__(self, store: Store, tallies: Tallies, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._tallies = tallies
        self._clock = clock
        self._counts: dict[Place, Counted] = {}
        self._counted_at: dict[Place, float] = {}
        self._searched_at: float | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def counts(self) -> dict[Place, Counted]:
        """By project, as far as is known."""
        with self._lock:
            return dict(self._counts)

    def refresh(self, wait_seconds: float = WAIT_SECONDS) -> None:
        """Counts what is to be counted, or leaves it at that if it takes too long."""
        with self._lock:
            if self._thread is None:
                self._thread = started(self._run, "genlock-census")
            thread = self._thread
        if thread is not None:
            thread.join(wait_seconds)

    def _run(self) -> None:
        try:
            # The store is away or closed: what is known stays, and the next scrape tries again.
            with contextlib.suppress(GenlockError):
                self._count(self._clock() + BUDGET_SECONDS)
        finally:
            with self._lock:
                self._thread = None

    def _count(self, until: float) -> None:
        now = self._clock()
        if self._searched_at is None or now - self._searched_at >= OTHERS_SECONDS:
            self._search(until)
            self._searched_at = now
        for place in self._due(now):
            if self._clock() >= until:
                return
            counts = self._counted(place)
            with self._lock:
                self._counts[place] = counts
                self._counted_at[place] = now

    def _counted(self, place: Place) -> Counted:
        tally = self._tallies.places[place]
        # Before the store is asked: what moves while it counts has moved since.
        tally.moved = False
        try:
            states = dict(self._store.find(Query(*place), count_by="state").counts)
            claims = states.get(Status.IN_PROGRESS, 0)
            if states.get(Status.HELD):
                # Whoever has a task that is held meanwhile is at work on it like any other; its state does not tell.
                claims += sum(self._store.find(Query(*place, state=Status.HELD), count_by="session").counts.values())
            return Counted(states, claims)
        except GenlockError:
            tally.moved = True
            raise

    def _search(self, until: float) -> None:
        """Makes the store's projects known, as many as there is room and time for."""
        for place in self._places():
            with self._tallies.lock:
                full = place not in self._tallies.places and self._tallies.is_full
                if not full:
                    self._tallies.known(place)
            if full or self._clock() >= until:
                return

    def _places(self) -> Iterator[Place]:
        for tenant in records_of(self._store, NOWHERE, None, TENANT):
            for project in records_of(self._store, tenant.key.id, None, PROJECT):
                yield project.key.place

    def _due(self, now: float) -> list[Place]:
        """What is to be counted now, what was counted longest ago first."""
        with self._tallies.lock:
            known = [(place, tally.moved) for place, tally in self._tallies.places.items() if place != OTHER]
        ages = [(now - self._counted_at.get(place, -OTHERS_SECONDS), moved, place) for place, moved in known]
        due = [(age, place) for age, moved, place in ages if age >= (MOVED_SECONDS if moved else OTHERS_SECONDS)]
        return [place for _, place in sorted(due, reverse=True)]
