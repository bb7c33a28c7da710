"""How many unfinished tasks a project has in each state: why a request for a next task found none.

A count costs more on a large plan: 28 ms for 100,000 tasks on SQLite, and reads of the whole table
on DynamoDB. So it is kept for a second, or for fifty times as long as it took. Then agents that ask
again and again cost the store a small, bounded share of its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from genlock.core.reasons import FINISHED, Status
from genlock.store import Query, Store

FRESH_SECONDS: Final = 1.0
"""How old a count may be for a caller that did not wait."""
WAITED_SECONDS: Final = 10.0
"""The same for a caller that waited in vain. Many wait at once, and each gets such an answer."""
SHARE: Final = 50
"""A count is kept for at least this many times the time that it took."""
_MOST_PLACES: Final = 1000

Place = tuple[str, str]


class UnfinishedCounts:
    """Counts of unfinished tasks by state, kept for a moment. Threads share it."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._kept: dict[Place, tuple[float, float, dict[str, int]]] = {}
        """By project: when the last count began, how long it took, and its result."""

    def kept(self, place: Place, seconds: float) -> dict[str, int] | None:
        """The last count, if it is not older than this, or was expensive a short time ago."""
        found = self._kept.get(place)
        if found is None:
            return None
        began, took, counts = found
        return None if self._monotonic() - began > max(seconds, SHARE * took) else counts

    def count(self, place: Place) -> dict[str, int]:
        """Counts now, in the order of the states."""
        began = self._monotonic()
        by_state: Mapping[str, int] = self._store.find(Query(*place), count_by="state").counts
        counts = {
            state.value: by_state[state]
            for state in Status
            if state not in FINISHED and by_state.get(state)
        }
        if len(self._kept) >= _MOST_PLACES:
            self._kept.clear()
        self._kept[place] = began, self._monotonic() - began, counts
        return counts
