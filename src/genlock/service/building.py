"""Putting a service together from its settings."""

from __future__ import annotations

from msgspec import Struct
from starlette.routing import Route, Router

from genlock.coordinator import AsyncCoordinator
from genlock.errors import RouteNotFound
from genlock.service.access.door import Door
from genlock.service.access.keyring import Keyring
from genlock.service.app import App
from genlock.service.compat.app import api_routes
from genlock.service.compat.config import ClaimConfig
from genlock.service.exchange import Receive, Scope, Send
from genlock.service.pages.health import Health
from genlock.service.pages.status import StatusPage
from genlock.service.running import Running


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


def build(coordinator: AsyncCoordinator, choices: Choices) -> App:
    """The service on this coordinator."""
    running = Running(coordinator)
    door = Door(Keyring(coordinator.engine).find if choices.keys else None, choices.hosts)
    health = Health(running)
    pages = Router(
        [
            Route("/healthz", health.healthz),
            Route("/readyz", health.readyz),
            *StatusPage(running).routes(),
            # /api/events, the stream in SC's shape, stands here.
            *api_routes(running, config=choices.claim_config, tenant_id=choices.api_tenant, project_id=choices.api_project),
        ],
        default=nothing_here,
    )
    return App(running, door, pages)


async def nothing_here(scope: Scope, _: Receive, __: Send) -> None:
    """What Starlette finds no route for."""
    raise RouteNotFound(f"there is nothing at {scope['path'][:200]}; /openapi.json lists what there is")
