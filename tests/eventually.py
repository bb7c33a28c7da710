"""Waiting for what another thread, process or server brings about: the one loop that polls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

SECONDS = 60.0
PAUSE_SECONDS = 0.005
"""Between two looks, to leave the processor to those that bring it about."""


def eventually(
    look: Callable[[], T],
    waited_for: str,
    *,
    seconds: float = SECONDS,
    retry_on: tuple[type[Exception], ...] = (),
) -> T:
    """The first true answer of `look`; fails after so many seconds, naming what it waited for."""
    for found in _looks(look, waited_for, seconds, retry_on):
        if found:
            return found
        time.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")


async def eventually_in_loop(
    look: Callable[[], T],
    waited_for: str,
    *,
    seconds: float = SECONDS,
    retry_on: tuple[type[Exception], ...] = (),
) -> T:
    """`eventually` for a coroutine: the event loop goes on between two looks."""
    for found in _looks(look, waited_for, seconds, retry_on):
        if found:
            return found
        await asyncio.sleep(PAUSE_SECONDS)
    raise AssertionError("unreachable")


def _looks(
    look: Callable[[], T],
    waited_for: str,
    seconds: float,
    retry_on: tuple[type[Exception], ...],
) -> Iterator[T | None]:
    """The answers of `look`, None for an error to retry on, until the time is up."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = found = look()
        except retry_on as error:
            last, found = error, None
        yield found
    raise AssertionError(f"waited {seconds:g} s for: {waited_for}; the last answer was {last!r}")
