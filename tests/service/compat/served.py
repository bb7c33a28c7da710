"""A real service on a free loopback port, in a thread of its own, with a clock that stands still."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
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
from genlock.service.building import Choices, nothing_here
from genlock.service.compat.app import api_routes
from genlock.service.exchange import Receive, Scope, Send
from genlock.service.pages.status import StatusPage
from genlock.service.running import Running
from genlock.service.serving import listen, server
from genlock.testing.clock import ManualClock
from tests.logs import build, watch

NOON = datetime(2025, 12, 28, 12, 0, tzinfo=UTC)
"""When SC's examples begin."""

R = TypeVar("R")


class Served:
    """What a test does with the service."""

    def __init__(self, url: str, number: str, running: _Server, fleet: AsyncCoordinator, clock: ManualClock) -> None:
        self.clock, self.fleet, self._running = clock, fleet, running
        # To read the machine's certificates takes longer than a test, and nothing here is encrypted.
        self.http = httpx2.Client(base_url=url, headers={_NUMBER: number}, timeout=30, verify=False)

    def do(self, asked: Callable[[AsyncCoordinator], Awaitable[R]]) -> R:
        """Asks the coordinator below, past the service."""

        async def ask() -> R:
            return await asked(self.fleet)

        return self._running.do(ask())

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


class _Server:
    """One server for all tests of a process: starting and stopping one takes longer than most tests. Each test has its own service."""

    def __init__(self) -> None:
        self._apps: dict[bytes, App] = {}
        self._numbers = itertools.count()
        self._listening = listen("127.0.0.1", 0)
        self._server = server(self)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        atexit.register(self._stop)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def add(self, app: App) -> str:
        """Serves this one too, to whoever sends the number that is answered."""
        number = str(next(self._numbers))
        self._apps[number.encode()] = app
        return number

    def do(self, asked: Coroutine[Any, Any, R]) -> R:
        """Runs something where the services run."""
        return asyncio.run_coroutine_threadsafe(asked, self.loop).result(30)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._apps[dict(scope["headers"])[_NUMBER.encode()]](scope, receive, send)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._server.serve(sockets=[self._listening]))

    def _stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        self.loop.close()


_NUMBER = "x-service"
_started: list[_Server] = []


@contextmanager
def serving(
    url: str, *, choices: Choices | None = None, keys: Mapping[str, Grant] | None = None, profile: str = "default"
) -> Iterator[Served]:
    """The service on a store; with `keys`, only those who have one of them are let in, and the status page has the same clock."""
    if not _started:
        _started.append(_Server())
    clock, running = ManualClock(NOON), _started[0]

    async def begin() -> tuple[AsyncCoordinator, App]:
        fleet = genlock.aio.connect(url, process=None, clock=clock, profile=profile)
        return fleet, build(fleet, choices) if keys is None else _locked(fleet, keys, clock)

    fleet, app = running.do(begin())
    served = Served(running.url, running.add(app), running, fleet, clock)
    try:
        with served.http:
            yield served
    finally:
        running.do(fleet.close())


def _locked(fleet: AsyncCoordinator, keys: Mapping[str, Grant], clock: ManualClock) -> App:
    running = Running(fleet)

    async def find(text: str) -> Grant | None:
        return keys.get(text)

    routes = [*StatusPage(running, lambda: clock.now().timestamp()).routes(), *api_routes(running)]
    return App(running, Door(find, frozenset()), Router(routes, default=nothing_here), watch)
