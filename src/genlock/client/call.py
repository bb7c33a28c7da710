"""The script of one call: send it, and retry after transient errors under the same operation id.

So a lost answer neither loses nor doubles an act. If the first attempt was carried out, the retry
gets its answer; if not, the retry carries it out.
"""

from __future__ import annotations

import functools
import inspect
import os
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

from msgspec.structs import replace

from genlock.client.addresses import Addresses
from genlock.client.replies import AnswerLost, Response, RetryAfter, read
from genlock.client.requests import Request, request_of
from genlock.client.transport import Transport
from genlock.core.durations import read_seconds
from genlock.core.reasons import ClaimReason
from genlock.core.results import ClaimResult
from genlock.errors import BadArgument, Busy, GenlockError, OutcomeUnknown, ServiceUnreachable
from genlock.retry import Backoff, Retry
from genlock.wire import operations as c
from genlock.wire.operations import BY_CALL, Call, ClaimNext

# Scripts: each operation is written once, as a generator that sends and pauses. Two drivers run it.
#
# `synchronous` makes a plain method of it, `asynchronous` a coroutine method, as the coordinator's
# own do.


P = ParamSpec("P")
R = TypeVar("R")


class Send(NamedTuple):
    """A request to be sent once."""

    request: Request
    connect_seconds: float
    read_seconds: float


class Pause(NamedTuple):
    """A pause before the next attempt."""

    seconds: float


Script: TypeAlias = Generator[Send | Pause, Response | AnswerLost | None, R]


def run(link: Transport, script: Script[R]) -> R:
    """Runs a script in the calling thread."""
    try:
        step = next(script)
        while True:
            if type(step) is Send:
                step = script.send(link.exchange(*step))
            else:
                time.sleep(step.seconds)  # type: ignore[union-attr]
                step = script.send(None)
    except StopIteration as done:
        result: R = done.value
        return result


async def run_async(link: Transport, script: Script[R]) -> R:
    """Runs a script in the event loop."""
    import asyncio

    try:
        step = next(script)
        while True:
            if type(step) is Send:
                step = script.send(await link.exchange_async(*step))
            else:
                await asyncio.sleep(step.seconds)  # type: ignore[union-attr]
                step = script.send(None)
    except StopIteration as done:
        result: R = done.value
        return result


def synchronous(
    operation: Callable[Concatenate[Transport, P], Script[R]],
) -> Callable[Concatenate[Any, P], R]:
    """The operation as a plain method."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        link: Transport = self._link
        link.check_open()
        return run(link, operation(link, *args, **kwargs))

    return _named(method, operation)


def asynchronous(
    operation: Callable[Concatenate[Transport, P], Script[R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The operation as a coroutine method."""

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        link: Transport = self._link
        link.check_open()
        return await run_async(link, operation(link, *args, **kwargs))

    return _named(method, operation)


F = TypeVar("F", bound=Callable[..., Any])


def _named(method: F, operation: Callable[..., Any]) -> F:
    """For `help()`, tracebacks and signatures."""
    functools.update_wrapper(method, operation)
    signature = inspect.signature(operation)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    keywords = [
        each
        for each in signature.parameters.values()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    method.__signature__ = signature.replace(parameters=[me, *keywords])  # type: ignore[attr-defined]
    return method


PIECE_SECONDS: Final = 30.0
"""A long wait is split into requests of this length, because proxies cut off connections that are
silent for longer."""

_LONGEST_WAIT: Final = 86400


def ask(link: Transport, call: Call[R]) -> Script[R]:
    """Sends a call until there is an answer."""
    request = request_of(link.identity, _signed(call))
    answer: R = yield from _repeat(
        link, lambda: (request, 0.0), Deadline(link.addresses, link.deadline_seconds)
    )
    return answer


def ask_next(link: Transport, call: ClaimNext) -> Script[ClaimResult]:
    """Calls `claim_next`, in several requests if the wait is long."""
    call = _signed(call)
    try:
        wait = read_seconds("wait_seconds", call.wait_seconds, 0, _LONGEST_WAIT)
    except BadArgument:
        return (yield from ask(link, call))
    end = time.monotonic() + wait
    patience = Deadline(link.addresses, link.deadline_seconds, wait)

    def piece() -> tuple[Request, float]:
        seconds = min(max(end - time.monotonic(), 0.0), PIECE_SECONDS)
        return request_of(link.identity, replace(call, wait_seconds=seconds)), seconds

    while True:
        answer: ClaimResult = yield from _repeat(link, piece, patience)
        if answer.reason is not ClaimReason.NOTHING_READY or time.monotonic() >= end:
            return answer


def asking(
    call: Callable[P, Call[R]], how: Callable[[Transport, Any], Script[R]] = ask
) -> Callable[Concatenate[Transport, P], Script[R]]:
    """The operation that belongs to this call."""

    def operation(link: Transport, /, *args: P.args, **kwargs: P.kwargs) -> Script[R]:
        return how(link, call(*args, **kwargs))

    operation.__signature__ = inspect.signature(call)  # type: ignore[attr-defined]
    operation.__doc__ = call.__doc__
    operation.__name__ = operation.__qualname__ = BY_CALL[call].name  # type: ignore[index]
    return operation


def _repeat(
    link: Transport, make: Callable[[], tuple[Request, float]], patience: Deadline
) -> Script[Any]:
    while True:
        request, wait = make()
        got = yield Send(request, patience.connect_seconds(), patience.read_seconds(request, wait))
        assert got is not None
        answer: Any = (
            read(got, request.route.call, link.url, link.version)
            if isinstance(got, Response)
            else got
        )
        if not isinstance(answer, (RetryAfter, AnswerLost)):
            return answer
        yield Pause(patience.pause(request, answer))


def _signed(call: Call[R]) -> Any:
    """The call with a new operation id, if it takes one and has none."""
    if (
        "operation_id" not in call.__struct_fields__
        or getattr(call, "operation_id", None) is not None
    ):
        return call
    return replace(call, operation_id=os.urandom(12).hex())


# Retries: until the deadline of the call, with growing, random pauses.


BACKOFF: Final = Backoff(first=0.05, longest=1.0, jitter=0.5)
LEAST_READ_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 120.0
"""The time limit of calls that read many records."""

_QUICK: Final = frozenset(
    {
        c.ClaimTask,
        c.RenewLease,
        c.ReleaseClaim,
        c.SubmitResult,
        c.ClaimNext,
        c.HeartbeatSession,
        c.RegisterSession,
        c.GetTaskState,
    }
)
"""Calls that are answered at once or not at all. A short time limit detects a dead connection in
time for another attempt."""

_SMALL_BATCH_BYTES: Final = 16_384
"""A batch of renewals up to this size counts as such a call, too: one session's claims."""

_ONCE: Final = frozenset({c.CreateKey, c.RotateKey})
"""Calls that a retry would carry out twice. Their answer has a secret that is not stored, so the
service cannot repeat it."""


def _is_quick(request: Request) -> bool:
    if request.route.call is c.BatchRenew:
        return len(request.body or b"") <= _SMALL_BATCH_BYTES
    return request.route.call in _QUICK


class Deadline:
    """The time that is left for one call."""

    def __init__(
        self, addresses: Addresses, deadline_seconds: float, wait_seconds: float = 0
    ) -> None:
        self._addresses = addresses
        self._seconds = deadline_seconds
        self._began = time.monotonic()
        self._until = self._began + deadline_seconds + wait_seconds
        self._retry = Retry(BACKOFF, self._until)
        self._pauses = 0
        self._maybe_done = False

    def read_seconds(self, request: Request, wait_seconds: float) -> float:
        """The time limit of the next attempt."""
        if not _is_quick(request):
            return SLOW_SECONDS
        # Each request of a long wait has a time limit of its own, so that a dead connection is
        # noticed before the whole wait is over.
        share = (
            self._seconds / 2
            if self._pauses == 0
            else min(self._until - time.monotonic(), self._seconds)
        )
        return wait_seconds + max(share, LEAST_READ_SECONDS)

    def connect_seconds(self) -> float:
        """The time limit for connecting in the next attempt."""
        return max((self._until - time.monotonic()) / len(self._addresses), 0.1)

    def pause(self, request: Request, after: RetryAfter | AnswerLost) -> float:
        """The pause before the next attempt. Raises the error if there is none."""
        self._maybe_done |= after.sent if isinstance(after, AnswerLost) else after.done
        now = time.monotonic()
        pause = self._retry.failed(now)
        if (
            pause is None
            or (isinstance(after, AnswerLost) and after.remedy is not None)
            or (self._maybe_done and request.route.call in _ONCE)
        ):
            raise self._over(request, after)
        self._pauses += 1
        return min(self._least(after) + pause, self._until - now)

    def _least(self, after: RetryAfter | AnswerLost) -> float:
        """The pause that the service asks for. It does not apply to another address, which has not
        been tried yet."""
        if not isinstance(after, RetryAfter) or after.after_seconds is None:
            return 0.0
        elsewhere = isinstance(after.error, ServiceUnreachable) and self._pauses < len(
            self._addresses
        )
        return 0.0 if elsewhere else max(after.after_seconds, 0.0)

    def _over(self, request: Request, after: RetryAfter | AnswerLost) -> GenlockError:
        if isinstance(after, RetryAfter) and not isinstance(after.error, ServiceUnreachable):
            error = after.error
            if request.route.repeatable or (isinstance(error, Busy) and not self._maybe_done):
                return error
            # The last attempt's error says nothing about an earlier one whose answer was lost.
            kind = OutcomeUnknown if self._maybe_done else type(error)
            return kind(f"{error}{self._doubt(request)}")
        if isinstance(after, AnswerLost) and after.remedy is not None:
            return ServiceUnreachable(
                f"{self._addresses} cannot be spoken to: {after.why}. "
                f"{after.remedy}{self._doubt(request)}"
            )
        why = (after.why if isinstance(after, AnswerLost) else str(after.error)).rstrip(".")
        # One attempt of a slow call may take longer than the deadline.
        seconds = max(self._seconds, round(time.monotonic() - self._began))
        return ServiceUnreachable(
            f"no answer from {self._addresses} within {seconds:g} seconds: {why}. Does the service "
            "run, and is this its address? "
            f"To ask it: curl {self._addresses.current}/healthz{self._doubt(request)}"
        )

    def _doubt(self, request: Request) -> str:
        if request.route.repeatable or not self._maybe_done:
            return ". Nothing was changed"
        if request.route.call in _ONCE:
            return (
                ". It may have been done: look at the list of keys; revoke the one whose text "
                "you did not get"
            )
        if request.operation is not None:
            return (
                ". It may have been done: to repeat it safely, pass "
                f"operation_id={request.operation!r}"
            )
        return ". It may have been done; it is safe to repeat"
