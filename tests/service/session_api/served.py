"""SC's interface as its tests see it: a service with a clock that stands still, and all of them
behind one server."""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2
from starlette.routing import Router

import genlock.aio
from genlock.coordinator import AsyncCoordinator
from genlock.service.app import App
from genlock.service.auth.permissions import Grant
from genlock.service.compose import Choices, nothing_here
from genlock.service.context import ServiceContext
from genlock.service.request import Receive, Scope, Send
from genlock.service.session_api.app import api_routes
from genlock.service.web.status import StatusPage
from genlock.testing.clock import ManualClock
from tests.logs import build, watch
from tests.servers.service import Hosted, authenticator

NOON = datetime(2025, 12, 28, 12, 0, tzinfo=UTC)
"""When SC's examples begin."""

R = TypeVar("R")


class Served:
    """What a test does with the service."""

    def __init__(
        self, number: str, running: _Server, fleet: AsyncCoordinator, clock: ManualClock
    ) -> None:
        self.clock, self.fleet, self._running = clock, fleet, running
        self.http = running.client(headers={_NUMBER: number})

    def do(self, asked: Callable[[AsyncCoordinator], Awaitable[R]]) -> R:
        """Asks the coordinator below, past the service."""

        async def ask() -> R:
            return await asked(self.fleet)

        return self._running.do(ask())

    def add(self, *tasks: str | dict[str, Any]) -> None:
        """Adds tasks."""
        self.do(
            lambda fleet: fleet.add_tasks(
                tasks=[{"id": task} if isinstance(task, str) else task for task in tasks]
            )
        )

    def get(self, path: str, key: str | None = None) -> tuple[int, Any]:
        """Status and answer."""
        return _told(self.http.get(path, headers=_with(key)))

    def post(self, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Status and answer."""
        return _told(
            self.http.post(path, json=body if body is not None else {}, headers=_with(key))
        )


def _with(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


def _told(response: httpx2.Response) -> tuple[int, Any]:
    return response.status_code, response.json()


class _Server(Hosted):
    """One server for all tests of a process: starting and stopping one takes longer than most
    tests. Each test has its own service."""

    def __init__(self) -> None:
        super().__init__(self)
        self._apps: dict[bytes, App] = {}
        self._numbers = itertools.count()
        atexit.register(self.stop)

    def add(self, app: App) -> str:
        """Serves this one too, to whoever sends the number that is answered."""
        number = str(next(self._numbers))
        self._apps[number.encode()] = app
        return number

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._apps[dict(scope["headers"])[_NUMBER.encode()]](scope, receive, send)


_NUMBER = "x-service"
_started: list[_Server] = []


@contextmanager
def serving(
    url: str,
    *,
    choices: Choices | None = None,
    keys: Mapping[str, Grant] | None = None,
    profile: str = "default",
) -> Iterator[Served]:
    """The service on a store; with `keys`, only those who have one of them are let in, and the
    status page has the same clock."""
    if not _started:
        _started.append(_Server().start())
    clock, running = ManualClock(NOON), _started[0]

    async def begin() -> tuple[AsyncCoordinator, App]:
        fleet = genlock.aio.connect(url, create=True, process=None, clock=clock, profile=profile)
        return fleet, build(fleet, choices or Choices()) if keys is None else _locked(
            fleet, keys, clock
        )

    fleet, app = running.do(begin())
    served = Served(running.add(app), running, fleet, clock)
    try:
        with served.http:
            yield served
    finally:
        running.do(fleet.close())


def _locked(fleet: AsyncCoordinator, keys: Mapping[str, Grant], clock: ManualClock) -> App:
    running = ServiceContext(fleet)
    routes = [*StatusPage(running, lambda: clock.now().timestamp()).routes(), *api_routes(running)]
    return App(running, authenticator(keys), Router(routes, default=nothing_here), watch)
