"""Threads beside those that callers have: what blocks an event loop, and what is done for others
who could do without.

A loop's own threads are few, and all that is read goes through them. Whoever waits for long, as who
watches a project does, has a thread of its own: half a dozen of them would otherwise keep everybody
else from being answered.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def started(run: Callable[[], None], name: str) -> threading.Thread | None:
    """A thread that runs; None if there is none to be had now: the machine has too many, or the
    interpreter is about to end.

    Who can do without does; who cannot says so to its caller. Whoever comes next tries again.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def awaited(values: Iterator[T], stop: Callable[[], None]) -> AsyncGenerator[T, None]:
    """The values as they come, none of which is None. In the end `stop` is called: it lets the
    thread go that still waits for one."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    loop, thread = (
        asyncio.get_running_loop(),
        ThreadPoolExecutor(1, thread_name_prefix="genlock-watch"),
    )
    try:
        while True:
            value: Any = await loop.run_in_executor(thread, next, values, None)
            if value is None:
                return
            yield value
    finally:
        stop()
        thread.shutdown(wait=False)
