"""Reading events: a project's feed after a cursor, or one record's by version. One script each: its answer is of one instant."""

from __future__ import annotations

from typing import Any

from genlock.errors import StoreCorrupt
from genlock.store import EventPage, EventQuery, Key, Recorded
from genlock.stores.places import FeedState, check_place, decode_cursor, encode_cursor, feed_mark, tail_page
from genlock.stores.redis.link import Link
from genlock.stores.redis.loading import epoch_in
from genlock.stores.redis.wire import Names, field_of, key_in, split_head

_LAST = 2**63 - 1


def read_events(link: Link, names: Names, birth: bytes, query: EventQuery, where: str) -> EventPage:
    """One page."""
    keys = [names.store, names.place(query.tenant, query.project)]
    if query.record is not None:
        field = field_of(query.record.kind, query.record.id)
        said = link.run("record", keys, field, query.after_version, query.limit + 1)
        return _of_record(query, query.record, _state(said, birth, query, where), said)
    after = None if query.after is None else decode_cursor(query.after)
    if query.tail:
        state = _state(link.run("heads_of_feeds", keys), birth, query, where)
        return tail_page(query, state, state.head)
    position = 0 if after is None else min(after.position, _LAST)
    said = link.run("feed", keys, position, query.limit + 1)
    state = _state(said, birth, query, where)
    if after is not None:
        check_place(after, state)
    return _page(query, state, said[2], position)


def _state(said: list[Any], birth: bytes, query: EventQuery, where: str) -> FeedState:
    """What decides whether the feed can be continued; all counters are 0 before its first event."""
    epoch = epoch_in(said[0], birth, where)
    return FeedState(birth, epoch, feed_mark(query.tenant, query.project), *(int(counter or 0) for counter in said[1]))


def _page(query: EventQuery, state: FeedState, entries: list[Any], position: int) -> EventPage:
    more = len(entries) > query.limit
    events = [_event(query, entry) for entry in entries[: query.limit]]
    end = events[-1].position if events else position
    if not more:
        end = state.head  # beyond the last event, if that was purged
    cursors = [encode_cursor(state, event.position) for event in events] if query.cursors else ()
    return EventPage(events, encode_cursor(state, end), more, position=end, cursors=cursors)


def _of_record(query: EventQuery, key: Key, state: FeedState, said: list[Any]) -> EventPage:
    for place in said[2]:
        if not isinstance(place, list):
            raise StoreCorrupt(f"the event of {'/'.join(key)} at position {int(place)} is not in the feed")
    events = [_event(query, entry) for entry in said[2][: query.limit]]
    return EventPage(events, encode_cursor(state, state.head), more=len(said[2]) > query.limit, base=said[3])


def _event(query: EventQuery, entry: list[Any]) -> Recorded:
    place, (_, field, _, data) = entry
    version, digest, body = split_head(data)
    return Recorded(key_in(field, query.tenant, query.project), version, digest, body, int(place.partition(b"-")[0]))
