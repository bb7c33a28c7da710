"""Requests that wait for a task: checks that each is still permitted and its client still
connected, and limits their number.

A request may wait for a day, and its key may be revoked meanwhile. One task checks for changed keys
more than once a second, with one query for all waiting requests. Only requests whose key has
changed, has expired, or may no longer act for their session are authenticated again. So a revoked
key gets no task after one second, and a thousand waiting requests cost the store no more than one.
A new request is authenticated once more, because its key may have changed while it was read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from genlock.errors import AccessRefused, Closed, KeyRefused, StoreError, TooManyRequests
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.session_access import SessionAccess
from genlock.service.request import ClientGone, HttpExchange, Receive

LOOK_SECONDS: Final = 0.75
"""With the time of the query, a revocation takes effect within a second."""


class _Waiter:
    """One waiting request, and the event that ends its wait."""

    __slots__ = ("end", "exchange", "is_doubted", "refused", "session", "tenant")

    def __init__(
        self, exchange: HttpExchange, tenant: str, session: str | None, end: datetime | None
    ) -> None:
        self.exchange, self.tenant, self.session = exchange, tenant, session
        self.end = end
        """When its key expires; None: never."""
        self.is_doubted = True
        self.refused: asyncio.Future[AccessRefused] = asyncio.get_running_loop().create_future()


class Waiting:
    """All waiting requests. Used in one event loop."""

    def __init__(
        self,
        authenticator: Authenticator,
        acting: SessionAccess,
        stopping: asyncio.Event,
        most: int,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._door, self._acting, self._stopping = authenticator, acting, stopping
        self._most, self._look_seconds = most, look_seconds
        self._waiters: set[_Waiter] = set()
        self._tenants: Counter[str] = Counter()
        self._looking: asyncio.Task[None] | None = None
        acting.on_change.append(self._doubt)

    async def wait(
        self,
        ask: Callable[[], Awaitable[Any]],
        exchange: HttpExchange,
        tenant: str,
        session: str | None,
        receive: Receive,
    ) -> Any:
        """Waits for the coordinator's answer. A client that disconnects or loses its permission
        gets no task."""
        waiter = self._enter(exchange, tenant, session)
        answer = asyncio.ensure_future(ask())
        left = asyncio.ensure_future(_departure(receive))
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait(
                (answer, left, stop, waiter.refused), return_when=asyncio.FIRST_COMPLETED
            )
            if answer.done():
                return answer.result()
            if waiter.refused.done():
                raise waiter.refused.result()
            raise ClientGone if left.done() else Closed("the service is about to stop; ask again")
        finally:
            for waiting in (answer, left, stop, waiter.refused):
                waiting.cancel()
            self._leave(waiter)

    def _enter(self, exchange: HttpExchange, tenant: str, session: str | None) -> _Waiter:
        if self._tenants[tenant] >= self._most:
            raise TooManyRequests(
                f"{self._most:,} requests of tenant {tenant!r} wait for a task, the most that may "
                "(limit tenant_waiting: half of the "
                "service's connections); come again in a second, or ask with wait_seconds=0"
            )
        waiter = _Waiter(exchange, tenant, session, self._door.end_of(exchange.headers))
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

    def _doubt(self, keys: frozenset[str] | None) -> None:
        """Authenticates requests again whose key has changed, or whose session was given a key."""
        for waiter in self._waiters:
            grant = waiter.exchange.grant
            if (
                keys is None
                or grant.key_id in keys
                or self._acting.is_shut_out(grant, waiter.tenant, waiter.session)
            ):
                waiter.is_doubted = True

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds)
            # While the store is unavailable nothing is granted, so the check can be repeated
            # later.
            with suppress(StoreError):
                now = await self._acting.look()
                doubted = [
                    waiter
                    for waiter in self._waiters
                    if waiter.is_doubted or (waiter.end is not None and waiter.end <= now)
                ]
                await self._door.expect([waiter.exchange.headers for waiter in doubted])
                for waiter in doubted:
                    await self._check(waiter)

    async def _check(self, waiter: _Waiter) -> None:
        exchange = waiter.exchange
        try:
            if await self._door.admit(exchange.headers) != exchange.grant:
                raise KeyRefused(
                    "this key admits something else than it did when the request came; ask again"
                )
            await self._acting.check(exchange.grant, waiter.tenant, waiter.session)
            waiter.is_doubted, waiter.end = False, self._door.end_of(exchange.headers)
        except AccessRefused as error:
            if not waiter.refused.done():
                waiter.refused.set_result(error)


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
