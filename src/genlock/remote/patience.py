"""How long one call is tried: until its deadline, with pauses that grow and are never the same for two clients."""

from __future__ import annotations

import random
import time
from typing import Final

from genlock.errors import Busy, GenlockError, OutcomeUnknown, ServiceUnreachable
from genlock.remote.addresses import Addresses
from genlock.remote.replies import Again, Lost
from genlock.remote.requests import Request
from genlock.wire import calls as c

FIRST_PAUSE_SECONDS: Final = 0.05
LONGEST_PAUSE_SECONDS: Final = 1.0
LEAST_READ_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 120.0
"""What goes through many records may take so long."""

_QUICK: Final = frozenset(
    {c.ClaimTask, c.RenewLease, c.ReleaseClaim, c.SubmitResult, c.ClaimNext, c.HeartbeatSession, c.RegisterSession, c.GetTaskState}
)
"""What is answered at once or not at all. A connection that has silently died is noticed in time to try another one."""


_ONCE: Final = frozenset({c.CreateKey, c.RotateKey})
"""What would be done once more: it shows a secret that nobody keeps, so it cannot be answered alike a second time."""


class Patience:
    """The patience that is left for one call."""

    def __init__(self, addresses: Addresses, deadline_seconds: float, wait_seconds: float = 0) -> None:
        self._addresses = addresses
        self._seconds = deadline_seconds
        self._began = time.monotonic()
        self._until = self._began + deadline_seconds + wait_seconds
        self._pauses = 0
        self._maybe_done = False

    def read_seconds(self, request: Request, wait_seconds: float) -> float:
        """How long the next attempt may take."""
        if request.route.call not in _QUICK:
            return SLOW_SECONDS
        # Of a wait in pieces each has its own patience: one that has silently died is not waited for as long as for all of them.
        share = self._seconds / 2 if self._pauses == 0 else min(self._until - time.monotonic(), self._seconds)
        return wait_seconds + max(share, LEAST_READ_SECONDS)

    def connect_seconds(self) -> float:
        """How long the next attempt may take to reach the service."""
        return max((self._until - time.monotonic()) / len(self._addresses), 0.1)

    def pause(self, request: Request, after: Again | Lost) -> float:
        """How long to wait before the next attempt; raises when there is to be none."""
        self._maybe_done |= after.sent if isinstance(after, Lost) else after.done
        left = self._until - time.monotonic()
        if left <= 0 or (isinstance(after, Lost) and after.remedy is not None) or (self._maybe_done and request.route.call in _ONCE):
            raise self._over(request, after)
        longest = min(FIRST_PAUSE_SECONDS * 2**self._pauses, LONGEST_PAUSE_SECONDS)
        self._pauses += 1
        return min(self._least(after) + random.uniform(longest / 2, longest), left)

    def _least(self, after: Again | Lost) -> float:
        """What the service asks for; but another one, which has not been asked yet, need not wait for this one."""
        if not isinstance(after, Again) or after.after_seconds is None:
            return 0.0
        elsewhere = isinstance(after.error, ServiceUnreachable) and self._pauses < len(self._addresses)
        return 0.0 if elsewhere else max(after.after_seconds, 0.0)

    def _over(self, request: Request, after: Again | Lost) -> GenlockError:
        if isinstance(after, Again) and not isinstance(after.error, ServiceUnreachable):
            error = after.error
            if request.route.repeatable or (isinstance(error, Busy) and not self._maybe_done):
                return error
            # What the last attempt met says nothing of one before it whose answer was lost.
            kind = OutcomeUnknown if self._maybe_done else type(error)
            return kind(f"{error}{self._doubt(request)}")
        if isinstance(after, Lost) and after.remedy is not None:
            return ServiceUnreachable(f"{self._addresses} cannot be spoken to: {after.why}. {after.remedy}{self._doubt(request)}")
        why = (after.why if isinstance(after, Lost) else str(after.error)).rstrip(".")
        # One attempt at what may be slow takes longer than the deadline of all.
        seconds = max(self._seconds, round(time.monotonic() - self._began))
        return ServiceUnreachable(
            f"no answer from {self._addresses} within {seconds:g} seconds: {why}. Does the service run, and is this its address? "
            f"To ask it: curl {self._addresses.current}/healthz{self._doubt(request)}"
        )

    def _doubt(self, request: Request) -> str:
        if request.route.repeatable or not self._maybe_done:
            return ". Nothing was changed"
        if request.route.call in _ONCE:
            return ". It may have been done: look at the list of keys; revoke the one whose text you did not get"
        if request.operation is not None:
            return f". It may have been done: to repeat it safely, pass operation_id={request.operation!r}"
        return ". It may have been done; it is safe to repeat"
