"""A real service on a free loopback port, in a thread of its own, with a clock that stands still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2
from starlette.routing import Router

import genlock.aio
from genlock.coordinator import AsyncCoordinator
from genlock.service.access.door import Door
from genlock.service.access.grant import Grant
from genlock.service.app import App
from genlock.service.building import Choices, build, nothing_here
from genlock.service.compat.app import api_routes
from genlock.service.pages.status import StatusPage
from genlock.service.running import Running
from genlock.service.serving import listen, server
from genlock.testing.clock import ManualClock

NOON = datetime(2025, 12, 28, 12, 0, tzinfo=UTC)
"""When SC's examples begin."""

R = TypeVar("R")


class Served:
    """What a test does with the service."""

    def __init__(self, port: int, loop: asyncio.AbstractEventLoop, fleet: AsyncCoordinator, clock: ManualClock) -> None:
        self.clock, self.fleet, self._loop = clock, fleet, loop
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def do(self, asked: Callable[[AsyncCoordinator], Awaitable[R]]) -> R:
        """Asks the coordinator below, past the service."""

        async def ask() -> R:
            return await asked(self.fleet)

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(30)

    def add(self, *tasks: str | dict[str, Any]) -> None:
        """Adds tasks."""
        self.do(lambda fleet: fleet.add_tasks(tasks=[{"id": task} if isinstance(task, str) else task for task in tasks]))

    def get(self, path: str, key: str | None = None) -> tuple[int, Any]:
        """Status and answer."""
        return _told(self.http.get(path, headers=_with(key)))

    def post(self, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Status and answer."""
        return _told(self.http.post(path, json=body if body is not None else {}, headers=_with(key)))


def _with(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def _told(response: httpx2.Response) -> tuple[int, Any]:
    return response.status_code, response.json()


@contextmanager
def serving(
    url: str, *, choices: Choices | None = None, keys: Mapping[str, Grant] | None = None, profile: str = "default"
) -> Iterator[Served]:
    """The service on a store; with `keys`, only those who have one of them are let in, and the status page has the same clock."""
    clock = ManualClock(NOON)
    started: list[Served] = []
    ready = threading.Event()
    stop: list[Callable[[], object]] = []

    async def run() -> None:
        async with genlock.aio.connect(url, process=None, clock=clock, profile=profile) as fleet:
            listening = listen("127.0.0.1", 0)
            app = build(fleet, choices or Choices()) if keys is None else _locked(fleet, keys, clock)
            serving_it = server(app)
            loop = asyncio.get_running_loop()
            stop.append(lambda: loop.call_soon_threadsafe(setattr, serving_it, "should_exit", True))
            started.append(Served(listening.getsockname()[1], loop, fleet, clock))
            listening.listen()
            ready.set()
            await serving_it.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        with started[0].http:
            yield started[0]
    finally:
        stop[0]()
        thread.join(30)
        assert not thread.is_alive()


def _locked(fleet: AsyncCoordinator, keys: Mapping[str, Grant], clock: ManualClock) -> App:
    running = Running(fleet)

    async def find(text: str) -> Grant | None:
        return keys.get(text)

    routes = [*StatusPage(running, lambda: clock.now().timestamp()).routes(), *api_routes(running)]
    return App(running, Door(find, frozenset()), Router(routes, default=nothing_here))
