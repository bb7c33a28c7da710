"""/api as a whole, on one project."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from genlock.service.compat.claims import Claims
from genlock.service.compat.config import ClaimConfig
from genlock.service.compat.endpoint import Endpoint
from genlock.service.compat.looking import Looking
from genlock.service.compat.records import Records
from genlock.service.compat.routes import PREFIX, ROUTES
from genlock.service.running import Running

_VERBS = frozenset({"claim", "release", "heartbeat", "session_heartbeat"})


def api_routes(
    running: Running, *, config: ClaimConfig | None = None, tenant_id: str = "default", project_id: str = "default"
) -> list[BaseRoute]:
    """The routes under /api, but for its stream."""
    config = config if config is not None else ClaimConfig()
    records = Records(running, (tenant_id, project_id))
    claims, looking = Claims(records, config), Looking(records, config)
    return [
        Route(
            f"{PREFIX}/{route.path}",
            Endpoint(running, records.place, route, getattr(claims if route.name in _VERBS else looking, route.name)),
            include_in_schema=False,
        )
        for route in ROUTES
    ]
