"""Outage grace: the outages of this coordinator or its store, and the claims that they excuse.

After an outage every lease is over, because no holder could renew. A service that came back and
granted all tasks at once would have a whole fleet's work done twice. So it remembers its return and
looks up each project's newest event before that. The rules follow from these two times
(`core/task/view.py`). Embedded coordinators have no such memory: they come and go with their
callers.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from genlock.core.codec import decode_event, decode_record
from genlock.core.facts import OutageGrace
from genlock.core.keys import SETTLED, Key
from genlock.core.model import SettledRecord
from genlock.core.task.view import OUTAGE_GRACE_SECONDS
from genlock.engine.scan import pages_of
from genlock.errors import CursorLost
from genlock.store import RecordedEvent, Store

Place = tuple[str, str]

_LONGEST = timedelta(seconds=OUTAGE_GRACE_SECONDS)
_SLACK = timedelta(seconds=5)
_MOST_EVENTS = 20_000
_PAGE = 1000
_EVER = datetime.min.replace(tzinfo=UTC)


class OutageTracker:
    """The outages of one store, as seen by one coordinator. Its lanes share this object."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._away = True
        """Was the store unavailable since it last answered? True before the start."""
        self._back: datetime | None = None
        self._newest: dict[Place, tuple[datetime, datetime]] = {}
        """By project: the end of an outage, and the time of the newest event before it."""

    def lost(self) -> None:
        """Notes that the store is unavailable."""
        self._away = True

    def found(self, now: datetime) -> bool:
        """Notes an answer of the store, at this time by its clock. Returns whether claims may have
        to be spared now."""
        if self._away:
            with self._lock:
                if self._away:
                    self._back, self._away = now, False
        back = self._back
        # A clock that was set back must not make the grace longer.
        return back is not None and back - _SLACK <= now < back + _LONGEST

    def outage_grace(self, place: Place, now: datetime) -> OutageGrace | None:
        """Returns the grace for this project, if an outage ended a short time ago."""
        if not self.found(now):
            return None
        back = self._back
        assert back is not None
        known = self._newest.get(place)
        if known is None or known[0] != back:
            known = self._newest[place] = back, self._look_up(place, back)
        return OutageGrace(since=known[1], back=back)

    def _look_up(self, place: Place, back: datetime) -> datetime:
        """Returns the time of the project's newest event before the return: rather too early than
        too late.

        The feed can only be read forwards, so a bounded number of events is read from the cursor of
        the last recovery.
        """
        key = Key(*place, SETTLED, SETTLED)
        stored = self._store.load([key]).records.get(key)
        record = decode_record(SETTLED, stored.body) if stored is not None else None
        try:
            return self._newest_after(
                place, record.cursor if isinstance(record, SettledRecord) else None, back
            )
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


def _time(recorded: RecordedEvent) -> datetime:
    return decode_event(recorded.body).event.timestamp
