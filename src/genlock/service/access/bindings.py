"""Which sessions have a key of their own, kept up from the feed of keys.

All keys are read once. From then on only what has happened to keys is, so that it costs the store the same however many keys there are,
and whoever is waiting by one of them can be told which were changed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from genlock.core.codec import decode_record
from genlock.core.keys import KEY, NOWHERE, access_key
from genlock.core.model import KeyRecord
from genlock.core.reasons import KeyState
from genlock.engine.walk import pages_of, records_of
from genlock.errors import CursorLost
from genlock.store import EventQuery, Store, Stored

Place: TypeAlias = tuple[str, str]
"""A tenant and a session."""

_FEED: Final = (NOWHERE, NOWHERE)


class News(NamedTuple):
    """What a look has brought."""

    now: datetime | None
    """On the store's clock, by which keys end; None if nobody asked and no key had to be loaded."""
    changed: frozenset[str] | None
    """The keys that were made, rotated or revoked since the look before, by id; None: any may have been."""


class Bindings:
    """The sessions, for one thread to keep up; any may ask."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cursor: str | None = None
        self._keys: dict[Place, dict[str, datetime | None]] = {}
        """By session, when each of its keys ends; None: never. What is inside is replaced and not changed: others look at it meanwhile."""
        self._places: dict[str, Place] = {}
        """By key."""

    def has_key(self, place: Place, clock: Callable[[], datetime]) -> bool:
        """Has this session a key that is good now? What time it is matters only where there is any."""
        ends = self._keys.get(place)
        if ends is None:
            return False
        now = clock()
        return any(end is None or now < end for end in ends.values())

    def catch_up(self, *, time: bool = True) -> News:
        """Reads what has happened, and the time. What was read when the store failed is read again."""
        if self._cursor is not None:
            try:
                return self._follow(self._cursor, time)
            except CursorLost:
                self._cursor = None
        return self._begin()

    def _begin(self) -> News:
        # In this order: whatever happens while the keys are read is read again.
        cursor = self._store.read_events(EventQuery(*_FEED, tail=True)).cursor
        now = self._store.load([]).now
        old = set(self._places)
        for stored in records_of(self._store, *_FEED, KEY, state=KeyState.ACTIVE.value):
            self._take(stored.key.id, stored)
            old.discard(stored.key.id)
        for id in old:
            self._take(id, None)
        self._cursor = cursor
        return News(now, None)

    def _follow(self, cursor: str, time: bool) -> News:
        changed: dict[str, None] = {}
        for page in pages_of(self._store, _FEED, cursor):
            changed |= dict.fromkeys(event.key.id for event in page.events if event.key.kind == KEY)
            cursor = page.cursor
        now, keys = None, [access_key(id) for id in changed]
        if keys or time:
            found, now, _ = self._store.load(keys)
            for key in keys:
                self._take(key.id, found.get(key))
        self._cursor = cursor
        return News(now, frozenset(changed))

    def _take(self, id: str, stored: Stored | None) -> None:
        record = None if stored is None else decode_record(KEY, stored.body)
        before = self._places.pop(id, None)
        if before is not None:
            others = {key: end for key, end in self._keys[before].items() if key != id}
            if others:
                self._keys[before] = others
            else:
                del self._keys[before]
        if isinstance(record, KeyRecord) and record.session is not None and record.revoked_at is None:
            place = self._places[id] = record.tenant, record.session
            self._keys[place] = {**self._keys.get(place, {}), id: record.expires_at}
