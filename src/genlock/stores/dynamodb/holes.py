"""Holes in a feed: positions that were given to a writer who has not written there yet, and perhaps never will.

Positions are given before the commit, so a reader may see an event while one before it is still to come. He must not pass it: he
waits, a second at most, and then writes a tombstone there under the same condition as the writer would his event. One of the two
succeeds; a writer who comes too late takes new positions.

Up to its *solid* position a feed has no holes: what is not there was purged. It is kept in the feed's head, now and then, so that
nobody has to look for holes from the start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from genlock.errors import StoreError, StoreUnavailable
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.faults import ConditionFailed
from genlock.stores.dynamodb.items import int_of, position_of, tombstone, whole
from genlock.stores.dynamodb.keys import At
from genlock.stores.dynamodb.table import LISTED_AT_ONCE, Table

HOLE_SECONDS = 1.0
"""How long a writer has, at least, from the moment on at which he is missed."""
NOTE_EVERY = 256
"""Positions after which the solid position is noted in the table."""

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05

Place = tuple[str, str]


class Holes:
    """What one store knows of its feeds' holes. Any thread may use it."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._solid: dict[Place, int] = {}
        self._noted: dict[Place, int] = {}

    def solid(self, place: Place) -> int:
        """The position up to which there are no holes, as far as is known here."""
        return self._solid.get(place, 0)

    def learn(self, place: Place, solid: int) -> int:
        """The table says that the feed is solid up to there; what is known now."""
        with self._lock:
            self._noted[place] = max(solid, self._noted.get(place, 0))
            self._solid[place] = known = max(solid, self._solid.get(place, 0))
        return known

    def doubt(self, place: Place, known: int, head: int) -> bool:
        """Is the feed, by its head, shorter than what was known of it before the table was asked? Then the table is an older copy, put in
        the place of the one that we knew, and what we knew is forgotten.
        """
        if head >= known:
            return False
        with self._lock:
            self._solid.pop(place, None)
            self._noted.pop(place, None)
        return True

    def closed(self, place: Place, first: int, last: int) -> None:
        """From the first to the last position there are events and tombstones. Joined to what is solid, they are solid."""
        with self._lock:
            if first <= self._solid.get(place, 0) + 1:
                self._solid[place] = max(last, self._solid.get(place, 0))

    def close_up(self, place: Place, last: int) -> None:
        """Makes the feed solid up to a position that is in use: waits for what is still to come, and fills what never comes."""
        solid = self.solid(place)
        while solid < last:
            span = keys.numbers(solid + 1, last)
            there = {position_of(item) for item in self._table.query(keys.feed_of(*place), span, limit=LISTED_AT_ONCE, fields="#sk")}
            self.fill(place, [position for position in range(solid + 1, last + 1) if position not in there])
            self.closed(place, solid + 1, last)
            solid = self.solid(place)
        self.note(place)

    def fill(self, place: Place, missing: Sequence[int]) -> None:
        """Waits until there is something at these positions, and sees to it after a second."""
        feed = keys.feed_of(*place)
        deadline, pause = time.monotonic() + HOLE_SECONDS, _FIRST_PAUSE
        while missing:
            # They may have been purged meanwhile: then they are below what the table calls solid.
            head = keys.head_at(*place)
            found = self._table.get_many([head, *(At(feed, keys.number(position)) for position in missing)], "#pk, #sk, #so")
            solid = self.learn(place, int_of(found.get(head, {}), "so"))
            missing = [position for position in missing if position > solid and At(feed, keys.number(position)) not in found]
            if missing and time.monotonic() > deadline:
                self.bury(place, missing)
                return
            if missing:
                if self._table.calls.stop.wait(pause):
                    raise StoreUnavailable(f"table {self._table.name} is being closed")
                pause = min(pause * 2, _LONGEST_PAUSE)

    def bury(self, place: Place, positions: Iterable[int]) -> None:
        """Puts tombstones where there is nothing."""
        for position in positions:
            with suppress(ConditionFailed):
                self._table.put(tombstone(keys.feed_of(*place), position), "attribute_not_exists(#pk)")

    def bury_own(self, place: Place, positions: Sequence[int]) -> bool:
        """Puts tombstones at positions of our own, at which we have certainly not written. If that fails, a reader will do it."""
        feed = keys.feed_of(*place)
        try:
            self._table.write_many([tombstone(feed, position) for position in positions])
        except StoreError:
            return False
        return True

    def note(self, place: Place) -> None:
        """Tells the table, if it has been a while. Nothing depends on it."""
        solid = self.solid(place)
        if solid - self._noted.get(place, 0) < NOTE_EVERY:
            return
        with suppress(StoreError):
            condition = "attribute_exists(#pk) AND (attribute_not_exists(#so) OR #so < :so)"
            self._table.update(keys.head_at(*place), "SET #so = :so", {":so": whole(solid)}, condition)
        self._noted[place] = solid
