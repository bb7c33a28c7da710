"""The inbox of a lane: jobs in two queues, grants to release, and the signal that wakes the lane.

Any thread may put jobs in. Only the lane's thread sleeps here and takes them out.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from genlock.core.commands import Command, ReleaseClaim, RenewLease, SubmitResult
from genlock.engine.jobs import Job, releases_of
from genlock.errors import Closed

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Wakeup:
    """Wakes the one thread that sleeps on it. The caller of every method holds `lock`.

    A condition variable would create a new lock for every sleep and search for sleepers at every
    notification. Here there is one sleeper, and it is nearly always awake.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._signal = threading.Lock()
        self._signal.acquire()
        self.asleep = False
        """Does the thread sleep?"""

    def wake(self) -> None:
        """Ends the sleep, if there is one."""
        if self.asleep:
            self.asleep = False
            self._signal.release()

    def sleep(self, seconds: float | None) -> None:
        """Releases the lock and sleeps until `wake` is called, or for this many seconds."""
        self.asleep = True
        self.lock.release()
        try:
            self._signal.acquire(
                timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)
            )
        finally:
            self.lock.acquire()
            if self.asleep:
                self.asleep = False
            else:
                # Woken, perhaps only after the time was up. The same wake-up must not end the next
                # sleep.
                self._signal.acquire(blocking=False)


MOST_BYTES = 4 * 1024 * 1024
_URGENT = (RenewLease, SubmitResult, ReleaseClaim)
TO_GIVE_BACK_SECONDS = 60
"""How long a release is retried. Until it is done the task cannot be granted, so the caller's
deadline is no reason to give up."""
_TO_CLOSE_SECONDS = 5
_MANY = 8
"""If at least this many jobs were taken together, the next ones are gathered before the lane
wakes."""


def _commands_of(job: Job) -> int:
    return len(job.requests) if isinstance(job.requests[0], Command) else 0


class Inbox:
    """The inbox of one lane."""

    def __init__(self) -> None:
        self._wakeup = Wakeup()
        self._urgent: deque[Job] = deque()
        self._normal: deque[Job] = deque()
        self._returns: deque[Job] = deque()
        """Releases of grants without a caller. They are carried out even while the lane closes."""
        self._closed = False
        self._close_by = 0.0
        self._waking_loop: AbstractEventLoop | None = None
        """The event loop that is about to wake the lane."""
        self._commands = 0
        """The number of commands in all waiting jobs."""
        self.last_taken = 0
        """The number of jobs that were taken together the last time."""
        self.poked = False
        """Should the waiters try again?"""

    # For callers, in any thread

    @property
    def depth(self) -> int:
        """Returns the number of waiting jobs."""
        return len(self._urgent) + len(self._normal)

    @property
    def commands(self) -> int:
        """Returns the number of commands in these jobs. A request for a next task is not a
        command."""
        return self._commands

    def put(self, job: Job) -> None:
        """Queues a job. The job of an event loop must be put in the loop's thread."""
        queue = self._urgent if isinstance(job.requests[0], _URGENT) else self._normal
        with self._wakeup.lock:
            if self._closed:
                raise Closed("the coordinator is closed")
            queue.append(job)
            self._commands += _commands_of(job)
            if job.loop is None or self.last_taken < _MANY:
                self._wakeup.wake()
            elif self._wakeup.asleep and self._waking_loop is not job.loop:
                self._waking_loop = job.loop
                job.loop.call_soon(self._wake_for_all)

    def _wake_for_all(self) -> None:
        """Wakes the lane once for all jobs of one turn of the event loop, so that jobs which arrive
        together are decided together.

        A lane that woke at the first job would take the interpreter from the loop that is about to
        hand over the others. While few jobs arrive this is not done, because the loop may take long
        for its turn. If the loop is closed before, its jobs stay until the next wake-up, and no
        caller waits for them.
        """
        with self._wakeup.lock:
            self._waking_loop = None
            self._wakeup.wake()

    def give_back(self, job: Job) -> None:
        """Releases the claims granted to a job without a caller, even while the lane closes."""
        releases = releases_of(job)
        if releases:
            with self._wakeup.lock:
                returning = Job(releases, time.monotonic() + TO_GIVE_BACK_SECONDS)
                returning.returns = True
                self._returns.append(returning)
                self._wakeup.wake()

    def poke(self) -> None:
        """Makes the waiters try again: something may have changed for them."""
        with self._wakeup.lock:
            self.poked = True
            self._wakeup.wake()

    def wake(self) -> None:
        """Wakes the lane."""
        with self._wakeup.lock:
            self._wakeup.wake()

    def close(self) -> None:
        """Accepts no more jobs."""
        with self._wakeup.lock:
            self._closed = True
            self._close_by = time.monotonic() + _TO_CLOSE_SECONDS
            self._wakeup.wake()

    # For the lane's thread

    def wait(self, has_more: Callable[[], bool], rest: Callable[[], float | None]) -> bool:
        """Sleeps until there is something to do, here or elsewhere, for at most `rest()` seconds.
        False if the lane must end."""
        with self._wakeup.lock:
            while not self._has_work(has_more):
                seconds = rest()
                if seconds is not None and seconds <= 0:
                    break
                self._wakeup.sleep(seconds)
            return not self._closed or bool(self._returns)

    def _has_work(self, has_more: Callable[[], bool]) -> bool:
        return bool(
            self._closed
            or self._returns
            or self._urgent
            or self._normal
            or self.poked
            or has_more()
        )

    def take(self, room: int) -> list[Job]:
        """Takes as many jobs as one batch has room for, urgent ones first, and at least one if
        there are any."""
        with self._wakeup.lock:
            jobs = list(self._returns)
            self._returns.clear()
            self._pick(jobs, room)
            self.last_taken = len(jobs)
            return jobs

    def take_while(self, room: int, suits: Callable[[Job], bool]) -> list[Job]:
        """Takes jobs up to the first that does not suit. Takes none if that job is the first, if
        grants must be released, or if the lane closes. The next `take` begins with those, so they
        are not skipped for ever."""
        with self._wakeup.lock:
            jobs: list[Job] = []
            if not self._returns and all(
                suits(queue[0]) for queue in (self._urgent, self._normal) if queue
            ):
                self._pick(jobs, room, suits)
            return jobs

    def _pick(self, jobs: list[Job], room: int, suits: Callable[[Job], bool] | None = None) -> None:
        bytes_left = MOST_BYTES
        for queue in () if self._closed else (self._urgent, self._normal):
            while queue and ((room >= len(queue[0].requests) and bytes_left > 0) or not jobs):
                if suits is not None and not suits(queue[0]):
                    return
                job = queue.popleft()
                jobs.append(job)
                room -= len(job.requests)
                bytes_left -= job.size
                self._commands -= _commands_of(job)

    def take_poke(self) -> bool:
        """Has the lane been poked since the last call?"""
        with self._wakeup.lock:
            poked, self.poked = self.poked, False
            return poked

    def clear(self) -> list[Job]:
        """Closes the inbox, and returns the jobs that were not begun."""
        with self._wakeup.lock:
            jobs = [*self._urgent, *self._normal]
            self._urgent.clear()
            self._normal.clear()
            self._commands = 0
            self._closed = True
            return jobs

    @property
    def is_closed(self) -> bool:
        """Does the inbox accept no more jobs?"""
        return self._closed

    @property
    def has_returns(self) -> bool:
        """Are there grants to release?"""
        return bool(self._returns)

    @property
    def may_retry(self) -> bool:
        """While the lane closes: may a release that failed be tried again?"""
        return time.monotonic() < self._close_by
