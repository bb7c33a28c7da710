"""The feed watcher: one thread that waits on the store's feeds and wakes the lanes with waiters.

It starts with the first waiter and ends when there has been none for a while. `FeedRange` and
`RangeSet` have the positions of a feed that this coordinator has written itself, so that it need
not read its own events.
"""

from __future__ import annotations

import contextlib
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from genlock.engine.commit import LoadedRecord
from genlock.engine.edit_watch import EditWatch
from genlock.errors import Closed, CursorLost, StoreError
from genlock.store import EventPage, EventQuery, Store
from genlock.threads import started

# Positions in feeds


class FeedRange(NamedTuple):
    """The events of one commit in one project's feed."""

    place: tuple[str, str]
    first: int
    last: int
    events: int

    @property
    def unbroken(self) -> bool:
        """Are there no events of other coordinators in between?"""
        return self.last - self.first + 1 == self.events


def feed_ranges_of(loaded_records: Iterable[LoadedRecord]) -> list[FeedRange]:
    """Returns the events of records that were committed together, by project."""
    return feed_ranges_by_project(
        [(loaded.key[:2], loaded.position, len(loaded.events)) for loaded in loaded_records]
    )


def feed_ranges_by_project(written: Iterable[tuple[tuple[str, str], int, int]]) -> list[FeedRange]:
    found: dict[tuple[str, str], list[int]] = {}
    for place, last, events in written:
        first = last - events + 1
        span = found.get(place)
        if span is None:
            found[place] = [first, last, events]
            continue
        # Without min and max, which are slow: this runs for every change.
        if first < span[0]:
            span[0] = first
        if last > span[1]:
            span[1] = last
        span[2] += events
    return [FeedRange(place, *span) for place, span in found.items()]


class RangeSet:
    """Unbroken ranges of positions, in order. Commits that overlap come in any order, so gaps may
    close later."""

    MOST = 64

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    @property
    def last(self) -> tuple[int, int]:
        """Returns the first and last position of the last range."""
        return self._ranges[-1]

    def add(self, first: int, last: int) -> None:
        """Adds these positions."""
        at = bisect_left(self._ranges, (first, last))
        if at < len(self._ranges) and self._ranges[at][0] == last + 1:
            last = self._ranges.pop(at)[1]
        if at > 0 and self._ranges[at - 1][1] + 1 == first:
            at -= 1
            first = self._ranges.pop(at)[0]
        self._ranges.insert(at, (first, last))
        del self._ranges[: -self.MOST]

    def end_after(self, position: int) -> int:
        """Returns the end of the range that contains this position or begins right after it; 0 if
        there is none."""
        for first, last in reversed(self._ranges):
            if first - 1 <= position:
                return last if position <= last else 0
        return 0


_LINGER_SECONDS = 5.0
_WAIT_SECONDS = 1.0


# The watcher


class Subscriber(Protocol):
    """A subscriber is poked when a feed moves."""

    def poke(self) -> None: ...


class FeedWatch:
    """Watches the feeds of projects, each from a cursor on."""

    def __init__(self, store: Store, *, alone: bool, edits: EditWatch | None = None) -> None:
        """`alone`: no other coordinator uses this store handle. Otherwise the store would take its
        commits for ours. `edits` watches the files of a store that other tools edit."""
        self._store = store
        self._alone = alone
        self._edits = edits
        self._lock = threading.Lock()
        self._cursors: dict[tuple[str, str], str] = {}
        self._subscribers: dict[tuple[str, str], Subscriber] = {}
        self._until: dict[tuple[str, str], float] = {}
        self._positions: dict[tuple[str, str], int] = {}
        self._own: dict[tuple[str, str], RangeSet] = {}
        """The positions that this coordinator has written itself. Its lanes know them and need no
        poke."""
        self._thread: threading.Thread | None = None
        self._closing = False

    def watch(self, place: tuple[str, str], subscriber: Subscriber) -> None:
        """Pokes `subscriber` when the place's feed moves, from now on and for a few seconds after
        the last call."""
        with self._lock:
            if place not in self._cursors:
                end = self._store.read_events(EventQuery(*place, tail=True))
                # After the read, which may fail: all fields are set, or none.
                self._cursors[place], self._positions[place], self._own[place] = (
                    end.cursor,
                    end.position,
                    RangeSet(),
                )
                self._subscribers[place] = subscriber
            self._until[place] = time.monotonic() + _LINGER_SECONDS
            if self._thread is None and not self._closing:
                # If no thread can be started, waiters still try every few seconds.
                self._thread = started(self._run, "genlock-watcher")
        if self._edits is not None:
            self._edits.watch([place])

    def close(self) -> None:
        """Ends the thread soon."""
        with self._lock:
            self._closing = True

    def join(self) -> None:
        with self._lock:  # not between its creation and its start
            thread = self._thread
        if thread is not None:
            thread.join(timeout=2)

    def _run(self) -> None:
        quiet_wait = False
        while True:
            with self._lock:
                now = time.monotonic()
                for place in [place for place, until in self._until.items() if until < now]:
                    del (
                        self._cursors[place],
                        self._subscribers[place],
                        self._until[place],
                        self._positions[place],
                        self._own[place],
                    )
                if self._closing or not self._cursors:
                    self._thread = None
                    return
                places, cursors = list(self._cursors), list(self._cursors.values())
            moved_places: Collection[tuple[str, str]] = ()
            try:
                asleep = time.monotonic()
                moved_places = self._store.wait(places, cursors, _WAIT_SECONDS, others=self._alone)
                # Poke first: where the feed ends now matters only for the next wait.
                self._poke(moved_places)
                # After a wait without news the feeds are read only every second time, for stores
                # that never report changes.
                quiet_wait = not quiet_wait and time.monotonic() - asleep >= _WAIT_SECONDS
                moved = (
                    []
                    if quiet_wait
                    else [(place, self._end_of_feed(place)) for place in moved_places or places]
                )
            except Closed:
                return
            except StoreError:
                moved = []
                time.sleep(0.05)
            with self._lock:
                for place, end in moved:
                    if (
                        end is not None
                        and place in self._cursors
                        and self._cursors[place] != end.cursor
                    ):
                        before, self._positions[place] = self._positions[place], end.position
                        self._cursors[place] = end.cursor
                        if (
                            place not in moved_places
                            and self._own[place].end_after(before) < end.position
                        ):
                            self._subscribers[place].poke()

    def _poke(self, places: Iterable[tuple[str, str]]) -> None:
        with self._lock:
            for place in places:
                subscriber = self._subscribers.get(place)
                if subscriber is not None:
                    subscriber.poke()

    def own(self, feed_ranges: list[FeedRange]) -> None:
        """Notes that these events are this coordinator's own."""
        if not self._own:
            return
        with self._lock:
            for feed_range in feed_ranges:
                ranges = self._own.get(feed_range.place)
                if ranges is not None and feed_range.unbroken:
                    ranges.add(feed_range.first, feed_range.last)

    def _end_of_feed(self, place: tuple[str, str]) -> EventPage | None:
        with contextlib.suppress(CursorLost):
            return self._store.read_events(EventQuery(*place, tail=True))
        return None
