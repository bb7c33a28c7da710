"""A real service on a free port of loopback, in a thread, for tests that ask it over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import uvicorn

import genlock.aio
from genlock.coordinator import AsyncCoordinator
from genlock.service.app import App
from genlock.service.serving import listen, server
from genlock.store import Clock, Store
from tests.logs import build

PATIENCE_SECONDS = 30
Make: TypeAlias = Callable[[AsyncCoordinator], App]


class Served:
    """A service that answers at `url`."""

    def __init__(self, store: str | Store, clock: Clock | None, app: Make, **connecting: Any) -> None:
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self.coordinator: AsyncCoordinator | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._socket = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, args=(store, clock, app, connecting), name="service under test")
        self._thread.start()
        assert self._opened.wait(PATIENCE_SECONDS), "the service did not start"
        if self._failure is not None:
            raise self._failure

    def _run(self, *arguments: Any) -> None:
        try:
            asyncio.run(self._serve(*arguments))
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._opened.set()

    async def _serve(self, store: str | Store, clock: Clock | None, app: Make, connecting: dict[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.coordinator = genlock.aio.connect(store, clock=clock, process=None, **connecting)
        self._server = server(app(self.coordinator))
        startup = self._server.startup

        async def started(*arguments: Any, **more: Any) -> None:
            await startup(*arguments, **more)
            self._opened.set()

        self._server.startup = started  # type: ignore[method-assign]
        await self._server.serve(sockets=[self._socket])
        await self.coordinator.close()

    def stop(self) -> None:
        """Stops it and waits until it has stopped."""
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the service did not stop"


def plain(coordinator: AsyncCoordinator) -> App:
    """The service as loopback has it: without keys."""
    return build(coordinator)


@contextmanager
def served(store: str | Store = "memory://", *, clock: Clock | None = None, app: Make = plain, **connecting: Any) -> Iterator[Served]:
    """A service for as long as the block lasts; what else is given goes to `connect`."""
    service = Served(store, clock, app, **connecting)
    try:
        yield service
    finally:
        service.stop()
