"""How long a copy waits for faults that may pass: it takes minutes, and in minutes a server is restarted or falls silent now and then."""

from __future__ import annotations

import time

from genlock.errors import StoreError

SECONDS = 60.0
"""So long from the first fault on, unless something was written meanwhile."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Patience:
    """Of one call."""

    def __init__(self) -> None:
        self._until: float | None = None
        self._pause = FIRST_PAUSE

    def wait(self, fault: StoreError) -> None:
        """Returns when it is time to try again; raises the fault when it has lasted too long."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + SECONDS
        if now >= self._until:
            raise fault
        time.sleep(min(self._pause, self._until - now))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def renew(self) -> None:
        """Something was written: from now on faults count anew."""
        self._until, self._pause = None, FIRST_PAUSE
