"""The one back-off: how long to pause before something is tried again, and when to give up.

Everything here is arithmetic. The callers own the clock and the sleep, because they sleep in
different ways: on a lock that closing releases, in an event loop, or between two checks of a file.

Callers that compete for one resource randomise the pause (`jitter`), so that those that failed
together do not retry together.
"""

from __future__ import annotations

from typing import NamedTuple

_MOST_STEPS = 64
"""The exponent is capped here, far above every bound, so that no number overflows."""


class Backoff(NamedTuple):
    """How the pauses of one kind of retry grow."""

    first: float
    """Seconds: the bound of the first pause."""
    longest: float
    """Seconds: no pause is longer."""
    factor: float = 2.0
    """Each bound is the previous bound times this factor."""
    jitter: float = 1.0
    """The random share of a pause: 1 draws from the whole range below the bound, 0.5 from its upper
    half, and 0 always gives the bound."""

    def pause(self, failures: int) -> float:
        """Returns the seconds to pause after this many failures in a row, counted from 1."""
        steps = min(failures - 1, _MOST_STEPS)
        bound = min(self.first * self.factor**steps, self.longest)
        if not self.jitter:
            return bound
        import random  # late: most commands of the CLI never retry, and need not load it

        return random.uniform(bound * (1 - self.jitter), bound)


class Retry:
    """The attempts of one call: the failures so far, and the deadline on the monotonic clock."""

    def __init__(self, backoff: Backoff, until: float = float("inf")) -> None:
        self._backoff = backoff
        self._until = until
        self._failures = 0

    def failed(self, now: float) -> float | None:
        """Counts a failure. Returns the seconds until the next attempt, or None if the deadline has
        passed. No pause exceeds the deadline: the last attempt is made then."""
        if now >= self._until:
            return None
        self._failures += 1
        return min(self._backoff.pause(self._failures), self._until - now)
