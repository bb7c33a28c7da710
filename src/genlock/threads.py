"""Background threads: for calls that would block an event loop, and for optional work.

An event loop's executor has few threads, and all reads go through them. A long wait, such as
watching a project, gets a thread of its own: half a dozen watchers would otherwise block all other
reads.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def started(run: Callable[[], None], name: str) -> threading.Thread | None:
    """Starts a daemon thread. Returns None if none can be started now: the machine has too many, or
    the interpreter is shutting down.

    A caller that can do without the thread does; one that cannot reports it. The next call tries
    again.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


async def awaited(values: Iterator[T], stop: Callable[[], None]) -> AsyncGenerator[T, None]:
    """Yields the values of a blocking iterator, none of which is None. Finally calls `stop`, which
    ends the wait of the thread."""
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
