"""The routes of the streams, for the service to mount: one project's, and a whole tenant's.

GET /v1/{tenant}/{project}/events/stream                 ?after= &task= &session= &type= &shape=
GET /v1/{tenant}/events/stream                           the same, and &project=, for some of the
                                                         tenant's projects
GET /api/events                                          the project of /api, in the shape of the
                                                         session document
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.routing import Route

from genlock.core.names import check_project, check_tenant
from genlock.errors import BadArgument, KeyRefused, MethodRefused, RouteNotFound
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.permissions import Grant
from genlock.service.events.batches import check_filters
from genlock.service.events.broker import EventBroker
from genlock.service.events.cursors import Place
from genlock.service.events.formats import GENLOCK
from genlock.service.events.stream import serve_stream
from genlock.service.request import HttpExchange, Receive, Scope, Send

STREAM_ROUTE: Final = "stream_events"
"""The name of a stream in the log and the metrics."""
_ONCE: Final = ("after", "shape")
_SEVERAL: Final = ("task", "session", "type", "project")
_MOST_NAMED: Final = 1000


class StillAdmitted(Struct, frozen=True):
    """Checks a stream's permission again, as for a new request. Equal for equal keys, so that one
    check serves all streams of a key."""

    authenticator: Authenticator
    authorization: bytes | None
    api_key: bytes | None
    cookie: bytes | None
    grant: Grant

    async def __call__(self) -> bool:
        """Would a new request with this key get the same grant now?"""
        given = {
            b"authorization": self.authorization,
            b"x-api-key": self.api_key,
            b"cookie": self.cookie,
        }
        try:
            return (
                await self.authenticator.admit(
                    {name: value for name, value in given.items() if value is not None}, "GET"
                )
                == self.grant
            )
        except KeyRefused:
            return False


class Stream:
    """A stream as an ASGI application, so that Starlette passes everything through."""

    def __init__(
        self,
        broker: EventBroker,
        authenticator: Authenticator,
        shape: str = GENLOCK,
        place: Place | None = None,
    ) -> None:
        self._hub, self._door, self._shape = broker, authenticator, shape
        self._place = {} if place is None else {"tenant": place[0], "project": place[1]}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            error = MethodRefused(f"a stream takes GET, not {scope['method'][:20]}")
            error.allowed = ("GET",)
            raise error
        exchange: HttpExchange = scope["genlock"]
        sent = exchange.headers.get
        given = _query(scope["query_string"])
        exchange.route = STREAM_ROUTE
        where = _where(scope["path_params"] | self._place, given.pop("project"), exchange)
        filters = check_filters(given["task"], given["session"], given["type"])
        await serve_stream(
            self._hub,
            scope,
            receive,
            send,
            after=given["after"],
            shape=given["shape"] or self._shape,
            filters=filters,
            still_allowed=StillAdmitted(
                self._door,
                sent(b"authorization"),
                sent(b"x-api-key"),
                sent(b"cookie"),
                exchange.grant,
            ),
            caller=_caller(exchange),
            **where,
        )


def stream_routes(broker: EventBroker, authenticator: Authenticator) -> list[Route]:
    """The routes for the service's router."""
    stream = Stream(broker, authenticator)
    return [
        Route("/v1/{tenant}/events/stream", stream),
        Route("/v1/{tenant}/{project}/events/stream", stream),
    ]


def _caller(exchange: HttpExchange) -> str:
    """The caller that the stream counts for: a key, or an address where there are no keys."""
    return (
        f"key {exchange.grant.key_id!r}"
        if exchange.grant.key_id
        else f"the address {exchange.client or '?'}"
    )


def _where(path: dict[str, str], projects: list[str], exchange: HttpExchange) -> dict[str, Any]:
    """The projects of the stream. A project that the caller may not see is treated like one that
    does not exist."""
    grant, tenant = exchange.grant, check_tenant(path["tenant"])
    if "project" in path:
        if projects:
            raise BadArgument(
                "the project stands in the path; /v1/{tenant}/events/stream takes ?project=, "
                "several times if need be"
            )
        projects = [path["project"]]
    places = [(tenant, check_project(project)) for project in projects]
    for place in places:
        if not grant.sees(*place):
            raise RouteNotFound(
                f"there is no project {place[1]!r} of tenant {tenant!r} for this key"
            )
    if places:
        exchange.place = places[0] if len(places) == 1 else None
        return {"places": places}
    if grant.tenant not in ("*", tenant):
        raise RouteNotFound(f"there is no tenant {tenant!r} for this key")
    return {"tenant": tenant, "visible": lambda project: grant.sees(tenant, project)}


def _query(query: bytes) -> dict[str, Any]:
    given: dict[str, Any] = dict.fromkeys(_ONCE) | {name: [] for name in _SEVERAL}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_MOST_NAMED,
            errors="strict",
        )
    except ValueError as error:
        raise BadArgument(f"the query cannot be read: {error}") from None
    for name, value in pairs:
        if name in _SEVERAL:
            given[name].append(value)
        elif name not in _ONCE:
            raise BadArgument(f"a stream takes {', '.join((*_ONCE, *_SEVERAL))}, not {name[:60]!r}")
        elif given[name] is not None:
            raise BadArgument(f"the query has {name!r} twice")
        else:
            given[name] = value
    return given
