"""HTTP on one connection: uvicorn's protocol, with limits on time and size.

Implementation notes:
- A request that arrives in one piece, as almost all do, needs no timer. A timer starts when a piece
  has been read and the request is incomplete: ten seconds for the whole head, thirty seconds
  between two pieces of the body.
- The size of a head is checked only if a piece, together with what came before it, exceeds the
  limit.
- If a request is answered before it has been read completely, the connection closes after the
  answer. The rest would be read for nothing.
- A request that cannot be parsed is answered with a problem document, like any other error.
- The first request of a connection, and any pipelined request, waits for `Pace`, which starts one
  per iteration of the event loop. However many clients connect at once or pipeline, requests on
  established connections are served between any two of them.
- A connection has one task for all its requests. uvicorn makes one task per request, which cost a
  tenth of a request's time here. uvicorn's own coroutine around the application runs only to handle
  a failure.
- A kept-alive connection has one timer, which checks on expiry how long the connection has been
  idle. uvicorn makes and cancels a timer for each request.
- If a client sends anything behind the request of a stream, the stream is the connection's last
  answer. Those bytes are read and dropped, so that a disconnect is noticed at once.
- Pipelined requests are parsed one piece at a time. The rest stays as bytes, and nothing more is
  read meanwhile. uvicorn would read on after every answer, so a client that sends without reading
  could fill the memory.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from genlock.service.http.cycle import Cycle
from genlock.service.limits import Pace
from genlock.service.request import WHOLE
from genlock.service.responses import PROTOCOL_SPOKEN, full_but_for_health, large_head, problem_body
from genlock.wire.problems import CONTENT_TYPE

HEAD_BYTES: Final = 16 * 1024
HEAD_SECONDS: Final = 10.0
BODY_IDLE_SECONDS: Final = 30.0
_PIECE_BYTES: Final = 16 * 1024
_BODY_PIECE_BYTES: Final = 64 * 1024
_UNREAD_BYTES: Final = 256 * 1024
"""At most this much of a request is read and dropped after its answer was sent."""
_LINGER_SECONDS: Final = 2.0
_EXTENSIONS: Final[dict[str, dict[str, Any]]] = {WHOLE: {}}
_CLOSE_SECONDS: Final = 5.0
_HASH: Final = ord("#")
_KEEPING: Final = (b"connection", b"proxy-connection")


class Bounds:
    """The limits of connections, and whether the service is shutting down. All connections share
    one."""

    def __init__(
        self,
        connections: int,
        head_bytes: int = HEAD_BYTES,
        head_seconds: float = HEAD_SECONDS,
        body_idle_seconds: float = BODY_IDLE_SECONDS,
    ) -> None:
        self.connections = connections
        self.head_bytes = head_bytes
        self.head_seconds = head_seconds
        self.body_idle_seconds = body_idle_seconds
        self.ending = False
        self.pace = Pace()
        self.empty = asyncio.Event()
        """During shutdown: set when the last connection has closed."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    bounds: Bounds
    flow: _Flow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._usual, self._refused = self.app, False
        self._in_head, self._whole, self._size, self._several = True, True, 0, False
        self._patience: asyncio.TimerHandle | None = None
        self._rest, self._unread = b"", 0
        self._at_pace = True
        """Must the next request wait for `Pace`?"""
        self._next: tuple[RequestResponseCycle, Any] | None = None
        """The request that the task serves next."""
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        """The future that the idle task waits for."""
        self._answering: RequestResponseCycle | None = None
        self._streaming: RequestResponseCycle | None = None
        """The stream that is being written. Nothing is parsed meanwhile."""
        self._gone = False
        self._quiet_since = math.inf
        """When the last answer was sent, on the loop's clock; infinite while a request is being
        served."""
        self._blank: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "extensions": _EXTENSIONS,
            "headers": None,
            "method": None,
            "path": None,
            "raw_path": None,
            "query_string": None,
        }
        """A template for the scope of each request. It has all keys, because filling a dict is
        faster than growing it."""
        self.flow = _Flow(transport, self)
        open_now, most = len(self.connections), self.bounds.connections
        if open_now > most + most // 10 + 10:  # room_for counts on it
            transport.abort()
            return
        if open_now > most:
            self.app = full_but_for_health(self._usual)
        self._patience = self.loop.call_later(self.bounds.head_seconds, self._lose_patience)

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient()
        self._rest = b""
        if self._answering is not None:  # uvicorn tells the last one that was parsed
            self.cycle = self._answering
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._gone = True
        self._wake()
        # A connection's objects refer to each other in cycles. Breaking the cycles frees them at
        # once; otherwise thousands of closed connections would wait for the garbage collector, and
        # every caller would wait while it frees them.
        for cycle, _ in self.pipeline:
            cycle.on_response = _nothing
        self.pipeline.clear()
        self.flow.part()
        if self.bounds.ending and not self.connections:
            self.bounds.empty.set()

    def data_received(self, data: bytes) -> None:
        if self._streaming is not None:
            self._drop(self._streaming, len(data))
        elif len(data) <= _PIECE_BYTES and not self.pipeline and not self._rest:
            self._take(data)
        else:
            self._rest = self._rest + data if self._rest else data
            self._take_rest()

    def begin_stream(self, cycle: RequestResponseCycle) -> None:
        """Called before a stream is written. Requests pipelined behind it are not answered."""
        if self.transport.is_closing():
            return
        self._streaming, self._unread = cycle, 0
        if self.is_behind or not self._whole or self.cycle is not cycle:
            self._drop(cycle, len(self._rest))
            self._be_patient()
            for waiting, _ in self.pipeline:
                waiting.on_response = _nothing
            self.pipeline.clear()
            self._rest, self.cycle = b"", cycle
        self.flow.resume_reading()

    def _drop(self, stream: RequestResponseCycle, size: int) -> None:
        stream.keep_alive = False
        self._unread += size
        if self._unread > _UNREAD_BYTES:
            self.transport.abort()

    @property
    def is_behind(self) -> bool:
        """Are there requests behind the one that is being served?"""
        return bool(self.pipeline or self._rest)

    def _take_rest(self) -> None:
        """Parses what is left, piece by piece, until a request has to wait."""
        rest, at = memoryview(self._rest), 0
        while at < len(rest) and not self.pipeline and not self._refused:
            size = _PIECE_BYTES if self._in_head or self._whole else _BODY_PIECE_BYTES
            self._take(rest[at : at + size])
            at += size
        if at >= len(rest) or self._refused or self.transport.is_closing():
            self._rest = b""
        else:
            self._rest = self._rest[at:]
            self.flow.pause_reading()

    def _take(self, data: bytes | memoryview) -> None:
        if self._refused:
            return
        self._size += len(data)
        self._quiet_since = math.inf
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("")
        except httptools.HttpParserUpgrade:
            self._unsupported_upgrade_warning()
        if self._whole:
            self._size, self._several = 0, False
            if self._patience is not None:
                self._be_patient()
        elif self._in_head:
            if self._several:  # what came was the end of one request and the beginning of another
                self._size, self._several = 0, False
            elif self._size > self.bounds.head_bytes:
                self._refuse(
                    431,
                    "HEAD_TOO_LARGE",
                    f"the request's head is over {self.bounds.head_bytes:,} bytes",
                )
            if self._patience is None and not self._refused:
                self._patience = self.loop.call_later(self.bounds.head_seconds, self._lose_patience)
        elif not self._refused:
            self._be_patient()
            self._patience = self.loop.call_later(
                self.bounds.body_idle_seconds, self._lose_patience
            )

    # Called by the parser

    def on_message_begin(self) -> None:
        self._in_head, self._whole, self._unread = True, False, 0
        self.url, self.headers = b"", []
        self.scope = scope = self._blank.copy()  # type: ignore[assignment]
        scope["headers"] = self.headers

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Does what uvicorn does, without websockets, root paths and uvicorn's own concurrency
        limit."""
        self._in_head = False
        if self._size > self.bounds.head_bytes and self._head_size() > self.bounds.head_bytes:
            self.app = large_head
        headers, self.headers = dict(self.headers), _NOBODYS
        keep_alive = self.parser.should_keep_alive()
        if not keep_alive or not headers.keys().isdisjoint(
            _KEEPING
        ):  # without a word about it, only HTTP/1.1 is kept alive
            self.scope["http_version"] = version = self.parser.get_http_version()
            keep_alive = keep_alive and version != "1.0"
        self._fill_scope()
        before: RequestResponseCycle | None = self.cycle
        self.cycle = cycle = Cycle(
            self, headers, keep_alive and not self.bounds.ending and self.app is self._usual
        )
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _fill_scope(self) -> None:
        scope, parser, url = self.scope, self.parser, self.url
        scope["method"] = parser.get_method().decode("ascii")
        if url[:1] == b"/" and _HASH not in url:
            raw_path, _, query = url.partition(b"?")
        else:  # also with a host in it
            parsed = httptools.parse_url(url)
            raw_path, query = parsed.path, parsed.query or b""
        path = raw_path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"], scope["query_string"] = raw_path, query

    def on_body(self, body: bytes) -> None:
        cycle: Cycle = self.cycle  # type: ignore[assignment]
        if not cycle.response_complete:
            if cycle.add(body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            return
        self._unread += len(body)
        if self._unread > _UNREAD_BYTES:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        self._whole = self._several = True
        cycle: Cycle = self.cycle  # type: ignore[assignment]
        if not cycle.response_complete:
            cycle.end()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # Patience

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        """Closes a connection that sent nothing in time, unless it is this side that paused
        reading."""
        self._patience = None
        if self.flow.read_paused:
            self._patience = self.loop.call_later(
                self.bounds.body_idle_seconds, self._lose_patience
            )
        else:
            self.end()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._at_pace:
            self._at_pace = False
            # One iteration later, so that the disconnect of a client that left at once has been
            # read.
            self.loop.call_soon(self.bounds.pace.add, lambda: self._begin(cycle, app))
        else:
            self._run(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> bool:
        """Starts the request unless the client has gone; returns whether it did."""
        if self.transport.is_closing():
            cycle.on_response = _nothing
            return False
        self._run(cycle, app)
        return True

    def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Gives the request to the connection's task. At most one request waits for it, because the
        next one starts when this one is answered."""
        self._next, self._answering = (cycle, app), cycle
        if self._task is None:
            self._task = self.loop.create_task(self._work())
            self._task.add_done_callback(self.tasks.discard)
            self.tasks.add(self._task)
        else:
            self._wake()

    async def _work(self) -> None:
        try:
            while True:
                while self._next is not None:
                    (cycle, app), self._next = self._next, None
                    fault: Exception | None = None
                    try:
                        await app(cycle.scope, cycle.receive, cycle.send)
                    # uvicorn's coroutine below logs the fault and answers 500.
                    except Exception as error:  # noqa: BLE001
                        fault = error
                    if fault is not None or not cycle.response_complete:
                        await cycle.run_asgi(_ending_with(fault))
                    cycle.on_response = _nothing
                if self._gone:
                    return
                self._idle = self.loop.create_future()
                await self._idle
        except BaseException:
            self.transport.abort()  # nothing would serve the next request
            raise
        finally:
            self._task = None

    def _wake(self) -> None:
        idle, self._idle = self._idle, None
        if idle is not None and not idle.done():
            idle.set_result(None)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self._answering = self._streaming = None
        self._at_pace = bool(self.pipeline)
        if self.transport.is_closing():
            self._rest = b""
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._quiet_since = self.loop.time()
            if self.timeout_keep_alive_task is None:
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
        if self._rest:
            self._take_rest()
        if not self._whole and not self.transport.is_closing():
            self.loop.call_later(_LINGER_SECONDS, self._end_unread, self.cycle)

    def _end_unread(self, cycle: RequestResponseCycle) -> None:
        """Closes the connection, unless the rest of the request arrived after all: then the client
        may have sent its next request."""
        if self.cycle is cycle and not self._whole:
            self.end()

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._quiet_since == math.inf:
            return  # the next answer sets it again
        left = self._quiet_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(
                left, self.timeout_keep_alive_handler
            )
        else:
            self.end()

    def answer_and_close(self) -> None:
        """Closes the connection after the current answer, if there is one."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False

    def end(self) -> None:
        """Closes the connection. Waits a few seconds for the client to read what is buffered."""
        if self.transport.get_write_buffer_size():
            self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)
        self.transport.close()

    # Answers below ASGI

    def send_400_response(self, msg: str) -> None:
        """Answers bytes that are not HTTP. Requests before them are answered first, and then the
        connection closes."""
        cycle: RequestResponseCycle | None = self.cycle
        if (self._whole or self._in_head) and cycle is not None and not cycle.response_complete:
            self._refused = True
            cycle.keep_alive = False
            return
        self._refuse(400, "BAD_REQUEST", "this is no HTTP/1.1 request that could be understood")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self._refused = True
        self._be_patient()
        body = problem_body(status, code, detail)
        more = (
            f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
        )
        if not self.transport.is_closing():
            self.transport.write(
                STATUS_LINE[status] + more.encode() + b"%b: %b\r\n\r\n" % PROTOCOL_SPOKEN + body
            )
            self.end()


class _Flow(FlowControl):
    """uvicorn's flow control, but nothing is read while requests wait."""

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        super().__init__(transport)
        self._protocol: Protocol | None = protocol

    def resume_reading(self) -> None:
        if self.read_paused and self._protocol is not None and not self._protocol.is_behind:
            super().resume_reading()

    def begin_stream(self, cycle: RequestResponseCycle) -> None:
        """See Protocol.begin_stream."""
        if self._protocol is not None:
            self._protocol.begin_stream(cycle)

    def part(self) -> None:
        """Breaks the reference cycle when the connection is lost."""
        self._protocol = None


class _Trailers(list[tuple[bytes, bytes]]):
    """Drops the trailers behind a body. Access has been decided by the headers, and trailers must
    not change it."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Drops the trailer."""


_NOBODYS: Final = _Trailers()


def _nothing() -> None:
    """The `on_response` of requests that nobody waits for."""


def _ending_with(fault: Exception | None) -> Any:
    """An application that fails as another one did, so that uvicorn's own handling of missing and
    incomplete answers applies."""

    async def ending(*_: object) -> None:
        if fault is not None:
            raise fault

    return ending


def protocol_with(bounds: Bounds) -> type[Protocol]:
    """A protocol class with these bounds. uvicorn makes an instance for each connection."""
    return type("BoundProtocol", (Protocol,), {"bounds": bounds})
