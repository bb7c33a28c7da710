"""Many requests on one connection, sent ahead of their answers: thousands of them in seconds."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

PATIENCE_SECONDS = 30.0
_AT_ONCE = 64


class Request(NamedTuple):
    """What is sent."""

    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    stream: bool = False
    """May its answer be one that does not end? Then only its head is read."""

    def bytes(self) -> bytes:
        data = b"" if self.body is None else json.dumps(self.body).encode()
        given = {"host": "127.0.0.1", **self.headers} | (
            {} if self.body is None else {"content-type": "application/json"}
        )
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in given.items()),
        ]
        return "\r\n".join([*lines, f"content-length: {len(data)}", "", ""]).encode() + data


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    """But for the date."""
    body: bytes


class Pipeline:
    """One connection at a time to a service on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open()

    def ask(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """The answers, in order."""
        rest = iter(requests)
        while batch := list(islice(rest, _AT_ONCE)):
            ahead = [request for request in batch if not request.stream]
            self._socket.sendall(b"".join(request.bytes() for request in ahead))
            answers = iter([self._read() for _ in ahead])
            for request in batch:
                yield self._alone(request) if request.stream else next(answers)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE_SECONDS)
        self._file = self._socket.makefile("rb")

    def _alone(self, request: Request) -> Answer:
        self._socket.sendall(request.bytes())
        answer = self._read()
        if "content-length" not in answer.headers:
            self.close()
            self._open()
        return answer

    def _read(self) -> Answer:
        status = int(self._file.readline().split(b" ", 2)[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        headers.pop("date", None)
        return Answer(status, headers, self._file.read(int(headers.get("content-length", 0))))
