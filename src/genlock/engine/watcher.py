"""The watcher: one thread that waits on the store's feeds for all who sleep, and pokes their lanes.

It starts with the first sleeper and ends when nobody has slept for a while: no daemon, and no cost when nobody waits.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterable
from typing import Protocol

from genlock.engine.spans import Runs, Span
from genlock.errors import Closed, CursorLost, StoreError
from genlock.store import EventPage, EventQuery, Store, hear
from genlock.threads import started

_LINGER_SECONDS = 5.0
_WAIT_SECONDS = 1.0


class Sleeper(Protocol):
    """Whoever is woken."""

    def poke(self) -> None: ...


class Watcher:
    """Watches places, each from a cursor on."""

    def __init__(self, store: Store, *, hears: bool) -> None:
        """Only who is alone with a handle `hears`: what another commits by it counts as committed here."""
        self._store = store
        self._hears = hears
        self._lock = threading.Lock()
        self._cursors: dict[tuple[str, str], str] = {}
        self._sleepers: dict[tuple[str, str], Sleeper] = {}
        self._until: dict[tuple[str, str], float] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._own: dict[tuple[str, str], Runs] = {}
        """What this coordinator itself has written: nobody need be woken for that, as its lane sees to it."""
        self._thread: threading.Thread | None = None
        self._closing = False

    def watch(self, place: tuple[str, str], sleeper: Sleeper) -> None:
        """From now on, and for a few seconds after the last call, `sleeper` is poked when the place's feed moves."""
        with self._lock:
            if place not in self._cursors:
                end = self._store.read_events(EventQuery(*place, tail=True))
                # Only now: what is there to be forgotten must be there as a whole.
                self._cursors[place], self._positions[place], self._own[place] = end.cursor, end.position, Runs()
                self._sleepers[place] = sleeper
            self._until[place] = time.monotonic() + _LINGER_SECONDS
            if self._thread is None and not self._closing:
                # Where there can be none, whoever sleeps looks from time to time all the same.
                self._thread = started(self._run, "genlock-watcher")

    def close(self) -> None:
        """Ends the thread soon."""
        with self._lock:
            self._closing = True

    def join(self) -> None:
        with self._lock:  # not between its making and its start
            thread = self._thread
        if thread is not None:
            thread.join(timeout=2)

    def _run(self) -> None:
        silent = False
        while True:
            with self._lock:
                now = time.monotonic()
                for place in [place for place, until in self._until.items() if until < now]:
                    del self._cursors[place], self._sleepers[place], self._until[place], self._positions[place], self._own[place]
                if self._closing or not self._cursors:
                    self._thread = None
                    return
                places, cursors = list(self._cursors), list(self._cursors.values())
            heard: Collection[tuple[str, str]] = ()
            try:
                asleep = time.monotonic()
                if self._hears:
                    heard = hear(self._store, places, cursors, _WAIT_SECONDS)
                else:
                    self._store.wait(places, cursors, _WAIT_SECONDS)
                # Where the feed ends now is only for the next wait: whoever sleeps is not to wait for the answer.
                self._poke(heard)
                # Who slept to the end was told nothing: such a look is taken every other time only, for stores that never tell.
                silent = not silent and time.monotonic() - asleep >= _WAIT_SECONDS
                moved = [] if silent else [(place, self._tail(place)) for place in heard or places]
            except Closed:
                return
            except StoreError:
                moved = []
                time.sleep(0.05)
            with self._lock:
                for place, end in moved:
                    if end is not None and place in self._cursors and self._cursors[place] != end.cursor:
                        before, self._positions[place] = self._positions[place], end.position
                        self._cursors[place] = end.cursor
                        if place not in heard and self._own[place].end_after(before) < end.position:
                            self._sleepers[place].poke()

    def _poke(self, places: Iterable[tuple[str, str]]) -> None:
        with self._lock:
            for place in places:
                sleeper = self._sleepers.get(place)
                if sleeper is not None:
                    sleeper.poke()

    def own(self, spans: list[Span]) -> None:
        """These events are this coordinator's own."""
        if not self._own:
            return
        with self._lock:
            for span in spans:
                runs = self._own.get(span.place)
                if runs is not None and span.unbroken:
                    runs.add(span.first, span.last)

    def _tail(self, place: tuple[str, str]) -> EventPage | None:
        with contextlib.suppress(CursorLost):
            return self._store.read_events(EventQuery(*place, tail=True))
        return None
