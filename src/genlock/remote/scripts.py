"""Scripts: each operation is written once, as a generator that sends and pauses; two drivers run it.

`synchronous` makes a plain method of it, `asynchronous` a coroutine method, as the coordinator's own do.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from genlock.remote.link import Link
from genlock.remote.replies import Lost, Response
from genlock.remote.requests import Request

P = ParamSpec("P")
R = TypeVar("R")


class Send(NamedTuple):
    """A request to be sent once."""

    request: Request
    connect_seconds: float
    read_seconds: float


class Pause(NamedTuple):
    """Time to let pass."""

    seconds: float


Script: TypeAlias = Generator[Send | Pause, Response | Lost | None, R]


def run(link: Link, script: Script[R]) -> R:
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


async def run_async(link: Link, script: Script[R]) -> R:
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


def synchronous(operation: Callable[Concatenate[Link, P], Script[R]]) -> Callable[Concatenate[Any, P], R]:
    """The operation as a plain method."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        link: Link = self._link
        link.check_open()
        return run(link, operation(link, *args, **kwargs))

    return _named(method, operation)


def asynchronous(operation: Callable[Concatenate[Link, P], Script[R]]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """The operation as a coroutine method."""

    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        link: Link = self._link
        link.check_open()
        return await run_async(link, operation(link, *args, **kwargs))

    return _named(method, operation)


F = TypeVar("F", bound=Callable[..., Any])


def _named(method: F, operation: Callable[..., Any]) -> F:
    """For `help()`, tracebacks and whoever asks for the signature."""
    functools.update_wrapper(method, operation)
    signature = inspect.signature(operation)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    keywords = [each for each in signature.parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    method.__signature__ = signature.replace(parameters=[me, *keywords])  # type: ignore[attr-defined]
    return method
