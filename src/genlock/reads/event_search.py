"""Searches the events of a project, from the newest to the oldest, by page.

A feed can only be read forwards. So this module reads windows of it, the last one first, and
reverses each. Events of one task are found by its record instead, at any age.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from genlock.core.codec import encode_json
from genlock.core.dashboard import EventPage
from genlock.core.keys import REFUSED, TASK, Key, Scope
from genlock.core.results import FeedEvent
from genlock.messages import describe_event
from genlock.reads.feed import feed_events
from genlock.reads.reader import Reader
from genlock.store import EventPage as StoredPage
from genlock.store import EventQuery, Query, RecordedEvent

_WINDOW: Final = 2_000
"""Feed positions in one window."""
_SLACK: Final = 100
"""The number of positions by which a feed may grow between two reads before a window must be read
again."""
_MOST_READ: Final = 20_000
"""The most events searched for one page; the next page continues there."""
_MOST_REFUSED: Final = 200
_VERSIONS: Final = 500
_BULKY: Final = "result_data"


class EventFilter(Struct, frozen=True, kw_only=True):
    """A filter for events. A field that is not given matches everything."""

    task: str | None = None
    agent: str | None = None
    session: str | None = None
    """Events by this agent or session, and events that revoked a claim of theirs."""
    user: str | None = None
    types: frozenset[str] = frozenset()

    def needles(self) -> list[bytes]:
        """Returns texts that the bytes of every matching event contain, so that most others need no
        decoding."""
        words = [word for word in (self.agent, self.session, self.user) if word is not None]
        if len(self.types) == 1:
            words += self.types
        return [encode_json(word) for word in words]

    def passes(self, event: FeedEvent) -> bool:
        """Does the event match, apart from its task?"""
        fields = event.event
        return (
            (not self.types or event.event_type in self.types)
            and self._names(self.agent, fields, "agent_id", "holder_agent_id", "assigned_to")
            and self._names(self.session, fields, "session_id", "holder_session_id")
            and self._names(self.user, fields.get("actor", {}), "user_id")
        )

    @staticmethod
    def _names(wanted: str | None, fields: Any, *names: str) -> bool:
        return wanted is None or any(fields.get(name) == wanted for name in names)


def search_events(
    reader: Reader, scope: Scope, wanted: EventFilter, limit: int, before: str | None
) -> EventPage:
    """Returns the last matching events up to a cursor, the newest first."""
    end = reader.feed_end(scope)
    position = end.position if before is None else _position_of(reader, scope, before)
    search = _of_task if wanted.task is not None else _of_feed
    events, following = search(reader, scope, wanted, limit, position)
    return EventPage(
        events=tuple(map(_lean, events)),
        sentences=tuple(
            describe_event({**event.event, "event_type": event.event_type}) for event in events
        ),
        next=following,
        cursor=end.cursor if before is None else before,
    )


def _position_of(reader: Reader, scope: Scope, cursor: str) -> int:
    page = reader.events(scope, cursor, 1)
    return page.events[0].position - 1 if page.events else page.position


def _lean(event: FeedEvent) -> FeedEvent:
    if _BULKY not in event.event:
        return event
    fields = {name: value for name, value in event.event.items() if name != _BULKY}
    return replace(event, event=fields)


# Searching the feed


class _Placed(NamedTuple):
    event: RecordedEvent
    cursor: str
    """The cursor after the event."""
    before: str
    """The cursor before the event."""


class _Window(NamedTuple):
    start: int
    cursor: str
    """The cursor of the window's start."""
    events: list[_Placed]


def _of_feed(
    reader: Reader, scope: Scope, wanted: EventFilter, limit: int, position: int
) -> tuple[list[FeedEvent], str | None]:
    needles = wanted.needles()
    found: list[FeedEvent] = []
    read = 0
    following: str | None = None
    size = _WINDOW if needles or wanted.types else min(_WINDOW, limit + _SLACK)
    while position > 0:
        window = _window(reader, scope, position, size)
        for placed in reversed(window.events):
            if all(needle in placed.event.body for needle in needles):
                event = _shown(placed)
                if wanted.passes(event):
                    found.append(event)
                    if len(found) == limit:
                        first = placed.event.position == 1
                        return found, None if first else placed.before
        read += len(window.events)
        position, following = window.start, window.cursor
        if read >= _MOST_READ:
            break
    return found, following if position > 0 else None


def _window(reader: Reader, scope: Scope, position: int, size: int) -> _Window:
    """Reads the events of `size` or a few more positions up to this one, the oldest first."""
    back = reader.feed_end(scope).position - max(0, position - size) + _SLACK
    start = reader.feed_end(scope, back=back)
    while start.position >= position:  # the feed has meanwhile grown by more than `_SLACK`
        start = reader.feed_end(scope, back=back + start.position - position + size + _SLACK)
    return _Window(
        start.position, start.cursor, list(_events_between(reader, scope, start, position))
    )


def _events_between(
    reader: Reader, scope: Scope, start: StoredPage, position: int
) -> Iterator[_Placed]:
    last, more = start.cursor, True
    while more:
        page = reader.events(scope, last, _WINDOW, cursors=True)
        for event, cursor in zip(page.events, page.cursors, strict=True):
            if event.position > position:
                return
            yield _Placed(event, cursor, last)
            last = cursor
        last, more = page.cursor, page.more


def _shown(placed: _Placed) -> FeedEvent:
    (event,) = feed_events(
        StoredPage((placed.event,), placed.cursor, more=False, cursors=(placed.cursor,))
    )
    return event


# Searching the events of a task


def _of_task(
    reader: Reader, scope: Scope, wanted: EventFilter, limit: int, position: int
) -> tuple[list[FeedEvent], str | None]:
    """Searches the task's record and those of its refused results."""
    assert wanted.task is not None
    task = Key(*scope, TASK, wanted.task)
    reader.task(task)  # TaskNotFound
    refused = islice(reader.find(Query(*scope, kind=REFUSED, parent=task.id)), _MOST_REFUSED)
    streams = [_backwards(reader, key) for key in (task, *(stored.key for stored in refused))]
    newest_first: Iterable[RecordedEvent] = merge(*streams, key=lambda event: -event.position)
    found: list[FeedEvent] = []
    for recorded in newest_first:
        if recorded.position <= position:
            (event,) = feed_events(StoredPage((recorded,), "", more=False))
            if wanted.passes(event):
                if len(found) == limit:
                    return found, _cursor_behind(reader, scope, recorded.position)
                found.append(event)
    return found, None


def _backwards(reader: Reader, key: Key) -> Iterator[RecordedEvent]:
    """Yields the stored events of a record, the newest first."""
    stored = reader.store.load([key]).records.get(key)
    version = stored.version if stored is not None else 0
    while version > 0:
        after = max(0, version - _VERSIONS)
        page = reader.store.read_events(
            EventQuery(*key.place, record=key, after_version=after, limit=version - after)
        )
        yield from reversed(page.events)
        version = 0 if page.base is not None and not page.events else after


def _cursor_behind(reader: Reader, scope: Scope, position: int) -> str:
    """Returns the cursor after the event at this position."""
    window = _window(reader, scope, position, 1)
    return window.events[-1].cursor if window.events else window.cursor
