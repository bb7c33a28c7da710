"""A stream over HTTP: a subscription written to one client's socket through ASGI.

Besides the client, two things end a stream: the broker, and a socket that takes nothing. Both set a
deadline for what is being sent. After the deadline the connection is aborted, because closing it
would mean waiting until the client reads.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from genlock.errors import GenlockError
from genlock.service.events.batches import EVERYTHING, Batch, Filters, Rows
from genlock.service.events.broker import Allowed, EventBroker, StreamRequest
from genlock.service.events.cursors import Place
from genlock.service.events.formats import (
    BEAT,
    GENLOCK,
    ROW,
    check_shape,
    id_line,
    mark,
    notice,
    retry_line,
)
from genlock.service.events.settings import LEFT, Ending
from genlock.service.events.subscription import Subscription
from genlock.service.request import Receive, Scope, Send

PIECE = 16 * 1024
"""Bytes per write. The next piece follows when the socket has taken the last one."""
ABORT_SECONDS = 1.0
_TRANSPORT = "genlock.transport"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),
    (b"x-accel-buffering", b"no"),
]
"""Nothing between service and client may cache, compress or buffer the stream."""


async def serve_stream(
    broker: EventBroker,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    places: tuple[Place, ...] | list[Place] = (),
    tenant: str | None = None,
    visible: Callable[[str], bool] | None = None,
    after: str | None = None,
    filters: Filters = EVERYTHING,
    shape: str = GENLOCK,
    still_allowed: Allowed | None = None,
    caller: str = "",
) -> None:
    """Answers a request with a stream of these projects, or of all visible projects of a tenant.

    `after` comes from the URL: a cursor, "start" or nothing. The header Last-Event-ID takes
    precedence. Errors are raised before anything is sent (see `EventBroker.open`).
    """
    check_shape(shape)
    after = last_event_id(scope) or after or None
    wish = StreamRequest(
        places=tuple(places),
        tenant=tenant,
        visible=visible,
        after=after,
        filters=filters,
        still_allowed=still_allowed,
        caller=caller,
    )
    if _TRANSPORT not in scope:
        note_transport(scope, send)
    subscription = await broker.open(wish)
    try:
        transport: asyncio.Transport | None = scope.get(_TRANSPORT)
        if transport is not None:
            _bound(transport, broker.settings.send_buffer_bytes)
        await _Stream(
            broker,
            subscription,
            shape,
            receive,
            send,
            None if transport is None else transport.abort,
        ).run()
    finally:
        broker.release(subscription)


def last_event_id(scope: Scope) -> str:
    """The last id that a reconnecting client has received; "" if it sends none."""
    for name, value in scope["headers"]:
        if name == b"last-event-id":
            text: str = value.decode("latin-1").strip()
            return text
    return ""


def _bound(transport: asyncio.Transport, send_buffer_bytes: int) -> None:
    """Keeps the buffers of transport and system small. Unread events stay in the queue, whose
    texts streams share."""
    transport.set_write_buffer_limits(high=0)
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX:
        with suppress(OSError):  # the client may have disconnected
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)


class _Stream:
    def __init__(
        self,
        broker: EventBroker,
        subscription: Subscription,
        shape: str,
        receive: Receive,
        send: Send,
        abort: Callable[[], None] | None,
    ) -> None:
        self._settings = broker.settings
        self._broker = broker
        self._subscription = subscription
        self._cursors = subscription.cursors
        self._shape = shape
        self._receive = receive
        self._send = send
        self._abort = abort
        self._limit = asyncio.timeout(None)
        self._told: str | None = None
        """The last id that was sent to the client."""

    async def run(self) -> None:
        leaving = asyncio.create_task(self._await_leaving())
        try:
            await self._run_within()
        except TimeoutError:
            if self._abort is not None:
                self._abort()
            await asyncio.wait([leaving], timeout=ABORT_SECONDS)
        finally:
            leaving.cancel()

    async def _run_within(self) -> None:
        try:
            async with self._limit:
                self._subscription.on_end = self._hurry
                if self._subscription.ending is not None:
                    self._hurry(self._subscription.ending)
                await self._begin()
                await self._write_all()
                await self._part()
        finally:
            self._subscription.on_end = None  # the stream is over

    async def _write_all(self) -> None:
        try:
            while (batches := await self._subscription.take()) is not None:
                await self._write(batches)
        except GenlockError as error:
            # The rows could not be read. The client reconnects and resumes.
            self._subscription.fail(error)

    async def _await_leaving(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._subscription.end(LEFT)

    # Content

    async def _begin(self) -> None:
        self._told = self._cursors.id()
        await self._within({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._body(
            retry_line(self._settings.retry_ms)
            + (id_line(self._told) if self._told else b"")
            + b"\n"
        )

    async def _write(self, batches: list[Batch]) -> None:
        """Writes batches in pieces, or a heartbeat if there are none."""
        piece: list[bytes] = []
        size = 0
        told = self._told
        if self._shape == ROW:
            texts = self._texts_with_rows(batches, await self._rows(batches))
        else:
            texts = self._texts(batches)
        for id, text in texts:
            told = id
            piece.append(text)
            size += len(text)
            if size >= PIECE:
                await self._pieces(piece)
                self._told, piece, size = told, [], 0
        if piece or not batches:
            await self._body(b"".join(piece) or self._sign_of_life())
            self._told = self._cursors.id() if not batches else told

    async def _pieces(self, texts: list[bytes]) -> None:
        """Sends texts in pieces. A long text may be shared with other streams, so only the next
        piece is copied."""
        *short, long = texts
        start = b"".join(short)
        view = memoryview(long)
        while start or view:
            part, view = view[: PIECE - len(start)], view[PIECE - len(start) :]
            await self._body(start + part)
            start = b""

    def _texts(self, batches: list[Batch]) -> Iterator[tuple[str, bytes]]:
        """Yields each text with the id that the client has received after it."""
        for batch in batches:
            if batch.whole and not self._cursors.several:
                # One text for all streams of this feed alone.
                self._cursors.set(batch.place, batch.cursor)
                if text := batch.text(self._shape):
                    yield batch.items[-1].cursor, text
                continue
            for item in batch.items:
                self._cursors.set(item.place, item.cursor)
                if text := item.text(self._shape):
                    id = self._cursors.id() or ""
                    yield id, id_line(id) + text

    async def _rows(self, batches: list[Batch]) -> list[Rows]:
        return [await self._broker.rows(batch) for batch in batches]

    def _texts_with_rows(
        self, batches: list[Batch], rows: list[Rows]
    ) -> Iterator[tuple[str, bytes]]:
        """Yields events with rows. If a batch has several events of a task, the last one carries
        its row. An event of a session is sent once for each task that it holds."""
        for batch, found in zip(batches, rows, strict=True):
            last = {item: task for task, item in batch.tasks().items()}
            said = {item: session for session, item in batch.sessions().items()}
            for item in batch.items:
                self._cursors.set(item.place, item.cursor)
                id = self._cursors.id() or ""
                held: list[bytes | None] = [*found.held_by.get(said.get(item, ""), ())]
                for row in held or [found.of_tasks.get(last.get(item, ""))]:
                    yield id, id_line(id) + item.with_row(row)

    def _sign_of_life(self) -> bytes:
        """A heartbeat. If its feeds have moved without events for this client, it carries the new
        id, so that the client does not read those events again when it resumes."""
        here = self._cursors.id()
        return BEAT if here is None or here == self._told else BEAT + mark(here)

    async def _part(self) -> None:
        """Sends the last event of the stream, if its ending has one."""
        ending = self._subscription.ending
        if ending is None or not ending.name:
            return
        retry_ms = self._settings.retry_ms if ending.retry_ms is None else ending.retry_ms
        words = notice(ending.name, reason=ending.reason, code=ending.code, after=self._told)
        await self._body(retry_line(retry_ms) + words, more=False)

    # Sending

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._within({"type": "http.response.body", "body": body, "more_body": more})

    async def _within(self, message: dict[str, Any]) -> None:
        """Sends a message, with a deadline for a socket that takes nothing; the deadline is shorter
        if the stream is ending."""
        if self._subscription.ending is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._settings.send_seconds)
        await self._send(message)
        if self._subscription.ending is None:
            self._limit.reschedule(None)

    def _hurry(self, ending: Ending) -> None:
        self._limit.reschedule(asyncio.get_running_loop().time() + self._settings.farewell_seconds)


def note_transport(scope: Scope, send: Send) -> None:
    """Notes the transport in the scope, so that a stream can limit and abort its connection even if
    `send` is wrapped later."""
    # ASGI does not offer the transport. uvicorn's `send` is a method of an object that has it; with
    # other servers there is nothing to note.
    transport: Any = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is not None:
        scope[_TRANSPORT] = transport
