"""`/mcp` on the service: the protocol over HTTP, one message per request.

It is the stateless kind of Streamable HTTP: POST only, JSON answers, no sessions of the transport.
A request passes the service's authentication and limits like any other, and each operation of a
tool has the same permission checks and limits as the API operation of that name. The header
`mcp-protocol-version` selects the era: the first if it is absent or from the handshake; otherwise
the modern one, whose headers must agree with the body.

    POST /mcp?tenant=acme&project=web         both may be left out: then they are the key's own
    authorization: Bearer glk_…
    genlock-session: agent-7                  who calls; without it the key's session, or the key

The service renews no lease while an agent works: the answer of `claim` says how often to call
`progress`, unless a hook of the agent's client does it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from genlock.core.key_roles import EVERYWHERE
from genlock.core.names import check_project, check_tenant
from genlock.errors import BadArgument, RouteNotFound
from genlock.mcp import protocol
from genlock.mcp.answer import Caller
from genlock.mcp.scripts import run_async
from genlock.service.auth.session_access import session_of_key
from genlock.service.request import (
    Answer,
    HttpExchange,
    Receive,
    Scope,
    Send,
    check_json,
    read_body,
    send_answer,
)

if TYPE_CHECKING:
    from genlock.coordinator import AsyncCoordinator
    from genlock.service.api.app import V1
    from genlock.service.context import ServiceContext
    from genlock.wire.operations import Call

ROUTE: Final = "mcp"
"""The name of these requests in the log and among the metrics."""
_MOST_BYTES: Final = 8 * 1024 * 1024
_VERSION: Final = b"mcp-protocol-version"
_METHOD: Final = b"mcp-method"
_NAME: Final = b"mcp-name"
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_STATUS: Final = {protocol.INTERNAL_ERROR: 200, protocol.METHOD_NOT_FOUND: 404}
_ENCODED: Final = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)


class McpEndpoint:
    """The route, as an ASGI application."""

    def __init__(self, running: ServiceContext) -> None:
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: HttpExchange = scope["genlock"]
        exchange.route = ROUTE
        exchange.place = place = _place(exchange, scope["query_string"])
        body = await read_body(receive, exchange.headers, _MOST_BYTES, self._running.pace)
        check_json(exchange.headers)
        is_modern = _is_modern(exchange.headers)
        handled = protocol.handle(body, lambda request: _check(request, exchange.headers))
        match handled:
            case protocol.Work():
                reply = await self._work(handled, place, exchange, scope["genlock.v1"], receive)
            case protocol.Initialized():
                reply = handled.reply
            case protocol.Reply():
                reply = handled
            case _:
                # A notification needs no reply. A client cancels a call by closing its request.
                await send_answer(send, Answer(202, b""), exchange)
                return
        status = 200 if reply.code is None else _STATUS.get(reply.code, 400)
        if status == 404 and not is_modern:
            status = 200  # older clients interpret 404 as the end of a session
        await send_answer(send, Answer(status, reply.body), exchange)

    async def _work(
        self,
        work: protocol.Work,
        place: tuple[str, str],
        exchange: HttpExchange,
        operations: V1,
        receive: Receive,
    ) -> protocol.Reply:
        speaker = self._running.speaker(exchange.grant, exchange.client, exchange.headers)
        caller = _caller(work.request, exchange, speaker, place[1])

        async def perform(call: Call[Any]) -> Any:
            return await operations.perform(call, place, exchange, speaker, receive)

        answer = await run_async(work.asked, caller, perform)
        exchange.arguments = {"tool": work.request.params.get("name", "resource")}
        return work.reply(answer)


def _place(exchange: HttpExchange, query: bytes) -> tuple[str, str]:
    """Returns tenant and project: those in the address, otherwise those of the key."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, max_num_fields=10, errors="strict"
        )
    except ValueError as error:
        raise BadArgument(f"the query cannot be read: {error}") from None
    given = dict(pairs)
    unknown = given.keys() - {"tenant", "project"}
    if unknown:
        raise BadArgument(f"/mcp takes tenant and project, not {min(unknown)[:40]!r}")
    grant = exchange.grant
    own = grant.tenant if grant.tenant != EVERYWHERE else "default"
    covered = grant.projects if EVERYWHERE not in grant.projects else "default"
    tenant = check_tenant(given.get("tenant", own))
    project = check_project(given.get("project", covered))
    if not grant.sees(tenant, project):
        raise RouteNotFound(
            f"there is no project {project!r} of tenant {tenant!r} for this key; name one in the "
            "address: /mcp?project=NAME"
        )
    return tenant, project


def _caller(
    request: protocol.Request, exchange: HttpExchange, speaker: AsyncCoordinator, project: str
) -> Caller:
    """Returns the caller. A separate key for each agent is enough to distinguish agents."""
    grant, identity = exchange.grant, speaker.identity
    thread = request.meta.get("threadId")
    session = (
        identity.session_id
        or grant.session
        or (thread if isinstance(thread, str) else None)
        or (session_of_key(grant.key_id) if grant.key_id else None)
    )
    named = identity.agent_id or grant.name
    return Caller(
        session=session,
        agent=named or request.client or "mcp",
        named=bool(named),
        project=project,
        renewed=False,
    )


def _is_modern(headers: Mapping[bytes, bytes]) -> bool:
    version = headers.get(_VERSION)
    return version is not None and version.decode("latin-1") not in protocol.HANDSHAKE_VERSIONS


def _check(request: protocol.Request, headers: Mapping[bytes, bytes]) -> None:
    """Checks that the headers of a modern request agree with its body, because proxies may act on
    the headers."""
    if not _is_modern(headers):
        if request.is_modern and request.method != "server/discover":
            raise protocol.Refusal(protocol.HEADER_MISMATCH, "mcp-protocol-version is missing")
        return
    protocol.check_envelope(request)
    said = {
        _VERSION: request.meta[protocol.VERSION_KEY],
        _METHOD: request.method,
    }
    name = request.params.get(_NAMED_BY.get(request.method, ""))
    if name is not None:
        said[_NAME] = name
    for header, value in said.items():
        if _decoded(headers.get(header, b"")) != value:
            told = f"header {header.decode()} does not say what the body says"
            raise protocol.Refusal(protocol.HEADER_MISMATCH, told)


def _decoded(header: bytes) -> str | None:
    """Returns a header's value. A value that is not plain ASCII is base64."""
    text = header.decode("latin-1")
    found = _ENCODED.fullmatch(text)
    if found is None:
        return text
    try:
        return base64.b64decode(found[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
