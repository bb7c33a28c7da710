"""The script of one call: send it, and again after what may pass, always under the same operation id.

A lost answer is then neither a lost nor a doubled act: what was done is answered once more, what was not done is done now.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from msgspec.structs import replace

from genlock.core.reasons import ClaimReason
from genlock.core.results import ClaimResult
from genlock.remote.link import Link
from genlock.remote.patience import Patience
from genlock.remote.replies import Again, Lost, Response, read
from genlock.remote.requests import Request, request_of
from genlock.remote.scripts import Pause, Script, Send
from genlock.wire.calls import Call, ClaimNext
from genlock.wire.routes import BY_CALL

PIECE_SECONDS: Final = 30.0
"""A long wait is asked for in pieces: what stands between client and service cuts off what is silent for longer."""

_LONGEST_WAIT: Final = 86400

P = ParamSpec("P")
R = TypeVar("R")


def ask(link: Link, call: Call[R]) -> Script[R]:
    """Asks until there is an answer."""
    request = request_of(link.identity, _signed(call))
    answer: R = yield from _repeat(link, lambda: (request, 0.0), Patience(link.addresses, link.deadline_seconds))
    return answer


def ask_next(link: Link, call: ClaimNext) -> Script[ClaimResult]:
    """Asks for a next task, piece by piece if it may take long."""
    call = _signed(call)
    wait: Any = call.wait_seconds  # the type is only promised
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait <= _LONGEST_WAIT:
        return (yield from ask(link, call))
    end = time.monotonic() + wait
    patience = Patience(link.addresses, link.deadline_seconds, wait)

    def piece() -> tuple[Request, float]:
        seconds = min(max(end - time.monotonic(), 0.0), PIECE_SECONDS)
        return request_of(link.identity, replace(call, wait_seconds=seconds)), seconds

    while True:
        answer: ClaimResult = yield from _repeat(link, piece, patience)
        if answer.reason is not ClaimReason.NOTHING_READY or time.monotonic() >= end:
            return answer


def asking(call: Callable[P, Call[R]], how: Callable[[Link, Any], Script[R]] = ask) -> Callable[Concatenate[Link, P], Script[R]]:
    """The operation that this call asks for."""

    def operation(link: Link, /, *args: P.args, **kwargs: P.kwargs) -> Script[R]:
        return how(link, call(*args, **kwargs))

    operation.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    operation.__doc__ = call.__doc__
    operation.__name__ = operation.__qualname__ = BY_CALL[call].name  # type: ignore[index]
    return operation


def _repeat(link: Link, make: Callable[[], tuple[Request, float]], patience: Patience) -> Script[Any]:
    while True:
        request, wait = make()
        got = yield Send(request, patience.connect_seconds(), patience.read_seconds(request, wait))
        assert got is not None
        answer: Any = read(got, request.route.call, link.url, link.version) if isinstance(got, Response) else got
        if not isinstance(answer, (Again, Lost)):
            return answer
        yield Pause(patience.pause(request, answer))


def _signed(call: Call[R]) -> Any:
    """The call with an operation id, if it takes one and has none."""
    if "operation_id" not in call.__struct_fields__ or getattr(call, "operation_id", None) is not None:
        return call
    return replace(call, operation_id=os.urandom(12).hex())
