"""The part of the service below /v1/: from a path to an endpoint, from there to its answer."""

from __future__ import annotations

import functools
from typing import Final

from genlock.core.names import check_project, check_tenant
from genlock.errors import KindRefused, RouteNotFound
from genlock.service.exchange import Answer, Exchange, Receive, Scope, read_body, refused_method
from genlock.service.running import Running
from genlock.service.v1.endpoint import Endpoint
from genlock.service.v1.router import Router
from genlock.wire.routes import ROUTES

MOST_BYTES: Final = 110 * 1024 * 1024
"""The largest result that any profile admits, and the request around it."""

_JSON: Final = b"application/json"


@functools.lru_cache(maxsize=4096)
def check_place(tenant: str, project: str) -> tuple[str, str]:
    """Tenant and project if they are names; most requests are for a few places."""
    return check_tenant(tenant), check_project(project)


class V1:
    """All operations."""

    def __init__(self, running: Running, most_bytes: int = MOST_BYTES) -> None:
        self._running = running
        self._router = Router((route, Endpoint(route, most_bytes)) for route in ROUTES)

    def find(self, scope: Scope) -> tuple[Endpoint, tuple[str, str], str | None]:
        """The endpoint that a request is for, its tenant and project, and the name in its path."""
        parts = scope["path"].split("/", 4)
        match = self._router.match(parts[4]) if len(parts) == 5 else None
        if match is None:
            raise RouteNotFound(f"there is nothing at {scope['path'][:200]}; /openapi.json lists what there is")
        method: str = scope["method"]
        # A HEAD is a GET of which the server leaves out the body.
        endpoint = match.methods.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            raise refused_method(method, match.methods)
        return endpoint, check_place(parts[2], parts[3]), match.name

    async def answer(self, found: tuple[Endpoint, tuple[str, str], str | None], exchange: Exchange, receive: Receive) -> Answer:
        """The answer to a request; what is refused on the way is raised."""
        endpoint, place, name = found
        grant, headers, scope = exchange.grant, exchange.headers, exchange.scope
        if not grant.sees(*place):
            raise RouteNotFound(f"there is no project {place[1]!r} of tenant {place[0]!r} for this key")
        speaker = self._running.speaker(grant, exchange.client, headers)
        if endpoint.reads_body:
            body = await read_body(receive, headers, endpoint.most_bytes)
            if body and not headers.get(b"content-type", _JSON).startswith(_JSON):
                raise KindRefused("the request's body is JSON; send it with content-type: application/json")
            given = endpoint.keywords.of_body(body)
        else:
            given = endpoint.keywords.of_query(scope["query_string"])
        exchange.arguments = endpoint.arguments(place, name, given, headers)
        endpoint.permit(grant, speaker, given)
        result = await endpoint.ask(speaker, given, receive, self._running.stopping)
        return endpoint.answer(result, grant, place[0])
