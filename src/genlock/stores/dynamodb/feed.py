"""Reads events: a project's feed after a cursor, or one record's by version. Also waits for a feed
to move."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from genlock.errors import StoreCorrupt, StoreUnavailable
from genlock.retry import Backoff
from genlock.store import EventPage, EventQuery, Key, RecordedEvent
from genlock.stores.cursors import (
    CursorPosition,
    FeedState,
    check_cursor,
    decode_cursor,
    encode_cursor,
    feed_mark,
    tail_page,
)
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.keys import META, At, Item, int_of, is_event, position_of, recorded_in
from genlock.stores.dynamodb.position_gaps import PositionGaps
from genlock.stores.dynamodb.reads import epoch_of
from genlock.stores.dynamodb.table import Table

FETCH_AT_LEAST = 25
"""The least number of events fetched at a time, even for a shorter page: some may be tombstones."""
MOST_TRIES = 50


class Entry(NamedTuple):
    """The events of one change: the last version, their number, and the last position."""

    last: int
    events: int
    position: int

    @property
    def first(self) -> int:
        return self.last - self.events + 1

    def position_of(self, version: int) -> int:
        return self.position - (self.last - version)


class Run(NamedTuple):
    """Events in order, the position at which they end, and the number of tombstones in between."""

    events: list[RecordedEvent]
    end: int
    voids: int
    more: bool = False


class Feeds:
    """The feeds of one store."""

    def __init__(self, table: Table, gaps: PositionGaps) -> None:
        self._table = table
        self._gaps = gaps

    def read_events(self, query: EventQuery) -> EventPage:
        """Returns a page of events."""
        if query.record is not None:
            return self._read_record(query, query.record)
        state = self.state(query.tenant, query.project)
        if query.tail:
            return tail_page(query, state, self._end(query.tenant, query.project, state))
        run, state = self._page(query, state)
        cursors = (
            [encode_cursor(state, event.position) for event in run.events] if query.cursors else ()
        )
        return EventPage(
            run.events,
            encode_cursor(state, run.end),
            run.more,
            position=run.end,
            cursors=cursors,
            voids=run.voids,
        )

    def _page(self, query: EventQuery, state: FeedState) -> tuple[Run, FeedState]:
        """Returns the events, and a state of the feed in which all of them existed.

        A purge may come between the state and the events. If every position has an item, nothing is
        missing. Otherwise the state is read again; if it has changed, the cursor is checked against
        it, and the events are read again.
        """
        place = None if query.after is None else decode_cursor(query.after)
        start = 0 if place is None else place.position
        for _ in range(MOST_TRIES):
            if place is not None:
                check_cursor(place, state)
            run = self._run(query, start)
            if len(run.events) + run.voids == run.end - start:
                return run, state
            before, state = state, self.state(query.tenant, query.project)
            if before._replace(head=state.head) == state:
                return run, state
        raise StoreUnavailable(
            f"table {self._table.name}: others kept purging {query.tenant}/{query.project} while "
            "it was read"
        )

    def state(self, tenant: str, project: str) -> FeedState:
        """Returns the state of a project's feed. `head` is the last position that a writer took.
        Its event may not be written yet."""
        return self.states([(tenant, project)])[0]

    def states(self, places: Sequence[tuple[str, str]]) -> list[FeedState]:
        """Returns the states of several feeds, in one request."""
        known = [self._gaps.solid(place) for place in places]
        items = self._table.get_many([META, *(keys.head_at(*place) for place in places)])
        return [
            self._state(*place, items, solid) for place, solid in zip(places, known, strict=True)
        ]

    def _state(self, tenant: str, project: str, items: dict[At, Item], known: int) -> FeedState:
        """Builds the state from the items, and from the position that was `known` to be solid
        before they were read."""
        meta, head = items.get(META), items.get(keys.head_at(tenant, project), {})
        epoch = epoch_of(meta, self._table.name)
        assert meta is not None
        self._gaps.forget_if_older((tenant, project), known, int_of(head, "h"))
        self._gaps.learn((tenant, project), int_of(head, "so"))
        mark = feed_mark(tenant, project)
        return FeedState(
            meta["bi"]["B"], epoch, mark, int_of(head, "h"), int_of(head, "pt"), int_of(head, "pu")
        )

    def _end(self, tenant: str, project: str, state: FeedState) -> int:
        """Returns the last position in use that has no gap before it: a reader that begins there
        misses no event."""
        place = (tenant, project)
        solid = self._gaps.solid(place)
        if solid >= state.head:
            return solid
        last = self._table.query(
            keys.feed_of(*place), keys.numbers(solid + 1), forward=False, limit=1, fields="#sk"
        )
        for item in last:
            self._gaps.close_up(place, position_of(item))
            return max(position_of(item), solid)
        return solid

    def _run(self, query: EventQuery, start: int) -> Run:
        """Returns the events after a position, up to the first position that is not used yet."""
        place = (query.tenant, query.project)
        events: list[RecordedEvent] = []
        voids = 0
        at, before = start, self._gaps.solid(place)
        while True:
            gap = range(0)
            fetch = max(FETCH_AT_LEAST, query.limit + 1 - len(events))
            for item in self._table.query(keys.feed_of(*place), keys.numbers(at + 1), limit=fetch):
                position = position_of(item)
                gap = range(max(at, before) + 1, position)
                if gap:
                    break
                if is_event(item):
                    if len(events) == query.limit:
                        return Run(events, at, voids, more=True)
                    events.append(recorded_in(item, *place))
                else:
                    voids += 1
                at = position
            if not gap:
                end = max(at, before)
                self._gaps.closed(place, start + 1, end)
                self._gaps.note(place)
                return Run(events, end, voids)
            self._gaps.fill(place, gap)
            before = self._gaps.solid(place)

    def _read_record(self, query: EventQuery, key: Key) -> EventPage:
        """Reads the history before the events and the base. If the record was purged meanwhile,
        reads it again from the base."""
        after, missing = query.after_version, 0
        for _ in range(MOST_TRIES):
            entries = self._entries(key, after, query.limit)
            positions = _positions(entries, after)
            wanted = positions[: query.limit]
            feed, head, base_at = (
                keys.feed_of(*key.place),
                keys.head_at(*key.place),
                keys.base_at(key),
            )
            known = self._gaps.solid(key.place)
            items = self._table.get_many(
                [META, head, base_at, *(At(feed, keys.number(position)) for position in wanted)]
            )
            base = items.get(base_at)
            if (
                base is not None
                and after < int_of(base, "v") - 1
                and (not entries or entries[0].first < int_of(base, "v"))
            ):
                after = int_of(base, "v") - 1
                continue
            state = self._state(*key.place, items, known)
            found = [items.get(At(feed, keys.number(position))) for position in wanted]
            events = [
                recorded_in(item, *key.place)
                for item in found
                if item is not None and is_event(item)
            ]
            missing = len(wanted) - len(events)
            if not missing:
                cursor = encode_cursor(state, self._gaps.solid(key.place))
                return EventPage(
                    events,
                    cursor,
                    more=len(positions) > len(wanted),
                    base=None if base is None else base["b"]["B"],
                )
        raise StoreCorrupt(
            f"table {self._table.name}: events of {'/'.join(key)} are missing: {missing} of a page"
        )

    def _entries(self, key: Key, after: int, limit: int) -> list[Entry]:
        """Returns the history after a version: enough changes for the page, and one extra."""
        entries: list[Entry] = []
        events = 0
        for item in self._table.query(
            keys.history_of(key), keys.numbers(after + 1), limit=limit + 1
        ):
            entries.append(entry_in(item))
            events += entries[-1].last - max(after + 1, entries[-1].first) + 1
            if events > limit:
                break
        return entries


def entry_in(item: Item) -> Entry:
    """Decodes an item of a record's history."""
    return Entry(int(item["sk"]["S"]), int_of(item, "n"), int_of(item, "p"))


def _positions(entries: list[Entry], after: int) -> list[int]:
    """Returns the positions of the events after a version."""
    return [
        entry.position_of(version)
        for entry in entries
        for version in range(max(after + 1, entry.first), entry.last + 1)
    ]


# Waiting: own commits wake the waiter; commits of others are found by polling at growing intervals

LOOKS = Backoff(first=0.02, longest=0.25, jitter=0)
"""The pauses between polls, in seconds. A poll reads one small item per project."""


class Wakeup:
    """Wakes the waiters of this store at its own commits, and when it is closed."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0
        self.stopped = False

    def wake(self, *, stop: bool = False) -> None:
        """Wakes all waiters."""
        with self._condition:
            self._count += 1
            self.stopped = self.stopped or stop
            self._condition.notify_all()

    @property
    def count(self) -> int:
        return self._count

    def wait(self, heard: int, seconds: float) -> bool:
        """Waits for a wakeup later than `heard`. Returns whether there was one."""
        with self._condition:
            return self._condition.wait_for(lambda: self._count != heard, seconds)


def wait(
    table: Table,
    feeds: Feeds,
    wakeup: Wakeup,
    projects: Sequence[tuple[str, str]],
    after: Sequence[str],
    timeout: float,
) -> None:
    """Returns when one of the feeds has moved past its cursor, after `timeout` seconds, or when
    told to stop."""
    deadline = time.monotonic() + timeout
    places = [
        (tenant, project, decode_cursor(cursor))
        for (tenant, project), cursor in zip(projects, after, strict=True)
    ]
    quiet = 1
    while not wakeup.stopped:
        heard = wakeup.count
        states = feeds.states(projects)
        if any(
            _has_moved(table, place, state) for place, state in zip(places, states, strict=True)
        ):
            return
        left = deadline - time.monotonic()
        if left <= 0:
            return
        quiet = 1 if wakeup.wait(heard, min(LOOKS.pause(quiet), left)) else quiet + 1


def _has_moved(table: Table, asked: tuple[str, str, CursorPosition], state: FeedState) -> bool:
    """Has the feed moved past its cursor? True for a lost cursor, too: the next read reports it. A
    position that was only taken does not count: its event must be written."""
    tenant, project, place = asked
    if (place.birth, place.epoch, place.feed) != (
        state.birth,
        state.epoch,
        state.feed,
    ) or place.position > state.head:
        return True
    if place.position == state.head:
        return False
    ahead = table.query(
        keys.feed_of(tenant, project), keys.numbers(place.position + 1), limit=1, fields="#sk"
    )
    return any(True for _ in ahead) or place.position < state.purged_to
