"""Putting a service together from its settings."""

from __future__ import annotations

from msgspec import Struct
from starlette.routing import Route, Router

from genlock.coordinator import AsyncCoordinator
from genlock.errors import RouteNotFound
from genlock.service.access.door import Door
from genlock.service.app import App
from genlock.service.exchange import Receive, Scope, Send
from genlock.service.limits import AT_ONCE, Rates, Turns
from genlock.service.logs import Log
from genlock.service.pages.health import Health
from genlock.service.running import Running


class Choices(Struct, frozen=True, kw_only=True):
    """How a service is to behave."""

    keys: bool = False
    """Does every request need a key?"""
    hosts: frozenset[str] | None = frozenset()
    """The names it answers for besides loopback's; None for any."""
    requests_a_second: int | None = None
    """Of one key, or of one address where there are no keys; None: they are not counted."""
    tenant_operations: int = AT_ONCE
    """How many operations of one tenant are with the engine at once."""
    metrics_prefix: str = "genlock"
    """What the names of metrics begin with."""


def build(coordinator: AsyncCoordinator, choices: Choices, log: Log | None = None) -> App:
    """The service on this coordinator."""
    rates = None if choices.requests_a_second is None else Rates(choices.requests_a_second)
    running = Running(coordinator, rates, Turns(choices.tenant_operations))
    door = Door(None, choices.hosts)
    health = Health(running)
    pages = Router(
        [Route("/healthz", health.healthz), Route("/readyz", health.readyz)],
        default=nothing_here,
    )
    return App(running, door, pages, None if log is None else log.request, None if log is None else log.fault)


async def nothing_here(scope: Scope, _: Receive, __: Send) -> None:
    """What Starlette finds no route for."""
    raise RouteNotFound(f"there is nothing at {scope['path'][:200]}; /openapi.json lists what there is")
