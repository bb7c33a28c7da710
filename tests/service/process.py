"""`genlock serve` as a test sees it: a real process on a free port, what it says on stderr, and how
it ends."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from tests import logs
from tests.cli.console import COMMAND, environment

PATIENCE_SECONDS = 30.0
TRACES = {"PYTHONFAULTHANDLER": "1", "GENLOCK_SERVE_LOG_LEVEL": "debug"}
"""With this, a process that is aborted says what its threads were at."""
_WHO = {"authorization", "x-api-key", "cookie"}


class Service:
    """A service that runs."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        self.process = process
        self._log = log
        said = json.loads(line)
        self.url: str = said["url"]
        self.link: str = said["link"]
        """What a browser opens."""
        self.header_file = None if said["header_file"] is None else Path(said["header_file"])
        self.token_header = {} if self.header_file is None else header_in(self.header_file)
        """What the user who started it sends along."""
        self.port = urlsplit(self.url).port or 0

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """One request on a connection of its own, by the user who started the service unless
        `headers` say who asks."""
        if not headers or {name.lower() for name in headers}.isdisjoint(_WHO):
            headers = self.token_header | (headers or {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            return ask(connection, method, path, body, headers)
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tells it to end, and waits; its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Waits for its end; its exit code."""
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.give_up("it does not end")

    def give_up(self, why: str) -> NoReturn:
        """Fails, with what the service has said and with what each of its threads was at."""
        self.process.send_signal(signal.SIGABRT)
        self.process.wait(PATIENCE_SECONDS)
        raise AssertionError(f"{why}\n{self.log}")

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8", errors="backslashreplace")

    def lines(self) -> list[dict[str, Any]]:
        """The same as objects."""
        return [json.loads(line) for line in self.log.splitlines()]


def header_in(file: Path) -> dict[str, str]:
    """What curl sends when it is given this file."""
    name, _, value = file.read_text("ascii").rstrip("\n").partition(": ")
    return {name.lower(): value}


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    """One request, its status and its answer."""
    sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, sent, {"content-type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    data = answer.read()
    return answer.status, json.loads(data) if data else None


@contextmanager
def serve(
    folder: Path,
    *options: str,
    url: str | None = None,
    verb: str = "serve",
    env: dict[str, str] | None = None,
) -> Iterator[Service]:
    """The service on a store in this folder, until the end of the block."""
    log = folder / "serve.log"
    store = [] if verb == "dev" else ["--url", url or make_store(folder)]
    command = [*COMMAND, verb, "--json", "--port", "0", *store, *options]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=folder,
            env=environment({**TRACES, **(env or {})}),
        ) as process,
    ):
        try:
            yield Service(process, log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            logs.keep(log)


def make_store(folder: Path) -> str:
    """An empty store."""
    from genlock.open import create_store

    url = f"sqlite://{folder}/served.db"
    create_store(url)
    return url


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes; then we do too."""
    found = b""
    end = time.monotonic() + PATIENCE_SECONDS
    with connection:
        while time.monotonic() < end:
            try:
                piece = connection.recv(65536)
            except ConnectionResetError:
                return found
            if not piece:
                return found
            found += piece
    raise AssertionError(f"the other side did not close; it sent {found[:200]!r}")
