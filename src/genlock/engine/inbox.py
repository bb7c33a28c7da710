"""What waits for a lane: jobs in two queues, what is to be given back, and whether somebody has called.

Any thread puts something in; only the lane's own thread sleeps here and takes it out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING

from genlock.core.commands import Command, ReleaseClaim, RenewLease, SubmitResult
from genlock.engine.answering import releases_of
from genlock.engine.bell import Bell
from genlock.engine.jobs import Job
from genlock.errors import Busy, Closed

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

MOST_BYTES = 4 * 1024 * 1024
_URGENT = (RenewLease, SubmitResult, ReleaseClaim)
TO_GIVE_BACK_SECONDS = 60
"""As long nobody has the task: no reason to give up with a caller's patience. While the lane is closing, somebody waits for that."""
_TO_CLOSE_SECONDS = 5
_COMPANY = 8
"""From so many jobs at once on it is worth waiting for those that come with them."""


def _nothing() -> bool:
    return False


def _commands_of(job: Job) -> int:
    return len(job.requests) if isinstance(job.requests[0], Command) else 0


class Inbox:
    """Of one lane."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._urgent: deque[Job] = deque()
        self._normal: deque[Job] = deque()
        self._returned: deque[Job] = deque()
        """Releases of grants that nobody waits for; carried out also while the lane is closing."""
        self._closed = False
        self._close_by = 0.0
        self._ringer: AbstractEventLoop | None = None
        """The event loop that is about to ring."""
        self._lent_to = 0
        """The thread that does the lane's work in its place just now, if there is one; see `lend`."""
        self._sleeps_until = inf
        """Until when the lane sleeps, if nobody rings."""
        self._commands = 0
        """How many commands there are in all that waits here."""
        self.company = 0
        """How many jobs were taken together the last time."""
        self.woken = False
        """May something have changed for those who wait?"""

    # For callers, in any thread

    @property
    def depth(self) -> int:
        """Jobs that wait to be begun."""
        return len(self._urgent) + len(self._normal)

    @property
    def commands(self) -> int:
        """The commands among what they ask for; a request for a next task is none."""
        return self._commands

    def put(self, job: Job) -> None:
        """Queues a job. One that comes from an event loop is put in its thread."""
        queue = self._urgent if isinstance(job.requests[0], _URGENT) else self._normal
        with self._bell.lock:
            if self._closed:
                raise Closed("the coordinator is closed")
            queue.append(job)
            self._commands += _commands_of(job)
            if job.loop is None or self.company < _COMPANY:
                self._ring()
            elif self._bell.asleep and self._ringer is not job.loop:
                self._ringer = job.loop
                job.loop.call_soon(self._ring_for_all)

    def _ring_for_all(self) -> None:
        """Once for all that comes while the event loop goes round: what arrives together is decided together.

        A lane that woke at the first of them would take the interpreter from the loop that is about to hand over the others. Where few come
        there is nobody to wait for, and the loop may be long in coming round. A loop that is closed before it has leaves jobs that nobody
        waits for, until the next ring.
        """
        with self._bell.lock:
            self._ringer = None
            self._ring()

    def give_back(self, job: Job) -> None:
        """Releases what was granted to a job that nobody waits for; `close` lets it through."""
        releases = releases_of(job)
        if releases:
            with self._bell.lock:
                returning = Job(releases, time.monotonic() + TO_GIVE_BACK_SECONDS)
                returning.returns = True
                self._returned.append(returning)
                self._ring()

    def poke(self) -> None:
        """Something may have changed for those who wait."""
        with self._bell.lock:
            self.woken = True
            self._ring()

    def ring(self) -> None:
        """The lane is to have a look, whatever at."""
        with self._bell.lock:
            self._ring()

    def close(self) -> None:
        """Nothing more is taken in."""
        with self._bell.lock:
            self._closed = True
            self._close_by = time.monotonic() + _TO_CLOSE_SECONDS
            self._ring()

    def lend(self, is_idle: Callable[[], bool]) -> bool:
        """Lets the calling thread do what the lane does, until it gives that back; only while the lane sleeps and nobody else wants it.

        Where several come, they are better gathered by the lane: alone, each would have a commit of his own.
        """
        with self._bell.lock:
            if self._lent_to == get_ident():
                # He would wait for himself.
                raise Busy("asked from within another call, by a finalizer or a tracer; nothing was done, ask again outside of it")
            if self._lent_to or not self._bell.asleep or self.company > 1 or self._has_work(_nothing) or not is_idle():
                return False
            self._lent_to = get_ident()
            return True

    def take_back(self, has_more: Callable[[], bool], rest: Callable[[], float | None]) -> None:
        """The end of that. The lane is woken if there is something for it to do, now or sooner than it knows."""
        with self._bell.lock:
            self._lent_to = 0
            seconds = 0.0 if self._has_work(has_more) else rest()
            if seconds is not None and time.monotonic() + seconds < self._sleeps_until:
                self._ring()

    # For the lane's thread

    def wait(self, has_more: Callable[[], bool], rest: Callable[[], float | None]) -> bool:
        """Sleeps until there is something to do, here or elsewhere, or for so many seconds. False if the lane is to end."""
        with self._bell.lock:
            while self._lent_to or not self._has_work(has_more):
                seconds = None if self._lent_to else rest()
                if seconds is not None and seconds <= 0:
                    break
                self._sleeps_until = inf if seconds is None else time.monotonic() + seconds
                self._bell.sleep(seconds)
            return not self._closed or bool(self._returned)

    def _has_work(self, has_more: Callable[[], bool]) -> bool:
        return bool(self._closed or self._returned or self._urgent or self._normal or self.woken or has_more())

    def _ring(self) -> None:
        """Not while somebody else does the work: he looks, before he leaves, whether there is more."""
        if not self._lent_to:
            self._bell.ring()

    def take(self, room: int) -> list[Job]:
        """As many jobs as one batch has room for, the urgent ones first; at least one, if there is any."""
        with self._bell.lock:
            jobs = list(self._returned)
            self._returned.clear()
            self._pick(jobs, room)
            self.company = len(jobs)
            return jobs

    def take_ahead(self, room: int, suits: Callable[[Job], bool]) -> list[Job]:
        """The same, up to the first job that does not suit; none if one stands first, or something is to be given back, or all ends.

        Those are then taken by the next `take`, and are not passed for ever.
        """
        with self._bell.lock:
            jobs: list[Job] = []
            if not self._returned and all(suits(queue[0]) for queue in (self._urgent, self._normal) if queue):
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

    def heed(self) -> bool:
        """Has somebody called since this was last asked?"""
        with self._bell.lock:
            woken, self.woken = self.woken, False
            return woken

    def clear(self) -> list[Job]:
        """Closes, and hands out all that was not begun."""
        with self._bell.lock:
            jobs = [*self._urgent, *self._normal]
            self._urgent.clear()
            self._normal.clear()
            self._commands = 0
            self._closed = True
            return jobs

    @property
    def is_closed(self) -> bool:
        """Is nothing more taken in?"""
        return self._closed

    @property
    def has_returns(self) -> bool:
        """Is there anything to be given back?"""
        return bool(self._returned)

    @property
    def may_go_on(self) -> bool:
        """Closing, may what could not be given back at once be tried again?"""
        return time.monotonic() < self._close_by
