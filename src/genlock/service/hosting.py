"""A service from its settings to its end: the coordinator, the socket, the log, the server, and all of it closed again in order."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from genlock import __version__
from genlock.coordinator import AsyncCoordinator
from genlock.engine.monitor import Monitor
from genlock.errors import BadArgument
from genlock.open import connect_async
from genlock.service.access.keyring import has_keys
from genlock.service.addresses import asks_for_keys, is_loopback, listen, url_of
from genlock.service.building import Choices, build
from genlock.service.compat.config import read_config
from genlock.service.limits import RATE
from genlock.service.logs import Log
from genlock.service.metrics import Metrics
from genlock.service.protocol import Bounds
from genlock.service.serving import Server, room_for, spare_the_collector

_LANES: Final = 4
"""Where the store gains by them."""
_LIBRARIES: Final = ("uvicorn", "asyncio")


class Options(Struct, frozen=True, kw_only=True):
    """What `genlock serve` was told, by flag, environment or file."""

    host: str
    port: int
    allow_host: str
    keys: bool | None
    forwarded_allow_ips: str
    metrics_prefix: str
    log_level: str
    log_format: str | None
    grace_seconds: float
    connections: int
    rate: int | None
    tenant_operations: int
    api_tenant: str
    api_project: str
    claim_config: str
    sign_in_file: str

    @property
    def asks_for_keys(self) -> bool:
        """Is a key needed? BadArgument where that cannot be."""
        return asks_for_keys(self.host, self.keys)

    @property
    def hosts(self) -> frozenset[str] | None:
        """The names that the service answers for; None for any."""
        names = frozenset(name for name in self.allow_host.split(",") if name)
        if "*" in names:
            return None
        return names if is_loopback(self.host) or self.host in ("0.0.0.0", "::") else names | {_in_brackets(self.host.lower())}

    @property
    def requests_a_second(self) -> int | None:
        """Of one caller; None if nobody is counted: whoever needs no key is on this machine, and has it to himself."""
        if self.rate is not None:
            return self.rate or None
        return RATE if self.asks_for_keys else None


class Hosted(Struct, frozen=True):
    """A service that is about to begin."""

    url: str
    server: Server
    coordinator: AsyncCoordinator
    log: Log


async def host(
    url: str,
    options: Options,
    announce: Callable[[Hosted], None],
    *,
    listening: socket.socket | None = None,
    create: bool = False,
    profile: str = "default",
    beside: Callable[[Hosted], AbstractAsyncContextManager[Any]] | None = None,
) -> None:
    """Serves the store at `url` until told to stop. `beside` lives as long as it does."""
    needs_keys = options.asks_for_keys
    metrics = Metrics(prefix=options.metrics_prefix)
    async with _opened(url, metrics, create=create, profile=profile) as coordinator:
        if needs_keys and not await asyncio.to_thread(has_keys, coordinator.engine):
            raise BadArgument("keys are asked for, and there is none yet; make one first, type: genlock keys create me --role admin")
        listening = listen(options.host, options.port) if listening is None else listening
        log = Log(level=options.log_level, form=options.log_format)
        log.adopt(*_LIBRARIES)
        try:
            hosted = _assemble(coordinator, listening, options, log, metrics)
            spare_the_collector()
            async with beside(hosted) if beside is not None else _nothing():
                await _serve(hosted, listening, announce)
        finally:
            log.close()
            listening.close()


@asynccontextmanager
async def _opened(url: str, metrics: Metrics, *, create: bool, profile: str) -> AsyncIterator[AsyncCoordinator]:
    coordinator = connect_async(
        url, create=create, process=None, profile=profile, monitor=True, lanes=_LANES, service=True, observer=metrics
    )
    try:
        yield coordinator
    finally:
        metrics.close()
        await coordinator.close()


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


def _assemble(coordinator: AsyncCoordinator, listening: socket.socket, options: Options, log: Log, metrics: Metrics) -> Hosted:
    connections = room_for(options.connections)
    claim_config = read_config(options.claim_config)
    # Every few seconds all projects are swept, a part of the claims each time; /api's is promised to be swept as a whole, this often.
    Monitor(coordinator.engine, claim_config.cleanup_interval / 1000, (options.api_tenant, options.api_project)).start()
    choices = Choices(
        keys=options.asks_for_keys,
        hosts=options.hosts,
        requests_a_second=options.requests_a_second,
        tenant_operations=options.tenant_operations,
        connections=connections,
        claim_config=claim_config,
        api_tenant=options.api_tenant,
        api_project=options.api_project,
        metrics_prefix=options.metrics_prefix,
        sign_in_secret=_secret(options.sign_in_file) if options.sign_in_file else None,
    )
    app = build(coordinator, choices, log, metrics)
    server = Server(app, Bounds(connections), options.grace_seconds, options.forwarded_allow_ips)
    return Hosted(url_of(listening), server, coordinator, log)


async def _serve(hosted: Hosted, listening: socket.socket, announce: Callable[[Hosted], None]) -> None:
    log, server = hosted.log, hosted.server
    log.event("info", "started", url=hosted.url, version=__version__)
    server.on_started = functools.partial(announce, hosted)
    await server.serve(sockets=[listening])
    if server.cut_off:
        log.event("warning", "the grace is over", cut_off=server.cut_off)
    log.event("info", "stopped")


def _secret(file: str) -> bytes:
    """What the file has, without the end of its line."""
    try:
        return Path(file).read_bytes().strip()
    except OSError as error:
        raise BadArgument(f"the secret by which sign-ins are sealed cannot be read: {error}") from None


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
