"""The back-off of the engine, and retries of repeatable calls while the store is unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from genlock.errors import OutcomeUnknown, StoreUnavailable
from genlock.retry import Backoff, Retry

LONGEST_PAUSE = 0.05
BACKOFF = Backoff(first=0.002, longest=LONGEST_PAUSE)

T = TypeVar("T")


def retry_until(function: Callable[[], T], until: float) -> T:
    """Calls a repeatable function, and retries it while the store is unavailable, until this
    deadline on the monotonic clock."""
    retry = Retry(BACKOFF, until)
    while True:
        try:
            return function()
        except StoreUnavailable as error:
            pause = retry.failed(time.monotonic())
            if pause is None:
                raise deadline_passed(error) from error
        except OutcomeUnknown:
            pause = retry.failed(time.monotonic())
            if pause is None:
                raise
        time.sleep(pause)


def deadline_passed(error: StoreUnavailable) -> StoreUnavailable:
    """Returns the error for the caller when the deadline has passed."""
    return StoreUnavailable(
        f"{error}; it was away until the deadline: call again when it is back, or wait longer "
        "(deadline_seconds)"
    )
