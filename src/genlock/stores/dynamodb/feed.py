"""Reading events: a project's feed after a cursor, or one record's by version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from genlock.errors import StoreCorrupt, StoreUnavailable
from genlock.store import EventPage, EventQuery, Key, Recorded
from genlock.stores.dynamodb import keys
from genlock.stores.dynamodb.holes import Holes
from genlock.stores.dynamodb.items import Item, int_of, is_event, position_of, recorded_in
from genlock.stores.dynamodb.keys import META, At
from genlock.stores.dynamodb.loading import epoch_of
from genlock.stores.dynamodb.table import Table
from genlock.stores.places import FeedState, check_place, decode_cursor, encode_cursor, feed_mark, tail_page

FETCH_AT_LEAST = 25
"""Events fetched at a time, however short the page: tombstones may stand among them."""
MOST_TRIES = 50


class Entry(NamedTuple):
    """Where the events of one change are: the last version, how many, and the position of the last."""

    last: int
    events: int
    position: int

    @property
    def first(self) -> int:
        return self.last - self.events + 1

    def position_of(self, version: int) -> int:
        return self.position - (self.last - version)


class Run(NamedTuple):
    """Events in order, the position at which they end, and how many tombstones stand among them."""

    events: list[Recorded]
    end: int
    voids: int
    more: bool = False


class Feeds:
    """The feeds of one store."""

    def __init__(self, table: Table, holes: Holes) -> None:
        self._table = table
        self._holes = holes

    def read_events(self, query: EventQuery) -> EventPage:
        """The page."""
        if query.record is not None:
            return self._read_record(query, query.record)
        state = self.state(query.tenant, query.project)
        if query.tail:
            return tail_page(query, state, self._end(query.tenant, query.project, state))
        run, state = self._page(query, state)
        cursors = [encode_cursor(state, event.position) for event in run.events] if query.cursors else ()
        return EventPage(run.events, encode_cursor(state, run.end), run.more, position=run.end, cursors=cursors, voids=run.voids)

    def _page(self, query: EventQuery, state: FeedState) -> tuple[Run, FeedState]:
        """The events, and the state of the feed in which they were all there.

        A purge may come between the look at the state and the events. Where every position has something nothing is missing; otherwise
        the state is looked at again, and if it is another, the cursor is judged by it, and what it still allows is read again.
        """
        place = None if query.after is None else decode_cursor(query.after)
        start = 0 if place is None else place.position
        for _ in range(MOST_TRIES):
            if place is not None:
                check_place(place, state)
            run = self._run(query, start)
            if len(run.events) + run.voids == run.end - start:
                return run, state
            before, state = state, self.state(query.tenant, query.project)
            if before._replace(head=state.head) == state:
                return run, state
        raise StoreUnavailable(f"table {self._table.name}: others kept purging {query.tenant}/{query.project} while it was read")

    def state(self, tenant: str, project: str) -> FeedState:
        """The state of a project's feed. `head` is the last position given to anybody: whether he has written there is another matter."""
        return self.states([(tenant, project)])[0]

    def states(self, places: Sequence[tuple[str, str]]) -> list[FeedState]:
        """The states of several, in one request."""
        known = [self._holes.solid(place) for place in places]
        items = self._table.get_many([META, *(keys.head_at(*place) for place in places)])
        return [self._state(*place, items, solid) for place, solid in zip(places, known, strict=True)]

    def _state(self, tenant: str, project: str, items: dict[At, Item], known: int) -> FeedState:
        """From its items, and what was `known` to be solid before they were read."""
        meta, head = items.get(META), items.get(keys.head_at(tenant, project), {})
        epoch = epoch_of(meta, self._table.name)
        assert meta is not None
        self._holes.doubt((tenant, project), known, int_of(head, "h"))
        self._holes.learn((tenant, project), int_of(head, "so"))
        mark = feed_mark(tenant, project)
        return FeedState(meta["bi"]["B"], epoch, mark, int_of(head, "h"), int_of(head, "pt"), int_of(head, "pu"))

    def _end(self, tenant: str, project: str, state: FeedState) -> int:
        """The last position in use, with no hole before it: who begins there misses nothing that is still to be written."""
        place = (tenant, project)
        solid = self._holes.solid(place)
        if solid >= state.head:
            return solid
        last = self._table.query(keys.feed_of(*place), keys.numbers(solid + 1), forward=False, limit=1, fields="#sk")
        for item in last:
            self._holes.close_up(place, position_of(item))
            return max(position_of(item), solid)
        return solid

    def _run(self, query: EventQuery, start: int) -> Run:
        """What comes after a position. It stops before positions that nobody has used yet."""
        place = (query.tenant, query.project)
        events: list[Recorded] = []
        voids = 0
        at, before = start, self._holes.solid(place)
        while True:
            hole = range(0)
            fetch = max(FETCH_AT_LEAST, query.limit + 1 - len(events))
            for item in self._table.query(keys.feed_of(*place), keys.numbers(at + 1), limit=fetch):
                position = position_of(item)
                hole = range(max(at, before) + 1, position)
                if hole:
                    break
                if is_event(item):
                    if len(events) == query.limit:
                        return Run(events, at, voids, more=True)
                    events.append(recorded_in(item, *place))
                else:
                    voids += 1
                at = position
            if not hole:
                end = max(at, before)
                self._holes.closed(place, start + 1, end)
                self._holes.note(place)
                return Run(events, end, voids)
            self._holes.fill(place, hole)
            before = self._holes.solid(place)

    def _read_record(self, query: EventQuery, key: Key) -> EventPage:
        """The history is read before the events and the base: if it was purged meanwhile, it is read again, from what is kept."""
        after, missing = query.after_version, 0
        for _ in range(MOST_TRIES):
            entries = self._entries(key, after, query.limit)
            positions = _positions(entries, after)
            wanted = positions[: query.limit]
            feed, head, base_at = keys.feed_of(*key.place), keys.head_at(*key.place), keys.base_at(key)
            known = self._holes.solid(key.place)
            items = self._table.get_many([META, head, base_at, *(At(feed, keys.number(position)) for position in wanted)])
            base = items.get(base_at)
            if base is not None and after < int_of(base, "v") - 1 and (not entries or entries[0].first < int_of(base, "v")):
                after = int_of(base, "v") - 1
                continue
            state = self._state(*key.place, items, known)
            found = [items.get(At(feed, keys.number(position))) for position in wanted]
            events = [recorded_in(item, *key.place) for item in found if item is not None and is_event(item)]
            missing = len(wanted) - len(events)
            if not missing:
                cursor = encode_cursor(state, self._holes.solid(key.place))
                return EventPage(events, cursor, more=len(positions) > len(wanted), base=None if base is None else base["b"]["B"])
        raise StoreCorrupt(f"table {self._table.name}: events of {'/'.join(key)} are missing: {missing} of a page")

    def _entries(self, key: Key, after: int, limit: int) -> list[Entry]:
        """Where the events after a version are: enough for the page, and one change more."""
        entries: list[Entry] = []
        events = 0
        for item in self._table.query(keys.history_of(key), keys.numbers(after + 1), limit=limit + 1):
            entries.append(entry_in(item))
            events += entries[-1].last - max(after + 1, entries[-1].first) + 1
            if events > limit:
                break
        return entries


def entry_in(item: Item) -> Entry:
    """An item of a record's history."""
    return Entry(int(item["sk"]["S"]), int_of(item, "n"), int_of(item, "p"))


def _positions(entries: list[Entry], after: int) -> list[int]:
    """The positions of the events after a version."""
    return [entry.position_of(version) for entry in entries for version in range(max(after + 1, entry.first), entry.last + 1)]
