"""Reading a request and writing its answer, below any framework: this is what every claim goes
through."""

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
"""A message of our own, and the ASGI extension by which a server says that it takes it: an answer
whose head is bytes already."""
API: Final = "/api/"
"""What lies below this is answered as the session-claiming interface has it, also where it is
refused at the door."""
JSON: Final = b"application/json"
PROBLEM: Final = CONTENT_TYPE.encode()
BODY_SECONDS: Final = 30.0
"""How long a request's body may take to arrive once it has begun."""

_REQUEST: Final = REQUEST_HEADER.encode()
_OURS: Final = (PROTOCOL_HEADER.encode(), f"{PROTOCOL} genlock/{__version__}".encode())
_HEAD: Final = (
    b"content-type: %b\r\ncontent-length: %d\r\n" + _REQUEST + b": %b\r\n" + b"%b: %b\r\n" % _OURS
)


class ClientGone(Exception):
    """The client has left: there is nobody to answer."""


class Answer(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: int
    body: bytes
    kind: bytes = JSON
    more: tuple[tuple[bytes, bytes], ...] = ()


class Line(Protocol):
    """What is beneath `receive` and `send` on a connection of ours. It need not be awaited: a
    coroutine less is a microsecond less."""

    headers: dict[bytes, bytes]
    """Those of the request; of one that comes several times the last."""

    def take_body(self) -> bytes | None:
        """The body, if it is here as a whole; None: receive it."""

    def write(self, status: int, head: bytes, body: bytes) -> bool:
        """Writes a whole answer; False if that cannot be now: send it."""


def line_of(scope: Scope, send: Send) -> Line | None:
    """The line of a request, where there is one: who says that it takes whole answers gives us its
    own method to send by."""
    return getattr(send, "__self__", None) if WHOLE in scope.get("extensions", ()) else None


class HttpExchange:
    """One request on its way through the service."""

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
        """What the caller may do; nothing, until that is known."""
        self.route = ""
        self.place: tuple[str, str] | None = None
        self.arguments: dict[str, Any] | None = None
        self.result: Any = None
        """What the coordinator answered."""
        self.status = 0
        self.error: BaseException | None = None


def problem(error: GenlockError, request: str = "") -> Answer:
    """An error as an answer."""
    what = problem_of(error, request)
    more = asides(what.status)
    if isinstance(error, MethodRefused):
        more = ((b"allow", ", ".join(error.allowed).encode()),)
    return Answer(what.status, safe_json(msgspec.json.encode(what)), PROBLEM, more)


def asides(status: int) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that go with a status."""
    if status == 401:
        return ((b"www-authenticate", b'Bearer realm="genlock"'),)
    wait = RETRY_AFTER_SECONDS.get(status)
    return () if wait is None else ((b"retry-after", str(wait).encode()),)


def no_route(path: str) -> RouteNotFound:
    """The refusal of a path that leads nowhere. What stands before the service's own part of it is
    most often too much in an address, or was left there by a proxy."""
    before, own, _ = path.rpartition(f"{PREFIX}/")
    if before and own:
        return RouteNotFound(
            f"there is nothing at {path[:200]}; the paths of this service begin with {own}: take "
            f"{before[:100]} out of the address, or let "
            "the proxy that adds it take it away"
        )
    return RouteNotFound(f"there is nothing at {path[:200]}; /openapi.json lists what there is")


def refused_method(method: str, takes: Collection[str]) -> MethodRefused:
    """The refusal of a method; where GET is taken HEAD is too."""
    allowed = sorted({*takes, *(["HEAD"] if "GET" in takes else [])})
    error = MethodRefused(f"this path takes {', '.join(allowed)}, not {method[:20]}")
    error.allowed = tuple(allowed)
    return error


def body_at_once(
    line: Line, headers: dict[bytes, bytes], most: int, advice: str = ""
) -> bytes | None:
    """The body if it is here as a whole, as that of nearly every request is, or OverLimit; None: it
    has to be read."""
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
    """The body, or OverLimit before it is read as a whole; a client that dawdles is sent away."""
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
    """By what its head says of a body."""
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
    """An answer's headers, one by one."""
    return [
        (b"content-type", answer.kind),
        (b"content-length", b"%d" % size),
        (_REQUEST, exchange.request.encode()),
        _OURS,
        *answer.more,
    ]


def head_of(answer: Answer, exchange: HttpExchange) -> bytes:
    """The same as the bytes that are sent."""
    head = _HEAD % (answer.kind, len(answer.body), exchange.request.encode())
    for more in answer.more:
        head += b"%b: %b\r\n" % more
    return head


async def send_answer(send: Send, answer: Answer, exchange: HttpExchange) -> None:
    """Sends an answer: in one piece, where the server takes it so."""
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


# The limit of a request: a caller over its rate is refused, and waits for the refusal.


async def count(rates: Rates | None, who: str, receive: Receive, counts: int = 1) -> None:
    """One request more. Who is over the rate waits for the refusal, and so does whatever else comes
    on the same connection."""
    if rates is None:
        return
    try:
        rates.take(who, counts)
    except TooManyRequests:
        await _hold(receive)
        raise


async def _hold(receive: Receive) -> None:
    """Keeps the caller waiting, unless it goes. A body that is still to come is left where it
    is."""
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
