"""Starting a service and stopping it.

A stop is in this order: who waits is answered, nothing new is let in, streams are told when to come
again, what was accepted is finished, and only then is the coordinator closed. All of it takes at
most the grace; a second signal ends it at once.
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
"""Descriptors for everything but connections, where there are many: the store's connections,
payloads, followers."""
_LEAST_FILES_BESIDES: Final = 64
_LEAST_CONNECTIONS: Final = 16
"""A service that has room for fewer does not start."""
_TURNED_AWAY: Final = 10
_SWITCH_SECONDS: Final = 0.001
_ARRIVED_SECONDS: Final = 0.05


class Server(uvicorn.Server):
    """uvicorn's server, which begins in its own way and ends in ours."""

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
        """Called when requests are let in and signals are heard."""
        self.before_stop: list[Callable[[], Awaitable[None]]] = []
        """Done while everything still works: for those who started callers of their own."""
        self.cut_off = 0
        """Connections that were not done when the grace was over."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_started is not None:
            self.on_started()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, but who was asked to stop and did has not failed: the signal is not
        raised again."""
        if threading.current_thread() is not threading.main_thread():
            yield  # in a test, say; who started us stops us by should_exit
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
        """As a signal does."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # Nothing is tidied up: whatever holds a lock now is what was interrupted for this.
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
                )  # what had arrived when we were told to stop is let in and read in this time
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
        """Until all that was accepted is answered and taken."""
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
    """The server around the application, with its defaults."""
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
        # What a request says of where it comes from is believed only of a proxy that was named.
        proxy_headers=bool(forwarded_allow_ips),
        forwarded_allow_ips=forwarded_allow_ips,
        backlog=4096,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs the service's main coroutine on the event loop that suits it. It does not wait long for
    threads that compute."""
    try:
        room_for(_LEAST_CONNECTIONS)  # before the loop is made, which takes descriptors too
    except BadArgument:
        main.close()
        raise
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def room_for(connections: int) -> int:
    """How many connections the system lets us have, at most these; its own soft limit is raised for
    it. BadArgument if they are too few."""
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
    """How many descriptors a service with so many connections takes. A tenth more is let in to be
    turned away."""
    return connections + connections // 10 + _TURNED_AWAY + _FILES_BESIDES


def _allowed_files(wanted: int) -> int | None:
    """How many this process may have open, after the attempt to be allowed as many as are wanted;
    None if that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        with contextlib.suppress(
            OSError, ValueError
        ):  # the system may have a limit of its own below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return None if soft >= wanted else soft


def spare_the_collector() -> None:
    """For a process that does nothing but serve: what it has made so far stays, and little of what
    comes and goes is in circles.

    Looking for those less often made the slowest hundredth of claims a third faster, and all of
    them a tenth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
