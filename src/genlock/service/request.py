"""Reads a request and writes its answer, without a framework, because every claim goes through
here."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from genlock import __version__
from genlock.errors import (
    BadArgument,
    GenlockError,
    KindRefused,
    MethodRefused,
    OverLimit,
    RouteNotFound,
    TooManyRequests,
)
from genlock.safe_text import safe_json
from genlock.service.auth.permissions import NOTHING
from genlock.service.limits import HOLD_SECONDS, Pace, Rates
from genlock.wire.headers import PROTOCOL, PROTOCOL_HEADER, REQUEST_HEADER
from genlock.wire.operations import PREFIX
from genlock.wire.problems import CONTENT_TYPE, RETRY_AFTER_SECONDS, problem_of

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

WHOLE: Final = "genlock.response.whole"
"""An ASGI message of our own, and the extension by which a server announces that it takes it: a
whole answer whose head is already encoded."""
API: Final = "/api/"
"""Paths below this are answered in the format of the session interface, including refused keys."""
JSON: Final = b"application/json"
PROBLEM: Final = CONTENT_TYPE.encode()
BODY_SECONDS: Final = 30.0
"""The time limit for a request's body."""

_REQUEST: Final = REQUEST_HEADER.encode()
_OURS: Final = (PROTOCOL_HEADER.encode(), f"{PROTOCOL} genlock/{__version__}".encode())
_HEAD: Final = (
    b"content-type: %b\r\ncontent-length: %d\r\n" + _REQUEST + b": %b\r\n" + b"%b: %b\r\n" % _OURS
)


class ClientGone(Exception):
    """The client has disconnected, so there is nobody to answer."""


class Answer(msgspec.Struct, frozen=True):
    """An answer."""

    status: int
    body: bytes
    kind: bytes = JSON
    more: tuple[tuple[bytes, bytes], ...] = ()


class Line(Protocol):
    """Access to a connection below `receive` and `send`. Its methods are not coroutines, which
    saves a microsecond each."""

    headers: dict[bytes, bytes]
    """The request's headers. Of a repeated header, the last value."""

    def take_body(self) -> bytes | None:
        """The body if it is complete, else None: then await `receive`."""

    def write(self, status: int, head: bytes, body: bytes) -> bool:
        """Writes a whole answer. Returns False if that is not possible now: then await `send`."""


def line_of(scope: Scope, send: Send) -> Line | None:
    """The line of a request if the server is ours: `send` is then a method of the object that has
    it."""
    return getattr(send, "__self__", None) if WHOLE in scope.get("extensions", ()) else None


class HttpExchange:
    """One request and what is known about it."""

    __slots__ = (
        "arguments",
        "client",
        "error",
        "grant",
        "headers",
        "line",
        "place",
        "request",
        "result",
        "route",
        "scope",
        "started",
        "status",
    )

    def __init__(
        self, scope: Scope, headers: dict[bytes, bytes], request: str, line: Line | None = None
    ) -> None:
        self.scope = scope
        self.line = line
        self.headers = headers
        self.request = request
        self.client: str = scope["client"][0] if scope.get("client") else ""
        self.started = time.perf_counter()
        self.grant = NOTHING
        """The caller's permissions; none before authentication."""
        self.route = ""
        self.place: tuple[str, str] | None = None
        self.arguments: dict[str, Any] | None = None
        self.result: Any = None
        """The coordinator's answer."""
        self.status = 0
        self.error: BaseException | None = None


def problem(error: GenlockError, request: str = "") -> Answer:
    """Turns an error into an answer."""
    what = problem_of(error, request)
    more = asides(what.status)
    if isinstance(error, MethodRefused):
        more = ((b"allow", ", ".join(error.allowed).encode()),)
    return Answer(what.status, safe_json(msgspec.json.encode(what)), PROBLEM, more)


def asides(status: int) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that belong to a status."""
    if status == 401:
        return ((b"www-authenticate", b'Bearer realm="genlock"'),)
    wait = RETRY_AFTER_SECONDS.get(status)
    return () if wait is None else ((b"retry-after", str(wait).encode()),)


def no_route(path: str) -> RouteNotFound:
    """The error for an unknown path. If a known path follows a prefix, the error says so: mostly
    the URL of the service is wrong, or a proxy has left its prefix."""
    before, own, _ = path.rpartition(f"{PREFIX}/")
    if before and own:
        return RouteNotFound(
            f"there is nothing at {path[:200]}; the paths of this service begin with {own}: take "
            f"{before[:100]} out of the address, or let "
            "the proxy that adds it take it away"
        )
    return RouteNotFound(f"there is nothing at {path[:200]}; /openapi.json lists what there is")


def refused_method(method: str, takes: Collection[str]) -> MethodRefused:
    """The error for a method. Paths that take GET take HEAD, too."""
    allowed = sorted({*takes, *(["HEAD"] if "GET" in takes else [])})
    error = MethodRefused(f"this path takes {', '.join(allowed)}, not {method[:20]}")
    error.allowed = tuple(allowed)
    return error


def body_at_once(
    line: Line, headers: dict[bytes, bytes], most: int, advice: str = ""
) -> bytes | None:
    """The body if it is complete, as it is for nearly every request, else None: then it must be
    received. Raises OverLimit."""
    body = line.take_body()
    if body is not None:
        _check_encoding(headers)
        if len(body) > most:
            raise _too_large(most, advice)
    return body


async def read_body(
    receive: Receive,
    headers: dict[bytes, bytes],
    most: int,
    pace: Pace | None = None,
    advice: str = "",
) -> bytes:
    """Receives the body. Raises OverLimit early, and gives up on a client that is too slow."""
    _check_announced(headers, most, advice)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > most:
            raise _too_large(most, advice)
        return body
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read_rest(receive, message, most, pace, advice)
    except TimeoutError:
        raise BadArgument(
            f"the request's body did not arrive within {BODY_SECONDS:g} seconds"
        ) from None


def _check_announced(headers: dict[bytes, bytes], most: int, advice: str) -> None:
    """Checks the announced length of the body."""
    _check_encoding(headers)
    length = headers.get(b"content-length")
    if length is not None and (not length.isdigit() or int(length) > most):
        raise _too_large(most, advice)


def _check_encoding(headers: dict[bytes, bytes]) -> None:
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise KindRefused("the request's body is taken as it is; send it without content-encoding")


async def _read_rest(
    receive: Receive, message: MutableMapping[str, Any], most: int, pace: Pace | None, advice: str
) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise _too_large(most, advice)
        if not message.get("more_body"):
            return b"".join(pieces)
        if pace is not None:
            await pace.wait()
        message = await receive()


def check_json(headers: dict[bytes, bytes]) -> None:
    """KindRefused if the content type of a body is not JSON."""
    kind = headers.get(b"content-type", JSON)
    if kind != JSON and kind.partition(b";")[0].strip().lower() != JSON:
        raise KindRefused("the request's body is JSON; send it with content-type: application/json")


def _too_large(most: int, advice: str) -> GenlockError:
    advice = advice or "send less at once, or a reference"
    return OverLimit(
        f"the request's body is over {most:,} bytes, the most that is taken here; {advice}"
    )


def headers_of(answer: Answer, size: int, exchange: HttpExchange) -> list[tuple[bytes, bytes]]:
    """An answer's headers as a list."""
    return [
        (b"content-type", answer.kind),
        (b"content-length", b"%d" % size),
        (_REQUEST, exchange.request.encode()),
        _OURS,
        *answer.more,
    ]


def head_of(answer: Answer, exchange: HttpExchange) -> bytes:
    """An answer's headers as bytes."""
    head = _HEAD % (answer.kind, len(answer.body), exchange.request.encode())
    for more in answer.more:
        head += b"%b: %b\r\n" % more
    return head


async def send_answer(send: Send, answer: Answer, exchange: HttpExchange) -> None:
    """Sends an answer, in one message where the server takes that."""
    if WHOLE in exchange.scope.get("extensions", ()):
        await send(
            {
                "type": WHOLE,
                "status": answer.status,
                "head": head_of(answer, exchange),
                "body": answer.body,
            }
        )
        return
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": headers_of(answer, len(answer.body), exchange),
        }
    )
    await send({"type": "http.response.body", "body": answer.body})


# Rate limits: a caller over its limit is refused, and the refusal is delayed.


async def count(rates: Rates | None, who: str, receive: Receive, counts: int = 1) -> None:
    """Counts a request. Over the limit, the refusal is delayed, and with it everything else on the
    same connection."""
    if rates is None:
        return
    try:
        rates.take(who, counts)
    except TooManyRequests:
        await _hold(receive)
        raise


async def _hold(receive: Receive) -> None:
    """Delays the answer unless the client disconnects. Does not read the body."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HOLD_SECONDS):
            message = await receive()
            if message.get("more_body"):
                await asyncio.sleep(HOLD_SECONDS)
            elif (
                message["type"] == "http.disconnect"
                or (await receive())["type"] == "http.disconnect"
            ):
                raise ClientGone
