"""The epoch of a store: whether a commit belongs to it, and the number of the next one.

A server that was promoted or put back to an earlier instant goes on with a history that may lack
acknowledged writes. The first commit to it raises the epoch. After that, no change that was decided
in an earlier epoch may be written. The record may be the same in both histories, while the
generation that was decided on it has been granted in the lost one.

An epoch's number says in which second it was taken (`genlock.core.epochs`), and it is written in a
later second. So whatever is granted in an epoch is granted after its second, and a process that
begins another epoch after that, in whatever history, takes another number. Two processes can take
the same number only if they do so in the same second without knowing of each other, and then in one
of sixteen cases.
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
        """The highest epoch that was read; None before the first."""
        return self._present

    def heard(self, epoch: int | None) -> None:
        """The store is in this epoch; None if the server does not say."""
        if epoch is not None and epoch != self._present:
            with self._lock:
                self._present = max(epoch, self._present or 0)

    def admits(self, epoch: int | None) -> bool:
        """May changes that were decided in this epoch be written?"""
        return epoch is None or self._present is None or epoch >= self._present


MARGIN = 0.01
"""Seconds: a clock that is being corrected may run so much slower than the monotonic one."""


class EpochNumber:
    """A number for an epoch that begins when the present second is over."""

    def __init__(
        self,
        now: float | None = None,
        digit: int | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`now` is in seconds since 1970, by a server's clock if there is one."""
        now = time.time() if now is None else now
        self._second = int(now)
        self._monotonic = monotonic
        self._pause = pause
        self._over = monotonic() + self._second + 1 - now + MARGIN
        self._digit = os.urandom(1)[0] % DIGITS if digit is None else digit

    def wait(self) -> None:
        """Returns when its second is over."""
        left = self._over - self._monotonic()
        if left > 0:
            self._pause(left)

    def above(self, last: int) -> int:
        """The number of the epoch that follows `last`, when its second is over."""
        self.wait()
        return next_epoch(last, self._second, self._digit)
