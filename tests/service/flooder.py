"""A process that does to a service whatever it can with three tenths of a core: floods of one kind
after the other, by orders.

It counts its own CPU time and rests whenever it is ahead of its share. An order is a kind, a port
and keys; `stop` ends it, and the answer says how much was sent.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from typing import Any

from genlock.core.key_roles import FRESH_BYTES, compose, write_key
from tests.processes.worker import order, say

SHARE = 0.3
"""Of a core."""
MEGABYTE = 1_000_000
_HALF_OPEN = 500


class Line:
    """One connection that never waits: it sends what there is room for, throws away what comes, and
    opens anew when it was ended."""

    def __init__(self, port: int, pieces: Iterator[bytes]) -> None:
        self._port, self._pieces = port, pieces
        self._socket: socket.socket | None = None
        self._left = memoryview(b"")
        self.sent = self.heard = self.opened = 0

    def push(self) -> None:
        try:
            if self._socket is None:
                self._open()
            self._hear()
            self._send()
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket, self._left = None, memoryview(b"")

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=5)
        self._socket.setblocking(False)
        self.opened += 1

    def _hear(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(262_144)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionResetError
        self.heard += data.count(b"HTTP/1.1 ")

    def _send(self) -> None:
        assert self._socket is not None
        if not self._left:
            self._left = memoryview(next(self._pieces))
        size = self._socket.send(self._left)
        self._left = self._left[size:]
        self.sent += size


def request(method: str, path: str, key: str = "", body: bytes = b"", more: str = "") -> bytes:
    asked = f"authorization: Bearer {key}\r\n" if key else ""
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{asked}{more}content-length: "
        f"{len(body)}\r\n\r\n"
    ).encode() + body


NOISY = "/v1/noisy/default"


def garbage(_: dict[str, Any]) -> Iterator[bytes]:
    """Nothing that is HTTP."""
    return cycle(
        [
            os.urandom(500),
            b"\x16\x03\x01\x02\x00" + os.urandom(300),
            b"GET / HTTP/9.9\r\n\r\n",
            b"\0" * 2000,
            b"GET " + b"a" * 20_000,
        ]
    )


def strangers(_: dict[str, Any]) -> Iterator[bytes]:
    """Many at once on one connection, without a key, with words that are none, and with keys that
    look like ours."""
    for number in count():
        keys = [write_key(compose(os.urandom(FRESH_BYTES))) for _ in range(20)]
        texts = ["", "glk_no", *keys]
        yield b"".join(request("GET", f"{NOISY}/tasks/t{number}", key) for key in texts)


def reads(asked: dict[str, Any]) -> Iterator[bytes]:
    """What it may ask for, without a pause."""
    paths = (
        "/policy",
        "/ready?limit=100",
        "/tasks/t1",
        "/events?limit=500",
        "/track-progress",
        "/sessions",
    )
    return cycle([b"".join(request("GET", NOISY + path, asked["key"]) for path in paths) * 5])


def bodies(asked: dict[str, Any]) -> Iterator[bytes]:
    """A megabyte at a time, all of it as it should be."""
    task = json.dumps({"id": "t1", "description": "x" * 10_000})
    tasks = b'{"tasks":[' + ",".join([task] * (MEGABYTE // len(task))).encode() + b"]}"
    result = json.dumps(
        {"session_id": "s", "generation": 1, "result_data": "x" * MEGABYTE}
    ).encode()
    return cycle(
        [
            request("POST", f"{NOISY}/tasks", asked["key"], tasks),
            request("POST", f"{NOISY}/tasks/t1/submit", asked["key"], result),
        ]
    )


def broken(asked: dict[str, Any]) -> Iterator[bytes]:
    """Bodies that are no JSON, or not what was promised, and what only claims to be large."""
    large = [
        b"[" * MEGABYTE,
        b'{"tasks":[' + b"1," * (MEGABYTE // 2),
        b"\xff" * MEGABYTE,
        b'{"tasks":' + b"9" * MEGABYTE,
    ]
    chunks = (
        request("POST", f"{NOISY}/tasks", asked["key"], more="transfer-encoding: chunked\r\n")
        + b"zz\r\n"
    )
    huge = request("POST", f"{NOISY}/tasks", asked["key"], more="x: y\r\n").replace(
        b"content-length: 0", b"content-length: 99999999999"
    )
    return cycle(
        [*(request("POST", f"{NOISY}/tasks", asked["key"], body) for body in large), chunks, huge]
    )


def half_open(_: dict[str, Any]) -> Iterator[bytes]:
    """A head that drips in and never ends."""
    yield b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    while True:
        yield b"x: y\r\n"


def one_request(asked: dict[str, Any]) -> Iterator[bytes]:
    return cycle([request("GET", f"{NOISY}/policy", asked["key"])])


class Flood:
    """Lines of one kind; the next step is the next line's."""

    def __init__(
        self,
        asked: dict[str, Any],
        pieces: Callable[[dict[str, Any]], Iterator[bytes]],
        lines: int,
        lasting: bool = True,
    ) -> None:
        self.lines = [Line(asked["port"], pieces(asked)) for _ in range(lines)]
        self._next = cycle(self.lines)
        self._lasting = lasting

    def step(self) -> None:
        line = next(self._next)
        line.push()
        if not self._lasting:
            line.close()

    def end(self) -> None:
        for line in self.lines:
            line.close()


KINDS: dict[str, Callable[[dict[str, Any]], Flood]] = {
    "garbage": lambda asked: Flood(asked, garbage, 20),
    "strangers": lambda asked: Flood(asked, strangers, 50),
    "reads": lambda asked: Flood(asked, reads, 50),
    "bodies": lambda asked: Flood(asked, bodies, 20),
    "broken": lambda asked: Flood(asked, broken, 20),
    "slowloris": lambda asked: Flood(asked, half_open, _HALF_OPEN),
    "churn": lambda asked: Flood(asked, one_request, 10, lasting=False),
}


def is_told(seconds: float) -> bool:
    """Is there an order? Waits for one at most so long."""
    return bool(select.select([sys.stdin], [], [], max(seconds, 0))[0])


def flood(asked: dict[str, Any]) -> None:
    flooding = KINDS[asked["kind"]](asked)
    began, used = time.monotonic(), time.process_time()
    for _ in flooding.lines:
        flooding.step()
    say(fact="flooding")
    ahead = 0.0
    while not is_told(ahead / SHARE):
        for _ in range(10):
            flooding.step()
        ahead = time.process_time() - used - SHARE * (time.monotonic() - began)
    flooding.end()
    took = time.monotonic() - began
    say(
        fact="flooded",
        share=(time.process_time() - used) / took,
        megabytes=sum(line.sent for line in flooding.lines) / 1e6 / took,
        answers=sum(line.heard for line in flooding.lines) / took,
        connections=sum(line.opened for line in flooding.lines) / took,
    )


def main() -> None:
    while (asked := order()) is not None:
        if asked["do"] == "flood":
            flood(asked)


if __name__ == "__main__":
    main()
