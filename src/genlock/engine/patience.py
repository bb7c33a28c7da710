"""How long to pause before something is tried again, and trying again what can be repeated until it works or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from genlock.errors import OutcomeUnknown, StoreUnavailable

_FIRST = 0.002
LONGEST_PAUSE = 0.05

T = TypeVar("T")


def pause_after(attempt: int) -> float:
    """Seconds: anything up to a bound that doubles from one failure to the next, so that many do not come back together."""
    import random

    return random.uniform(0, min(_FIRST * 2 ** min(attempt - 1, 10), LONGEST_PAUSE))


def patiently(function: Callable[[], T], until: float) -> T:
    """The answer of something that may be done twice: while the store is away it is asked again, until then on the monotonic clock."""
    attempt = 0
    while True:
        try:
            return function()
        except StoreUnavailable as error:
            if time.monotonic() > until:
                raise given_up(error) from error
        except OutcomeUnknown:
            if time.monotonic() > until:
                raise
        attempt += 1
        time.sleep(pause_after(attempt))


def given_up(error: StoreUnavailable) -> StoreUnavailable:
    """What a caller is told when the deadline has passed."""
    return StoreUnavailable(f"{error}; it was away until the deadline: call again when it is back, or wait longer (deadline_seconds)")
