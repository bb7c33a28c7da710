"""A service of a test's own: real uvicorn on a free loopback port, in a thread of the test's
process.

`Hosted` serves any application, `Service` the whole service on a store. Where a test needs signals
or an end by force, it starts `genlock serve` as a process of its own instead: see
tests/service/process.py.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import httpx2

import genlock.aio
from genlock.coordinator import AsyncCoordinator
from genlock.service.app import App
from genlock.service.auth.authenticate import Authenticator
from genlock.service.auth.permissions import Grant
from genlock.service.compose import Choices
from genlock.service.context import ServiceContext
from genlock.service.http.protocol import Bounds
from genlock.service.server import CONNECTIONS, Server, listen, run
from genlock.store import Clock, Store
from tests.logs import build

PATIENCE_SECONDS = 30.0
"""After which something that should have come counts as never coming."""

Make: TypeAlias = Callable[[AsyncCoordinator], App]
R = TypeVar("R")


class Prompt(Server):
    """Hears at once that it is to stop. uvicorn looks ten times a second, and most tests take
    less."""

    def __init__(self, app: Any, bounds: Bounds) -> None:
        super().__init__(app, bounds)
        self._told = asyncio.Event()

    def stop_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """From another thread."""
        self.stop()
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        ends = {
            asyncio.ensure_future(super().main_loop()),
            asyncio.ensure_future(self._told.wait()),
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()


class Hosted:
    """An application that is served at `url` until it is stopped."""

    def __init__(self, app: Any = None, bounds: Bounds | None = None, port: int = 0) -> None:
        self._app, self._bounds = app, bounds or Bounds(CONNECTIONS)
        self._socket = listen("127.0.0.1", port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.loop: asyncio.AbstractEventLoop
        self._server: Prompt
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"service-{self.port}", daemon=True)

    def start(self) -> Self:
        """Returns when it answers."""
        self._thread.start()
        assert self._started.wait(PATIENCE_SECONDS), "the service did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """Returns when it has ended."""
        self.http.close()
        self._server.stop_in(self.loop)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the service did not stop"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def do(self, work: Coroutine[Any, Any, R], patience: float = PATIENCE_SECONDS) -> R:
        """Runs something where the service runs."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(patience)

    def client(self, path: str = "", **more: Any) -> httpx2.Client:
        """Asks below this path."""
        # To read the machine's certificates takes longer than most tests, and nothing here is
        # encrypted.
        return httpx2.Client(
            base_url=self.url + path, timeout=PATIENCE_SECONDS, verify=False, **more
        )

    @cached_property
    def http(self) -> httpx2.Client:
        """Asks whatever there is to ask; closed with the service."""
        return self.client()

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    async def open(self) -> Any:
        """The application; asked for in the service's loop, before it starts."""
        return self._app

    async def close(self) -> None:
        """After the last answer."""

    def _run(self) -> None:
        try:
            run(self._serve())
        except BaseException as error:  # noqa: BLE001 - for the thread that waits
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._server = Prompt(await self.open(), self._bounds)
        self._server.on_started = self._started.set
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            await self.close()


class Service(Hosted):
    """The service on a store; what is not named here goes to `connect`."""

    def __init__(
        self,
        store: str | Store = "memory://",
        clock: Clock | None = None,
        choices: Choices | None = None,
        *,
        bounds: Bounds | None = None,
        app: Make | None = None,
        port: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(bounds=bounds, port=port)
        self._make = app or (lambda coordinator: build(coordinator, choices or Choices()))
        self._connect: Callable[[], AsyncCoordinator] = partial(
            genlock.aio.connect,
            store,
            **{"clock": clock, "process": None, "create": True} | options,
        )
        self.coordinator: AsyncCoordinator
        self.running: ServiceContext

    async def open(self) -> App:
        self.coordinator = self._connect()
        app = self._make(self.coordinator)
        self.running = app.running
        return app

    async def close(self) -> None:
        await self.coordinator.close()


@contextmanager
def serving(
    store: str | Store = "memory://",
    clock: Clock | None = None,
    choices: Choices | None = None,
    **more: Any,
) -> Iterator[Service]:
    """A service on this store while the block runs."""
    with Service(store, clock, choices, **more) as service:
        yield service


def authenticator(
    keys: Mapping[str, Grant], hosts: frozenset[str] | None = frozenset()
) -> Authenticator:
    """Lets in who has one of these keys, for tests that make no keys in the store. It looks them up
    anew each time."""

    async def find(text: str) -> Grant | None:
        return keys.get(text)

    return Authenticator(find, hosts)
