"""Which feeds have moved: what was committed here, or seen or heard of elsewhere, is told to whoever waits in this process."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

MOST_KEPT = 10_000
"""Feeds remembered one by one; beyond that all count as moved."""


class Moves:
    """Which feeds have moved, by their marks, and since when."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._marks: dict[int, int] = {}
        self._all = 0
        self._serial = 0
        self._closed = False

    def now(self) -> int:
        """A number that later moves are above."""
        return self._serial

    def tell(self, marks: Iterable[int] | None) -> None:
        """These feeds have moved; None: any may have."""
        with self._changed:
            self._serial += 1
            if marks is None or len(self._marks) > MOST_KEPT:
                self._all = self._serial
                self._marks.clear()
            self._marks.update(dict.fromkeys(marks or (), self._serial))
            self._changed.notify_all()

    def wait(self, marks: Collection[int], since: int, seconds: float) -> bool:
        """Returns when one of the feeds has moved since then, after so many seconds, or when all is over. Is it known to have moved?"""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._all > since or self._moved(marks, since), seconds)
            return self._moved(marks, since)

    def _moved(self, marks: Collection[int], since: int) -> bool:
        return any(self._marks.get(mark, 0) > since for mark in marks)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
