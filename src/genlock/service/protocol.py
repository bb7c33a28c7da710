"""HTTP on one connection: uvicorn's protocol, with patience that ends.

Implementation notes:
- A request that arrives in one piece, as almost all do, costs no timer. One is set when a piece has been read and the request is not
  whole: ten seconds for the head, and for the body as long as something comes every thirty.
- The size of a head is looked at only when a piece, or what came before it, is larger than a head may be.
- An answer to a request that has not been read to its end is followed by the end of the connection: what is still to come would be read
  for nothing.
- What cannot be parsed is answered as a problem like any other.
- The first request of a connection, and one that was sent before the one ahead of it was answered, wait until the event loop comes round
  to them, one each time: however many connect at once, or send without listening, those who talk with us pass between any two of them.
- Requests that come before the one ahead of them is answered are parsed only as far as one piece goes. The rest stays as bytes, and nothing
  more is read meanwhile: uvicorn alone would read on after every answer, and a client that sends without reading would fill the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from genlock.service.exchange import API, JSON, WHOLE
from genlock.service.limits import Pace
from genlock.wire.problems import CONTENT_TYPE, Problem, type_of

HEAD_BYTES: Final = 16 * 1024
HEAD_SECONDS: Final = 10.0
BODY_IDLE_SECONDS: Final = 30.0
_PIECE_BYTES: Final = 16 * 1024
_BODY_PIECE_BYTES: Final = 64 * 1024
_UNREAD_BYTES: Final = 256 * 1024
"""So much is read and thrown away of what comes after its answer; the client that goes on has to wait for the end."""
_LINGER_SECONDS: Final = 2.0
_EXTENSIONS: Final[dict[str, dict[str, Any]]] = {WHOLE: {}}
_CLOSE_SECONDS: Final = 5.0


class Bounds:
    """What connections may take, and whether the service still wants any. One for all connections."""

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
        """Set when the last connection has gone, once the end has begun."""


class Cycle(RequestResponseCycle):
    """One request and its answer: uvicorn's, that also takes an answer in one piece.

    Most answers are ours and come so: nothing of them has to be looked at, and head and body leave at once.
    """

    _until_closed = False
    """Does the answer end where the connection does?"""

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        if message["type"] != WHOLE:
            if self.scope["http_version"] == "1.0":
                self._spare_chunks(message)
            await super().send(message)  # type: ignore[arg-type]
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        head = STATUS_LINE[message["status"]] + message["head"]
        for one in self.default_headers:
            head += b"%b: %b\r\n" % one
        if not self.keep_alive:
            head += b"connection: close\r\n"
        self.transport.write(head + b"\r\n" + (b"" if self.scope["method"] == "HEAD" else message["body"]))
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _spare_chunks(self, message: MutableMapping[str, Any]) -> None:
        """A client of HTTP/1.0 knows no chunks: what has no length ends with the connection."""
        if message["type"] == "http.response.start":
            if all(name.lower() != b"content-length" for name, _ in message["headers"]):
                self._until_closed, self.chunked_encoding, self.keep_alive = True, False, False
        elif self._until_closed:
            self.expected_content_length = len(message.get("body", b""))  # by which uvicorn holds us to what was announced


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
        """Does the next request wait for its turn?"""
        self.flow = _Flow(transport, self)
        open_now, most = len(self.connections), self.bounds.connections
        if open_now > most + most // 10 + 10:
            transport.abort()
            return
        if open_now > most:
            self.app = _full_but_for_health(self._usual)
        self._patience = self.loop.call_later(self.bounds.head_seconds, self._lose_patience)

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient()
        self._rest = b""
        super().connection_lost(exc)
        # What a connection is made of refers to each other. Parted, it goes at once; left to the collector, thousands that come and go
        # would be heaped up, and everybody waits when they are cleared away.
        for cycle, _ in self.pipeline:
            cycle.on_response = _nothing
        self.pipeline.clear()
        self.flow.part()
        if self.bounds.ending and not self.connections:
            self.bounds.empty.set()

    def data_received(self, data: bytes) -> None:
        if len(data) <= _PIECE_BYTES and not self.is_behind:
            self._take(data)
        else:
            self._rest = self._rest + data if self._rest else data
            self._take_rest()

    @property
    def is_behind(self) -> bool:
        """Is there more to do than the request that is being answered?"""
        return bool(self.pipeline or self._rest)

    def _take_rest(self) -> None:
        """Piece by piece, until a request has to wait."""
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
        super().data_received(data)  # type: ignore[arg-type]
        if self._whole:
            self._size, self._several = 0, False
            if self._patience is not None:
                self._be_patient()
        elif self._in_head:
            if self._several:  # what came was the end of one request and the beginning of another
                self._size, self._several = 0, False
            elif self._size > self.bounds.head_bytes:
                self._refuse(431, "HEAD_TOO_LARGE", f"the request's head is over {self.bounds.head_bytes:,} bytes")
            if self._patience is None and not self._refused:
                self._patience = self.loop.call_later(self.bounds.head_seconds, self._lose_patience)
        elif not self._refused:
            self._be_patient()
            self._patience = self.loop.call_later(self.bounds.body_idle_seconds, self._lose_patience)

    # Called by the parser

    def on_message_begin(self) -> None:
        self._in_head, self._whole, self._unread = True, False, 0
        super().on_message_begin()
        self.scope["extensions"] = _EXTENSIONS  # type: ignore[typeddict-item]

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._size > self.bounds.head_bytes and self._head_size() > self.bounds.head_bytes:
            self.app = _large_head
        super().on_headers_complete()
        self.headers = _NOBODYS
        self.cycle.__class__ = Cycle  # uvicorn makes it of its own
        if self.bounds.ending or self.app is not self._usual:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._unread += len(body)
            if self._unread > _UNREAD_BYTES:
                self.flow.pause_reading()
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._whole = self._several = True
        super().on_message_complete()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # Patience

    def _be_patient(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        """Nothing more came in time. If it is we who do not read, the client is not to blame."""
        self._patience = None
        if self.flow.read_paused:
            self._patience = self.loop.call_later(self.bounds.body_idle_seconds, self._lose_patience)
        else:
            self.end()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if self._at_pace:
            self._at_pace = False
            # Not before the loop has been round once: the client's end, if it has left at once, is read by then.
            self.loop.call_soon(self.bounds.pace.add, lambda: self._begin(cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> bool:
        """Unless the client has gone meanwhile."""
        if self.transport.is_closing():
            cycle.on_response = _nothing
            return False
        super()._start_asgi_task(cycle, app)
        return True

    def on_response_complete(self) -> None:
        self._at_pace = bool(self.pipeline)
        super().on_response_complete()
        if self._rest:
            self._take_rest()
        if not self._whole and not self.transport.is_closing():
            self.loop.call_later(_LINGER_SECONDS, self._end_unread, self.cycle)

    def _end_unread(self, cycle: RequestResponseCycle) -> None:
        """Unless the rest has come after all: then the client may have gone on to its next request."""
        if self.cycle is cycle and not self._whole:
            self.end()

    def timeout_keep_alive_handler(self) -> None:
        self.end()

    def answer_and_close(self) -> None:
        """The answer that is under way, if any, is the last."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False

    def end(self) -> None:
        """Closes; if the client does not take what is left for it, it is left untaken."""
        if self.transport.get_write_buffer_size():
            self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)
        self.transport.close()

    # What is said below ASGI

    def send_400_response(self, msg: str) -> None:
        """What is said to garbage. If it follows good requests that are not answered yet, they are, and then the connection ends."""
        cycle: RequestResponseCycle | None = self.cycle
        if (self._whole or self._in_head) and cycle is not None and not cycle.response_complete:
            self._refused = True
            cycle.keep_alive = False
            return
        self._refuse(400, "BAD_REQUEST", "this is no HTTP/1.1 request that could be understood")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self._refused = True
        self._be_patient()
        body = _problem(status, code, detail)
        more = f"content-type: {CONTENT_TYPE}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        if not self.transport.is_closing():
            self.transport.write(STATUS_LINE[status] + more.encode() + body)
            self.end()


class _Flow(FlowControl):
    """uvicorn's, but nothing is read while there are requests that wait."""

    def __init__(self, transport: asyncio.Transport, protocol: Protocol) -> None:
        super().__init__(transport)
        self._protocol: Protocol | None = protocol

    def resume_reading(self) -> None:
        if self.read_paused and self._protocol is not None and not self._protocol.is_behind:
            super().resume_reading()

    def part(self) -> None:
        """The connection is gone."""
        self._protocol = None


class _Trailers(list[tuple[bytes, bytes]]):
    """What comes behind a body in the form of headers: who is let in for what has been decided by those before it."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Not kept."""


_NOBODYS: Final = _Trailers()


def _nothing() -> None:
    """For those whose answer concerns nobody."""


def _problem(status: int, code: str, detail: str) -> bytes:
    return msgspec.json.encode(Problem(type_of(code), detail.capitalize(), status, detail, code))


def _refusing(status: int, code: str, detail: str) -> Callable[..., Awaitable[None]]:
    """An application that answers only this."""
    problem = _problem(status, code, detail), CONTENT_TYPE.encode()
    refused = msgspec.json.encode({"success": False, "error": code, "message": detail}), JSON

    async def app(scope: MutableMapping[str, Any], _: Callable[..., Any], send: Callable[..., Awaitable[None]]) -> None:
        body, kind = refused if scope["path"].startswith(API) else problem
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"retry-after", b"1")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


_full = _refusing(503, "TOO_MANY_CONNECTIONS", "the service has as many connections as it may have; come again in a second")
_HEALTH: Final = frozenset({"/healthz", "/readyz"})


def _full_but_for_health(usual: Any) -> Callable[..., Awaitable[None]]:
    """For a connection too many: whoever watches the service should not take it for dead because it is full."""

    async def app(scope: MutableMapping[str, Any], receive: Callable[..., Any], send: Callable[..., Awaitable[None]]) -> None:
        await (usual if scope["path"] in _HEALTH else _full)(scope, receive, send)

    return app


_large_head = _refusing(431, "HEAD_TOO_LARGE", "the request's head is larger than heads may be")


def protocol_with(bounds: Bounds) -> type[Protocol]:
    """The protocol under these bounds, for uvicorn, which makes one for each connection."""
    return type("BoundProtocol", (Protocol,), {"bounds": bounds})
