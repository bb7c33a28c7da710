"""Waiting for a feed to move: our own commits ring, everyone else's are seen by asking, ever less often."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.feed import Feeds
from genlock.stores.dynamodb.table import Table
from genlock.stores.places import FeedState, Place, decode_cursor

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 0.25
"""Seconds between looks; a look reads one small item a project."""


class Bell:
    """Rung when this store has written something, and when it is closed."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings = 0
        self.stopped = False

    def ring(self, *, stop: bool = False) -> None:
        """Wakes all who wait."""
        with self._condition:
            self._rings += 1
            self.stopped = self.stopped or stop
            self._condition.notify_all()

    @property
    def rings(self) -> int:
        return self._rings

    def wait(self, heard: int, seconds: float) -> bool:
        """Waits for a ring after the one last heard; was there one?"""
        with self._condition:
            return self._condition.wait_for(lambda: self._rings != heard, seconds)


def wait(table: Table, feeds: Feeds, bell: Bell, projects: Sequence[tuple[str, str]], after: Sequence[str], timeout: float) -> None:
    """Returns when one of the feeds has moved past its cursor, after `timeout` seconds, or when told to stop."""
    deadline = time.monotonic() + timeout
    places = [(tenant, project, decode_cursor(cursor)) for (tenant, project), cursor in zip(projects, after, strict=True)]
    pause = FIRST_PAUSE
    while not bell.stopped:
        heard = bell.rings
        states = feeds.states(projects)
        if any(_has_moved(table, place, state) for place, state in zip(places, states, strict=True)):
            return
        left = deadline - time.monotonic()
        if left <= 0:
            return
        pause = FIRST_PAUSE if bell.wait(heard, min(pause, left)) else min(pause * 2, LONGEST_PAUSE)


def _has_moved(table: Table, asked: tuple[str, str, Place], state: FeedState) -> bool:
    """Also if the cursor is lost: reading will say so. That positions were given is not enough: something must stand there."""
    tenant, project, place = asked
    if (place.birth, place.epoch, place.feed) != (state.birth, state.epoch, state.feed) or place.position > state.head:
        return True
    if place.position == state.head:
        return False
    ahead = table.query(keys.feed_of(tenant, project), keys.numbers(place.position + 1), limit=1, fields="#sk")
    return any(True for _ in ahead) or place.position < state.purged_to
