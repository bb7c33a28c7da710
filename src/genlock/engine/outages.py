"""Outages: when this coordinator, or its store, was away, and for what that is an excuse.

After an outage every lease has run out, since nobody could renew. A service that comes back and hands all tasks on at once would have
the work of a whole fleet done twice. So it remembers when it came back, and looks up each project's newest event before that; the rules
make of it what is right (`core/task/view.py`). Embedded coordinators have no such memory: they come and go with their callers.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from genlock.core.codec import decode_event, decode_record
from genlock.core.facts import Mercy
from genlock.core.keys import SETTLED, Key
from genlock.core.model import SettledRecord
from genlock.core.task.view import MERCY_SECONDS
from genlock.engine.walk import pages_of
from genlock.errors import CursorLost
from genlock.store import Recorded, Store

Place = tuple[str, str]

_LONGEST = timedelta(seconds=MERCY_SECONDS)
_SLACK = timedelta(seconds=5)
_MOST_EVENTS = 20_000
_PAGE = 1000
_EVER = datetime.min.replace(tzinfo=UTC)


class Outages:
    """Of one store, as one coordinator has seen it. Its lanes share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._away = True
        """Has the store failed us since it last answered? Before the start it has."""
        self._back: datetime | None = None
        self._newest: dict[Place, tuple[datetime, datetime]] = {}
        """By project: for which return it was looked up, and the time of the newest event before that."""

    def lost(self) -> None:
        """The store was away."""
        self._away = True

    def found(self, now: datetime) -> bool:
        """The store has answered, at this time by its clock. May anything have to be spared just now?"""
        if self._away:
            with self._lock:
                if self._away:
                    self._back, self._away = now, False
        back = self._back
        # A clock that was set back must not make the mercy longer.
        return back is not None and back - _SLACK <= now < back + _LONGEST

    def mercy(self, place: Place, now: datetime) -> Mercy | None:
        """What the rules are to heed in this project, if anything."""
        if not self.found(now):
            return None
        back = self._back
        assert back is not None
        known = self._newest.get(place)
        if known is None or known[0] != back:
            known = self._newest[place] = back, self._look_up(place, back)
        return Mercy(since=known[1], back=back)

    def _look_up(self, place: Place, back: datetime) -> datetime:
        """When the project's newest event before then was, by a look of bounded length: rather too early than too late.

        The feed can only be read forwards, so it is read from where it was last settled.
        """
        key = Key(*place, SETTLED, SETTLED)
        stored = self._store.load([key]).records.get(key)
        record = decode_record(SETTLED, stored.body) if stored is not None else None
        try:
            return self._newest_after(place, record.cursor if isinstance(record, SettledRecord) else None, back)
        except CursorLost:
            return self._newest_after(place, None, back)

    def _newest_after(self, place: Place, cursor: str | None, back: datetime) -> datetime:
        newest, seen = _EVER, 0
        for page in pages_of(self._store, place, cursor, _PAGE):
            before = next((at for at in map(_time, reversed(page.events)) if at < back), None)
            if before is not None:
                newest = before
            seen += len(page.events)
            if seen >= _MOST_EVENTS or (page.events and _time(page.events[-1]) >= back):
                break
        return newest


def _time(recorded: Recorded) -> datetime:
    return decode_event(recorded.body).event.timestamp
