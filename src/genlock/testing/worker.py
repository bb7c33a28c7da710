"""Another process with a handle on the same data: the clauses' helpers, and the program that they run.

The program reads orders as lines of JSON from its input and answers each with one line. Killing it in mid-order is part of
the game.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, TypeVar

import msgspec

from genlock.store import Change, Committed, Store
from genlock.testing.concurrency import PATIENCE, timed
from genlock.testing.sample import make_change, make_key
from genlock.typed_json import decode

if TYPE_CHECKING:
    from genlock.testing.contract_base import ContractBase

A = TypeVar("A")


class Race(msgspec.Struct, tag=True):
    """Commit these changes."""

    changes: list[Change]


class Raced(msgspec.Struct):
    """Which of the changes were done, and when the commit ran."""

    done: list[bool]
    began: int
    ended: int


class Stream(msgspec.Struct, tag=True):
    """Write records of one's own, one commit after the other, and acknowledge each by a line of its own."""

    name: str
    projects: list[str]
    commits: int
    changes: int = 1
    events: int = 1


class Acknowledged(msgspec.Struct):
    """A commit of a stream that is done: its number, and when it ran."""

    commit: int
    began: int
    ended: int


class Worker:
    """A process with a handle of its own; leaving the context ends it."""

    def __init__(self, contract: ContractBase, place: Path) -> None:
        kind = type(contract)
        assert "<locals>" not in kind.__qualname__, "a class inside a function cannot be found by another process"
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, kind.__module__, inspect.getfile(kind), kind.__qualname__, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)},
        )
        assert self.process.stdin
        assert self.process.stdout
        self.orders, self.answers = self.process.stdin, self.process.stdout
        self.watchdog = threading.Timer(PATIENCE, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.orders.close()
        self.answers.close()

    def order(self, order: Race | Stream) -> None:
        """Tells the process what to do, without waiting for it."""
        self.orders.write(msgspec.json.encode(order) + b"\n")
        self.orders.flush()

    def answer(self, type: type[A]) -> A:
        """The next line of its answer."""
        line = self.answers.readline()
        assert line.endswith(b"\n"), f"the worker ended with {self.process.wait(PATIENCE)}; its words are above"
        return decode(line, type)

    def ready(self) -> None:
        """Waits until the process has its handle."""
        assert self.answer(str) == "ready"

    def kill(self) -> list[Acknowledged]:
        """Ends it by SIGKILL wherever it is; what it had acknowledged and nobody had read yet."""
        self.process.kill()
        rest = [line for line in self.answers.read().splitlines(keepends=True) if line.endswith(b"\n")]
        self.process.wait(PATIENCE)
        return [decode(line, Acknowledged) for line in rest]


def stream_changes(order: Stream, number: int) -> list[Change]:
    """The changes of one commit of a stream: each record is new, so that they can be told apart afterwards."""
    return [
        make_change(
            make_key(f"{order.name}-{number:05}-{at}", project=order.projects[(number + at) % len(order.projects)]), events=order.events
        )
        for at in range(order.changes)
    ]


def _race(store: Store, order: Race) -> None:
    run = timed(partial(store.commit, order.changes))
    _say(Raced([isinstance(answer, Committed) for answer in run.answer], run.began, run.ended))


def _stream(store: Store, order: Stream) -> None:
    for number in range(order.commits):
        changes = stream_changes(order, number)
        run = timed(partial(store.commit, changes))
        assert all(isinstance(answer, Committed) for answer in run.answer)
        _say(Acknowledged(number, run.began, run.ended))


def _say(answer: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def _module(name: str, file: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:  # pytest may give names that nobody else can import
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


def main(module: str, file: str, name: str, place: str) -> None:
    """Opens the store as the contract's class does, and obeys."""
    found: object = _module(module, file)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, type)
    store: Store = found().open(Path(place))
    _say("ready")
    for line in sys.stdin.buffer:
        order: Race | Stream = decode(line, Race | Stream)
        if isinstance(order, Race):
            _race(store, order)
        else:
            _stream(store, order)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
