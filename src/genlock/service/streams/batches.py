"""Events on their way to many clients: read, decoded and encoded once, then shared."""

from __future__ import annotations

from genlock.coordinator.feed import feed_events
from genlock.core.results import FeedEvent
from genlock.service.streams.cursors import Place
from genlock.service.streams.filters import Filters
from genlock.service.streams.frames import id_line
from genlock.service.streams.shapes import GENLOCK, SHAPES, as_genlock
from genlock.store import EventPage


class Item:
    """One event, and its text in each shape that somebody has asked for."""

    __slots__ = ("_texts", "event", "place")

    def __init__(self, place: Place, event: FeedEvent) -> None:
        self.place = place
        self.event = event
        self._texts = {GENLOCK: as_genlock(event)}

    @property
    def size(self) -> int:
        """Bytes, more or less, that it takes on a stream."""
        return len(self._texts[GENLOCK])

    def text(self, shape: str) -> bytes:
        """All but its id; empty if the shape has no such event."""
        found = self._texts.get(shape)
        if found is None:
            found = self._texts[shape] = SHAPES[shape](self.event)
        return found


class Batch:
    """Events of one feed in order, up to a position. `cursor` continues behind them, and behind what is left out."""

    __slots__ = ("_texts", "cursor", "items", "place", "position", "size", "whole")

    def __init__(self, place: Place, items: tuple[Item, ...], cursor: str, position: int, *, whole: bool = True) -> None:
        self.place = place
        self.items = items
        self.cursor = cursor
        self.position = position
        self.whole = whole
        """Is it as it was read? Then it is shared."""
        self.size = sum(item.size for item in items)
        self._texts: dict[str, bytes] = {}

    def text(self, shape: str) -> bytes:
        """All of it, each event with its own cursor for an id."""
        found = self._texts.get(shape)
        if found is None:
            texts = ((item.event.cursor, item.text(shape)) for item in self.items)
            found = self._texts[shape] = b"".join([id_line(cursor) + text for cursor, text in texts if text])
        return found

    def after(self, position: int) -> Batch:
        """What comes behind this position."""
        return self._less(tuple(item for item in self.items if item.event.position > position))

    def until(self, position: int) -> Batch:
        """What comes up to this position, which an event has; and nothing is known of what comes behind it."""
        items = tuple(item for item in self.items if item.event.position <= position)
        return Batch(self.place, items, items[-1].event.cursor if items else "", position, whole=False)

    def wanted(self, filters: Filters) -> Batch:
        """What passes."""
        return self._less(tuple(item for item in self.items if filters.pass_on(item.event))) if filters else self

    def _less(self, items: tuple[Item, ...]) -> Batch:
        if len(items) == len(self.items):
            return self
        return Batch(self.place, items, self.cursor, self.position, whole=False)


def batch_of(place: Place, page: EventPage) -> Batch:
    """A page, ready for clients. It takes a while: not for the event loop."""
    return Batch(place, tuple(Item(place, event) for event in feed_events(page)), page.cursor, page.position)
