"""Putting a service together from its settings."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router

from genlock.coordinator import AsyncCoordinator
from genlock.core.access import EVERYWHERE
from genlock.errors import RouteNotFound
from genlock.service.access.door import Door
from genlock.service.access.keyring import Keyring
from genlock.service.access.sign_ins import SignIns
from genlock.service.app import App, Watch
from genlock.service.compat.app import api_routes
from genlock.service.compat.config import ClaimConfig
from genlock.service.compat.events import events_route
from genlock.service.exchange import Exchange, Receive, Scope, Send, no_route
from genlock.service.limits import AT_ONCE, Rates, Turns
from genlock.service.logs import Log
from genlock.service.metrics import Metrics, metrics_endpoint
from genlock.service.openapi.serving import Manual
from genlock.service.pages.health import Health
from genlock.service.pages.route import Page
from genlock.service.pages.sign_in import SignInPage
from genlock.service.pages.status import StatusPage
from genlock.service.running import Running
from genlock.service.serving import CONNECTIONS
from genlock.service.streams import Hub
from genlock.service.streams.mount import STREAM_ROUTE, stream_routes

OTHER_ROUTES: Final = "pages"
"""What requests that are no operations are counted as."""


class Choices(Struct, frozen=True, kw_only=True):
    """How a service is to behave."""

    keys: bool = False
    """Does every request need a key?"""
    hosts: frozenset[str] | None = frozenset()
    """The names it answers for besides loopback's; None for any."""
    claim_config: ClaimConfig = ClaimConfig()
    """Of the claims under /api."""
    api_tenant: str = "default"
    api_project: str = "default"
    """What /api acts on."""
    requests_a_second: int | None = None
    """Of one key, or of one address where there are no keys; None: they are not counted."""
    tenant_operations: int = AT_ONCE
    """How many operations of one tenant are with the engine at once."""
    connections: int = CONNECTIONS
    """How many connections there may be: half of them may wait for a task of one tenant."""
    sign_in_secret: bytes | None = None
    """By which sign-ins are sealed; None: one that only this service knows."""
    metrics_prefix: str = "genlock"
    """What the names of metrics begin with."""


def build(coordinator: AsyncCoordinator, choices: Choices, log: Log | None = None, metrics: Metrics | None = None) -> App:
    """The service on this coordinator. `metrics` are those that its engine tells of its batches, if it does."""
    if metrics is None:
        metrics = Metrics(prefix=choices.metrics_prefix)
    rates = None if choices.requests_a_second is None else Rates(choices.requests_a_second)
    running = Running(coordinator, rates, Turns(choices.tenant_operations), choices.connections // 2)
    keyring = Keyring(coordinator.engine) if choices.keys else None
    sign_ins = None if keyring is None else SignIns(keyring, choices.sign_in_secret)
    door = _door(keyring, sign_ins, choices.hosts)
    if keyring is not None:
        running.acting.on_change.append(keyring.forget)
    hub = Hub(coordinator.engine)
    running.on_stop.append(hub.close)
    metrics.attach(coordinator.engine)
    metrics.sse_clients = lambda: hub.clients
    sign_in = None if sign_ins is None else SignInPage(running, sign_ins)
    health = Health(running)
    manual = Manual(keys=choices.keys)
    pages = Router(
        [
            Page("/healthz", health.healthz),
            Page("/readyz", health.readyz),
            Page("/openapi.json", manual.openapi),
            Page("/docs", manual.docs),
            *StatusPage(running).routes(),
            *([] if sign_in is None else sign_in.routes()),
            Page("/metrics", only_of_the_whole_store(metrics_endpoint(metrics))),
            *stream_routes(hub, door),
            events_route(hub, door, choices.api_tenant, choices.api_project),
            *api_routes(running, config=choices.claim_config, tenant_id=choices.api_tenant, project_id=choices.api_project),
        ],
        redirect_slashes=False,
        default=nothing_here,
    )
    on_fault, instead_of = None if log is None else log.fault, None if sign_in is None else sign_in.instead_of
    return App(running, door, pages, _watch(metrics, log), on_fault, instead_of)


def _door(keyring: Keyring | None, sign_ins: SignIns | None, hosts: frozenset[str] | None) -> Door:
    if keyring is None or sign_ins is None:
        return Door(None, hosts)
    return Door(keyring.find, hosts, keyring, sign_ins.find)


def _watch(metrics: Metrics, log: Log | None) -> Watch:
    """Counts a request when it is over, and logs it."""
    count = metrics.count_request
    note = None if log is None else log.request

    def watch(what: Exchange) -> None:
        # A stream lasts as long as its client likes: that is no latency.
        took = 0.0 if what.route == STREAM_ROUTE else time.perf_counter() - what.started
        count(what.route or OTHER_ROUTES, what.status, took)
        if note is not None:
            note(what)

    return watch


def only_of_the_whole_store(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """For those who see all tenants; for others there is nothing."""

    async def guarded(request: Request) -> Response:
        exchange: Exchange = request.scope["genlock"]
        if not exchange.grant.sees(EVERYWHERE, EVERYWHERE):
            wanted = "one of all tenants is needed: genlock keys create NAME --role observer --all-tenants"
            raise RouteNotFound(f"there is nothing at {request.scope['path']} for this key; {wanted}")
        return await endpoint(request)

    return guarded


async def nothing_here(scope: Scope, _: Receive, __: Send) -> None:
    """What Starlette finds no route for."""
    raise no_route(scope["path"])
