"""A clock that stands still until the test moves it, for tests without sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 4, 6, 0, tzinfo=UTC)


class ManualClock:
    """A clock that the test controls. Coordinators created with it are woken whenever it moves."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._now = start
        self._lock = threading.Lock()
        self._wake: list[Callable[[], None]] = []

    def now(self) -> datetime:
        """The present instant."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> None:
        """Moves the clock, backwards too if `seconds` is negative."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
            wake = list(self._wake)
        for call in wake:
            call()

    def set(self, seconds: float) -> None:
        """Moves the clock to `seconds` after its start."""
        self.advance((self._start - self.now()).total_seconds() + seconds)

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Calls `wake` after every move."""
        with self._lock:
            self._wake.append(wake)
