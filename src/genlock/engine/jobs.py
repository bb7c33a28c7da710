"""Jobs: the requests of callers to a lane, and the way of the answers back.

A thread waits for its job on a lock. Event loops are woken once for all their jobs of a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from genlock.core.commands import Caller, ClaimTask, Command, ReleaseClaim, SubmitResult
from genlock.core.decision import Decision
from genlock.core.events import ClaimAcquired
from genlock.core.keys import TASK, Key
from genlock.core.results import ClaimResult
from genlock.errors import GenlockError
from genlock.store import Change

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

    from genlock.engine.maintenance import Denials

_DEFAULT_SECONDS = 5.0


class NextTask(Struct, frozen=True):
    """A request for the next task. The lane turns it into a claim of that task."""

    key: Key
    """The project's key, by which the lane is chosen."""
    by: Caller
    lease_seconds: float | None = None
    tracks: frozenset[str] | None = None
    operation: str = ""
    role: str = ""
    wait_until: float = 0
    """The end of the wait on the monotonic clock; 0 does not wait."""


class Sweep(Struct, frozen=True):
    """A request to record what is due, to search for lost holders, and to run the recovery."""

    key: Key
    tour: bool = False
    """Check a limited number of the claims whose holders may be lost. The next tour continues with
    the others."""


class Recover(Struct, frozen=True):
    """A request to repeat reactions that a crash may have cut off, and to scan files that other
    tools may have edited."""

    key: Key
    files_only: bool = False
    """Only scan the files."""


Request = Command | NextTask | Sweep | Recover


class Job:
    """Requests that are made together and answered together. Each has its own outcome."""

    __slots__ = (
        "_done",
        "cancelled",
        "deadline",
        "future",
        "granted",
        "left",
        "loop",
        "requests",
        "results",
        "returns",
        "size",
    )

    def __init__(
        self, requests: Sequence[Request], deadline: float, loop: AbstractEventLoop | None = None
    ) -> None:
        self.requests = requests
        self.results: list[Any] = [None] * len(requests)
        self.left = len(requests)
        self.size = 0
        if type(requests[0]) is SubmitResult:
            self.size = sum(
                request.content.size for request in requests if type(request) is SubmitResult
            )
        self.deadline = deadline
        self.cancelled = False
        self.returns = False
        """Does it release grants without a caller?"""
        self.granted: dict[int, int] = {}
        """The positions of the requests that were granted a new claim, and the number of renewals
        of each claim at the time of the answer."""
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
        """Wakes the waiting thread. Event loops are woken once per batch, by `resolve`."""
        if self._done is not None:
            self._done.release()

    def resolve(self) -> None:
        """Ends the wait; called in the event loop. The future does not carry the job, because the
        two would refer to each other."""
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def only(self) -> Any:
        """Returns the outcome of a job with one request. Raises it if it is an error."""
        outcome = self.results[0]
        if isinstance(outcome, GenlockError):
            raise outcome
        return outcome


_arrivals = count()


class PossibleWrite(NamedTuple):
    """A change that may have been written although its item is decided again.

    Either the outcome was unknown and the change was not there when it was looked up, so the server
    may still carry it out. Or it was written, but another record on which the item depends was not.
    """

    key: Key
    version: int
    digest: bytes
    """The digest of its first event. Key, version and digest identify the change."""
    decision: Any
    """The item's decision if the change was written."""
    change: Callable[[], Change]
    """Rebuilds the change that was sent."""
    epoch: int
    """The epoch in which it was decided."""


class Item(Struct, eq=False, gc=False):
    """One request of a job on its way through a lane. `command` is the command made from the
    request."""

    job: Job | None
    at: int
    request: Request
    command: Any
    number: int
    attempt: int = 0
    progress: Any = None
    """The progress of a request that takes more than one batch."""
    wanted: tuple[Key, ...] = ()
    decision: Any = None
    possible_writes: tuple[PossibleWrite, ...] = ()
    waited: bool = False
    """Has it tried before and found no task?"""


def items_of(job: Job) -> list[Item]:
    """Returns the requests of a job as items."""
    return [
        Item(job, at, request, request, next(_arrivals)) for at, request in enumerate(job.requests)
    ]


def plain_item(command: Command) -> Item:
    """Returns an item for a command of the engine itself, without a caller."""
    return Item(None, 0, command, command, next(_arrivals))


def resolve_all(jobs: list[Job]) -> None:
    """Resolves the jobs of a whole batch with one call in the event loop."""
    for job in jobs:
        job.resolve()


# Answers


def answer(
    items: Sequence[Item], now: datetime | None, denials: Denials, give_back: Callable[[Job], None]
) -> None:
    """Answers every item. Notes denials if the store's time is known, and releases claims granted
    to jobs without a caller."""
    loops: dict[Any, list[Job]] = {}
    for item in items:
        job, decision = item.job, item.decision
        outcome = decision.outcome if type(decision) is Decision else decision
        if (
            type(outcome) is ClaimResult
            and not outcome.success
            and type(item.request) is ClaimTask
            and now is not None
        ):
            by = item.request.by
            denials.note(item.request.key, by.session, by.agent, outcome, now)
        if job is None:
            continue
        if _is_grant(decision) or (item.possible_writes and _was_granted(item, outcome)):
            job.granted[item.at] = 0
        job.results[item.at] = outcome
        job.left -= 1
        if job.left:
            continue
        if job.cancelled:
            _hand_on(job, items)
            give_back(job)
        elif job.loop is None:
            job.finish()
        else:
            loops.setdefault(job.loop, []).append(job)
    for loop, jobs in loops.items():
        try:
            loop.call_soon_threadsafe(resolve_all, jobs)
        except RuntimeError:  # the loop was closed: no caller is left
            for job in jobs:
                give_back(job)


def _hand_on(job: Job, items: Sequence[Item]) -> None:
    """Hands a cancelled job's grant to a retry of the same call. The claim is then not released."""
    for at in list(job.granted):
        claim = _claim_in(job.results[at])
        for item in items:
            other, decision = item.job, item.decision
            if other is None or other is job or other.cancelled or type(decision) is not Decision:
                continue
            if claim is not None and _claim_in(decision.outcome) == claim:
                del job.granted[at]
                if decision.record is not None:  # otherwise the lease runs out by itself
                    other.granted[item.at] = decision.record.claim.renewals
                break


def _claim_in(outcome: Any) -> str | None:
    """Returns the id of the claim in an answer that grants one."""
    return outcome.claim.id if type(outcome) is ClaimResult and outcome.claim is not None else None


def _is_grant(decision: Any) -> bool:
    return (
        type(decision) is Decision
        and bool(decision.events)
        and type(decision.events[-1]) is ClaimAcquired
    )


def _was_granted(item: Item, outcome: Any) -> bool:
    """Did an earlier attempt of this item already grant it the claim that the new decision
    found?"""
    if type(outcome) is not ClaimResult or outcome.claim is None:
        return False
    return any(
        _is_grant(possible_write.decision)
        and possible_write.decision.outcome.claim.id == outcome.claim.id
        for possible_write in item.possible_writes
    )


def releases_of(job: Job) -> list[ReleaseClaim]:
    """Returns commands that release the claims granted to a job. A claim that its session held
    before stays, and so does one that was since returned to a retry, by this engine or another."""
    releases = []
    for at, renewals in job.granted.items():
        request, outcome = job.requests[at], job.results[at]
        if (
            isinstance(outcome, ClaimResult)
            and outcome.claim is not None
            and isinstance(request, (ClaimTask, NextTask))
        ):
            key = request.key.beside(TASK, outcome.claim.task_id)
            generation = outcome.claim.generation
            releases.append(ReleaseClaim(key, request.by, generation=generation, renewals=renewals))
    return releases


def batch_deadline(items: Iterable[Item], now: float) -> float:
    """Returns the time until which a batch may look up the outcome of its commit and write its
    reactions. Every other caller of the lane waits for that.

    The time that a request would wait for a task does not count, nor do sweeps and jobs without a
    caller.
    """
    until = 0.0
    for item in items:
        request, job = item.request, item.job
        if (
            job is None
            or job.returns
            or job.cancelled
            or type(request) is Sweep
            or type(request) is Recover
        ):
            continue
        end = job.deadline
        if type(request) is NextTask:
            end -= max(0.0, request.wait_until - now)
        if end > until:
            until = end
    return until or now + _DEFAULT_SECONDS
