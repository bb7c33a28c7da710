"""One request and its answer: uvicorn's cycle with a fast path for whole bodies and whole answers.

Attributes that most requests never use are class attributes instead of being set for each request.
A complete body is handed over, and a complete answer written, without an await. uvicorn handles
everything else, such as bodies in pieces and answers in parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from genlock.service.request import WHOLE

if TYPE_CHECKING:
    from genlock.service.http.protocol import Protocol, _Flow


_STREAM: Final = b"text/event-stream"


class Cycle(RequestResponseCycle):
    """One request and its answer on a connection."""

    disconnected = False
    more_body = True
    body: bytes | bytearray = b""  # type: ignore[assignment]
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    access_log = False
    waiting_for_100_continue = False
    logger = logging.getLogger("uvicorn.error")

    _until_closed = False
    """Does the end of the connection mark the end of the answer?"""

    def __init__(self, protocol: Protocol, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        """Takes what it needs from its connection without a reference cycle, so that both are freed
        when the connection is gone."""
        self.headers = headers
        self.message_event = asyncio.Event()
        self.scope = protocol.scope
        self.transport = protocol.transport
        self.flow: _Flow = protocol.flow
        self.default_headers = protocol.server_state.default_headers
        self.on_response: Callable[[], None] = protocol.on_response_complete
        self.keep_alive = keep_alive
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self.waiting_for_100_continue = True

    def add(self, piece: bytes) -> int:
        """Adds a piece of the body; returns the size so far."""
        if not self.body:
            self.body = piece
        elif type(self.body) is bytearray:
            self.body += piece
        else:
            self.body = bytearray(self.body) + piece
        self.message_event.set()
        return len(self.body)

    def end(self) -> None:
        """Marks the request as complete."""
        self.more_body = False
        self.message_event.set()

    # The fast path for the application, without await

    def take_body(self) -> bytes | None:
        """The body if it is complete, else None: then the application awaits `receive`."""
        if self.more_body or self.disconnected or self.response_complete:
            return None
        if self.flow.read_paused:
            self.flow.resume_reading()
        self.message_event.clear()
        body, self.body = self.body, b""
        return bytes(body)

    def write(self, status: int, head: bytes, body: bytes) -> bool:
        """Writes a whole answer; `head` has neither the status line nor the final line break.
        Returns False if that is not possible now: then the application awaits `send`."""
        if self.flow.write_paused or self.disconnected:
            return False
        for one in self.default_headers:
            head += b"%b: %b\r\n" % one
        if not self.keep_alive:
            head += b"connection: close\r\n"
        self.transport.write(
            b"".join(
                (
                    STATUS_LINE[status],
                    head,
                    b"\r\n",
                    b"" if self.scope["method"] == "HEAD" else body,
                )
            )
        )
        self.response_started = self.response_complete = True
        if self.waiting_for_100_continue:
            self.waiting_for_100_continue = False
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True

    # The ASGI interface

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        if message["type"] != WHOLE:
            if message["type"] == "http.response.start" and any(
                value.startswith(_STREAM) for _, value in message["headers"]
            ):
                self.flow.begin_stream(self)
            if self.scope["http_version"] == "1.0":
                self._spare_chunks(message)
            await super().send(message)  # type: ignore[arg-type]
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        self.write(message["status"], message["head"], message["body"])

    def _spare_chunks(self, message: MutableMapping[str, Any]) -> None:
        """Closes the connection after an answer without a length to an HTTP/1.0 client, which does
        not understand chunks."""
        if message["type"] == "http.response.start":
            if all(name.lower() != b"content-length" for name, _ in message["headers"]):
                self._until_closed, self.chunked_encoding, self.keep_alive = True, False, False
        elif self._until_closed:
            self.expected_content_length = len(
                message.get("body", b"")
            )  # uvicorn checks the body against this length
