"""Which feeds have moved, for whoever waits for one: what moved here is told at once, what moved elsewhere is heard of."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

MOST_MARKS = 10_000
"""Feeds that are remembered one by one; more are not told apart."""


def marks_in(message: str | bytes) -> list[int]:
    """The numbers in a message; none in one that is not of ours, as anybody may send there."""
    try:
        return [int(part) for part in message.split()]
    except ValueError:
        return []


class Moves:
    """Which feeds have moved, by their marks, and since when."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self._changed, self._elsewhere = threading.Condition(lock), threading.Condition(lock)
        """Anybody, or somebody elsewhere, has moved something: who asks for others alone is not woken by each commit of his own."""
        self._marks: dict[int, int] = {}
        self._others: dict[int, int] = {}
        """The same of those that were moved elsewhere."""
        self._all = 0
        self._serial = 0
        self._looks: dict[int, tuple[str, int]] = {}
        self._closed = False

    def now(self) -> int:
        """A number that later moves are above."""
        return self._serial

    def looked(self, mark: int, cursor: str, since: int) -> None:
        """Somebody has looked, later than `since`, and found the feed to end at this cursor."""
        with self._changed:
            if len(self._looks) > MOST_MARKS:
                self._looks.clear()
            self._looks[mark] = cursor, since

    def since_look(self, cursors: Mapping[int, str]) -> int | None:
        """What these feeds have done since somebody found them there is above this number; None: nobody did, so it has to be looked up."""
        with self._changed:
            looks = [(self._looks.get(mark), cursor) for mark, cursor in cursors.items()]
        known = [look[1] for look, cursor in looks if look is not None and look[0] == cursor]
        return min(known, default=None) if len(known) == len(looks) else None

    def tell(self, marks: Iterable[int] | None, *, here: bool = False) -> None:
        """These feeds have moved, `here` or elsewhere; None: any may have."""
        with self._changed:
            self._serial += 1
            moved = dict.fromkeys(marks or (), self._serial)
            if marks is None or len(self._marks) > MOST_MARKS:
                self._all, here = self._serial, False
                self._marks.clear()
                self._others.clear()
            self._marks.update(moved)
            if not here:
                self._others.update(moved)
                self._elsewhere.notify_all()
            self._changed.notify_all()

    def wait(self, marks: Collection[int], since: int, seconds: float) -> list[int]:
        """Returns when one of the feeds has moved since then, after so many seconds, or when all is over. Those known to have moved."""
        return self._wait(self._changed, self._marks, marks, since, seconds)

    def hear(self, marks: Collection[int], since: int, seconds: float) -> list[int]:
        """The same of what was moved elsewhere."""
        return self._wait(self._elsewhere, self._others, marks, since, seconds)

    def _wait(self, told: threading.Condition, serials: dict[int, int], marks: Collection[int], since: int, seconds: float) -> list[int]:
        def moved() -> list[int]:
            return [mark for mark in marks if serials.get(mark, 0) > since]

        with told:
            told.wait_for(lambda: self._closed or self._all > since or moved(), seconds)
            return moved()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._elsewhere.notify_all()
