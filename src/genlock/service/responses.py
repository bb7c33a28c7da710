"""Sends answers: most of them at once, long ones in pieces, and some as the last answer of a
connection.

A long answer is sent in the pieces in which it was encoded, no faster than the client takes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from genlock import __version__
from genlock.service.request import API, JSON, Answer, HttpExchange, Send, headers_of, send_answer
from genlock.wire.headers import PROTOCOL, PROTOCOL_HEADER
from genlock.wire.problems import CONTENT_TYPE, Problem, type_of


class LongAnswer(Answer, frozen=True):
    """An answer whose body is in pieces."""

    pieces: list[bytes] = msgspec.field(default_factory=list)


class LastAnswer(Answer, frozen=True):
    """An answer after which the connection is closed. Nothing else on it is read."""


async def send_any(send: Send, answer: Answer, exchange: HttpExchange) -> None:
    """Sends an answer of any kind."""
    if isinstance(answer, LongAnswer):
        await _send_pieces(send, answer, answer.pieces, exchange)
    elif isinstance(answer, LastAnswer):
        await _send_pieces(send, answer, [answer.body], exchange)
    else:
        await send_answer(send, answer, exchange)


async def _send_pieces(
    send: Send, answer: Answer, pieces: list[bytes], exchange: HttpExchange
) -> None:
    headers = headers_of(answer, sum(map(len, pieces)), exchange)
    if isinstance(answer, LastAnswer):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    pieces.reverse()  # so that each piece is freed when it is sent
    while pieces:
        piece = pieces.pop()
        await send({"type": "http.response.body", "body": piece, "more_body": bool(pieces)})


# Compression: lists and graphs shrink to a tenth, which matters on a phone.


PACKED_BYTES: Final = 2_048
"""A shorter body is not compressed."""
LONG_BYTES: Final = 32 * 1024
"""A longer body takes milliseconds to compress, so it is done in a thread."""
_LEVEL: Final = 4
_PACKED: Final = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
_GZIP: Final = 16 + zlib.MAX_WBITS


def takes_gzip(headers: Mapping[bytes, bytes]) -> bool:
    """Does the client accept gzip?"""
    accepted = headers.get(b"accept-encoding", b"").lower()
    for one in accepted.split(b","):
        name, *parameters = (part.strip() for part in one.split(b";"))
        if name in (b"gzip", b"x-gzip"):
            return not any(_is_never(parameter) for parameter in parameters)
    return False


def _is_never(parameter: bytes) -> bool:
    """Is it `q=0`?"""
    name, _, value = parameter.partition(b"=")
    return name.strip() == b"q" and not value.strip(b" 0.")


def packed(answer: Answer) -> Answer:
    """The same answer, compressed if that is worth it."""
    pieces = answer.pieces if isinstance(answer, LongAnswer) else [answer.body]
    if sum(map(len, pieces)) < PACKED_BYTES:
        return answer
    pack = zlib.compressobj(_LEVEL, wbits=_GZIP)
    done = [*(pack.compress(piece) for piece in pieces), pack.flush()]
    more = (*answer.more, *_PACKED)
    return LongAnswer(answer.status, b"", answer.kind, more, pieces=[b"".join(done)])


# Applications with one answer: for too many connections, and for heads that are too large.


PROTOCOL_SPOKEN: Final = (PROTOCOL_HEADER.encode(), f"{PROTOCOL} genlock/{__version__}".encode())
"""A header of every answer, including refusals at the connection limit."""

_HEALTH: Final = frozenset({"/healthz", "/readyz"})


def problem_body(status: int, code: str, detail: str) -> bytes:
    """A problem document as bytes."""
    return msgspec.json.encode(Problem(type_of(code), detail.capitalize(), status, detail, code))


def _refusing(status: int, code: str, detail: str) -> Callable[..., Awaitable[None]]:
    """An application that always gives this answer."""
    problem = problem_body(status, code, detail), CONTENT_TYPE.encode()
    refused = msgspec.json.encode({"success": False, "error": code, "message": detail}), JSON

    async def app(
        scope: MutableMapping[str, Any], _: Callable[..., Any], send: Callable[..., Awaitable[None]]
    ) -> None:
        body, kind = refused if scope["path"].startswith(API) else problem
        headers = [
            (b"content-type", kind),
            (b"content-length", str(len(body)).encode()),
            (b"retry-after", b"1"),
            PROTOCOL_SPOKEN,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


large_head = _refusing(431, "HEAD_TOO_LARGE", "the request's head is larger than heads may be")
_full = _refusing(
    503,
    "TOO_MANY_CONNECTIONS",
    "the service has as many connections as it may have; come again in a second",
)


def full_but_for_health(usual: Any) -> Callable[..., Awaitable[None]]:
    """An application for connections over the limit. It still answers health checks: a full service
    must not be restarted as if it were dead."""

    async def app(
        scope: MutableMapping[str, Any],
        receive: Callable[..., Any],
        send: Callable[..., Awaitable[None]],
    ) -> None:
        await (usual if scope["path"] in _HEALTH else _full)(scope, receive, send)

    return app
