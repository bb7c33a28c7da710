"""Gaps in a feed: positions that a writer took and has not written yet, and may never write.

Positions are taken before the commit, so a reader may see an event while an earlier one is not
written yet. It must not pass the gap. It waits for at most a second, and then writes a tombstone
there, under the same condition as the writer's event. One of the two succeeds; a late writer takes
new positions.

Up to its *solid* position a feed has no gaps: missing events were purged. The feed's head records
it from time to time, so that no reader has to search for gaps from the start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from genlock.errors import StoreError, StoreUnavailable
from genlock.retry import Backoff, Retry
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.calls import ConditionFailed
from genlock.stores.dynamodb.keys import At, int_of, position_of, tombstone, whole
from genlock.stores.dynamodb.table import LISTED_AT_ONCE, Table

GAP_SECONDS = 1.0
"""The least time that a writer has from the moment a reader finds the gap."""
NOTE_EVERY = 256
"""After this many positions the solid position is recorded in the table."""

_BACKOFF = Backoff(first=0.002, longest=0.05, jitter=0)

Place = tuple[str, str]


class PositionGaps:
    """The gaps in the feeds of one store, as far as it knows. Any thread may use it."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._lock = threading.Lock()
        self._solid: dict[Place, int] = {}
        self._noted: dict[Place, int] = {}

    def solid(self, place: Place) -> int:
        """Returns the position up to which there are no gaps, as far as is known."""
        return self._solid.get(place, 0)

    def learn(self, place: Place, solid: int) -> int:
        """Records that the feed is solid up to this position according to the table. Returns the
        solid position."""
        with self._lock:
            self._noted[place] = max(solid, self._noted.get(place, 0))
            self._solid[place] = known = max(solid, self._solid.get(place, 0))
        return known

    def forget_if_older(self, place: Place, known: int, head: int) -> bool:
        """Is the feed, by its head, shorter than was known before the table was read? Then the
        table was replaced by an older copy, and the solid position is discarded."""
        if head >= known:
            return False
        with self._lock:
            self._solid.pop(place, None)
            self._noted.pop(place, None)
        return True

    def closed(self, place: Place, first: int, last: int) -> None:
        """Records that all of these positions have events or tombstones. If they continue the solid
        ones, they are solid, too."""
        with self._lock:
            if first <= self._solid.get(place, 0) + 1:
                self._solid[place] = max(last, self._solid.get(place, 0))

    def close_up(self, place: Place, last: int) -> None:
        """Makes the feed solid up to a position in use: waits for late writers, and fills the gaps
        that remain."""
        solid = self.solid(place)
        while solid < last:
            span = keys.numbers(solid + 1, last)
            there = {
                position_of(item)
                for item in self._table.query(
                    keys.feed_of(*place), span, limit=LISTED_AT_ONCE, fields="#sk"
                )
            }
            self.fill(
                place,
                [position for position in range(solid + 1, last + 1) if position not in there],
            )
            self.closed(place, solid + 1, last)
            solid = self.solid(place)
        self.note(place)

    def fill(self, place: Place, missing: Sequence[int]) -> None:
        """Waits until these positions are written. After a second, writes tombstones there."""
        feed = keys.feed_of(*place)
        retry = Retry(_BACKOFF, time.monotonic() + GAP_SECONDS)
        while missing:
            # If they were purged meanwhile, the table calls higher positions solid.
            head = keys.head_at(*place)
            found = self._table.get_many(
                [head, *(At(feed, keys.number(position)) for position in missing)], "#pk, #sk, #so"
            )
            solid = self.learn(place, int_of(found.get(head, {}), "so"))
            missing = [
                position
                for position in missing
                if position > solid and At(feed, keys.number(position)) not in found
            ]
            if missing:
                pause = retry.failed(time.monotonic())
                if pause is None:
                    self.bury(place, missing)
                    return
                if self._table.calls.stop.wait(pause):
                    raise StoreUnavailable(f"table {self._table.name} is being closed")

    def bury(self, place: Place, positions: Iterable[int]) -> None:
        """Writes tombstones at those of the positions that have no item."""
        for position in positions:
            with suppress(ConditionFailed):
                self._table.put(
                    tombstone(keys.feed_of(*place), position), "attribute_not_exists(#pk)"
                )

    def bury_own(self, place: Place, positions: Sequence[int]) -> bool:
        """Writes tombstones at own positions that were certainly not written. If that fails, a
        reader will do it."""
        feed = keys.feed_of(*place)
        try:
            self._table.write_many([tombstone(feed, position) for position in positions])
        except StoreError:
            return False
        return True

    def note(self, place: Place) -> None:
        """Records the solid position in the table from time to time, to save readers time."""
        solid = self.solid(place)
        if solid - self._noted.get(place, 0) < NOTE_EVERY:
            return
        with suppress(StoreError):
            condition = "attribute_exists(#pk) AND (attribute_not_exists(#so) OR #so < :so)"
            self._table.update(
                keys.head_at(*place), "SET #so = :so", {":so": whole(solid)}, condition
            )
        self._noted[place] = solid
