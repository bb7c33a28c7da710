"""Where in a feed the events of a commit came to stand, so that a coordinator knows its own again without reading them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from genlock.engine.cells import Cell


class Span(NamedTuple):
    """The events of one commit in one project's feed."""

    place: tuple[str, str]
    first: int
    last: int
    events: int

    @property
    def unbroken(self) -> bool:
        """Are there none of others in between?"""
        return self.last - self.first + 1 == self.events


def spans_of(cells: Iterable[Cell]) -> list[Span]:
    """What these cells, committed together, have written, by project."""
    return spans_by_place([(cell.key[:2], cell.position, len(cell.events)) for cell in cells])


def spans_by_place(written: Iterable[tuple[tuple[str, str], int, int]]) -> list[Span]:
    found: dict[tuple[str, str], list[int]] = {}
    for place, last, events in written:
        first = last - events + 1
        span = found.get(place)
        if span is None:
            found[place] = [first, last, events]
            continue
        # Spelt out, since it is done for every change there is.
        if first < span[0]:
            span[0] = first
        if last > span[1]:
            span[1] = last
        span[2] += events
    return [Span(place, *span) for place, span in found.items()]


class Runs:
    """Unbroken runs of positions, in order. Commits that overlap come in any order, so gaps may close later."""

    MOST = 64

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []

    @property
    def last(self) -> tuple[int, int]:
        """The furthest one, as its first and last position."""
        return self._runs[-1]

    def add(self, first: int, last: int) -> None:
        """These positions too."""
        at = bisect_left(self._runs, (first, last))
        if at < len(self._runs) and self._runs[at][0] == last + 1:
            last = self._runs.pop(at)[1]
        if at > 0 and self._runs[at - 1][1] + 1 == first:
            at -= 1
            first = self._runs.pop(at)[0]
        self._runs.insert(at, (first, last))
        del self._runs[: -self.MOST]

    def end_after(self, position: int) -> int:
        """The end of the run that this position is in or just before; 0 if there is none."""
        for first, last in reversed(self._runs):
            if first - 1 <= position:
                return last if position <= last else 0
        return 0
