"""Running things at once, and proof that they were at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which something that should end by itself is called stuck."""


class Timed(NamedTuple, Generic[T]):
    """What a call answered, and when it ran; the clock is the same in all processes of a machine."""

    answer: T
    began: int
    ended: int


def timed(call: Callable[[], T]) -> Timed[T]:
    """The call's answer with its times."""
    began = time.monotonic_ns()
    answer = call()
    return Timed(answer, began, time.monotonic_ns())


def overlapped(winner: Timed[T], others: Iterable[Timed[T]]) -> int:
    """How many of the others began before the winner had ended and ended after it had begun."""
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
    """Items that, when first looked at, wait until all rivals look at theirs: so all are inside the call at once.

    A store that first looks at them under its lock keeps the others out; then the rest of the rivals stand before the lock, which
    proves as much, and after a moment the first goes on.
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
    """Parties that go on until each has done its share: so all of them overlap, however fast or slow the store is."""

    def __init__(self, parties: int, share: int) -> None:
        self.share = share
        self.done = [0] * parties
        self.broken = False
        self.deadline = time.monotonic() + PATIENCE

    def over(self) -> bool:
        """Has each done its share, or has one failed?"""
        return self.broken or min(self.done) >= self.share

    def steps(self) -> Iterator[int]:
        """The numbers of a party's steps, until all have done their share."""
        for number in count():
            if self.over():
                return
            assert time.monotonic() < self.deadline, f"the parties did not meet: of {self.share} steps each they did {self.done}"
            yield number

    def step_done(self, party: int) -> None:
        """The party has done a step that counts."""
        self.done[party] += 1


def together(calls: Sequence[Callable[[], T]], meeting: Meeting | None = None) -> list[Timed[T]]:
    """Runs each call in a thread of its own, all from the same instant; raises the first error any of them had."""
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

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
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
