"""The engine: lanes on one store, chosen by tenant and project."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from genlock.core.facts import Mercy
from genlock.engine.activity import Activity
from genlock.engine.batch import Round
from genlock.engine.counts import Counts
from genlock.engine.inbox import TO_GIVE_BACK_SECONDS
from genlock.engine.jobs import Job, Request
from genlock.engine.lane import Lane
from genlock.engine.observing import Observer
from genlock.engine.outages import Outages
from genlock.engine.patience import patiently
from genlock.engine.uninterrupted import uninterrupted
from genlock.engine.watcher import Watcher
from genlock.errors import Closed, GenlockError, StoreError
from genlock.store import Store

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")

DEADLINE_SECONDS = 5.0
_CLOSE_SECONDS = 30.0


class Engine:
    """Takes jobs, gives answers. Belongs to the process that made it."""

    def __init__(
        self,
        store: Store,
        *,
        lanes: int = 1,
        profile: str = "local",
        deadline_seconds: float = DEADLINE_SECONDS,
        observer: Observer | None = None,
        service: bool = False,
        lent: bool = False,
    ) -> None:
        """`lanes` are the most that are wanted; a store says how many gain anything. `observer` is told of every batch.

        A `service` heeds outages (see outages.py). A store that is `lent` may be in use elsewhere.
        """
        self.store = store
        self._lent = lent
        self.outages = Outages(store) if service else None
        if self.outages is not None:
            with suppress(StoreError):  # it is away; the start is when it is there
                self.outages.found(store.load([]).now)
        self.profile = profile
        self.deadline_seconds = deadline_seconds
        self.pid = os.getpid()
        self.name = f"{os.uname().nodename}-{self.pid}-{os.urandom(3).hex()}"
        self.activity = Activity(store)
        self._watcher = Watcher(store, hears=not lent)
        self._closed = False
        self._lock = threading.Lock()
        self._closers: list[Callable[[], None]] = []
        most = max(1, min(lanes, store.limits.writers))
        self._lanes = [
            Lane(
                str(n),
                store,
                self._watcher,
                coordinator=f"{self.name}-{n}",
                profile=profile,
                observer=observer,
                outages=self.outages,
                activity=self.activity,
            )
            for n in range(most)
        ]

    def submit(self, requests: Sequence[Request], *, loop: AbstractEventLoop | None = None, patience: float = 0) -> Job:
        """Queues requests that are answered together; all must be of one project. `patience` is added to the deadline."""
        job = self._job(requests, patience, loop)
        self._lane(requests[0]).submit(job)
        return job

    def ask(self, requests: Sequence[Request], *, patience: float = 0) -> Job:
        """The same for a thread, which waits for the answers; on a store of this machine it does the work itself if it is alone."""
        job = self._job(requests, patience)
        lane = self._lane(requests[0])
        try:
            if self.store.limits.shared or not uninterrupted(partial(lane.do, job)):
                lane.submit(job)
            return job.wait()
        except GenlockError:
            raise
        except BaseException:
            # Ctrl-C: what was granted, or is from now on, has nobody to hold it.
            self.abandon(job)
            raise

    def _job(self, requests: Sequence[Request], patience: float, loop: AbstractEventLoop | None = None) -> Job:
        if self._closed:
            raise Closed("the coordinator is closed")
        return Job(requests, time.monotonic() + self.deadline_seconds + patience, loop)

    def read(self, function: Callable[[], T]) -> T:
        """Looks at the store in the calling thread; waits for a store that is away until the deadline, as commands do."""
        return patiently(function, time.monotonic() + self.deadline_seconds)

    def abandon(self, job: Job) -> None:
        """Nobody waits for this job any more: it is dropped if it has not begun, and what it is granted is given back."""
        # What it may have been granted is to be found out also where a caller would have lost patience.
        job.deadline = max(job.deadline, time.monotonic() + TO_GIVE_BACK_SECONDS)
        job.cancelled = True
        if job.left == 0:
            self._lane(job.requests[0]).give_back(job)
        else:
            self._lane(job.requests[0]).poke()

    def look(self) -> Round:
        """A round for those who only look; nothing of it may be committed."""
        return Round(self.store, Counts(self.store, self.outages, self.activity), profile=self.profile, outages=self.outages)

    def mercy(self, place: tuple[str, str], now: datetime) -> Mercy | None:
        """What an outage is an excuse for in this project, if it is one."""
        return None if self.outages is None else self.outages.mercy(place, now)

    def depths(self) -> dict[str, tuple[int, int]]:
        """By lane: jobs that wait to be begun, and requests for a next task that wait for one."""
        return {str(n): (lane.depth, lane.waiters) for n, lane in enumerate(self._lanes)}

    @property
    def is_broken(self) -> bool:
        """Has a lane ended that nobody has closed? Only a bug of ours does that, and nothing but a new start helps."""
        return not self._closed and not all(lane.thread.is_alive() for lane in self._lanes)

    def poke(self) -> None:
        """Time may have moved: look again."""
        for lane in self._lanes:
            lane.poke()

    def on_close(self, stop: Callable[[], None]) -> None:
        """Calls `stop` when the engine is closed."""
        self._closers.append(stop)

    def close(self) -> None:
        """Finishes what is under way, answers the rest `Closed`, closes the store."""
        self._end()

    def release(self) -> None:
        """The same for an engine that nobody will ask any more. Nobody has said that a store that is lent is to be closed."""
        self._end(keep_store=self._lent)

    def _end(self, *, keep_store: bool = False) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if os.getpid() != self.pid:
            return
        for stop in self._closers:
            stop()
        self._watcher.close()
        for lane in self._lanes:
            lane.close()
        for lane in self._lanes:
            if lane.thread is not threading.current_thread():
                lane.thread.join(timeout=_CLOSE_SECONDS)
        if not keep_store:
            self.store.close()
        self._watcher.join()

    def _lane(self, request: Request) -> Lane:
        if len(self._lanes) == 1:
            return self._lanes[0]
        key = request.key
        return self._lanes[_spread(key[0], key[1]) % len(self._lanes)]


@lru_cache(maxsize=4096)
def _spread(tenant: str, project: str) -> int:
    """A number by which projects are divided among lanes, the same in every process."""
    return crc32(f"{tenant}/{project}".encode())
