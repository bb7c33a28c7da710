"""Rate limits per caller and concurrency limits per tenant: no caller slows another one down.

Rates are counted per key, or per address where there are no keys. The counter is one number per
caller: the time at which its last request would have been due at an even pace. A caller that is
ahead of that pace by more than the burst gets 429.

Concurrency is limited per tenant. The engine works on a fixed number of a tenant's operations; the
rest wait in that tenant's own queue, in order. So an operation waits only for its own tenant. A
tenant that is alone on the service may have eight times as many operations in the engine, because
large batches are fast and nobody else has to wait for them.

Reads and plan imports have limits of their own. A large body waits for its turn before it is parsed
as JSON, and is parsed in a separate thread. A few threads of each kind keep the interpreter busy.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from genlock.errors import TooManyRequests

RATE: Final = 1000
"""Requests a second of one key, unless set otherwise."""
BURST_SECONDS: Final = 2.0
HOLD_SECONDS: Final = 0.5
"""A 429 is delayed by this long. It costs the service as much as any answer, so it must not be
free for the client."""
WRONG_KEY_COUNTS: Final = 10
"""A wrong key counts as this many requests of its address, so that guessing keys is slow."""
AT_ONCE: Final = 256
READS_AT_ONCE: Final = 16
"""Fewer than writes: a read occupies a thread, and many threads starve the event loop."""
PLANS_AT_ONCE: Final = 1
ALL_PLANS_AT_ONCE: Final = 2
"""Across all tenants. Parsing a plan may keep a thread busy for seconds; two such threads do not
slow other callers noticeably."""
LARGE_AT_ONCE: Final = 8
LARGE_THREADS: Final = 4
LARGE_BYTES: Final = 128 * 1024
"""A body of at least this size is large."""
LONG_THREADS: Final = 2
"""For long answers. More threads would only compete with each other, and with the event loop, for
the interpreter."""
MOST_WAITING: Final = 10_000
_SHARES: Final = 8
_RESTS: Final = 2
_SHARED_SECONDS: Final = 1.0
_MOST_CALLERS: Final = 50_000


class Rates:
    """A rate limit per caller, with a burst of two seconds' worth of requests."""

    def __init__(
        self, per_second: int = RATE, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_second = per_second
        self._pace = 1 / per_second
        self._ahead = BURST_SECONDS - self._pace
        self._monotonic = monotonic
        self._due: dict[str, float] = {}

    def take(self, who: str, counts: int = 1) -> None:
        """Counts a request of this caller, with weight `counts`. Raises TooManyRequests."""
        now = self._monotonic()
        due = self._due.get(who, now)
        if due <= now:
            due = now
        elif due - now > self._ahead:
            raise TooManyRequests(
                f"more than {self.per_second} requests a second of one caller (limit rate); come "
                "again in a second"
            )
        self._due[who] = due + counts * self._pace
        if len(self._due) > _MOST_CALLERS:
            self._forget(now)

    def _forget(self, now: float) -> None:
        """Drops callers that are not ahead of the pace. If all are, drops the oldest half."""
        ahead = {who: due for who, due in self._due.items() if due > now}
        self._due = dict(list(ahead.items())[-_MOST_CALLERS // 2 :])


class Pace:
    """Runs one queued step per iteration of the event loop, so that other requests, such as claims,
    are served between any two steps.

    A step must not hold resources while it waits for its client.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()
        self._going = False

    def add(self, step: Callable[[], bool]) -> None:
        """Queues a step. If the step returns False it did nothing, and the next one runs at
        once."""
        self._waiting.append(step)
        if not self._going:
            self._going = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._next, loop)

    async def wait(self) -> None:
        """Waits for a turn."""
        turn = asyncio.get_running_loop().create_future()
        self.add(lambda: _taken(turn))
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting and not self._waiting.popleft()():
            pass
        self._going = bool(self._waiting)
        if self._going:
            loop.call_soon(self._next, loop)


def _taken(turn: asyncio.Future[None]) -> bool:
    if turn.done():
        return False
    turn.set_result(None)
    return True


class Sharing:
    """Is more than one tenant at work? True for a second after each change from one tenant to
    another."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last = ""
        self._until = 0.0

    def note(self, tenant: str) -> None:
        """Records a request of this tenant."""
        if tenant != self._last:
            if self._last:
                self._until = self._monotonic() + _SHARED_SECONDS
            self._last = tenant

    def __bool__(self) -> bool:
        return self._monotonic() < self._until


class Turns:
    """Limits the operations of each tenant that run at once, and limits them further while several
    tenants are at work, so that no batch belongs to one tenant alone."""

    def __init__(
        self,
        at_once: int = AT_ONCE,
        most_waiting: int = MOST_WAITING,
        sharing: Sharing | None = None,
    ) -> None:
        self._at_once = at_once
        self._share = max(1, at_once // _SHARES)
        self._most_waiting = most_waiting
        self.sharing = Sharing() if sharing is None else sharing
        self._busy: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def enter(self, tenant: str) -> asyncio.Future[None] | None:
        """Returns None if the operation may start, else a future to wait for first. Each `enter`
        needs a `leave`."""
        self.sharing.note(tenant)
        busy = self._busy.get(tenant, 0)
        if busy < self._share or (busy < self._limit() and tenant not in self._waiting):
            self._busy[tenant] = busy + 1
            return None
        queue = self._waiting.setdefault(tenant, deque())
        if len(queue) >= self._most_waiting:
            raise TooManyRequests(
                f"tenant {tenant!r} has {busy} operations under way and {self._most_waiting} more "
                "that wait (limit tenant_operations); come again in a second"
            )
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        return turn

    def _limit(self) -> int:
        return self._share if self.sharing else self._at_once

    async def wait(self, tenant: str, turn: asyncio.Future[None]) -> None:
        """Waits for the turn. A waiter that is cancelled passes on a turn that it already has."""
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(tenant)
            raise

    def rest(self, tenant: str, seconds: float) -> None:
        """Ends an operation that took `seconds`. While tenants share the service, its slot stays
        empty for twice as long, so that other tenants get to work."""
        if self.sharing:
            asyncio.get_running_loop().call_later(_RESTS * seconds, self.leave, tenant)
        else:
            self.leave(tenant)

    def leave(self, tenant: str) -> None:
        """Ends an operation, and starts as many of the tenant's as the limit allows. The tenant
        counts as at work until now."""
        self.sharing.note(tenant)
        busy = self._busy[tenant] - 1
        queue = self._waiting.get(tenant)
        if queue is not None:
            busy = self._begin(tenant, queue, busy)
        if busy:
            self._busy[tenant] = busy
        else:
            del self._busy[tenant]

    def _begin(self, tenant: str, queue: deque[asyncio.Future[None]], busy: int) -> int:
        limit = self._limit()
        while queue and busy < limit:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                busy += 1
        if not queue:
            del self._waiting[tenant]
        return busy

    def waiting(self, tenant: str) -> int:
        """How many operations of a tenant wait for their turn."""
        return len(self._waiting.get(tenant, ()))
