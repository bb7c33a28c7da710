"""Calls to a server in steps, so that several share a round trip or run while the caller works.

An *exchange* is a generator that yields requests and is sent their answers. Only the store's
connection interprets them. `complete_all` advances several exchanges together: each round trip
carries the next request of every exchange.

    def find(query) -> Exchange[Page]:
        rows = yield statement
        return page

*Steps* are a generator that yields once it has sent something, with a function that waits for the
answer. `start` runs the first step. The other steps run when the result is fetched.

    def commit(changes) -> Steps[Answers]:
        connection.send(statement)
        yield connection.await_answer
        return connection.answer()

The function returns True if the server holds locks until the other steps have run. Then the waiting
thread runs them at once, because its caller may fetch the result late, or may itself wait for these
locks.

A started call keeps its connection until its result is fetched, and its caller may need another
connection before that, to load what is decided next. So fewer calls may be started than there are
connections. Otherwise the calls could deadlock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from genlock.errors import GenlockError
from genlock.store import Deferred

T = TypeVar("T")
R = TypeVar("R")

Exchange: TypeAlias = Generator[Any, Any, R]
Steps: TypeAlias = Generator[Callable[[], bool | None], None, R]


def complete(exchange: Exchange[R], ask: Callable[[Sequence[Any]], Sequence[Any]]) -> R:
    """Carries one exchange to its end."""
    result: R = complete_all([exchange], ask)[0]
    return result


def complete_all(
    exchanges: Sequence[Exchange[Any]], ask: Callable[[Sequence[Any]], Sequence[Any]]
) -> list[Any]:
    """Carries all exchanges to their ends. Each call of `ask` is one round trip."""
    results: list[Any] = [None] * len(exchanges)
    answers: dict[int, Any] = dict.fromkeys(range(len(exchanges)))
    while answers:
        requests: dict[int, Any] = {}
        for at, answer in answers.items():
            try:
                requests[at] = exchanges[at].send(answer)
            except StopIteration as end:
                results[at] = end.value
        answers = dict(zip(requests, ask(list(requests.values())), strict=True)) if requests else {}
    return results


def complete_in_steps(
    exchange: Exchange[R], asked: Callable[[Sequence[Any]], Steps[Sequence[Any]]]
) -> Steps[R]:
    """Carries one exchange to its end, in steps."""
    answer: Any = None
    while True:
        try:
            request = exchange.send(answer)
        except StopIteration as end:
            result: R = end.value
            return result
        (answer,) = yield from asked([request])


def run(steps: Steps[R]) -> R:
    """Takes all steps, and waits in each for the answer."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: R = end.value
            return result


def start(
    call: Callable[[T], Steps[R]], given: T, room: threading.Semaphore
) -> PendingCall[R] | Deferred[T, R]:
    """Starts a call if there is `room` for another. Otherwise the call runs when its result is
    fetched."""
    if room.acquire(blocking=False):
        return PendingCall(_within(room, call(given)))
    return Deferred(lambda given: run(call(given)), given)


def _within(room: threading.Semaphore, steps: Steps[R]) -> Steps[R]:
    try:
        return (yield from steps)
    finally:
        room.release()


class PendingCall(Generic[R]):
    """`genlock.store.PendingCommit` or `PendingLoad`: a call that has taken its first step."""

    def __init__(self, steps: Steps[R]) -> None:
        self._steps = steps
        self._answers: R | None = None
        self._error: GenlockError | None = None
        self._wait: Callable[[], bool | None] | None = None
        try:
            self._wait = next(steps)
        except StopIteration as end:
            self._answers = end.value
        except GenlockError as error:
            self._error = error

    def wait(self) -> None:
        """Returns when the server has answered, and holds no locks for this call."""
        if self._wait is not None and self._wait():
            try:
                self._answers = run(self._steps)
            except GenlockError as error:
                self._error = error

    def answers(self) -> R:
        """Takes the other steps."""
        if self._error is not None:
            raise self._error
        return run(self._steps) if self._answers is None else self._answers
