"""Commits and loads in two steps: the server is told, and what it says is heard later. In between whoever sent it does something else.

def commit(changes) -> Course[Answers]:
    link.send(statement)
    yield link.await_answer
    return link.answer()

Such a step has its connection until it is heard of, and whoever sent it may want another one before that, to load what is decided next.
So there may be one less of them under way than there are connections: were all of these taken, everybody would wait for everybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeAlias, TypeVar

from genlock.errors import GenlockError
from genlock.store import Later

T = TypeVar("T")
R = TypeVar("R")

Course: TypeAlias = Generator[Callable[[], None], None, R]
"""Yields, whenever it has asked the server something, with what one may wait for the answer. Whoever goes on at once waits there."""


def run(course: Course[R]) -> R:
    """All of it."""
    while True:
        try:
            next(course)
        except StopIteration as end:
            result: R = end.value
            return result


def begin(do: Callable[[T], Course[R]], given: T, room: threading.Semaphore) -> Underway[R] | Later[T, R]:
    """A commit or a load, begun if there is `room` for one more under way; otherwise it is done by whoever waits for it."""
    if room.acquire(blocking=False):
        return Underway(_in(room, do(given)))
    return Later(lambda given: run(do(given)), given)


def _in(room: threading.Semaphore, course: Course[R]) -> Course[R]:
    try:
        return (yield from course)
    finally:
        room.release()


class Underway(Generic[R]):
    """`genlock.store.Sent`, or `Asked`: a course that has come as far as its first question."""

    def __init__(self, course: Course[R]) -> None:
        self._course = course
        self._answers: R | None = None
        self._error: GenlockError | None = None
        self._wait: Callable[[], None] | None = None
        try:
            self._wait = next(course)
        except StopIteration as end:
            self._answers = end.value
        except GenlockError as error:
            self._error = error

    def wait(self) -> None:
        """For the answer to the question."""
        if self._wait is not None:
            self._wait()

    def answers(self) -> R:
        """The rest of the course."""
        if self._error is not None:
            raise self._error
        return run(self._course) if self._answers is None else self._answers
