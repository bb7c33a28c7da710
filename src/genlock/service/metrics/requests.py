"""Counting HTTP requests, each with one call that costs less than a microsecond."""

from __future__ import annotations

import threading

from genlock.service.metrics import table
from genlock.service.metrics.tallies import Histogram


class Requests:
    """By route and status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int], Histogram] = {}

    def count(self, route: str, status: int, seconds: float) -> None:
        """One more. `route` is the name or pattern of a route, never a path as it was asked for: those have no end."""
        with self._lock:
            histogram = self._seen.get((route, status))
            if histogram is None:
                histogram = self._seen[route, status] = Histogram(table.REQUEST_DURATION)
            histogram.observe(seconds)

    def seen(self) -> list[tuple[str, int, Histogram]]:
        """All of them, by route and status."""
        with self._lock:
            return [(route, status, histogram.copy()) for (route, status), histogram in sorted(self._seen.items())]
