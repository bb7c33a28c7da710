"""The epoch of a store: whether a commit belongs to it, and the number of the next one.

A server that was promoted or restored to an earlier point in time continues with a history that may
lack acknowledged writes. The first commit to it raises the epoch. After that, no change that was
decided in an earlier epoch may be written. The record may be the same in both histories, while the
generation that was decided on it has been granted in the lost one.

An epoch's number contains the second in which it was chosen (`genlock.core.epochs`), and it is
written in a later second. So every grant of an epoch happens after that second, and a process that
begins another epoch afterwards, in any history, chooses a different number. Two processes can
choose the same number only if they do so in the same second without knowing of each other, and then
with a probability of one in sixteen.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from genlock.core.epochs import DIGITS, next_epoch


class EpochGuard:
    """The epoch of one store, as far as this process has read it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._present: int | None = None

    @property
    def present(self) -> int | None:
        """The highest epoch read so far; None before the first read."""
        return self._present

    def heard(self, epoch: int | None) -> None:
        """Records the store's epoch; None if the server does not report one."""
        if epoch is not None and epoch != self._present:
            with self._lock:
                self._present = max(epoch, self._present or 0)

    def admits(self, epoch: int | None) -> bool:
        """May changes that were decided in this epoch be written?"""
        return epoch is None or self._present is None or epoch >= self._present


MARGIN = 0.01
"""Seconds. By this much a clock under correction may lag behind the monotonic clock."""


class EpochNumber:
    """Chooses the number of an epoch that begins when the present second is over."""

    def __init__(
        self,
        now: float | None = None,
        digit: int | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`now` is in seconds since 1970, by the server's clock if there is one."""
        now = time.time() if now is None else now
        self._second = int(now)
        self._monotonic = monotonic
        self._pause = pause
        self._over = monotonic() + self._second + 1 - now + MARGIN
        self._digit = os.urandom(1)[0] % DIGITS if digit is None else digit

    def wait(self) -> None:
        """Waits until its second is over."""
        left = self._over - self._monotonic()
        if left > 0:
            self._pause(left)

    def above(self, last: int) -> int:
        """Waits until its second is over, and returns the number of the epoch after `last`."""
        self.wait()
        return next_epoch(last, self._second, self._digit)
