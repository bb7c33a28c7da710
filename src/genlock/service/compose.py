"""Builds the service's application from its settings."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router

from genlock.coordinator import AsyncCoordinator
from genlock.core.key_roles import EVERYWHERE
from genlock.errors import RouteNotFound
from genlock.mcp.route import McpEndpoint
from genlock.service.app import App, Watch
from genlock.service.auth.acting_sign_ins import ActingSignIns
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.browser_sessions import (
    LEAST_SECRET_BYTES,
    BrowserSessions,
    LocalToken,
)
from genlock.service.auth.key_cache import KeyCache
from genlock.service.context import ServiceContext
from genlock.service.events import EventBroker, StreamSettings
from genlock.service.events.routes import STREAM_ROUTE, stream_routes
from genlock.service.events.settings import STREAMS
from genlock.service.limits import AT_ONCE, Rates, Turns
from genlock.service.logs import Log
from genlock.service.metrics import Metrics, metrics_endpoint
from genlock.service.openapi.page import Manual
from genlock.service.request import HttpExchange, Receive, Scope, Send, no_route
from genlock.service.server import CONNECTIONS
from genlock.service.session_api.app import api_routes, events_route
from genlock.service.session_api.health import ClaimConfig
from genlock.service.web.dashboard import Dashboard
from genlock.service.web.health import Health
from genlock.service.web.html import Page
from genlock.service.web.sign_in import SignInPage
from genlock.service.web.signed_in import SignedIn
from genlock.service.web.status import StatusPage

OTHER_ROUTES: Final = "pages"
"""The name under which metrics count requests that are not operations."""


class Choices(Struct, frozen=True, kw_only=True):
    """The settings of a service."""

    keys: bool = False
    """Does every request need a key?"""
    token: LocalToken | None = None
    """Does every request need this token, or a key? With neither, every caller may do
    everything."""
    hosts: frozenset[str] | None = frozenset()
    """Accepted host names besides those of loopback; None accepts any."""
    claim_config: ClaimConfig = ClaimConfig()
    """The settings of claims under /api."""
    api_tenant: str = "default"
    api_project: str = "default"
    """The project of /api."""
    requests_a_second: int | None = None
    """The rate limit per key, or per address where there are no keys; None: no limit."""
    tenant_operations: int = AT_ONCE
    """The number of a tenant's operations in the engine at once."""
    streams: int = STREAMS
    """The number of event streams per key, or per address where there are no keys."""
    connections: int = CONNECTIONS
    """The number of connections. Half of them may wait for a task of one tenant."""
    sign_in_secret: bytes | None = None
    """The secret that seals sign-ins; None: a random one of this service."""
    metrics_prefix: str = "genlock"
    """The prefix of all metrics."""


def build(
    coordinator: AsyncCoordinator,
    choices: Choices,
    log: Log | None = None,
    metrics: Metrics | None = None,
) -> App:
    """Builds the service on this coordinator. `metrics` is the observer of its engine, if it has
    one."""
    if metrics is None:
        metrics = Metrics(prefix=choices.metrics_prefix)
    rates = None if choices.requests_a_second is None else Rates(choices.requests_a_second)
    running = ServiceContext(
        coordinator, rates, Turns(choices.tenant_operations), choices.connections // 2
    )
    key_cache = KeyCache(coordinator.reader) if choices.keys or choices.token is not None else None
    secret = choices.sign_in_secret
    if secret is None:
        secret = os.urandom(LEAST_SECRET_BYTES)
    sign_ins = acting = None
    if key_cache is not None:
        sign_ins = BrowserSessions(key_cache, secret, choices.token)
        acting = ActingSignIns(key_cache, secret, choices.token)
    authenticator = _door(key_cache, sign_ins, acting, choices)
    if key_cache is not None:
        running.acting.on_change.append(key_cache.forget)
    broker = EventBroker(
        coordinator.reader, StreamSettings(most_streams_per_caller=choices.streams)
    )
    running.on_stop.append(broker.close)
    metrics.attach(coordinator.reader)
    metrics.sse_clients = lambda: broker.clients
    sign_in = (
        None
        if sign_ins is None or acting is None
        else SignInPage(running, sign_ins, acting, choices.token)
    )
    health = Health(running)
    manual = Manual(keys=key_cache is not None)
    pages = Router(
        [
            Page("/healthz", health.healthz),
            Page("/readyz", health.readyz),
            Page("/openapi.json", manual.openapi),
            Page("/docs", manual.docs),
            *SignedIn(acting).routes(),
            *Dashboard(running, StatusPage(running)).routes(),
            *([] if sign_in is None else sign_in.routes()),
            Page("/metrics", only_of_the_whole_store(metrics_endpoint(metrics))),
            Page("/mcp", McpEndpoint(running), methods=["POST"]),
            *stream_routes(broker, authenticator),
            events_route(broker, authenticator, choices.api_tenant, choices.api_project),
            *api_routes(
                running,
                config=choices.claim_config,
                tenant_id=choices.api_tenant,
                project_id=choices.api_project,
            ),
        ],
        redirect_slashes=False,
        default=nothing_here,
    )
    on_fault, instead_of = (
        None if log is None else log.fault,
        None if sign_in is None else sign_in.instead_of,
    )
    return App(running, authenticator, pages, _watch(metrics, log), on_fault, instead_of)


def _door(
    key_cache: KeyCache | None,
    sign_ins: BrowserSessions | None,
    acting: ActingSignIns | None,
    choices: Choices,
) -> Authenticator:
    if key_cache is None or sign_ins is None:
        return Authenticator(None, choices.hosts)
    return Authenticator(
        key_cache.find, choices.hosts, key_cache, sign_ins.find, choices.token, acting
    )


def _watch(metrics: Metrics, log: Log | None) -> Watch:
    """Makes the function that counts and logs a finished request."""
    count = metrics.count_request
    note = None if log is None else log.request

    def watch(what: HttpExchange) -> None:
        # The duration of a stream is up to its client and says nothing about latency.
        took = 0.0 if what.route == STREAM_ROUTE else time.perf_counter() - what.started
        count(what.route or OTHER_ROUTES, what.status, took)
        if note is not None:
            note(what)

    return watch


def only_of_the_whole_store(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Serves callers that may see all tenants; others get 404."""

    async def guarded(request: Request) -> Response:
        exchange: HttpExchange = request.scope["genlock"]
        if not exchange.grant.sees(EVERYWHERE, EVERYWHERE):
            wanted = (
                "one of all tenants is needed: genlock keys create NAME --role observer "
                "--all-tenants"
            )
            raise RouteNotFound(
                f"there is nothing at {request.scope['path']} for this key; {wanted}"
            )
        return await endpoint(request)

    return guarded


async def nothing_here(scope: Scope, _: Receive, __: Send) -> None:
    """Answers paths without a route."""
    raise no_route(scope["path"])
