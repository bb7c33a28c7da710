"""The server's clock, from the `Date` of its answers.

A `Date` has whole seconds. But each answer says that the server's clock stood between that second and the next at some instant
between question and answer; so all answers together leave it little room, and after a few seconds its place is known to some
milliseconds. Between answers this host's monotonic time runs on.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from genlock.stores.clock import SystemClock

DRIFT = 0.0002
"""By how much two clocks may run apart, in seconds a second: what was learnt long ago is trusted less."""

_START = datetime(1970, 1, 1, tzinfo=UTC)


class ServerClock:
    """`genlock.store.Clock` of the server. It stands at the earliest instant that all answers allow, so it seldom runs back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._low = self._high = 0.0
        self._at: float | None = None
        self._last: tuple[str, float] = "", 0.0

    def heard(self, date: str, asked: float, answered: float) -> None:
        """An answer had this `Date`; when it was asked for and when it came, in monotonic seconds."""
        second = self._second(date)
        if second is None:
            return
        low, high = second - answered, second + 1 - asked
        with self._lock:
            if self._at is not None:
                room = DRIFT * max(0.0, answered - self._at)
                known_low, known_high = self._low - room, self._high + room
                if max(low, known_low) <= min(high, known_high):
                    low, high = max(low, known_low), min(high, known_high)
                # Otherwise a clock was set: what was known before is void.
            self._low, self._high, self._at = low, high, answered

    def _second(self, date: str) -> float | None:
        last, second = self._last
        if date == last:
            return second
        try:
            second = (parsedate_to_datetime(date) - _START).total_seconds()
        except (TypeError, ValueError):
            return None
        self._last = date, second
        return second

    def now(self) -> datetime:
        """The present instant; this host's, as long as the server has not said any."""
        with self._lock:
            if self._at is None:
                return SystemClock().now()
            return _START + timedelta(seconds=self._low + time.monotonic())
