"""Turns a response into an answer, an error, or a reason to retry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from genlock import errors as e
from genlock.core.model import Task
from genlock.typed_json import decode
from genlock.wire.answers import answer_decoder
from genlock.wire.headers import PROTOCOL_HEADER, check_protocol
from genlock.wire.operations import PREFIX, Call
from genlock.wire.problems import error_of

# Dates become text where the coordinator takes dates, and nowhere else. JSON has no dates, so a
# date in a title, a name or a result would silently be read back as text.


_INSTANT: Final = "not_before"
_FIXED: Final = frozenset(Task.__struct_fields__) - {_INSTANT, "metadata"} | {"requires", "state"}
"""The fields of a definition that cannot hold dates. All other keys are metadata and may."""


def as_text(name: str, value: Any) -> Any:
    """The value of this keyword with dates as text."""
    if name == "expires_at":
        return _instant(value)
    if name == "changes":
        return _definition(value)
    if name in ("tasks", "subtasks"):
        return [_definition(each) for each in value] if isinstance(value, (list, tuple)) else value
    return _plan(value) if name == "source" else value


def _plan(value: Any) -> Any:
    """Converts a plan, or a part of it, down to its definitions, which are the mappings with an
    id."""
    if isinstance(value, Mapping):
        return (
            _definition(value)
            if "id" in value
            else {key: _plan(inner) for key, inner in value.items()}
        )
    return [_plan(inner) for inner in value] if type(value) in (list, tuple) else value


def _definition(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        key: inner if key in _FIXED else _instant(inner) if key == _INSTANT else _written(inner)
        for key, inner in value.items()
    }


def _instant(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _written(value: Any) -> Any:
    if isinstance(value, date):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: _written(inner) for key, inner in value.items()}
    return [_written(inner) for inner in value] if isinstance(value, (list, tuple)) else value


_OF_PROXIES: Final = frozenset({429, 502, 503, 504})
"""The transient statuses that a proxy may answer by itself."""

_PASSING: Final = (
    e.Busy,
    e.Closed,
    e.StoreUnavailable,
    e.OutcomeUnknown,
    e.TooManyRequests,
    e.ServiceUnreachable,
)
"""The errors that a retry may avoid."""

_NOT_DONE: Final = (e.Busy, e.StoreUnavailable, e.TooManyRequests)
"""Those of them after which nothing was done."""

_LONGEST_SHOWN: Final = 120

_SPEAKS_TLS: Final = re.compile(rb"https|ssl", re.IGNORECASE)
"""Found in the answers of TLS servers to plain HTTP."""


class Response(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class AnswerLost(NamedTuple):
    """There was no response."""

    why: str
    sent: bool
    """May the service have received the request?"""
    remedy: str | None = None
    """What to change, if every attempt would fail alike."""


class RetryAfter(NamedTuple):
    """A retry may succeed."""

    error: e.GenlockError
    after_seconds: float | None = None
    done: bool = False
    """May the request have been carried out?"""


class _Kind(Struct):
    reason: str | None = None
    code: str | None = None


def read(response: Response, call: type[Call[Any]], url: str, version: str) -> Any:
    """Returns the answer or `RetryAfter`. Raises an error that a retry would meet again."""
    check_service(response, url, version)
    if response.status != 200:
        if response.headers.get(PROTOCOL_HEADER) is None:
            told = e.ServiceUnreachable(
                f"{url} answered {response.status}, which is not Genlock's own"
            )
            return RetryAfter(told, _retry_after(response), done=True)
        if not _is_refusal(response):
            return _failed(response)
    try:
        return answer_decoder(call)(response.body)
    except msgspec.MsgspecError as error:
        raise e.ServiceMismatch(
            f"the answer of {url} is not what this client, genlock {version}, knows ({error}); "
            "give both the same version"
        ) from None


def check_service(response: Response, url: str, version: str) -> None:
    """Raises ServiceError if the server is not Genlock, ServiceMismatch for another protocol
    version."""
    protocol = response.headers.get(PROTOCOL_HEADER)
    if protocol is not None:
        check_protocol(protocol, "service", version)
    elif response.status not in _OF_PROXIES:
        server = response.headers.get("server")
        raise e.ServiceError(
            f"what answers at {url} is no Genlock service: status "
            f"{response.status}{f', server {server}' if server else ''}, "
            f"the answer begins with {response.body[:_LONGEST_SHOWN]!r}; "
            f"{_next_step(response, url)}"
        )


def _next_step(response: Response, url: str) -> str:
    """What to check if a server that is not Genlock answers: mostly a proxy in front of the
    service."""
    location = response.headers.get("location")
    if 300 <= response.status < 400 and location:
        whole, below, _ = location.partition(PREFIX)
        return (
            f"it sends on to {location[:_LONGEST_SHOWN]!r}, and is not followed: give "
            f"{whole if whole and below else 'that'} as the address"
        )
    if response.status == 413:
        return (
            "a proxy before the service takes no body of this size; let it take as large ones "
            "(in nginx: client_max_body_size 110m)"
        )
    if response.status == 400 and url.startswith("http:") and _SPEAKS_TLS.search(response.body):
        return f"it wants TLS: write https{url[4:]}"
    return "check the address and its port"


def _is_refusal(response: Response) -> bool:
    """Is this a refusal? A refusal is an answer: it has a reason where an error has a code."""
    if response.status not in (409, 429):
        return False
    try:
        kind = decode(response.body, _Kind)
    except msgspec.MsgspecError:
        return False
    return kind.reason is not None and kind.code is None


def _failed(response: Response) -> RetryAfter:
    error = error_of(response.body, response.status)
    if not isinstance(error, _PASSING):
        raise error
    if isinstance(error, e.Closed):
        # The service is closing, not this connection.
        error = e.ServiceUnreachable(f"the service is about to stop ({error})")
    return RetryAfter(error, _retry_after(response), done=not isinstance(error, _NOT_DONE))


def _retry_after(response: Response) -> float | None:
    """The header's seconds. Its other form, a date, is ignored."""
    value = response.headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None
