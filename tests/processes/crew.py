"""Processes of a fleet as a test sees them: started, given orders, listened to, killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = Path(__file__).with_name("worker.py")

PATIENCE = 110.0
"""Seconds after which a process that should end by itself is called stuck; less than pytest's own limit."""

Fact = dict[str, Any]


class Member:
    """One process; leaving the context ends it."""

    def __init__(self, program: Path = PROGRAM) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self.process.stdin
        assert self.process.stdout
        self.orders, self.answers = self.process.stdin, self.process.stdout
        self.watchdog = self._watched()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.orders.close()
        self.answers.close()

    def _watched(self) -> threading.Timer:
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        return watchdog

    def take_time(self) -> None:
        """From now on it has all its time again."""
        self.watchdog.cancel()
        self.watchdog = self._watched()

    def tell(self, **order: Any) -> None:
        """Gives an order without waiting for what comes of it."""
        self.orders.write(json.dumps(order).encode() + b"\n")
        self.orders.flush()

    def hear(self) -> Fact | None:
        """The next fact; None when the process has ended."""
        line = self.answers.readline()
        if not line.endswith(b"\n"):
            return None
        fact: Fact = json.loads(line)
        return fact

    def expect(self, **wanted: Any) -> Fact:
        """The next fact, which has at least this."""
        fact = self.hear()
        assert fact is not None, f"the process ended with {self.process.wait(PATIENCE)}; its words are above"
        assert fact.items() >= wanted.items(), fact
        return fact

    def kill(self) -> None:
        """SIGKILL, wherever it is. What it had said can still be heard."""
        self.process.kill()


def all_go(members: Sequence[Member], orders: Sequence[Fact]) -> None:
    """Gives each its order, waits until all have opened the store, and lets them begin together."""
    for member, order in zip(members, orders, strict=True):
        member.tell(**order)
    for member in members:
        member.expect(fact="ready")
    for member in members:
        member.take_time()
        member.tell(do="go")


def all_at_once(answers: Sequence[Fact]) -> bool:
    """Had every process its first answer before any had its last? `times` are those of the start, the first answer and the end."""
    return bool(max(answer["times"][1] for answer in answers) < min(answer["times"][-1] for answer in answers))
