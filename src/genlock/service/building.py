"""Putting a service together from its settings."""

from __future__ import annotations

from msgspec import Struct
from starlette.routing import Router

from genlock.coordinator import AsyncCoordinator
from genlock.errors import RouteNotFound
from genlock.service.access.door import Door
from genlock.service.app import App
from genlock.service.exchange import Receive, Scope, Send
from genlock.service.openapi.serving import Manual
from genlock.service.pages.health import Health
from genlock.service.pages.route import Page
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
    manual = Manual(keys=choices.keys)
    pages = Router(
        [
            Page("/healthz", health.healthz),
            Page("/readyz", health.readyz),
            Page("/openapi.json", manual.openapi),
            Page("/docs", manual.docs),
        ],
        redirect_slashes=False,
        default=nothing_here,
    )
    return App(running, door, pages)


async def nothing_here(scope: Scope, _: Receive, __: Send) -> None:
    """What Starlette finds no route for."""
    raise RouteNotFound(f"there is nothing at {scope['path'][:200]}; /openapi.json lists what there is")
