"""A bell: wakes the one thread that sleeps by it.

A condition variable makes and hands over a new lock for every sleep, and looks for sleepers at every ring. There is one sleeper here,
and nearly every ring finds it awake.
"""

from __future__ import annotations

import threading


class Bell:
    """All of it is called by whoever holds `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._rung = threading.Lock()
        self._rung.acquire()
        self.asleep = False
        """Is there somebody to wake?"""

    def ring(self) -> None:
        """Wakes the sleeper, if there is one."""
        if self.asleep:
            self.asleep = False
            self._rung.release()

    def sleep(self, seconds: float | None) -> None:
        """By the one sleeper: lets go of the lock until the bell is rung, or for so many seconds."""
        self.asleep = True
        self.lock.release()
        try:
            self._rung.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX))
        finally:
            self.lock.acquire()
            if self.asleep:
                self.asleep = False
            else:
                # Rung, perhaps only after the time was up: the next sleep must not find it ringing still.
                self._rung.acquire(blocking=False)
