"""Scripts: each act of a worker is written once, as a generator that calls operations and pauses.
Two drivers run it: one in a thread, one in an event loop."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from genlock.errors import (
    Busy,
    GenlockError,
    OutcomeUnknown,
    ServiceUnreachable,
    StoreUnavailable,
    TooManyRequests,
)
from genlock.retry import Backoff, Retry

R = TypeVar("R")

AWAY: Final = (Busy, OutcomeUnknown, ServiceUnreachable, StoreUnavailable, TooManyRequests)
"""Temporary errors: a restart, an outage, a lost answer."""

BACKOFF: Final = Backoff(0.1, 5.0, jitter=0.5)


class Call(NamedTuple):
    """An operation of the coordinator, by name."""

    operation: str
    arguments: dict[str, Any]


class Pause(NamedTuple):
    """A pause in seconds."""

    seconds: float


Script: TypeAlias = Generator[Call | Pause, Any, R]


def run(fleet: Any, script: Script[R]) -> R:
    """Runs a script in the calling thread."""
    try:
        step = next(script)
        while True:
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                step = script.send(None)
                continue
            try:
                answer = getattr(fleet, step.operation)(**step.arguments)
            except GenlockError as error:
                step = script.throw(error)
            else:
                step = script.send(answer)
    except StopIteration as done:
        result: R = done.value
        return result


async def run_async(fleet: Any, script: Script[R]) -> R:
    """Runs a script in the event loop."""
    import asyncio

    try:
        step = next(script)
        while True:
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                step = script.send(None)
                continue
            try:
                answer = await getattr(fleet, step.operation)(**step.arguments)
            except GenlockError as error:
                step = script.throw(error)
            else:
                step = script.send(answer)
    except StopIteration as done:
        result: R = done.value
        return result


def persistent(operation: str, patience: float, **arguments: Any) -> Script[Any]:
    """Calls an operation that may be repeated, and returns its answer. While the coordinator is
    unavailable, retries for at most `patience` seconds, then raises the last error."""
    retry = Retry(BACKOFF, time.monotonic() + patience)
    while True:
        try:
            return (yield Call(operation, arguments))
        except AWAY:
            pause = retry.failed(time.monotonic())
            if pause is None:
                raise
        yield Pause(pause)
