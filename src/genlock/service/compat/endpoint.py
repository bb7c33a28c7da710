"""From a request under /api to its answer, and whatever goes wrong in SC's shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from genlock.errors import BadArgument, GenlockError, MethodRefused, RoleRefused, RouteNotFound
from genlock.service.access.acting import is_own
from genlock.service.compat.claims import Asked
from genlock.service.compat.codes import STATUSES, Code
from genlock.service.compat.messages import Refused
from genlock.service.compat.routes import ApiRoute
from genlock.service.exchange import JSON, Answer, Exchange, Receive, Scope, Send, asides, check_json, read_body, send_answer
from genlock.service.running import Running
from genlock.typed_json import convert, decode
from genlock.wire.statuses import status_of

Handler: TypeAlias = Callable[[Asked], Awaitable[Struct]]

_MOST_BYTES: Final = 64 * 1024


class Endpoint:
    """One route under /api, as an ASGI application."""

    def __init__(self, running: Running, place: tuple[str, str], route: ApiRoute, handler: Handler) -> None:
        self._running, self._place, self._route, self._handler = running, place, route, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["genlock"]
        exchange.route, exchange.place = f"api_{self._route.name}", self._place
        try:
            said, status = await self._answer(scope, receive, exchange)
            answer = Answer(status, msgspec.json.encode(said), JSON, asides(status))
        except GenlockError as error:
            exchange.error = error
            answer = refusal(error)
        await send_answer(send, answer, exchange)

    async def _answer(self, scope: Scope, receive: Receive, exchange: Exchange) -> tuple[Struct, int]:
        route, grant = self._route, exchange.grant
        if scope["method"] != route.method and not (scope["method"] == "HEAD" and route.method == "GET"):
            error = MethodRefused(f"this path takes {route.method}, not {scope['method'][:20]}")
            error.allowed = (route.method,)
            raise error
        if not grant.sees(*self._place):
            raise RouteNotFound(f"there is no project {self._place[1]!r} of tenant {self._place[0]!r} for this key")
        if not grant.may(route.role):
            raise RoleRefused(f"{route.what.lower()}: that needs the role {route.role}; this key has the role {grant.role}")
        name = scope["path_params"].get("name", "")
        given = self._query(scope["query_string"]) if route.method == "GET" else await self._body(receive, exchange.headers)
        session = name if route.session == "path" else given.session_id if route.session == "body" else None
        exchange.arguments = {"task_id" if "tasks/{" in route.path else "session_id": name, **({"session_id": session} if session else {})}
        if session is not None and not is_own(grant, session):
            return Refused(error=Code.NOT_CLAIM_OWNER, message=f"to act for session {session!r} needs its own key"), 403
        speaker = self._running.speaker(grant, exchange.client, exchange.headers)
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
    allowed = ((b"allow", ", ".join(error.allowed).encode()),) if isinstance(error, MethodRefused) else ()
    return Answer(status, msgspec.json.encode(Refused(error=error.code, message=str(error))), JSON, (*asides(status), *allowed))
