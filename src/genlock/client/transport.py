"""The transport to a service: its address, the caller's identity, and the connections of this
process and each event loop."""

from __future__ import annotations

import errno
import os
import socket
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from genlock.client.addresses import REFUSED, Addresses, Authorization, Way
from genlock.client.replies import AnswerLost, Response
from genlock.client.requests import Request
from genlock.core.model import Identity, Process
from genlock.errors import BadArgument, Closed
from genlock.shortages import no_descriptors
from genlock.wire.headers import (
    AGENT_HEADER,
    HOST_HEADER,
    PROCESS_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    SESSION_HEADER,
    USER_HEADER,
    pack_name,
    pack_process,
)

if TYPE_CHECKING:
    import asyncio

    import httpx2

_left_behind: list[object] = []
"""Connections opened before a fork. They belong to the parent, so the child must not close them."""


_REMEDIES: Final = (
    (
        "WRONG_VERSION_NUMBER",
        (
            "What answers there has no TLS: write http:// in place of https://, or the port at "
            "which it has"
        ),
    ),
    (
        "Hostname mismatch",
        "Its certificate is for another name: give an address with the name that stands in it",
    ),
    (
        "IP address mismatch",
        "Its certificate is not for this address: give one with the name that stands in it",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        (
            "If it is your own, name the file with its issuer's certificate: connect(ca_file=…), "
            "or SSL_CERT_FILE"
        ),
    ),
)
"""What to change for TLS errors that every attempt would meet."""


class StreamHandle:
    """A handle to stop a stream from another thread. Closing a connection does not wake a thread
    that reads from it; shutting down the socket does."""

    def __init__(self) -> None:
        self.stopped = False
        self._socket: socket.socket | None = None

    def open(self, response: Any) -> None:
        """Sets the response that the stream reads from."""
        self._socket = response.extensions["network_stream"].get_extra_info("socket")
        if self.stopped:
            self.stop()

    def stop(self) -> None:
        """Stops the stream."""
        self.stopped = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class Transport:
    """The transport to one service, or to one of several on the same store."""

    def __init__(
        self,
        url: str,
        identity: Identity,
        *,
        authorization: Authorization,
        deadline_seconds: float,
        ca_file: str | None,
        version: str,
        identify: Callable[..., Process | None],
    ) -> None:
        self.addresses = Addresses(url)
        self.deadline_seconds = deadline_seconds
        self.version = version
        self.identify = identify
        """Finds the identity of a process on this machine."""
        self._authorization = authorization
        self._ca_file = ca_file
        self._lock = threading.Lock()
        self._starting: dict[int, threading.Lock] = {}
        """By process: a lock that a thread held during a fork stays locked in the child for
        ever."""
        self._closed = False
        self.waits_for_start = True
        """Retry until the deadline if the service refuses the first connection?"""
        self._has_answered = False
        self.ears: weakref.WeakSet[StreamHandle] = weakref.WeakSet()
        """The open streams."""
        self._identity = identity
        self._start()

    def _start(self) -> None:
        """Sets the initial state, at first and again in a forked child."""
        self._client: httpx2.Client | None = None
        self._of_loops: dict[
            asyncio.AbstractEventLoop, AsyncGenerator[httpx2.AsyncClient, None]
        ] = {}
        """The connections of each event loop, which loops cannot share."""
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}
        self._headers = headers_of(self._identity, self.version)
        self._pid = os.getpid()  # last: a thread that sees it sees the rest, too

    @property
    def identity(self) -> Identity:
        """The default identity of calls."""
        if self._pid != os.getpid():
            with self._starting.setdefault(os.getpid(), threading.Lock()):
                if self._pid != os.getpid():
                    self._start_anew()
        return self._identity

    def _start_anew(self) -> None:
        _left_behind.append((self._client, self._of_loops))
        self._lock = threading.Lock()
        if self._identity.own_process:
            self._identity = replace(self._identity, process=self.identify())
        self._start()

    @property
    def url(self) -> str:
        """The address in use."""
        return self.addresses.current

    def check_open(self) -> None:
        """Raises Closed if the transport is closed."""
        if self._closed:
            raise Closed("the coordinator is closed")

    # One exchange

    def exchange(
        self, request: Request, connect_seconds: float, read_seconds: float
    ) -> Response | AnswerLost:
        """Sends a request once and waits for the response."""
        import httpx2

        address = self.url
        try:
            way = self.way_to(address)
            found = self.client().request(
                **self._sending(way, request, connect_seconds, read_seconds)
            )
            if found.status_code == REFUSED and self.is_renewed(address, way):
                found = self.client().request(
                    **self._sending(self.way_to(address), request, connect_seconds, read_seconds)
                )
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            self.addresses.leave(address)
            return self._lost(error)
        self._has_answered = True
        self.addresses.answered(address, found.status_code)
        return Response(found.status_code, found.headers, found.content)

    async def exchange_async(
        self, request: Request, connect_seconds: float, read_seconds: float
    ) -> Response | AnswerLost:
        """Sends a request once, in an event loop."""
        import httpx2

        address = self.url
        try:
            client, way = await self._client_of_loop(), self.way_to(address)
            found = await client.request(
                **self._sending(way, request, connect_seconds, read_seconds)
            )
            if found.status_code == REFUSED and self.is_renewed(address, way):
                found = await client.request(
                    **self._sending(self.way_to(address), request, connect_seconds, read_seconds)
                )
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            self.addresses.leave(address)
            return self._lost(error)
        self._has_answered = True
        self.addresses.answered(address, found.status_code)
        return Response(found.status_code, found.headers, found.content)

    def _lost(self, error: Exception) -> AnswerLost:
        found = lost(error)
        never = not (self.waits_for_start or self._has_answered or len(self.addresses) > 1)
        if never and os.strerror(errno.ECONNREFUSED) in found.why:
            return found._replace(remedy=_NOT_STARTED)
        return found

    def _sending(
        self, way: Way, request: Request, connect_seconds: float, read_seconds: float
    ) -> dict[str, Any]:
        import httpx2

        self.check_open()
        headers = self.headers(way)
        if request.body is not None:
            headers["content-type"] = "application/json"
        timeout = httpx2.Timeout(read_seconds, connect=connect_seconds)
        return {
            "method": request.route.method,
            "url": way.url + request.target,
            "content": request.body,
            "headers": headers,
            "timeout": timeout,
        }

    def way_to(self, address: str) -> Way:
        """The address for requests and their authorization."""
        return self._authorization.to(address)

    def is_renewed(self, address: str, refused: Way) -> bool:
        """After a refusal: has the service restarted and written another token?"""
        return self._authorization.is_renewed(address, refused)

    def headers(self, way: Way) -> dict[str, str]:
        """The headers of every request."""
        return self._headers | (
            {} if way.authorization is None else {"authorization": way.authorization}
        )

    # Connections

    def client(self) -> httpx2.Client:
        """The connections of this process."""
        with self._lock:
            if self._client is None:
                import httpx2

                self._client = httpx2.Client(**self._opening())
            return self._client

    async def _client_of_loop(self) -> httpx2.AsyncClient:
        import asyncio

        loop = asyncio.get_running_loop()
        found = self._clients.get(loop)
        if found is None:
            for other in [each for each in list(self._of_loops) if each.is_closed()]:
                self._part(other)  # this loop ended without closing its generators
            opened = self._of_loops[loop] = self._opened_in(loop)
            found = await anext(opened)
        return found

    async def _opened_in(
        self, loop: asyncio.AbstractEventLoop
    ) -> AsyncGenerator[httpx2.AsyncClient, None]:
        """Yields the connections of an event loop and closes them. A loop closes its generators at
        its end, when nothing else can be awaited there; otherwise a program that makes one loop
        after the other would accumulate open connections."""
        import httpx2

        client = self._clients[loop] = httpx2.AsyncClient(**self._opening())
        try:
            yield client
        finally:
            self._part(loop)
            await client.aclose()

    def _part(self, loop: asyncio.AbstractEventLoop) -> None:
        self._clients.pop(loop, None)
        self._of_loops.pop(loop, None)

    def _opening(self) -> dict[str, Any]:
        import httpx2

        return {
            "verify": self._trust(),
            # A proxy from the environment is not for addresses on this machine.
            "trust_env": not self.addresses.near,
            "mounts": {
                f"all://[{host}]" if ":" in host else f"all://{host}": None
                for host in self.addresses.unproxied
            },
            # A redirect would send the request, and perhaps its key, to an address that the user
            # did not choose.
            "follow_redirects": False,
            "limits": httpx2.Limits(
                max_connections=None, max_keepalive_connections=64, keepalive_expiry=60
            ),
        }

    def _trust(self) -> Any:
        """The trusted certificates: the system's, those of SSL_CERT_FILE, or those of the named
        file."""
        import ssl

        if not self.addresses.secure:
            # Without TLS: loading certificates takes longer than a call
            return False
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ssl.SSLError) as error:
            raise BadArgument(f"ca_file {self._ca_file!r} cannot be used: {error}") from None

    def close(self) -> None:
        """Closes the transport. Calls in flight end by themselves."""
        self._closed = True
        for ear in list(self.ears) if self._pid == os.getpid() else ():
            ear.stop()
        if self._pid == os.getpid() and self._client is not None:
            self._client.close()

    async def close_async(self) -> None:
        """Closes the transport and the connections of the event loop."""
        import asyncio

        self.close()
        opened = (
            self._of_loops.get(asyncio.get_running_loop()) if self._pid == os.getpid() else None
        )
        if opened is not None:
            await opened.aclose()


_NOT_STARTED: Final = (
    "No service listens there. Is this its address? To start one on this machine, type: genlock "
    "serve"
)


def lost(error: Exception) -> AnswerLost:
    """Describes why a request was not answered."""
    import httpx2

    early = (
        httpx2.ConnectError,
        httpx2.ConnectTimeout,
        httpx2.PoolTimeout,
        httpx2.ProxyError,
        httpx2.UnsupportedProtocol,
    )
    text = str(error) or type(error).__name__
    if (
        os.strerror(errno.EMFILE) in text
    ):  # no remedy: descriptors may be free again at the next attempt
        text = f"{text} ({no_descriptors()})"
    remedy = next((remedy for sign, remedy in _REMEDIES if sign in text), None)
    if isinstance(error, httpx2.UnsupportedProtocol):
        remedy = "Look at the address, and at the proxies that the environment names"
    return AnswerLost(text, sent=not isinstance(error, early), remedy=remedy)


def headers_of(identity: Identity, version: str) -> dict[str, str]:
    """The headers of every request: protocol version and identity."""
    headers = {
        PROTOCOL_HEADER: str(PROTOCOL),
        "user-agent": f"genlock/{version}",
        "accept": "application/json",
    }
    names = {SESSION_HEADER: identity.session_id, AGENT_HEADER: identity.agent_id}
    names |= {USER_HEADER: identity.user_id, HOST_HEADER: identity.host}
    headers |= {header: pack_name(name) for header, name in names.items() if name}
    if identity.process is not None:
        headers[PROCESS_HEADER] = pack_process(identity.process)
    return headers
