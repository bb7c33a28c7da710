"""A job: what one caller asked for, and how the answer reaches it, in a thread or in an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from genlock.core.commands import Caller, Command, SubmitResult
from genlock.core.keys import Key
from genlock.errors import GenlockError
from genlock.store import Change

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


class NextTask(Struct, frozen=True):
    """A request for whatever task comes first; the lane turns it into a claim of that task."""

    key: Key
    """Of the project: the lane is chosen by it."""
    by: Caller
    lease_seconds: float | None = None
    tracks: frozenset[str] | None = None
    operation: str = ""
    role: str = ""
    wait_until: float = 0
    """On the monotonic clock; 0 does not wait."""


class Sweep(Struct, frozen=True):
    """A request to write down what is due, to look for orphans, and to settle."""

    key: Key
    tour: bool = False
    """Of those whose holders may be lost only so many as cost little; the next tour goes on with the others."""


class Settle(Struct, frozen=True):
    """A request to repeat reactions that a crash may have cut off."""

    key: Key


Request = Command | NextTask | Sweep | Settle


class Job:
    """Requests that were made together and are answered together; each has its own outcome."""

    __slots__ = ("_done", "cancelled", "deadline", "future", "granted", "left", "loop", "requests", "results", "returns", "size")

    def __init__(self, requests: Sequence[Request], deadline: float, loop: AbstractEventLoop | None = None) -> None:
        self.requests = requests
        self.results: list[Any] = [None] * len(requests)
        self.left = len(requests)
        self.size = 0
        if type(requests[0]) is SubmitResult:
            self.size = sum(request.content.size for request in requests if type(request) is SubmitResult)
        self.deadline = deadline
        self.cancelled = False
        self.returns = False
        """Does it give back what was granted to somebody who no longer waits?"""
        self.granted: list[int] = []
        """Which of the requests were granted a claim that did not exist before."""
        self.loop = loop
        self.future: Future[None] | None = None
        self._done: threading.Lock | None = None
        if loop is None:
            self._done = threading.Lock()
            self._done.acquire()
        else:
            self.future = loop.create_future()

    def wait(self) -> Job:
        """Blocks the calling thread until the job is done."""
        assert self._done is not None
        self._done.acquire()
        return self

    def finish(self) -> None:
        """Wakes a waiting thread; event loops are woken once a batch, by `resolve`."""
        if self._done is not None:
            self._done.release()

    def resolve(self) -> None:
        """In the event loop: wakes whoever waits. The job itself is not handed over: the two would hold each other."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def only(self) -> Any:
        """The outcome of a job of one request; raises if it is an error."""
        outcome = self.results[0]
        if isinstance(outcome, GenlockError):
            raise outcome
        return outcome


_arrivals = count()


class Doubt(NamedTuple):
    """A change of an item that is decided again all the same.

    Its outcome was unknown, and it was not there when one looked: the server may still carry it out. Or it was done, and another record
    on which the item rests was not.
    """

    key: Key
    version: int
    digest: bytes
    """Of its first event: by these it is known again."""
    decision: Any
    """What the item is to be told if it was done."""
    change: Callable[[], Change]
    """What was sent."""
    epoch: int
    """In which it was decided."""


class Item(Struct, eq=False, gc=False):
    """One request of a job on its way through a lane; `command` is what it has become."""

    job: Job | None
    at: int
    request: Request
    command: Any
    number: int
    attempt: int = 0
    course: Any = None
    """How far it has come, if it takes more than one batch."""
    wanted: tuple[Key, ...] = ()
    decision: Any = None
    doubts: tuple[Doubt, ...] = ()
    waited: bool = False
    """Has it looked for a task before, and found none?"""


def items_of(job: Job) -> list[Item]:
    """What a job asks for, one by one."""
    return [Item(job, at, request, request, next(_arrivals)) for at, request in enumerate(job.requests)]


def plain_item(command: Command) -> Item:
    """A command of our own, for which nobody waits."""
    return Item(None, 0, command, command, next(_arrivals))


def resolve_all(jobs: list[Job]) -> None:
    """Runs in an event loop: one call for a whole batch."""
    for job in jobs:
        job.resolve()
