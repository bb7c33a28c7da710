"""How long to pause before something is tried again, and trying again what can be repeated until it works or time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from genlock.engine.jobs import Item, NextTask, Settle, Sweep
from genlock.errors import OutcomeUnknown, StoreUnavailable

_FIRST = 0.002
LONGEST_PAUSE = 0.05
_USUAL = 5.0

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


def patience_of(items: Iterable[Item], now: float) -> float:
    """Until when a batch may take to find out what came of its commit, and to write what belongs to it: everybody else waits for that.

    How long somebody would wait for a task, or a sweep may take, is no reason to keep them all; nor is what nobody waits for.
    """
    until = 0.0
    for item in items:
        request, job = item.request, item.job
        if job is None or job.returns or job.cancelled or type(request) is Sweep or type(request) is Settle:
            continue
        end = job.deadline
        if type(request) is NextTask:
            end -= max(0.0, request.wait_until - now)
        if end > until:
            until = end
    return until or now + _USUAL
