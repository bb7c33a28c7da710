"""Hosts a service from its settings to its end: coordinator, socket, log and server, closed in
order."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from genlock import __version__, token_files
from genlock.coordinator import AsyncCoordinator
from genlock.engine.engine import Monitor
from genlock.errors import BadArgument
from genlock.open import connect_async
from genlock.reads.keys import has_active_key
from genlock.reads.reader import Reader
from genlock.service.addresses import asks_for_keys, is_loopback, listen, url_of
from genlock.service.auth.browser_sessions import LocalToken
from genlock.service.compose import Choices, build
from genlock.service.http.protocol import Bounds
from genlock.service.limits import RATE
from genlock.service.logs import Log
from genlock.service.metrics import Metrics
from genlock.service.server import CONNECTIONS, Server, files_for, room_for, spare_the_collector
from genlock.service.session_api.health import read_config
from genlock.service.web.sign_in import link_of

_LANES: Final = 4
"""Lanes on stores that gain by several."""
_MANY: Final = 1000
"""No warning about the default limit of connections if at least this many fit."""
_LIBRARIES: Final = ("uvicorn", "asyncio")


class Options(Struct, frozen=True, kw_only=True):
    """The options of `genlock serve`, from flags, environment or file."""

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
    streams: int
    api_tenant: str
    api_project: str
    claim_config: str
    sign_in_file: str
    products: str = ""
    trust_local: bool = False
    """Are all users of this machine trusted?"""

    @property
    def asks_for_keys(self) -> bool:
        """Are keys the only way in? BadArgument where that is not possible."""
        needed = asks_for_keys(self.host, self.keys)
        if needed and self.trust_local:
            other = (
                "--keys asks everyone for a key"
                if is_loopback(self.host)
                else f"others reach {self.host}"
            )
            raise BadArgument(
                f"--trust-local lets the users of this machine in without a key, and {other}; "
                "leave out one of them"
            )
        return needed

    @property
    def asks_for_token(self) -> bool:
        """Does this service accept a token in place of a key?"""
        return not self.asks_for_keys and not self.trust_local

    @property
    def hosts(self) -> frozenset[str] | None:
        """Accepted host names; None accepts any."""
        names = frozenset(name for name in self.allow_host.split(",") if name)
        if "*" in names:
            return None
        return (
            names if self.host in ("0.0.0.0", "::") else names | {_in_brackets(self.host.lower())}
        )

    @property
    def requests_a_second(self) -> int | None:
        """The rate limit per caller; None on loopback, where the service is for the user who
        started it."""
        if self.rate is not None:
            return self.rate or None
        return RATE if self.asks_for_keys else None


class Hosted(Struct, frozen=True):
    """A service that is about to start."""

    url: str
    server: Server
    coordinator: AsyncCoordinator
    log: Log
    token: LocalToken | None = None
    header_file: Path | None = None
    """The file with the token for curl: `curl -H @FILE`."""
    trusts_local: bool = False

    def make_link(self) -> str:
        """The link for a browser, with a sign-in code if the service needs one."""
        return self.url if self.token is None else self.url.rstrip("/") + link_of(self.token)


async def host(
    url: str,
    options: Options,
    announce: Callable[[Hosted], None],
    *,
    listening: socket.socket | None = None,
    create: bool = False,
    profile: str | None = None,
    token_folders: Sequence[Path] = (),
    beside: Callable[[Hosted], AbstractAsyncContextManager[Any]] | None = None,
) -> None:
    """Serves the store at `url` until it is stopped. `beside` and the token's file, in one of the
    folders, exist as long as the service.

    Tenants without limits of their own have those of the profile: `local` on loopback without keys,
    `default` where keys are needed."""
    needs_keys = options.asks_for_keys
    if profile is None:
        profile = "default" if needs_keys else "local"
    metrics = Metrics(prefix=options.metrics_prefix)
    async with _opened(url, metrics, create=create, profile=profile) as coordinator:
        if needs_keys and not await asyncio.to_thread(_has_keys, coordinator.reader):
            raise BadArgument(
                "keys are asked for, and there is none yet; make one first, type: genlock keys "
                "create me --role admin"
            )
        listening = listen(options.host, options.port) if listening is None else listening
        token = LocalToken() if options.asks_for_token else None
        # Before the first answer, so that a caller that is refused for an old token finds the new
        # one.
        written = None if token is None else _written(token, listening, token_folders)
        log = Log(level=options.log_level, form=options.log_format)
        log.adopt(*_LIBRARIES)
        try:
            hosted = _assemble(coordinator, listening, options, log, metrics, token, written)
            spare_the_collector()
            with _promoting(coordinator, options.products, log):
                async with beside(hosted) if beside is not None else _nothing():
                    await _serve(hosted, listening, announce)
        finally:
            if token is not None and written is not None:
                token_files.remove(written, token.text)
            log.close()
            listening.close()


@contextmanager
def _promoting(coordinator: AsyncCoordinator, root: str, log: Log) -> Iterator[None]:
    """With an address for areas the service promotes what is accepted, in a thread of its own."""
    if not root:
        yield
        return
    from genlock.products.monitor import PromotionMonitor
    from genlock.products.promoter import Promoted

    def tell(tenant: str, project: str, done: Promoted) -> None:
        log.event(
            "warning" if done.failed or done.errors else "info",
            "promoted work products",
            tenant=tenant,
            project=project,
            promoted=len(done.promoted),
            failed=[f"{one.task_id}/{one.generation}: {one.reason}" for one in done.failed],
            errors=done.errors,
            dropped=done.dropped,
        )

    monitor = PromotionMonitor(coordinator._plain_face(), root, tell)
    monitor.start()
    try:
        yield
    finally:
        monitor.stop()


def _has_keys(reader: Reader) -> bool:
    return reader.retry(lambda: has_active_key(reader))


@asynccontextmanager
async def _opened(
    url: str, metrics: Metrics, *, create: bool, profile: str
) -> AsyncIterator[AsyncCoordinator]:
    coordinator = connect_async(
        url,
        create=create,
        process=None,
        profile=profile,
        monitor=True,
        lanes=_LANES,
        service=True,
        observer=metrics,
    )
    try:
        yield coordinator
    finally:
        metrics.close()
        await coordinator.close()


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


def _written(
    token: LocalToken, listening: socket.socket, folders: Sequence[Path]
) -> token_files.Written:
    try:
        return token_files.write(url_of(listening), token.text, folders)
    except BaseException:
        listening.close()
        raise


def _assemble(
    coordinator: AsyncCoordinator,
    listening: socket.socket,
    options: Options,
    log: Log,
    metrics: Metrics,
    token: LocalToken | None,
    written: token_files.Written | None,
) -> Hosted:
    connections = room_for(options.connections)
    if connections < options.connections and (
        connections < _MANY or options.connections != CONNECTIONS
    ):
        files = files_for(options.connections)
        log.event(
            "warning",
            "fewer connections fit than were asked for: this process may open too few files",
            asked=options.connections,
            fit=connections,
            remedy=f"type ulimit -n {files} before it is started, or set LimitNOFILE={files} in "
            "the unit of systemd; or ask for fewer: "
            f"--connections {connections}",
        )
    claim_config = read_config(options.claim_config)
    # The monitor sweeps all projects every few seconds, each time a part of the claims. The session
    # document promises a complete sweep of /api's project at this interval.
    Monitor(
        coordinator.engine,
        claim_config.cleanup_interval / 1000,
        (options.api_tenant, options.api_project),
    ).start()
    choices = Choices(
        keys=options.asks_for_keys,
        token=token,
        hosts=options.hosts,
        requests_a_second=options.requests_a_second,
        tenant_operations=options.tenant_operations,
        streams=options.streams,
        connections=connections,
        claim_config=claim_config,
        api_tenant=options.api_tenant,
        api_project=options.api_project,
        metrics_prefix=options.metrics_prefix,
        sign_in_secret=_secret(options.sign_in_file) if options.sign_in_file else None,
    )
    app = build(coordinator, choices, log, metrics)
    server = Server(app, Bounds(connections), options.grace_seconds, options.forwarded_allow_ips)
    return Hosted(
        url_of(listening),
        server,
        coordinator,
        log,
        token,
        None if written is None else written.header,
        options.trust_local,
    )


async def _serve(
    hosted: Hosted, listening: socket.socket, announce: Callable[[Hosted], None]
) -> None:
    log, server = hosted.log, hosted.server
    log.event("info", "started", url=hosted.url, version=__version__)
    if hosted.trusts_local:
        log.event("warning", "every user of this machine may do everything here (--trust-local)")
    server.on_started = functools.partial(announce, hosted)
    await server.serve(sockets=[listening])
    if server.cut_off:
        log.event("warning", "the grace is over", cut_off=server.cut_off)
    log.event("info", "stopped")


def _secret(file: str) -> bytes:
    """The content of the file without the trailing line break."""
    try:
        return Path(file).read_bytes().strip()
    except OSError as error:
        raise BadArgument(
            f"the secret by which sign-ins are sealed cannot be read: {error}"
        ) from None


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
