"""The part of the service below /v1/: from a path to an endpoint, from there to its answer."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

from genlock.coordinator import AsyncCoordinator
from genlock.core.key_roles import EVERYWHERE
from genlock.core.names import check_project, check_tenant
from genlock.errors import OverLimit, ResultTooLarge, RoleRefused, RouteNotFound
from genlock.reads.reader import Reader
from genlock.service.api.endpoint import Endpoint, Router
from genlock.service.api.long_poll import Waiting
from genlock.service.auth.session_access import is_own
from genlock.service.context import ServiceContext
from genlock.service.limits import LARGE_BYTES, Turns
from genlock.service.request import (
    Answer,
    HttpExchange,
    Receive,
    Scope,
    body_at_once,
    check_json,
    no_route,
    read_body,
    refused_method,
)
from genlock.service.responses import LONG_BYTES, packed, takes_gzip
from genlock.wire.operations import NO_NAME, PREFIX, ROUTES, Call, Within

# Large bodies: a body that is too large for its tenant is refused by its length, before it is read.


MARGIN_BYTES: Final = 64 * 1024
"""Room for the other fields of a request with a result."""
_BATCH: Final = 2


def read_large(endpoint: Endpoint, reader: Reader, tenant: str, body: bytes) -> dict[str, Any]:
    """Parses the keywords of a large body. Call it in a thread: megabytes take most of a second."""
    if endpoint.has_result:
        limits = reader.retry(lambda: reader.limits(tenant))
        _check_size(endpoint, len(body), limits.max_result_size_bytes)
    return endpoint.keywords.of_body(body)


def _check_size(endpoint: Endpoint, size: int, largest: int) -> None:
    """Checks the size of a body. An indented or escaped result is longer than its stored form, but
    that size is known only after parsing."""
    if endpoint.name == "submit_result" and size > largest + MARGIN_BYTES:
        raise ResultTooLarge(
            f"the request has {size:,} bytes, the limit max_result_size_bytes is {largest:,}; send "
            "it as plain UTF-8 without indentation, "
            "or store the result elsewhere and submit a reference to it. The claim is untouched"
        )
    if size > _BATCH * largest + MARGIN_BYTES:
        raise OverLimit(
            f"the request has {size:,} bytes, and many results together at most {_BATCH} times the "
            "tenant's limit max_result_size_bytes, "
            f"which is {largest:,}; send fewer at once"
        )


MOST_BYTES: Final = 110 * 1024 * 1024
"""The largest result that any profile admits, with the rest of its request."""


R = TypeVar("R")

Found: TypeAlias = tuple[Endpoint, tuple[str, str], str | None]
"""An operation, its tenant and project, and the value of its path's variable."""


@functools.lru_cache(maxsize=4096)
def check_place(tenant: str, project: str) -> tuple[str, str]:
    """Checks the names of tenant and project; `*` where an operation has none. Cached, because most
    requests are for a few projects."""
    if project != NO_NAME:
        return check_tenant(tenant), check_project(project)
    return EVERYWHERE if tenant == NO_NAME else check_tenant(tenant), EVERYWHERE


@functools.cache
def _routers(
    most_bytes: int,
) -> tuple[Router[Endpoint], Router[Endpoint], dict[type[Call[Any]], Endpoint]]:
    """The endpoints within projects, those outside projects, and all of them by call. Made once per
    process, because this takes the largest part of a start."""
    endpoints = [(route, Endpoint(route, most_bytes)) for route in ROUTES]
    inside, beyond = (
        Router(
            (route, endpoint)
            for route, endpoint in endpoints
            if (route.within is Within.PROJECT) is is_inside
        )
        for is_inside in (True, False)
    )
    return inside, beyond, {route.call: endpoint for route, endpoint in endpoints}


class V1:
    """The operations below /v1/."""

    def __init__(
        self, running: ServiceContext, waiting: Waiting, most_bytes: int = MOST_BYTES
    ) -> None:
        self._running, self._waiting = running, waiting
        self._router, self._beyond, self._by_call = _routers(most_bytes)

    def find(self, scope: Scope) -> Found:
        """The endpoint that a request is for, its tenant and project, and the name in its path."""
        path: str = scope["path"]
        parts = path.split("/", 4)
        match = (
            (self._beyond if parts[3] == NO_NAME else self._router).match(parts[4])
            if len(parts) == 5
            else None
        )
        if match is None:
            raise no_route(path)
        methods, name = match
        method: str = scope["method"]
        # A HEAD is a GET; the server omits the body.
        endpoint = methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            raise refused_method(method, methods)
        place = check_place(parts[2], parts[3])
        if endpoint.in_store and place[0] != EVERYWHERE:
            raise RouteNotFound(
                f"{endpoint.name} is about no tenant: its path begins with "
                f"{PREFIX}/{NO_NAME}/{NO_NAME}/"
            )
        return endpoint, place, name

    def answer(self, found: Found, exchange: HttpExchange, receive: Receive) -> Awaitable[Answer]:
        """Answers a request; raises refusals and errors. Does as much as possible before the first
        await."""
        endpoint, place, _ = found
        grant = exchange.grant
        if not grant.sees(*place):
            if place[0] == EVERYWHERE:
                # It is no secret that the store has tenants, but which ones is.
                raise RoleRefused(
                    "this is about all tenants of the store and needs a key of all tenants, which "
                    "yours is not"
                )
            raise RouteNotFound(
                f"there is no project {place[1]!r} of tenant {place[0]!r} for this key"
            )
        speaker = self._running.speaker(grant, exchange.client, exchange.headers)
        if not endpoint.reads_body:
            return self._ask(
                found,
                exchange,
                speaker,
                endpoint.keywords.of_query(exchange.scope["query_string"]),
                receive,
            )
        line = exchange.line
        body = (
            None
            if line is None
            else body_at_once(line, exchange.headers, endpoint.most_bytes, endpoint.advice)
        )
        if body is None:
            return self._read(found, exchange, speaker, receive)
        return self._take(found, exchange, speaker, body, receive)

    async def _read(
        self, found: Found, exchange: HttpExchange, speaker: AsyncCoordinator, receive: Receive
    ) -> Answer:
        """Answers a request whose body has not arrived completely."""
        endpoint = found[0]
        body = await read_body(
            receive, exchange.headers, endpoint.most_bytes, self._running.pace, endpoint.advice
        )
        return await self._take(found, exchange, speaker, body, receive)

    def _take(
        self,
        found: Found,
        exchange: HttpExchange,
        speaker: AsyncCoordinator,
        body: bytes,
        receive: Receive,
    ) -> Awaitable[Answer]:
        if body:
            check_json(exchange.headers)
        if len(body) < LARGE_BYTES:
            return self._ask(found, exchange, speaker, found[0].keywords.of_body(body), receive)
        return self._take_large(found, exchange, speaker, body, receive)

    async def _take_large(
        self,
        found: Found,
        exchange: HttpExchange,
        speaker: AsyncCoordinator,
        body: bytes,
        receive: Receive,
    ) -> Answer:
        """Answers a request with a large body, which is parsed and processed in a thread."""
        endpoint, (tenant, _), _ = found
        endpoint.permit_at_all(exchange.grant)
        threads = self._running.large_threads
        async with _turn(self._running.large, tenant):
            loop = asyncio.get_running_loop()
            given = await loop.run_in_executor(
                threads, read_large, endpoint, speaker.reader, tenant, body
            )
            if not endpoint.waits:
                return await self._ask(found, exchange, speaker, given, receive, threads)
        # A request that waits for a task would occupy the turn all that time.
        return await self._ask(found, exchange, speaker, given, receive)

    async def _ask(
        self,
        found: Found,
        exchange: HttpExchange,
        speaker: AsyncCoordinator,
        given: dict[str, Any],
        receive: Receive,
        threads: Executor | None = None,
    ) -> Answer:
        endpoint, place, name = found
        grant = exchange.grant
        exchange.arguments = endpoint.arguments(place, name, given, exchange.headers)
        endpoint.permit(grant, speaker, given)
        if endpoint.fenced and not is_own(grant, session := endpoint.session(speaker, given)):
            await self._running.acting.check(grant, place[0], session)
        packs = endpoint.looks and takes_gzip(exchange.headers)
        if endpoint.is_long(given):

            def work() -> Answer:
                answer = endpoint.ask_and_answer(speaker, given)
                return packed(answer) if packs else answer

            return await self._answer_long(place[0], work)
        result = await self._result(endpoint, place, exchange, speaker, given, receive, threads)
        exchange.result = result
        answer = endpoint.answer(result, grant, place, given)
        return await self._packed(answer) if packs else answer

    async def _packed(self, answer: Answer) -> Answer:
        if len(answer.body) < LONG_BYTES:
            return packed(answer)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._running.long_threads, packed, answer)

    async def perform(
        self,
        call: Call[Any],
        place: tuple[str, str],
        exchange: HttpExchange,
        speaker: AsyncCoordinator,
        receive: Receive,
    ) -> Any:
        """The result of a call from another protocol, with the same permission checks and turns as
        a request."""
        endpoint = self._by_call[type(call)]
        given = {name: getattr(call, name) for name in call.__struct_fields__}
        name = given[endpoint.variable] if endpoint.variable is not None else None
        given = endpoint.arguments(place, name, given, {})
        grant = exchange.grant
        endpoint.permit(grant, speaker, given)
        if endpoint.fenced and not is_own(grant, session := endpoint.session(speaker, given)):
            await self._running.acting.check(grant, place[0], session)
        if endpoint.is_long(given):
            return await self._answer_long(place[0], lambda: endpoint.blocking(speaker, **given))
        return await self._result(endpoint, place, exchange, speaker, given, receive, None)

    async def _result(
        self,
        endpoint: Endpoint,
        place: tuple[str, str],
        exchange: HttpExchange,
        speaker: AsyncCoordinator,
        given: dict[str, Any],
        receive: Receive,
        threads: Executor | None,
    ) -> Any:
        """Waits for a turn and returns the coordinator's answer to a permitted call."""
        if endpoint.waits and given["wait_seconds"]:
            # A long wait takes no turn, which it would occupy all that time.
            session = endpoint.session(speaker, given)
            ask = functools.partial(endpoint.method, speaker, **given)
            return await self._waiting.wait(ask, exchange, place[0], session, receive)
        if endpoint.looks:
            return await self._look(place[0], endpoint, speaker, given, threads)
        if endpoint.takes_plan:
            return await self._plan(place[0], endpoint, speaker, given, threads)
        # Like `_turn`, but cheaper, because every claim goes through here.
        turns, tenant = self._running.turns, place[0]
        turn = turns.enter(tenant)
        if turn is not None:
            await turns.wait(tenant, turn)
        try:
            return await endpoint.ask(speaker, given, threads)
        finally:
            turns.leave(tenant)

    async def _answer_long(self, tenant: str, work: Callable[[], R]) -> R:
        """Reads and encodes a long answer in a thread, which may take seconds."""
        turns = self._running.reads
        turn = turns.enter(tenant)
        if turn is not None:
            await turns.wait(tenant, turn)
        began = time.monotonic()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._running.long_threads, work)
        finally:
            turns.rest(tenant, time.monotonic() - began)

    async def _plan(
        self,
        tenant: str,
        endpoint: Endpoint,
        speaker: AsyncCoordinator,
        given: dict[str, Any],
        threads: Executor | None,
    ) -> Any:
        """The coordinator's answer to a plan. One plan per tenant and few in all at a time, because
        each may occupy a thread for long."""
        running = self._running
        async with _turn(running.plans, tenant), running.all_plans, _turn(running.turns, tenant):
            return await endpoint.ask(speaker, given, threads)

    async def _look(
        self,
        tenant: str,
        endpoint: Endpoint,
        speaker: AsyncCoordinator,
        given: dict[str, Any],
        threads: Executor | None,
    ) -> Any:
        """The coordinator's answer to a read."""
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
    """Holds a turn during the block."""
    turn = turns.enter(tenant)
    if turn is not None:
        await turns.wait(tenant, turn)
    try:
        yield
    finally:
        turns.leave(tenant)
