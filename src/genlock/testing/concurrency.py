"""Runs calls concurrently, in threads and in other processes, and proves that they overlapped."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, overload

import msgspec

from genlock.store import Change, Committed, Store
from genlock.testing.sample import make_change, make_key
from genlock.typed_json import decode

if TYPE_CHECKING:
    from genlock.testing.contract_base import ContractBase


T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which a call counts as stuck."""


class Timed(NamedTuple, Generic[T]):
    """The answer of a call, and the time it ran. All processes of a machine share the clock."""

    answer: T
    began: int
    ended: int


def timed(call: Callable[[], T]) -> Timed[T]:
    """Runs a call. Returns its answer with its times."""
    began = time.monotonic_ns()
    answer = call()
    return Timed(answer, began, time.monotonic_ns())


def overlapped(winner: Timed[T], others: Iterable[Timed[T]]) -> int:
    """Counts the other calls that began before the winner had ended and ended after it had
    begun."""
    return sum(other.began < winner.ended and winner.began < other.ended for other in others)


@contextmanager
def finely_switched() -> Iterator[None]:
    """Lets the interpreter switch threads almost anywhere, so that short calls meet too."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


class Rendezvous(Sequence[T]):
    """A sequence whose first reader waits until all rivals read theirs, so that all calls overlap.

    A store that reads the items under its lock blocks the rivals. Then they wait for the lock,
    which proves the overlap as well, and the first reader continues after a moment.
    """

    def __init__(self, items: Sequence[T], barrier: threading.Barrier) -> None:
        self.items, self.barrier, self.met = items, barrier, False

    def meet(self) -> Sequence[T]:
        if not self.met:
            self.met = True
            with suppress(threading.BrokenBarrierError):
                self.barrier.wait(0.02)
        return self.items

    def __len__(self) -> int:
        return len(self.meet())

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self.meet()[at]


class Meeting:
    """Parties that continue until each has done its share, so that they overlap on a store of any
    speed."""

    def __init__(self, parties: int, share: int) -> None:
        self.share = share
        self.done = [0] * parties
        self.broken = False
        self.deadline = time.monotonic() + PATIENCE

    def over(self) -> bool:
        """Has each party done its share, or has one failed?"""
        return self.broken or min(self.done) >= self.share

    def steps(self) -> Iterator[int]:
        """The numbers of a party's steps, until all have done their share."""
        for number in count():
            if self.over():
                return
            assert time.monotonic() < self.deadline, (
                f"the parties did not meet: of {self.share} steps each they did {self.done}"
            )
            yield number

    def step_done(self, party: int) -> None:
        """Counts a completed step of the party."""
        self.done[party] += 1


def together(calls: Sequence[Callable[[], T]], meeting: Meeting | None = None) -> list[Timed[T]]:
    """Runs each call in a thread of its own, all starting at the same instant. Raises the first
    error of any of them."""
    barrier = threading.Barrier(len(calls))
    answers: list[Timed[T] | None] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            barrier.wait(PATIENCE)
            answers[place] = timed(calls[place])
        except BaseException as error:  # noqa: BLE001 - handed on to the caller's thread
            errors.append(error)
            if meeting:
                meeting.broken = True

    threads = [
        threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))
    ]
    with finely_switched():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
    if errors:
        raise errors[0]
    done = [answer for answer in answers if answer is not None]
    assert len(done) == len(calls), f"{len(calls) - len(done)} of {len(calls)} threads are stuck"
    return done


# Another process with a handle on the same data. It reads orders as lines of JSON from its input
# and answers each with one line. Clauses also kill it during an order.

A = TypeVar("A")


class Race(msgspec.Struct, tag=True):
    """Commit these changes."""

    changes: list[Change]


class Raced(msgspec.Struct):
    """The changes that were done, and when the commit ran."""

    done: list[bool]
    began: int
    ended: int


class Stream(msgspec.Struct, tag=True):
    """Write new records, one commit after the other, and acknowledge each commit by a line."""

    name: str
    projects: list[str]
    commits: int
    changes: int = 1
    events: int = 1


class Acknowledged(msgspec.Struct):
    """A finished commit of a stream: its number, and when it ran."""

    commit: int
    began: int
    ended: int


class Worker:
    """A process with a handle of its own; leaving the context ends it."""

    def __init__(self, contract: ContractBase, place: Path) -> None:
        kind = type(contract)
        assert "<locals>" not in kind.__qualname__, (
            "a class inside a function cannot be found by another process"
        )
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                __name__,
                kind.__module__,
                inspect.getfile(kind),
                kind.__qualname__,
                str(place),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)},
        )
        assert self.process.stdin
        assert self.process.stdout
        self.orders, self.answers = self.process.stdin, self.process.stdout
        self.watchdog = threading.Timer(PATIENCE, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.orders.close()
        self.answers.close()

    def order(self, order: Race | Stream) -> None:
        """Sends the process an order, without waiting for the answer."""
        self.orders.write(msgspec.json.encode(order) + b"\n")
        self.orders.flush()

    def answer(self, type: type[A]) -> A:
        """The next line of its answer."""
        line = self.answers.readline()
        assert line.endswith(b"\n"), (
            f"the worker ended with {self.process.wait(PATIENCE)}; its output is above"
        )
        return decode(line, type)

    def ready(self) -> None:
        """Waits until the process has its handle."""
        assert self.answer(str) == "ready"

    def kill(self) -> list[Acknowledged]:
        """Kills it by SIGKILL at any point. Returns the acknowledged commits that were not read
        yet."""
        self.process.kill()
        rest = [
            line for line in self.answers.read().splitlines(keepends=True) if line.endswith(b"\n")
        ]
        self.process.wait(PATIENCE)
        return [decode(line, Acknowledged) for line in rest]


def stream_changes(order: Stream, number: int) -> list[Change]:
    """The changes of one commit of a stream. Each record is new, so that a test can tell them
    apart."""
    return [
        make_change(
            make_key(
                f"{order.name}-{number:05}-{at}",
                project=order.projects[(number + at) % len(order.projects)],
            ),
            events=order.events,
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
    except ImportError:  # pytest may use module names that only it can import
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module


def main(module: str, file: str, name: str, place: str) -> None:
    """Opens the store as the contract's class does, and executes the orders."""
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
