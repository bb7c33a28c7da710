"""A client that costs little, so that the server is what is measured: requests as prepared bytes,
answers read by their length."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

_LENGTH = b"content-length: "


class Measured(NamedTuple):
    """What a run took."""

    seconds: float
    latencies: list[float]
    bodies: list[bytes]

    def rate(self, each: int = 1) -> float:
        """So many things a second, if each request did `each`."""
        return len(self.latencies) * each / self.seconds


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """A request's bytes."""
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n"
    if body:
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class _Connection(asyncio.Protocol):
    """Sends one request after the other, each when the one before has been answered."""

    def __init__(
        self, requests: Iterator[bytes], done: Callable[[int, bytes, float], None]
    ) -> None:
        self._requests, self._done = requests, done
        self._buffer = b""
        self._sent = 0.0
        self.finished = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def begin(self) -> None:
        """The first request, or the next."""
        following = next(self._requests, None)
        if following is None:
            self._transport.close()
            self.finished.set_result(None)
            return
        self._sent = time.perf_counter()
        self._transport.write(following)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self._buffer.find(_LENGTH, 0, end)
        length = int(self._buffer[at + len(_LENGTH) : self._buffer.find(b"\r", at)])
        if len(self._buffer) < end + 4 + length:
            return
        body, self._buffer = self._buffer[end + 4 : end + 4 + length], b""
        self._done(
            int(data[9:12]) if data.startswith(b"HTTP") else 0,
            body,
            time.perf_counter() - self._sent,
        )
        self.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(
                exc or ConnectionError("the server has closed the connection")
            )


async def send_all(port: int, requests: list[list[bytes]], *, keep: bool = False) -> Measured:
    """One connection for each list of requests; all begin together."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    bodies: list[bytes] = []
    wrong: list[bytes] = []

    def done(status: int, body: bytes, took: float) -> None:
        latencies.append(took)
        if status not in (0, 200):
            wrong.append(body)
        if keep:
            bodies.append(body)

    connections = [
        (
            await loop.create_connection(
                lambda own=own: _Connection(iter(own), done),  # type: ignore[misc]
                "127.0.0.1",
                port,
            )
        )[1]
        for own in requests
    ]
    start = time.perf_counter()
    for connection in connections:
        connection.begin()
    await asyncio.gather(*(connection.finished for connection in connections))
    if wrong:
        raise AssertionError(
            f"{len(wrong)} requests were not answered 200, the first: {wrong[0]!r}"
        )
    return Measured(time.perf_counter() - start, latencies, bodies)
