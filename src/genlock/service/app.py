"""The whole service as one ASGI application: authentication, routing, and errors as answers.

Operations take a short path, because every claim takes it: host, key, route, call, answer.
Starlette serves everything else.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from starlette.routing import Router

from genlock import __version__
from genlock.errors import BadArgument, GenlockError, KeyRefused, RouteNotFound
from genlock.service.api.app import V1, Found
from genlock.service.api.long_poll import Waiting
from genlock.service.auth.acting_sign_ins import PROOF_HEADER
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.permissions import OPEN
from genlock.service.context import ServiceContext
from genlock.service.events.stream import note_transport
from genlock.service.limits import WRONG_KEY_COUNTS
from genlock.service.request import (
    API,
    WHOLE,
    Answer,
    ClientGone,
    HttpExchange,
    Receive,
    Scope,
    Send,
    count,
    head_of,
    line_of,
    problem,
)
from genlock.service.responses import LastAnswer, send_any
from genlock.service.session_api.app import refusal
from genlock.service.web.dashboard import FAVICONS
from genlock.service.web.sign_in import SIGN_IN, SIGN_OUT
from genlock.shortages import shortage_of
from genlock.wire.headers import (
    IDENTITY_HEADERS,
    OPERATION_HEADER,
    PROTOCOL_HEADER,
    REQUEST_HEADER,
    check_protocol,
)

_REQUEST: Final = REQUEST_HEADER.encode()
_PROTOCOL: Final = PROTOCOL_HEADER.encode()
_LONGEST_REQUEST_ID: Final = 64
_BEGINNINGS: Final = ("http.response.start", WHOLE)
_OPEN_ON_LOOPBACK: Final = frozenset({"/healthz", "/readyz", SIGN_IN, SIGN_OUT, *FAVICONS})
"""Open to everyone: health checks have no key, and a sign-in carries its own proof."""
_OPEN_PATHS: Final = _OPEN_ON_LOOPBACK | {"/openapi.json", "/docs"}
"""Where only keys admit callers, the documentation is open too: its readers have no key yet."""


_ONCE: Final = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"x-api-key",
        b"content-type",
        b"last-event-id",
        PROOF_HEADER.encode(),
        _PROTOCOL,
        OPERATION_HEADER.encode(),
    }
    | {name.encode() for name in IDENTITY_HEADERS}
)
"""Headers that a request may have only once."""


class Watch(Protocol):
    """Called at the end of every request, for metrics and the log."""

    def __call__(self, what: HttpExchange) -> None: ...


class App:
    """The service."""

    def __init__(
        self,
        running: ServiceContext,
        authenticator: Authenticator,
        pages: Router,
        watch: Watch | None = None,
        on_fault: Callable[[HttpExchange], None] | None = None,
        instead_of: Callable[[KeyRefused, HttpExchange], Answer | None] | None = None,
    ) -> None:
        self.running, self._door, self._pages = running, authenticator, pages
        self._watch, self._on_fault, self._instead_of = watch, on_fault, instead_of
        self._lets_all_in = not authenticator.asks_for_keys and running.rates is None
        self._open_paths = _OPEN_ON_LOOPBACK if authenticator.takes_token else _OPEN_PATHS
        self._v1 = V1(
            running, Waiting(authenticator, running.acting, running.stopping, running.most_waiting)
        )
        self._start, self._numbers = os.urandom(4).hex(), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1003})
            return
        line = line_of(scope, send)
        headers: dict[bytes, bytes] = dict(scope["headers"]) if line is None else line.headers
        exchange = HttpExchange(scope, headers, self._request_id(headers), line)
        try:
            try:
                answer = await self._part(exchange, receive, send)
            except GenlockError as error:
                answer = self._refused(error, exchange)
            except ClientGone:
                raise
            # Any fault becomes a 500 for the caller, and a log entry.
            except Exception as error:  # noqa: BLE001
                answer = self._failed(error, exchange)
            if answer is not None:
                exchange.status = answer.status
                if (
                    line is None
                    or type(answer) is not Answer
                    or not line.write(answer.status, head_of(answer, exchange), answer.body)
                ):
                    await send_any(send, answer, exchange)
        except ClientGone:
            exchange.status = 499
        finally:
            if self._watch is not None:
                self._watch(exchange)

    def _request_id(self, headers: dict[bytes, bytes]) -> str:
        given = headers.get(_REQUEST)
        if given is not None and len(given) <= _LONGEST_REQUEST_ID and given.isalnum():
            return given.decode("ascii")
        return f"{self._start}-{next(self._numbers):x}"

    def _refused(self, error: GenlockError, exchange: HttpExchange) -> Answer:
        # The traceback is of no more use, and its frames keep everything alive, perhaps a body of
        # megabytes.
        error.__context__ = error.__traceback__ = None
        exchange.error = error
        page = (
            self._instead_of(error, exchange)
            if isinstance(error, KeyRefused) and self._instead_of is not None
            else None
        )
        return _refusal(error, exchange) if page is None else page

    def _failed(self, error: Exception, exchange: HttpExchange) -> Answer:
        shortage = shortage_of(error) if isinstance(error, OSError) else None
        if shortage is not None:
            return self._refused(shortage, exchange)
        exchange.error = error
        if self._on_fault is not None:
            self._on_fault(exchange)
        said = GenlockError(
            "something went wrong in the service; its log has more under request "
            f"{exchange.request}"
        )
        return _refusal(said, exchange)

    def _part(
        self, exchange: HttpExchange, receive: Receive, send: Send
    ) -> Awaitable[Answer | None]:
        """The coroutine that makes the answer; it returns None if it has sent the answer itself.
        This method is not a coroutine, which would cost time on every claim."""
        scope, headers = exchange.scope, exchange.headers
        if b"upgrade" in headers and _has_body(headers):
            return _not_upgraded(exchange)
        if len(headers) < len(scope["headers"]):
            _check_once(scope["headers"])
        self._door.check_host(headers)
        protocol = headers.get(_PROTOCOL)
        if protocol is not None:
            check_protocol(protocol.decode("latin-1"), "client", __version__)
        path: str = scope["path"]
        found = self._sought(exchange) if path.startswith("/v1/") else None
        if self._lets_all_in or (self.running.rates is None and self._door.has_token(headers)):
            exchange.grant = OPEN
        elif path not in self._open_paths:
            return self._through_the_door(found, exchange, receive, send)
        return self._answer(found, exchange, receive, send)

    async def _through_the_door(
        self,
        found: Found | GenlockError | None,
        exchange: HttpExchange,
        receive: Receive,
        send: Send,
    ) -> Answer | None:
        """Authenticates by key and applies the rate limit. A wrong key counts against its
        address."""
        rates = self.running.rates
        try:
            exchange.grant = await self._door.admit(exchange.headers, exchange.scope["method"])
        except KeyRefused:
            await count(rates, exchange.client, receive, WRONG_KEY_COUNTS)
            raise
        if rates is not None:
            await count(rates, exchange.grant.key_id or exchange.client, receive)
        return await self._answer(found, exchange, receive, send)

    def _answer(
        self,
        found: Found | GenlockError | None,
        exchange: HttpExchange,
        receive: Receive,
        send: Send,
    ) -> Awaitable[Answer | None]:
        """Answers by the part of the service that the path belongs to."""
        if isinstance(found, tuple):
            return self._v1.answer(found, exchange, receive)
        if found is not None and not isinstance(found, RouteNotFound):
            raise found
        return self._page(exchange, receive, send)

    def _sought(self, exchange: HttpExchange) -> Found | GenlockError:
        """The requested operation, or the error. It is looked up before authentication, so that the
        log names the operation of refused callers, too."""
        try:
            found = self._v1.find(exchange.scope)
        except GenlockError as error:
            return error
        exchange.route, exchange.place = found[0].name, found[1]
        return found

    async def _page(self, exchange: HttpExchange, receive: Receive, send: Send) -> None:
        """Lets Starlette answer. A fault before its answer begins becomes a problem document."""
        begun = False

        async def sending(message: dict[str, object]) -> None:
            nonlocal begun
            if message["type"] in _BEGINNINGS:
                begun = True
                exchange.status = int(str(message["status"]))
            await send(message)

        exchange.scope["genlock"], exchange.scope["genlock.v1"] = exchange, self._v1
        note_transport(exchange.scope, send)
        try:
            await self._pages(exchange.scope, receive, sending)  # type: ignore[arg-type]
        except Exception:
            if begun:
                raise ClientGone from None
            raise


def _refusal(error: GenlockError, exchange: HttpExchange) -> Answer:
    """An error in the format of its path."""
    return (
        refusal(error)
        if exchange.scope["path"].startswith(API)
        else problem(error, exchange.request)
    )


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or bool(headers.get(b"content-length", b"").strip(b"0"))


async def _not_upgraded(exchange: HttpExchange) -> LastAnswer:
    """Refuses a request with a body that asks for another protocol. The parser would take its body
    for the next request, one that a proxy in front of us has never seen (request smuggling)."""
    exchange.error = error = BadArgument(
        "this service speaks HTTP/1.1 alone, and takes no request with a body that asks for "
        "another protocol; send it without the header "
        "upgrade (in Java: HttpClient.Version.HTTP_1_1)"
    )
    answer = _refusal(error, exchange)
    return LastAnswer(answer.status, answer.body, answer.kind, answer.more)


def _check_once(headers: list[tuple[bytes, bytes]]) -> None:
    """Refuses repeated headers: a proxy in front of us may use one value and we the other."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _ONCE:
            raise BadArgument(f"the request has more than one header {name.decode()}")
        seen.add(name)
