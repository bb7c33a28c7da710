"""`genlock mcp` as a test sees it: a real process, spoken to in raw messages."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import genlock
from genlock.coordinator import Coordinator
from tests.cli.console import COMMAND, environment

PATIENCE_SECONDS = 30.0


class McpServer:
    """A server that runs."""

    def __init__(
        self,
        project: Path,
        env: Mapping[str, str | None] | None = None,
        command: Sequence[str] = (*COMMAND, "mcp"),
    ) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=project,
            env=environment(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._numbers = iter(range(1, 1_000_000))
        self._pending = b""

    def send(self, data: bytes) -> None:
        """Raw bytes."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def begin(self, method: str, **params: Any) -> int:
        """Sends a request; its id."""
        number = next(self._numbers)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.send(json.dumps(message).encode() + b"\n")
        return number

    def notify(self, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.send(json.dumps(message).encode() + b"\n")

    def read(self) -> Any:
        """The next message."""
        assert self.process.stdout is not None
        until = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self._pending:
            left = until - time.monotonic()
            assert select.select([self.process.stdout], [], [], max(left, 0))[0], "no answer came"
            piece = os.read(self.process.stdout.fileno(), 65536)
            assert piece, self.errors()
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def ask(self, method: str, **params: Any) -> Any:
        """The answer to a request, when nothing else is under way."""
        number = self.begin(method, **params)
        reply = self.read()
        assert reply["id"] == number
        return reply

    def call(self, name: str, **arguments: Any) -> Any:
        """A tool's result."""
        return self.ask("tools/call", name=name, arguments=arguments)["result"]

    def facts(self, name: str, **arguments: Any) -> Any:
        """What a tool's answer tells programs."""
        return self.call(name, **arguments)["_meta"]["genlock/facts"]

    def errors(self) -> str:
        """What it wrote on stderr, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def end(self, how: signal.Signals | None) -> float:
        """Ends it by a signal, or by the end of stdin; how many seconds that took."""
        assert self.process.stdin is not None
        began = time.monotonic()
        if how is None:
            self.process.stdin.close()
        else:
            self.process.send_signal(how)
        assert self.process.wait(PATIENCE_SECONDS) is not None
        return time.monotonic() - began


@contextmanager
def server(
    project: Path,
    env: Mapping[str, str | None] | None = None,
    command: Sequence[str] = (*COMMAND, "mcp"),
) -> Iterator[McpServer]:
    """A server in this folder, with a session of its own unless `env` names one."""
    running = McpServer(project, {"GENLOCK_SESSION": None} | dict(env or {}), command)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        for stream in (running.process.stdin, running.process.stdout, running.process.stderr):
            assert stream is not None
            with suppress(OSError):  # what was not written will never be
                stream.close()


def fleet(project: Path, **more: Any) -> Coordinator:
    """The project's own store."""
    url = f"sqlite://{project}/.genlock/genlock.db"
    return genlock.connect(url, session_id="other", agent_id="other", process=None, **more)


def make_project(folder: Path, *tasks: str) -> Path:
    """A project with these tasks."""
    (folder / ".genlock").mkdir(mode=0o700)
    with fleet(folder, create=True) as made:
        made.add_tasks(tasks=tasks)
    return folder


def held(project: Path) -> dict[str, int]:
    """The claimed tasks and their generations."""
    with fleet(project) as opened:
        agents = opened.list_agents()
        names = [task for agent in agents for task in agent.tasks]
        states = opened.batch_get_states(task_ids=names)
        return {name: states[name].generation for name in sorted(names)}
