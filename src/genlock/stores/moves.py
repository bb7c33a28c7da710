"""Which feeds have moved, for whoever waits for one: what moved here is told at once, what moved elsewhere is heard of."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

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
        self._looks: dict[int, tuple[str, int, int]] = {}
        """By mark: the cursor that was found, and what is above it for those who wait and for those who hear."""
        self._heard: dict[int, int] = {}
        """The serial at which somebody was last told that it was moved elsewhere."""
        self._closed = False

    def now(self) -> int:
        """A number that later moves are above."""
        return self._serial

    def looked(self, mark: int, cursor: str, since: int) -> None:
        """Somebody has looked, later than `since`, and found the feed to end at this cursor.

        Who hears may have been told of a move and look only now: what came in between has a place before the cursor, and nobody has been
        told of it yet. So for those who hear counts what is above what they were told last.
        """
        with self._changed:
            if len(self._looks) > MOST_MARKS:
                self._looks.clear()
            self._looks[mark] = cursor, since, min(since, self._heard.get(mark, since))

    def since_look(self, cursors: Mapping[int, str], *, hearing: bool = False) -> dict[int, int] | None:
        """What each of these feeds has done since somebody found it there is above its number; None: nobody has found one of them there."""
        known: dict[int, int] = {}
        with self._changed:
            for mark, cursor in cursors.items():
                found, waiting, heard = self._looks.get(mark, ("", 0, 0))
                if found != cursor:
                    return None
                known[mark] = heard if hearing else waiting
        return known

    def tell(self, marks: Iterable[int] | None, *, here: bool = False) -> None:
        """These feeds have moved, `here` or elsewhere; None: any may have."""
        with self._changed:
            self._serial += 1
            moved = dict.fromkeys(marks or (), self._serial)
            if marks is None or len(self._marks) > MOST_MARKS:
                self._all = self._serial
                for known in (self._marks, self._others, self._heard):
                    known.clear()
                self._elsewhere.notify_all()
            self._marks.update(moved)
            if not here:
                self._others.update(moved)
                self._elsewhere.notify_all()
            self._changed.notify_all()

    def wait(self, since: Mapping[int, int], seconds: float) -> list[int]:
        """Returns when one of the feeds has moved since its number, after so many seconds, or when all is over: those that have moved."""
        return self._wait(self._changed, self._marks, since, seconds)

    def hear(self, since: Mapping[int, int], seconds: float) -> list[int]:
        """The same of what was moved elsewhere."""
        moved = self._wait(self._elsewhere, self._others, since, seconds)
        with self._elsewhere:
            self._heard.update({mark: self._others.get(mark, 0) for mark in moved})
        return moved

    def _wait(self, told: threading.Condition, serials: dict[int, int], since: Mapping[int, int], seconds: float) -> list[int]:
        def moved() -> list[int]:
            return [mark for mark, number in since.items() if serials.get(mark, 0) > number]

        with told:
            first = min(since.values(), default=self._serial)
            told.wait_for(lambda: self._closed or self._all > first or moved(), seconds)
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
