"""Where in a feed the events of a commit came to stand, so that a coordinator knows its own again without reading them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from genlock.engine.batch import Cell


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
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for cell in cells:
        place, last, events = cell.key[:2], cell.position, len(cell.events)
        first = last - events + 1
        before = found.get(place)
        if before is not None:
            first, last, events = min(first, before[0]), max(last, before[1]), events + before[2]
        found[place] = first, last, events
    return [Span(place, *span) for place, span in found.items()]
