"""Starts a service and shuts it down.

A shutdown answers waiting requests, accepts no new ones, tells streams when to reconnect, finishes
accepted requests, and then closes the coordinator. It takes at most the grace period; a second
signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final

import uvicorn
import uvloop

from genlock.errors import BadArgument
from genlock.service.addresses import listen as listen
from genlock.service.app import App
from genlock.service.context import ServiceContext
from genlock.service.http.protocol import Bounds, Protocol, protocol_with

KEEP_ALIVE_SECONDS: Final = 75
CONNECTIONS: Final = 20_000
GRACE_SECONDS: Final = 10.0
_FILES_BESIDES: Final = 200
"""File descriptors for everything but client connections: the store's connections, payloads,
followers."""
_LEAST_FILES_BESIDES: Final = 64
_LEAST_CONNECTIONS: Final = 16
"""A service that can have fewer connections does not start."""
_TURNED_AWAY: Final = 10
_SWITCH_SECONDS: Final = 0.001
_ARRIVED_SECONDS: Final = 0.05


class Server(uvicorn.Server):
    """uvicorn's server with our own shutdown."""

    def __init__(
        self,
        app: Any,
        bounds: Bounds,
        grace_seconds: float = GRACE_SECONDS,
        forwarded_allow_ips: str = "",
    ) -> None:
        super().__init__(_config(app, bounds, forwarded_allow_ips))
        self._running: ServiceContext | None = app.running if isinstance(app, App) else None
        self._bounds = bounds
        self._grace_seconds = grace_seconds
        self.on_started: Callable[[], None] | None = None
        """Called when the server accepts requests and handles signals."""
        self.before_stop: list[Callable[[], Awaitable[None]]] = []
        """Awaited at the start of a shutdown, while everything still works."""
        self.cut_off = 0
        """Connections that were still busy at the end of the grace period."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_started is not None:
            self.on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals as uvicorn does, but does not raise the signal again after a clean
        shutdown, which is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield  # not in the main thread, as in tests: the caller sets should_exit
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Starts a shutdown, as a signal does."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # No cleanup: the interrupted code may hold any lock.
            os._exit(128 + sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            async with asyncio.timeout(self._grace_seconds):
                for act in self.before_stop:
                    await act()
                self._announce_the_end()
                await asyncio.sleep(
                    _ARRIVED_SECONDS
                )  # requests that had arrived before the shutdown are accepted and read meanwhile
                for server in self.servers:
                    server.close()
                for closing in sockets or ():
                    closing.close()
                for act in self._running.on_stop if self._running is not None else ():
                    await act()
                await self._drain()
        except TimeoutError:
            await self._cut_off()

    def _announce_the_end(self) -> None:
        self._bounds.ending = True
        for connection in self.server_state.connections:
            if isinstance(connection, Protocol):
                connection.answer_and_close()
        if self._running is not None:
            self._running.stopping.set()

    async def _drain(self) -> None:
        """Waits until all accepted requests are answered and the answers are sent."""
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        while state.tasks:
            await asyncio.wait(set(state.tasks))
        if state.connections:
            await self._bounds.empty.wait()

    async def _cut_off(self) -> None:
        self._announce_the_end()
        state = self.server_state
        self.cut_off = len(state.connections)
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()
        if state.tasks:
            await asyncio.wait(set(state.tasks), timeout=1)


def server(app: Any) -> Server:
    """The server for this application, with its defaults."""
    return Server(app, Bounds(CONNECTIONS))


def _config(app: Any, bounds: Bounds, forwarded_allow_ips: str) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol_with(bounds),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        # Only named proxies may set the client's address.
        proxy_headers=bool(forwarded_allow_ips),
        forwarded_allow_ips=forwarded_allow_ips,
        backlog=4096,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs the service's main coroutine on uvloop where there is one. Does not wait long for
    threads that compute."""
    try:
        room_for(_LEAST_CONNECTIONS)  # before the event loop, which needs descriptors itself
    except BadArgument:
        main.close()
        raise
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def room_for(connections: int) -> int:
    """The number of connections that the system allows, at most `connections`. Raises the soft
    limit of descriptors if necessary. BadArgument if there are too few."""
    files = _allowed_files(files_for(connections))
    if files is None:
        return connections
    besides = max(_LEAST_FILES_BESIDES, min(_FILES_BESIDES, files // 4))
    fit = (files - besides - _TURNED_AWAY) * 10 // 11
    if fit < _LEAST_CONNECTIONS:
        raise BadArgument(
            f"a process may have {files:,} files open here, which is too few for a service: it "
            f"needs {_LEAST_FILES_BESIDES} for itself and "
            "more for connections; allow it more, type: ulimit -n 4096 (in a unit of systemd: "
            "LimitNOFILE=65536), and start it again"
        )
    return min(connections, fit)


def files_for(connections: int) -> int:
    """The number of descriptors for this many connections. A tenth more are accepted, to refuse
    them with an answer."""
    return connections + connections // 10 + _TURNED_AWAY + _FILES_BESIDES


def _allowed_files(wanted: int) -> int | None:
    """Tries to raise the limit of descriptors to `wanted`. Returns the limit if it stays lower,
    else None."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        with contextlib.suppress(
            OSError, ValueError
        ):  # the system may have a limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return None if soft >= wanted else soft


def spare_the_collector() -> None:
    """Makes garbage collection rare, for a process that only serves: its objects so far stay, and
    requests leave few reference cycles.

    This made the slowest hundredth of claims a third faster, and claims on average a tenth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
