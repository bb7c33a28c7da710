"""A service of a test's own: real uvicorn on a free loopback port, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import genlock.aio
from genlock.service.building import Choices
from genlock.service.serving import listen, server
from genlock.store import Clock, Store
from tests.logs import build

_STARTING_SECONDS = 30


class Service:
    """A service that runs until it is stopped."""

    def __init__(self, store: str | Store, clock: Clock | None = None, choices: Choices | None = None, **options: Any) -> None:
        self._store, self._clock, self._choices, self._options = store, clock, choices or Choices(), options
        self._socket = listen("127.0.0.1", 0)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.coordinator: Any = None
        self.loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"service-{self.port}", daemon=True)

    def start(self) -> Service:
        """Returns when it answers."""
        self._thread.start()
        assert self._ready.wait(_STARTING_SECONDS), "the service did not start"
        if self._failed is not None:
            raise self._failed
        return self

    def stop(self) -> None:
        """Returns when it has ended."""
        self._server.should_exit = True
        self._thread.join(_STARTING_SECONDS)
        assert not self._thread.is_alive(), "the service did not stop"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - for the thread that waits
            self._failed = error
            self._ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.coordinator = genlock.aio.connect(self._store, clock=self._clock, process=None, **self._options)
        self._server = server(build(self.coordinator, self._choices))
        started = self._server.startup

        async def startup(sockets: Any = None) -> None:
            await started(sockets)
            self._ready.set()

        self._server.startup = startup  # type: ignore[method-assign]
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            await self.coordinator.close()


@contextmanager
def serving(store: str | Store, clock: Clock | None = None, choices: Choices | None = None, **options: Any) -> Iterator[Service]:
    """A service on this store while the block runs."""
    service = Service(store, clock, choices, **options).start()
    try:
        yield service
    finally:
        service.stop()
