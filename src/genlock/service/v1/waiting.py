"""Who waits for a task over HTTP: that it may still have one when one comes, that its client is still there, and how many there may be.

A request may wait for a day, and its key be revoked meanwhile. One task asks for all who wait, every second: what the keyring has to load
for it comes in one load for all of their keys, so that a thousand who wait cost the store no more than one. Where very many wait by
different keys it is asked less often, at least every five seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from genlock.errors import AccessRefused, Closed, KeyRefused, StoreError, TooManyRequests
from genlock.service.access.acting import Acting
from genlock.service.access.door import Door
from genlock.service.exchange import Exchange, Gone, Receive

LOOK_SECONDS: Final = 1.0
_LOOK_TIMES: Final = 100.0
"""What took long is done again after so many times as long: it takes a hundredth of a core at most."""
_LOOK_SELDOM_SECONDS: Final = 5.0


class _Waiter:
    """One request, and what is set when it may wait no longer."""

    __slots__ = ("exchange", "refused", "session", "tenant")

    def __init__(self, exchange: Exchange, tenant: str, session: str | None) -> None:
        self.exchange, self.tenant, self.session = exchange, tenant, session
        self.refused: asyncio.Future[AccessRefused] = asyncio.get_running_loop().create_future()


class Waiting:
    """All who wait. Belongs to one event loop."""

    def __init__(self, door: Door, acting: Acting, stopping: asyncio.Event, most: int, look_seconds: float = LOOK_SECONDS) -> None:
        self._door, self._acting, self._stopping = door, acting, stopping
        self._most, self._look_seconds = most, look_seconds
        self._waiters: set[_Waiter] = set()
        self._tenants: Counter[str] = Counter()
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, ask: Callable[[], Awaitable[Any]], exchange: Exchange, tenant: str, session: str | None, receive: Receive) -> Any:
        """The coordinator's answer. Who leaves, or is no longer let in, takes no task along."""
        waiter = self._enter(exchange, tenant, session)
        answer = asyncio.ensure_future(ask())
        left = asyncio.ensure_future(_departure(receive))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((answer, left, stop, waiter.refused), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            if waiter.refused.done():
                raise waiter.refused.result()
            raise Gone if left.done() else Closed("the service is about to stop; ask again")
        finally:
            for waiting in (answer, left, stop, waiter.refused):
                waiting.cancel()
            self._leave(waiter)

    def _enter(self, exchange: Exchange, tenant: str, session: str | None) -> _Waiter:
        if self._tenants[tenant] >= self._most:
            raise TooManyRequests(
                f"{self._most:,} requests of tenant {tenant!r} wait for a task, the most that may (limit tenant_waiting: half of the "
                "service's connections); come again in a second, or ask with wait_seconds=0"
            )
        waiter = _Waiter(exchange, tenant, session)
        self._waiters.add(waiter)
        self._tenants[tenant] += 1
        if self._door.asks_for_keys and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        self._waiters.discard(waiter)
        self._tenants[waiter.tenant] -= 1
        if not self._tenants[waiter.tenant]:
            del self._tenants[waiter.tenant]
        if not self._waiters and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> None:
        loop, took = asyncio.get_running_loop(), 0.0
        while True:
            await asyncio.sleep(max(self._look_seconds, min(took * _LOOK_TIMES, _LOOK_SELDOM_SECONDS)))
            began, waiters = loop.time(), list(self._waiters)
            # What cannot be known now, as the store is away, is asked again in a moment: nor is anything granted meanwhile.
            with suppress(StoreError):
                await self._door.expect([waiter.exchange.headers for waiter in waiters])
                for waiter in waiters:
                    await self._check(waiter)
            took = loop.time() - began

    async def _check(self, waiter: _Waiter) -> None:
        exchange = waiter.exchange
        try:
            if await self._door.admit(exchange.headers) != exchange.grant:
                raise KeyRefused("this key admits something else than it did when the request came; ask again")
            await self._acting.check(exchange.grant, waiter.tenant, waiter.session)
        except AccessRefused as error:
            if not waiter.refused.done():
                waiter.refused.set_result(error)


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
