"""The part of the service below /v1/: from a path to an endpoint, from there to its answer."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from genlock.coordinator import AsyncCoordinator
from genlock.core.access import EVERYWHERE
from genlock.core.names import check_project, check_tenant
from genlock.errors import RoleRefused, RouteNotFound
from genlock.service.access.acting import is_own
from genlock.service.exchange import Answer, Exchange, Receive, Scope, body_at_once, check_json, no_route, read_body, refused_method
from genlock.service.limits import LARGE_BYTES, Turns
from genlock.service.running import Running
from genlock.service.v1.endpoint import Endpoint
from genlock.service.v1.large import read_large
from genlock.service.v1.router import Router
from genlock.service.v1.waiting import Waiting
from genlock.wire.routes import NO_NAME, PREFIX, ROUTES, Within

MOST_BYTES: Final = 110 * 1024 * 1024
"""The largest result that any profile admits, and the request around it."""


Found: TypeAlias = tuple[Endpoint, tuple[str, str], str | None]
"""An operation, its tenant and project, and what stands at the variable of its path."""


@functools.lru_cache(maxsize=4096)
def check_place(tenant: str, project: str) -> tuple[str, str]:
    """Tenant and project if they are names, `*` for those that are not meant; most requests are for a few places."""
    if project != NO_NAME:
        return check_tenant(tenant), check_project(project)
    return EVERYWHERE if tenant == NO_NAME else check_tenant(tenant), EVERYWHERE


@functools.cache
def _routers(most_bytes: int) -> tuple[Router[Endpoint], Router[Endpoint]]:
    """Of what is in a project, and of what is about none. Made once: it takes longer than all else at a start, and knows no service."""
    endpoints = [(route, Endpoint(route, most_bytes)) for route in ROUTES]
    inside = Router((route, endpoint) for route, endpoint in endpoints if route.within is Within.PROJECT)
    return inside, Router((route, endpoint) for route, endpoint in endpoints if route.within is not Within.PROJECT)


class V1:
    """All operations."""

    def __init__(self, running: Running, waiting: Waiting, most_bytes: int = MOST_BYTES) -> None:
        self._running, self._waiting = running, waiting
        self._router, self._beyond = _routers(most_bytes)

    def find(self, scope: Scope) -> Found:
        """The endpoint that a request is for, its tenant and project, and the name in its path."""
        path: str = scope["path"]
        parts = path.split("/", 4)
        match = (self._beyond if parts[3] == NO_NAME else self._router).match(parts[4]) if len(parts) == 5 else None
        if match is None:
            raise no_route(path)
        methods, name = match
        method: str = scope["method"]
        # A HEAD is a GET of which the server leaves out the body.
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            raise refused_method(method, methods)
        place = check_place(parts[2], parts[3])
        if endpoint.in_store and place[0] != EVERYWHERE:
            raise RouteNotFound(f"{endpoint.name} is about no tenant: its path begins with {PREFIX}/{NO_NAME}/{NO_NAME}/")
        return endpoint, place, name

    def answer(self, found: Found, exchange: Exchange, receive: Receive) -> Awaitable[Answer]:
        """The answer to a request; what is refused on the way is raised. What need not wait is done before anybody is awaited."""
        endpoint, place, _ = found
        grant = exchange.grant
        if not grant.sees(*place):
            if place[0] == EVERYWHERE:
                # That there is a store with tenants is no secret, unlike which ones.
                raise RoleRefused("this is about all tenants of the store and needs a key of all tenants, which yours is not")
            raise RouteNotFound(f"there is no project {place[1]!r} of tenant {place[0]!r} for this key")
        speaker = self._running.speaker(grant, exchange.client, exchange.headers)
        if not endpoint.reads_body:
            return self._ask(found, exchange, speaker, endpoint.keywords.of_query(exchange.scope["query_string"]), receive)
        line = exchange.line
        body = None if line is None else body_at_once(line, exchange.headers, endpoint.most_bytes, endpoint.advice)
        if body is None:
            return self._read(found, exchange, speaker, receive)
        return self._take(found, exchange, speaker, body, receive)

    async def _read(self, found: Found, exchange: Exchange, speaker: AsyncCoordinator, receive: Receive) -> Answer:
        """The same for a body that has not come as a whole yet."""
        endpoint = found[0]
        body = await read_body(receive, exchange.headers, endpoint.most_bytes, self._running.pace, endpoint.advice)
        return await self._take(found, exchange, speaker, body, receive)

    def _take(self, found: Found, exchange: Exchange, speaker: AsyncCoordinator, body: bytes, receive: Receive) -> Awaitable[Answer]:
        if body:
            check_json(exchange.headers)
        if len(body) < LARGE_BYTES:
            return self._ask(found, exchange, speaker, found[0].keywords.of_body(body), receive)
        return self._take_large(found, exchange, speaker, body, receive)

    async def _take_large(self, found: Found, exchange: Exchange, speaker: AsyncCoordinator, body: bytes, receive: Receive) -> Answer:
        """The same for a body that takes long to be read: in a thread, and so is whatever is done with it."""
        endpoint, (tenant, _), _ = found
        endpoint.permit_at_all(exchange.grant)
        threads = self._running.large_threads
        async with _turn(self._running.large, tenant):
            loop = asyncio.get_running_loop()
            given = await loop.run_in_executor(threads, read_large, endpoint, speaker.engine, tenant, body)
            if not endpoint.waits:
                return await self._ask(found, exchange, speaker, given, receive, threads)
        # Who waits for work would have kept the turn for as long.
        return await self._ask(found, exchange, speaker, given, receive)

    async def _ask(
        self,
        found: Found,
        exchange: Exchange,
        speaker: AsyncCoordinator,
        given: dict[str, Any],
        receive: Receive,
        threads: Executor | None = None,
    ) -> Answer:
        endpoint, place, name = found
        grant, headers = exchange.grant, exchange.headers
        exchange.arguments = endpoint.arguments(place, name, given, headers)
        endpoint.permit(grant, speaker, given)
        if endpoint.fenced and not is_own(grant, session := endpoint.session(speaker, given)):
            await self._running.acting.check(grant, place[0], session)
        if endpoint.waits and given["wait_seconds"]:
            # It takes no turn: that would be a long one.
            session = endpoint.session(speaker, given)
            ask = functools.partial(endpoint.method, speaker, **given)
            result = await self._waiting.wait(ask, exchange, place[0], session, receive)
        elif endpoint.looks:
            if endpoint.is_long(given):
                return await self._answer_long(place[0], endpoint, speaker, given)
            result = await self._look(place[0], endpoint, speaker, given, threads)
        elif endpoint.takes_plan:
            result = await self._plan(place[0], endpoint, speaker, given, threads)
        else:
            turns, tenant = self._running.turns, place[0]  # as `_turn` does, at less cost: every claim comes by
            turn = turns.enter(tenant)
            if turn is not None:
                await turns.wait(tenant, turn)
            try:
                result = await endpoint.ask(speaker, given, threads)
            finally:
                turns.leave(tenant)
        exchange.result = result
        return endpoint.answer(result, grant, place[0])

    async def _answer_long(self, tenant: str, endpoint: Endpoint, speaker: AsyncCoordinator, given: dict[str, Any]) -> Answer:
        """What is read and what is made of it takes seconds: all of it is done in a thread."""
        turns = self._running.reads
        turn = turns.enter(tenant)
        if turn is not None:
            await turns.wait(tenant, turn)
        began = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._running.long_threads, endpoint.ask_and_answer, speaker, given)
        finally:
            turns.rest(tenant, time.monotonic() - began)

    async def _plan(
        self, tenant: str, endpoint: Endpoint, speaker: AsyncCoordinator, given: dict[str, Any], threads: Executor | None
    ) -> Any:
        """The coordinator's answer to a plan: one of a tenant at a time, and few of all, as each may keep a thread busy for long."""
        running = self._running
        async with _turn(running.plans, tenant), running.all_plans, _turn(running.turns, tenant):
            return await endpoint.ask(speaker, given, threads)

    async def _look(
        self, tenant: str, endpoint: Endpoint, speaker: AsyncCoordinator, given: dict[str, Any], threads: Executor | None
    ) -> Any:
        """The answer to one that only looks."""
        turns = self._running.reads
        turn = turns.enter(tenant)
        if turn is not None:
            await turns.wait(tenant, turn)
        began = time.monotonic()
        try:
            return await endpoint.ask(speaker, given, threads)
        finally:
            turns.rest(tenant, time.monotonic() - began)


@asynccontextmanager
async def _turn(turns: Turns, tenant: str) -> AsyncIterator[None]:
    """A turn, for as long as the block lasts."""
    turn = turns.enter(tenant)
    if turn is not None:
        await turns.wait(tenant, turn)
    try:
        yield
    finally:
        turns.leave(tenant)
