"""How much one caller may ask, and how much one tenant may have under way: nobody is slow because
of somebody else.

Rates are counted per key, or per address where there are no keys. Of each only one number is kept:
the instant at which its last request would have been due at the even pace; who is ahead of the pace
by more than the burst is told to come again.

Turns are per tenant: so many of its operations are with the engine at once, the others wait in a
queue of the tenant's own, in order. What an operation waits for then is its own tenant's, however
many others have sent. A tenant that has the service to itself may have eight times as many under
way: large batches are what makes it fast, and there is nobody to wait for them.

Those who only look have turns of their own, and so have plans. What comes in a large body has a
turn before it is read as JSON, and threads of its own. Of each a few are enough to keep the
interpreter busy.
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
"""So long a refusal for the rate is held back: it costs us what any answer costs, and should not be
had for nothing."""
WRONG_KEY_COUNTS: Final = 10
"""As many requests, of the address it came from: who has none that is good need not try a thousand
a second."""
AT_ONCE: Final = 256
READS_AT_ONCE: Final = 16
"""Fewer, since a read takes a thread, and many of them take the interpreter from those who
answer."""
PLANS_AT_ONCE: Final = 1
ALL_PLANS_AT_ONCE: Final = 2
"""Of all tenants together: to read one may keep a thread busy for seconds, and two that compute are
as many as nobody notices."""
LARGE_AT_ONCE: Final = 8
LARGE_THREADS: Final = 4
LARGE_BYTES: Final = 128 * 1024
"""From here on a body is large."""
LONG_THREADS: Final = 2
"""For answers that may be long: more of them would only take the interpreter from each other, and
from the event loop."""
MOST_WAITING: Final = 10_000
_SHARES: Final = 8
_RESTS: Final = 2
_SHARED_SECONDS: Final = 1.0
_MOST_CALLERS: Final = 50_000


class Rates:
    """So many requests a second from each caller, and a burst of two seconds' worth."""

    def __init__(
        self, per_second: int = RATE, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_second = per_second
        self._pace = 1 / per_second
        self._ahead = BURST_SECONDS - self._pace
        self._monotonic = monotonic
        self._due: dict[str, float] = {}

    def take(self, who: str, counts: int = 1) -> None:
        """One request of this caller, or one that counts as many; or TooManyRequests."""
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
        """Who is not ahead of the pace need not be remembered; if all are, the oldest half is
        forgotten."""
        ahead = {who: due for who, due in self._due.items() if due > now}
        self._due = dict(list(ahead.items())[-_MOST_CALLERS // 2 :])


class Pace:
    """One step each time the event loop goes round, whoever asks for them: a claim comes by between
    any two.

    Nobody holds anything while its client dawdles.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()
        self._going = False

    def add(self, step: Callable[[], bool]) -> None:
        """To be taken in its turn; one that says False was nothing, and the next one is taken at
        once."""
        self._waiting.append(step)
        if not self._going:
            self._going = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._next, loop)

    async def wait(self) -> None:
        """Until it is our turn."""
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
    """Is more than one tenant at work? So it is for a second after another one than the last has
    come."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._last = ""
        self._until = 0.0

    def note(self, tenant: str) -> None:
        """This one has come."""
        if tenant != self._last:
            if self._last:
                self._until = self._monotonic() + _SHARED_SECONDS
            self._last = tenant

    def __bool__(self) -> bool:
        return self._monotonic() < self._until


class Turns:
    """So many operations of each tenant at once, and fewer while more than one tenant is at work: a
    batch should not be all of one."""

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
        """None: go on. Else what to wait for first. Whoever has entered must leave."""
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
        """Until it is our turn. Who is called off meanwhile hands a turn that has come on."""
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(tenant)
            raise

    def rest(self, tenant: str, seconds: float) -> None:
        """The operation is over, and took so long; the turn is free after the tenant has let others
        work for as long again, and again."""
        if self.sharing:
            asyncio.get_running_loop().call_later(_RESTS * seconds, self.leave, tenant)
        else:
            self.leave(tenant)

    def leave(self, tenant: str) -> None:
        """The operation is over; as many as may of the same tenant begin. Until now it was at work,
        also if it has sent nothing more."""
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
