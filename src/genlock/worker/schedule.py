"""When a lease is renewed, and how long it is trusted.

The coordinator counts a lease from the moment of its decision. The holder only knows when it sent
the request, which is earlier. So a holder that counts from there is always on the safe side,
whatever its clock shows: only the speed of the two clocks matters, never their time.

    sent                                              trusted until        the coordinator's end
     |----- first renewal -----|                            |                      |
     0        10 % … 40 %                     lease - margin                   lease (+ way)

The first renewal comes at 10 to 40 % of the lease and each later one at 30 to 40 %, so agents that
began together do not renew together. The margin is the time to end the work when the claim is lost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final

FIRST_RENEWAL: Final = (0.10, 0.40)
LATER_RENEWALS: Final = (0.30, 0.40)
"""Shares of the lease, counted from when the last grant or renewal was sent."""

MARGIN_SHARE: Final = 0.2
LONGEST_MARGIN_SECONDS: Final = 10.0

_FIRST_RETRY_SHARE: Final = 0.01
_LONGEST_RETRY_SHARE: Final = 0.08
_SHORTEST_RETRY_SECONDS: Final = 0.02
_LONGEST_RETRY_SECONDS: Final = 5.0

Clock = Callable[[], float]


def _clock() -> Clock:
    """Returns a clock that also counts while the machine sleeps, like the coordinator's.
    `time.monotonic` may stop then, and a laptop that wakes up would trust an expired lease."""
    if sys.platform == "win32":
        return time.monotonic  # here it counts the time asleep
    number = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
    try:
        time.clock_gettime(number)
    except OSError:
        return time.monotonic
    return lambda: time.clock_gettime(number)


now: Final[Clock] = _clock()


def margin(lease_seconds: float) -> float:
    """How long before its end a lease is no longer trusted."""
    return min(lease_seconds * MARGIN_SHARE, LONGEST_MARGIN_SECONDS)


def trusted_until(sent: float, lease_seconds: float, *, leased: bool = True) -> float:
    """Returns the time until which a claim whose lease was requested at `sent` can be trusted. A
    claim without a lease is trusted until the coordinator ends it."""
    return sent + lease_seconds - margin(lease_seconds) if leased else inf


def first_renewal(sent: float, lease_seconds: float, random: Random) -> float:
    """Returns when a claim that was requested at `sent` is renewed for the first time."""
    return sent + lease_seconds * random.uniform(*FIRST_RENEWAL)


def later_renewal(sent: float, lease_seconds: float, random: Random) -> float:
    """Returns when a claim is renewed again, after a renewal sent at `sent`."""
    return sent + lease_seconds * random.uniform(*LATER_RENEWALS)


def retry(at: float, attempt: int, lease_seconds: float, random: Random) -> float:
    """Returns when a renewal that failed at `at` is tried again. The first attempt is number 1."""
    longest = min(lease_seconds * _LONGEST_RETRY_SHARE, _LONGEST_RETRY_SECONDS)
    pause = min(lease_seconds * _FIRST_RETRY_SHARE * 2 ** min(attempt - 1, 10), longest)
    return at + max(_SHORTEST_RETRY_SECONDS, random.uniform(pause / 2, pause))
