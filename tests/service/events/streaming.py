"""What the tests of the streams need: a service of streams alone, and a client that reads as a
browser does."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from genlock.engine.engine import Engine
from genlock.errors import GenlockError
from genlock.reads.reader import Reader
from genlock.service.events import (
    EventBroker,
    StreamSettings,
    check_filters,
    note_transport,
    serve_stream,
)
from genlock.wire.problems import status_of
from tests.servers.service import PATIENCE_SECONDS, Hosted


class Service(Hosted):
    """A server with nothing but streams. `/t/p` streams a project, `/t` all of a tenant, `/t/p,q`
    two of them."""

    def __init__(self, engine: Engine, send_buffer: int | None = None, **settings: Any) -> None:
        super().__init__(self)
        if send_buffer is not None:
            settings["send_buffer_bytes"] = send_buffer
        self.broker = EventBroker(Reader(engine), StreamSettings(**settings))
        self.visible: Callable[[str], bool] | None = None
        self.allowed = True
        self.trouble: Exception | None = None
        """What comes of asking whether a stream is still allowed."""
        self.asked = threading.Event()
        """Has anybody asked whether a stream is still allowed?"""
        self.errors: list[str] = []
        self.complaints: list[str] = []
        """Of the event loop."""
        self._routes = Starlette(
            routes=[
                Route("/{tenant}", _Streaming(self)),
                Route("/{tenant}/{projects}", _Streaming(self)),
            ]
        )

    def __enter__(self) -> Self:
        self._handler = _Collecting(self.errors)
        logging.getLogger("uvicorn.error").addHandler(self._handler)
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.do(self.broker.close())
        super().__exit__(kind, error, trace)
        logging.getLogger("uvicorn.error").removeHandler(self._handler)
        assert error is not None or not self.errors + self.complaints, self.errors + self.complaints

    async def open(self) -> Any:
        self.loop.set_exception_handler(lambda _, told: self.complaints.append(told["message"]))
        return await super().open()

    async def still_allowed(self) -> bool:
        self.asked.set()
        if self.trouble is not None:
            raise self.trouble
        return self.allowed

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        note_transport(scope, send)
        await self._routes(scope, receive, send)


class _Streaming:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._stream(scope, receive, send)
        except GenlockError as error:
            await JSONResponse({"code": error.code, "detail": str(error)}, status_of(error))(
                scope, receive, send
            )

    async def _stream(self, scope: Any, receive: Any, send: Any) -> None:
        asked = Request(scope).query_params
        tenant, projects = scope["path_params"]["tenant"], scope["path_params"].get("projects")
        where: dict[str, Any] = (
            {"places": [(tenant, project) for project in projects.split(",")]}
            if projects
            else {"tenant": tenant, "visible": self._service.visible}
        )
        filters = check_filters(
            asked.getlist("task"), asked.getlist("session"), asked.getlist("type")
        )
        more: dict[str, Any] = {"after": asked.get("after"), "shape": asked.get("shape", "genlock")}
        broker, allowed = self._service.broker, self._service.still_allowed
        await serve_stream(
            broker, scope, receive, send, filters=filters, still_allowed=allowed, **where, **more
        )


class _Collecting(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(
            f"{record.getMessage()} {record.exc_info[1] if record.exc_info else ''}"
        )


class Event(NamedTuple):
    """One event as a browser would hand it on, with the id that it would send when it comes
    back."""

    id: str
    name: str
    data: Any


class Client:
    """Reads one stream. Fails instead of waiting for ever."""

    def __init__(
        self,
        port: int,
        path: str,
        *,
        last: str = "",
        receive_buffer: int | None = None,
        headers: Mapping[str, str] = {},
        method: str = "GET",
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect(("127.0.0.1", port))
        sent = {"Host": "localhost", **headers} | ({"Last-Event-ID": last} if last else {})
        lines = [
            f"{method} {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in sent.items()),
            "",
            "",
        ]
        self.socket.sendall("\r\n".join(lines).encode())
        self.last = last
        self.retry: int | None = None
        self.comments = 0
        self.ended = False
        self._file = self.socket.makefile("rb")
        self._text = b""
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while line := self._file.readline().strip().decode():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def body(self) -> Any:
        """Of an answer that is no stream."""
        return json.loads(self._file.read(int(self.headers["content-length"])))

    def block(self) -> str | None:
        """The next lines up to an empty one, as they were sent; None at the end of the stream.
        `ConnectionError` if it is cut off."""
        while b"\n\n" not in self._text:
            line = self._file.readline()
            if not line:
                raise ConnectionResetError("the stream is cut off")
            size = int(line, 16)
            if size == 0:
                self.ended = True
                return None
            self._text += self._file.read(size)
            self._file.read(2)
        block, _, self._text = self._text.partition(b"\n\n")
        return self._noted(block.decode())

    def _noted(self, block: str) -> str:
        for line in block.split("\n"):
            field, _, value = line.partition(": ")
            match field:
                case "":
                    self.comments += 1
                case "id":
                    self.last = value
                case "retry":
                    self.retry = int(value)
                case _:
                    assert field in ("event", "data"), f"no field of a stream: {line!r}"
        return block

    def event(self) -> Event | None:
        """The next event; None at the end of the stream."""
        while (block := self.block()) is not None:
            fields = dict(line.partition(": ")[::2] for line in block.split("\n"))
            if "data" in fields:
                return Event(self.last, fields.get("event", "message"), json.loads(fields["data"]))
        return None

    def events(self) -> Iterator[Event]:
        """All, until the stream ends."""
        while (event := self.event()) is not None:
            yield event

    def take(self, count: int) -> list[Event]:
        """The next so many."""
        found = [event for _, event in zip(range(count), self.events(), strict=False)]
        assert len(found) == count, f"the stream ended after {len(found)} of {count}"
        return found


@contextmanager
def streaming(engine: Engine, **settings: Any) -> Iterator[Service]:
    """The service, for a block."""
    with Service(engine, **settings) as service:
        yield service


def broken_off(client: Client) -> list[Event]:
    """Reads on to where the connection is cut off, as it must be, rather than ended in good
    order."""
    found: list[Event] = []
    try:
        for event in client.events():
            found.append(event)  # noqa: PERF402 - what was found before the end counts
    except ConnectionError:
        return found
    raise AssertionError("the stream was not cut off")
