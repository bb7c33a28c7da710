"""Batches of events for many clients: read, decoded and encoded once, then shared."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple, get_args

from msgspec import Struct

from genlock.core import events
from genlock.core.ids import check_task_id
from genlock.core.names import check_session
from genlock.core.results import FeedEvent
from genlock.errors import BadArgument
from genlock.reads.feed import EventPage, feed_events
from genlock.service.events.cursors import Place
from genlock.service.events.formats import (
    DDB_TYPES,
    GENLOCK,
    SC_TYPES,
    SHAPES,
    aliases,
    as_row,
    from_genlock,
    id_line,
    task_of,
)

if TYPE_CHECKING:
    from asyncio import Future

# A client may filter events by task, session and type. A filter that is not given admits all.


SESSION_TYPES = frozenset(
    str(kind.__struct_config__.tag) for kind in (events.SessionRegistered, events.SessionHeartbeat)
)
EVENT_TYPES = frozenset(kind.__struct_config__.tag for kind in get_args(events.Event))
"""The names of all event types on the wire."""
_TYPES = EVENT_TYPES | {alias for alias, _ in (*SC_TYPES.values(), *DDB_TYPES.values())}


class Subject(NamedTuple):
    """The fields of an event that filters check."""

    event_type: str
    aliases: tuple[str, ...]
    tasks: tuple[str, ...]
    sessions: tuple[str, ...]


def subject_of(event: FeedEvent) -> Subject:
    """The fields of this event that filters check."""
    fields = event.event
    tasks = (fields.get("task_id"), event.id if event.kind == "task" else None)
    sessions = (fields.get("session_id"), fields.get("holder_session_id"))
    return Subject(
        event.event_type,
        aliases(event.event_type),
        tuple(filter(None, tasks)),
        tuple(filter(None, sessions)),
    )


class Filters(Struct, frozen=True):
    """An event passes if it matches each filter that is given. Types may be given by their
    aliases."""

    tasks: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Is any filter given?"""
        return bool(self.tasks or self.sessions or self.types)

    def pass_on(self, subject: Subject) -> bool:
        """Does the client want the event?"""
        if self.types and self.types.isdisjoint((subject.event_type, *subject.aliases)):
            return False
        if self.tasks and self.tasks.isdisjoint(subject.tasks):
            return False
        return not self.sessions or not self.sessions.isdisjoint(subject.sessions)


EVERYTHING = Filters()


def check_filters(
    tasks: Collection[str] = (), sessions: Collection[str] = (), types: Collection[str] = ()
) -> Filters:
    """Makes filters from a client's parameters; `BadArgument` if no event can ever match them."""
    return Filters(
        frozenset(map(check_task_id, tasks)),
        frozenset(map(check_session, sessions)),
        frozenset(map(_check_type, types)),
    )


def _check_type(name: str) -> str:
    if name in _TYPES:
        return name
    near = get_close_matches(str(name).upper(), _TYPES, 1)
    hint = f"did you mean {near[0]}?" if near else "docs/reference/events.md has them all"
    raise BadArgument(f"there are no events of type {name!r}; {hint}")


class Item:
    """One event as text in every shape, with the fields that filters check. The decoded event would
    take five times as much memory."""

    __slots__ = ("_texts", "cursor", "place", "position", "subject")

    def __init__(self, place: Place, event: FeedEvent) -> None:
        self.place = place
        self.cursor = event.cursor
        self.position = event.position
        self.subject: Subject = subject_of(event)
        self._texts = {shape: write(event) for shape, write in SHAPES.items()}

    @property
    def event(self) -> FeedEvent:
        """The event, decoded again."""
        return from_genlock(self._texts[GENLOCK])

    @property
    def size(self) -> int:
        """Its approximate size on a stream in bytes."""
        return len(self._texts[GENLOCK])

    def text(self, shape: str) -> bytes:
        """The event without its id; empty if the shape has no such event."""
        return self._texts[shape]

    def with_row(self, row: bytes | None) -> bytes:
        """The event in the shape `row`, with the row of its task as JSON."""
        return as_row(self._texts[GENLOCK], row)


class Rows(NamedTuple):
    """The task rows that belong to a batch, as JSON: by task, and by session for the tasks that a
    session holds."""

    of_tasks: dict[str, bytes]
    held_by: dict[str, list[bytes]]


class Batch:
    """Events of one feed in order, up to a position. `cursor` continues after them, and after
    events that a filter has dropped."""

    __slots__ = ("_texts", "cursor", "items", "place", "position", "rows", "size", "whole")

    def __init__(
        self,
        place: Place,
        items: tuple[Item, ...],
        cursor: str,
        position: int,
        *,
        whole: bool = True,
    ) -> None:
        self.place = place
        self.items = items
        self.cursor = cursor
        self.position = position
        self.whole = whole
        """Do all listeners get the whole batch? Then its text is made once."""
        self.size = sum(item.size for item in items)
        self._texts: dict[str, bytes] = {}
        self.rows: Future[Rows] | None = None
        """The rows of its tasks, as soon as a stream has asked for them."""

    def tasks(self) -> dict[str, Item]:
        """The changed tasks, each with the last event that changed it."""
        found = {}
        for item in self.items:
            task = task_of(item.subject.event_type, item.subject.tasks)
            if task is not None:
                found[task] = item
        return found

    def sessions(self) -> dict[str, Item]:
        """The sessions with events of their own, each with its last one."""
        return {
            session: item
            for item in self.items
            if item.subject.event_type in SESSION_TYPES
            for session in item.subject.sessions
        }

    def text(self, shape: str) -> bytes:
        """The whole batch, each event with its cursor as the id."""
        found = self._texts.get(shape)
        if found is None:
            texts = ((item.cursor, item.text(shape)) for item in self.items)
            found = self._texts[shape] = b"".join(
                [id_line(cursor) + text for cursor, text in texts if text]
            )
        return found

    def after(self, position: int) -> Batch:
        """The events after this position."""
        return self._less(tuple(item for item in self.items if item.position > position))

    def until(self, position: int) -> Batch:
        """The events up to this one's position, as if nothing after it had been read."""
        items = tuple(item for item in self.items if item.position <= position)
        return Batch(self.place, items, items[-1].cursor if items else "", position, whole=False)

    def wanted(self, filters: Filters) -> Batch:
        """The events that pass the filters."""
        return (
            self._less(tuple(item for item in self.items if filters.pass_on(item.subject)))
            if filters
            else self
        )

    def _less(self, items: tuple[Item, ...]) -> Batch:
        if len(items) == len(self.items):
            return self
        return Batch(self.place, items, self.cursor, self.position, whole=False)


def batch_of(place: Place, page: EventPage) -> Batch:
    """Prepares a page for clients. Slow: do not call it in the event loop."""
    return Batch(
        place, tuple(Item(place, event) for event in feed_events(page)), page.cursor, page.position
    )


def part_of(place: Place, page: EventPage, filters: Filters, most_bytes: int) -> tuple[Batch, bool]:
    """Prepares the beginning of a page for one client: at most `most_bytes` of the events that
    pass, but at least one event. Also returns whether more events follow."""
    items: list[Item] = []
    size = 0
    cursor, position = page.cursor, page.position
    for event in feed_events(page):
        if filters.pass_on(subject_of(event)):
            item = Item(place, event)
            size += item.size
            if items and size > most_bytes:
                return Batch(place, tuple(items), cursor, position, whole=False), True
            items.append(item)
        cursor, position = event.cursor, event.position
    return Batch(place, tuple(items), page.cursor, page.position, whole=False), page.more
