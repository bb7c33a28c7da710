"""Putting a service together from its settings."""

from __future__ import annotations

from msgspec import Struct
from starlette.routing import Route, Router

from genlock.coordinator import AsyncCoordinator
from genlock.errors import RouteNotFound
from genlock.service.access.door import Door
from genlock.service.app import App
from genlock.service.exchange import Receive, Scope, Send
from genlock.service.pages.health import Health
from genlock.service.running import Running


class Choices(Struct, frozen=True, kw_only=True):
    """How a service is to behave."""

    keys: bool = False
    """Does every request need a key?"""
    hosts: frozenset[str] | None = frozenset()
    """The names it answers for besides loopback's; None for any."""


def build(coordinator: AsyncCoordinator, choices: Choices) -> App:
    """The service on this coordinator."""
    running = Running(coordinator)
    door = Door(None, choices.hosts)
    health = Health(running)
    pages = Router(
        [Route("/healthz", health.healthz), Route("/readyz", health.readyz)],
        default=nothing_here,
    )
    return App(running, door, pages)


async def nothing_here(scope: Scope, _: Receive, __: Send) -> None:
    """What Starlette finds no route for."""
    raise RouteNotFound(f"there is nothing at {scope['path'][:200]}; /openapi.json lists what there is")
