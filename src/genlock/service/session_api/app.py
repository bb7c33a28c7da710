"""The routes under /api: SC's session and task interface on one project."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.routing import BaseRoute, Route

from genlock.errors import BadArgument, GenlockError, MethodRefused, RoleRefused, RouteNotFound
from genlock.safe_text import safe_json
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.session_access import is_own
from genlock.service.context import ServiceContext
from genlock.service.events import EventBroker
from genlock.service.events.formats import SC
from genlock.service.events.routes import Stream
from genlock.service.request import (
    JSON,
    Answer,
    HttpExchange,
    Receive,
    Scope,
    Send,
    asides,
    check_json,
    read_body,
    send_answer,
)
from genlock.service.session_api.claims import ApiProject, Asked, Claims
from genlock.service.session_api.health import ClaimConfig
from genlock.service.session_api.messages import STATUSES, Code, Refused
from genlock.service.session_api.queries import SessionQueries
from genlock.service.session_api.routes import EVENTS, PREFIX, ROUTES, ApiRoute
from genlock.typed_json import convert, decode
from genlock.wire.problems import status_of

# Endpoints: from a request under /api to its answer, with errors in SC's shape.


Handler: TypeAlias = Callable[[Asked], Awaitable[Struct]]

_MOST_BYTES: Final = 64 * 1024


class Endpoint:
    """One route under /api, as an ASGI application."""

    def __init__(
        self,
        running: ServiceContext,
        place: tuple[str, str],
        route: ApiRoute,
        handler: Handler,
        orphan_seconds: float,
    ) -> None:
        self._running, self._place, self._route, self._handler = running, place, route, handler
        self._orphan_seconds = orphan_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: HttpExchange = scope["genlock"]
        exchange.route, exchange.place = f"api_{self._route.name}", self._place
        try:
            said, status = await self._answer(scope, receive, exchange)
            answer = Answer(status, safe_json(msgspec.json.encode(said)), JSON, asides(status))
        except GenlockError as error:
            exchange.error = error
            answer = refusal(error)
        await send_answer(send, answer, exchange)

    async def _answer(
        self, scope: Scope, receive: Receive, exchange: HttpExchange
    ) -> tuple[Struct, int]:
        route, grant = self._route, exchange.grant
        if scope["method"] != route.method and not (
            scope["method"] == "HEAD" and route.method == "GET"
        ):
            error = MethodRefused(f"this path takes {route.method}, not {scope['method'][:20]}")
            error.allowed = (route.method,)
            raise error
        if not grant.sees(*self._place):
            raise RouteNotFound(
                f"there is no project {self._place[1]!r} of tenant {self._place[0]!r} for this key"
            )
        if not grant.may(route.role):
            raise RoleRefused(
                f"{route.what.lower()}: that needs the role {route.role}; this key has the role "
                f"{grant.role}"
            )
        name = scope["path_params"].get("name", "")
        given = (
            self._query(scope["query_string"])
            if route.method == "GET"
            else await self._body(receive, exchange.headers)
        )
        session = (
            name
            if route.session == "path"
            else given.session_id
            if route.session == "body"
            else None
        )
        exchange.arguments = {
            "task_id" if "tasks/{" in route.path else "session_id": name,
            **({"session_id": session} if session else {}),
        }
        if session is not None and not is_own(grant, session):
            return Refused(
                error=Code.NOT_CLAIM_OWNER,
                message=f"to act for session {session!r} needs its own key",
            ), 403
        speaker = self._running.speaker(
            grant, exchange.client, exchange.headers, self._orphan_seconds
        )
        answer = await self._handler(Asked(speaker, grant, name, given))
        return answer, STATUSES[answer.error] if isinstance(answer, Refused) else 200

    async def _body(self, receive: Receive, headers: dict[bytes, bytes]) -> Any:
        body = await read_body(receive, headers, _MOST_BYTES)
        if body:
            check_json(headers)
        try:
            return decode(body or b"{}", self._route.request)
        except msgspec.ValidationError as error:
            raise BadArgument(f"the request's body is not what this path takes: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadArgument(f"the request's body is no JSON: {error}") from None

    def _query(self, query: bytes) -> Any:
        try:
            given = dict(parse_qsl(query.decode("ascii"), max_num_fields=100, errors="strict"))
            return convert(given, self._route.request, strict=False)
        except msgspec.ValidationError as error:
            raise BadArgument(f"the query is not what this path takes: {error}") from None
        except ValueError as error:
            raise BadArgument(f"the query cannot be read: {error}") from None


def refusal(error: GenlockError) -> Answer:
    """An error in SC's shape."""
    status = status_of(error)
    allowed = (
        ((b"allow", ", ".join(error.allowed).encode()),) if isinstance(error, MethodRefused) else ()
    )
    return Answer(
        status,
        safe_json(msgspec.json.encode(Refused(error=error.code, message=str(error)))),
        JSON,
        (*asides(status), *allowed),
    )


# SC's event stream: that of the project that /api acts on, with SC's four types.


class Events:
    """The stream as everywhere, and what is refused before it begins in SC's shape."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: HttpExchange = scope["genlock"]
        try:
            await self._stream(scope, receive, send)
        except GenlockError as error:
            if exchange.status:
                raise
            exchange.error = error
            await send_answer(send, refusal(error), exchange)


def events_route(
    broker: EventBroker, authenticator: Authenticator, tenant_id: str, project_id: str
) -> Route:
    """Where it is found."""
    stream = Stream(broker, authenticator, SC, (tenant_id, project_id))
    return Route(f"{PREFIX}/{EVENTS}", Events(stream), include_in_schema=False)


_VERBS = frozenset({"claim", "release", "heartbeat", "session_heartbeat"})


def api_routes(
    running: ServiceContext,
    *,
    config: ClaimConfig | None = None,
    tenant_id: str = "default",
    project_id: str = "default",
) -> list[BaseRoute]:
    """The routes under /api, but for its stream."""
    config = config if config is not None else ClaimConfig()
    project = ApiProject(running, (tenant_id, project_id))
    claims, queries = Claims(project, config), SessionQueries(project, config)
    return [
        Route(
            f"{PREFIX}/{route.path}",
            Endpoint(
                running,
                project.scope,
                route,
                getattr(claims if route.name in _VERBS else queries, route.name),
                config.orphan_threshold / 1000,
            ),
            include_in_schema=False,
        )
        for route in ROUTES
    ]
