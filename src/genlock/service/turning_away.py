"""Applications that answer but one thing: for connections too many, and for heads that are too large."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from genlock import __version__
from genlock.service.exchange import API, JSON
from genlock.wire.headers import PROTOCOL, PROTOCOL_HEADER
from genlock.wire.problems import CONTENT_TYPE, Problem, type_of

PROTOCOL_SPOKEN: Final = (PROTOCOL_HEADER.encode(), f"{PROTOCOL} genlock/{__version__}".encode())
"""The header that every answer has: also who is turned away is told by whom."""

_HEALTH: Final = frozenset({"/healthz", "/readyz"})


def problem_body(status: int, code: str, detail: str) -> bytes:
    """A problem as it is sent."""
    return msgspec.json.encode(Problem(type_of(code), detail.capitalize(), status, detail, code))


def _refusing(status: int, code: str, detail: str) -> Callable[..., Awaitable[None]]:
    """An application that answers only this."""
    problem = problem_body(status, code, detail), CONTENT_TYPE.encode()
    refused = msgspec.json.encode({"success": False, "error": code, "message": detail}), JSON

    async def app(scope: MutableMapping[str, Any], _: Callable[..., Any], send: Callable[..., Awaitable[None]]) -> None:
        body, kind = refused if scope["path"].startswith(API) else problem
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"retry-after", b"1"), PROTOCOL_SPOKEN]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


large_head = _refusing(431, "HEAD_TOO_LARGE", "the request's head is larger than heads may be")
_full = _refusing(503, "TOO_MANY_CONNECTIONS", "the service has as many connections as it may have; come again in a second")


def full_but_for_health(usual: Any) -> Callable[..., Awaitable[None]]:
    """For a connection too many: whoever watches the service should not take it for dead because it is full."""

    async def app(scope: MutableMapping[str, Any], receive: Callable[..., Any], send: Callable[..., Awaitable[None]]) -> None:
        await (usual if scope["path"] in _HEALTH else _full)(scope, receive, send)

    return app
