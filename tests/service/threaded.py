"""A service in a thread of the test, where a test needs bounds or limits of its own, or a look inside."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import genlock.aio
from genlock.service.building import Choices
from genlock.service.protocol import Bounds
from genlock.service.running import Running
from genlock.service.serving import Server, listen, run
from tests.logs import build

PATIENCE_SECONDS = 30.0


class Inside:
    """The service as its test sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, running: Running, port: int) -> None:
        self.loop, self.server, self.running, self.port = loop, server, running, port


@contextmanager
def inside(choices: Choices | None = None, bounds: Bounds | None = None, url: Any = "memory://", **options: Any) -> Iterator[Inside]:
    """A service on a store, until the end of the block."""
    found: list[Inside] = []
    started = threading.Event()

    async def main() -> None:
        async with genlock.aio.connect(url, process=None, **options) as coordinator:
            app = build(coordinator, choices)
            listening = listen("127.0.0.1", 0)
            server = Server(app, bounds or Bounds(1000), grace_seconds=1)
            server.on_started = started.set
            found.append(Inside(asyncio.get_running_loop(), server, app.running, listening.getsockname()[1]))
            await server.serve(sockets=[listening])

    thread = threading.Thread(target=run, args=[main()])
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    try:
        yield found[0]
    finally:
        found[0].server.stop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
