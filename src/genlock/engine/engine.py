"""The engine: lanes on one store, chosen by tenant and project, and the monitor that sweeps it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, cast
from zlib import crc32

from genlock.core.codec import decode_record
from genlock.core.facts import OutageGrace
from genlock.core.keys import PROJECT, TENANT, Key, project_key, tenant_key
from genlock.core.model import TenantRecord
from genlock.engine.batch import BatchRound
from genlock.engine.edit_watch import EditWatch
from genlock.engine.feed_watch import FeedWatch
from genlock.engine.inbox import TO_GIVE_BACK_SECONDS
from genlock.engine.jobs import Job, Request, Sweep
from genlock.engine.lane import Lane
from genlock.engine.limits import Counts
from genlock.engine.observer import Activity, Observer
from genlock.engine.outage_grace import OutageTracker
from genlock.engine.retry import retry_until
from genlock.engine.scan import places, purge_old
from genlock.errors import Busy, Closed, GenlockError, StoreCorrupt, StoreError
from genlock.store import ObservesFiles, Store

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


T = TypeVar("T")

DEADLINE_SECONDS = 5.0
_CLOSE_SECONDS = 30.0


class Engine:
    """Takes jobs and answers them. It belongs to the process that created it."""

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
        """`lanes` is an upper bound: the store states how many are useful. `observer` is notified
        of every batch.

        A `service` grants a grace after outages. A store that is `lent` may be in use elsewhere.
        """
        self.store = store
        self._lent = lent
        self.outages = OutageTracker(store) if service else None
        if self.outages is not None:
            with suppress(StoreError):  # if unavailable, its return is the start
                self.outages.found(store.load([]).now)
        self.profile = profile
        self.deadline_seconds = deadline_seconds
        self.pid = os.getpid()
        self.name = f"{os.uname().nodename}-{self.pid}-{os.urandom(3).hex()}"
        self.activity = Activity(store)
        self._edits: EditWatch | None = None
        if store.limits.observes and not store.limits.read_only:
            self._edits = EditWatch(
                cast(ObservesFiles, store), lambda requests: self.submit(requests).wait()
            )
        self._watcher = FeedWatch(store, alone=not lent, edits=self._edits)
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

    def submit(
        self,
        requests: Sequence[Request],
        *,
        loop: AbstractEventLoop | None = None,
        patience: float = 0,
    ) -> Job:
        """Queues requests of one project that are answered together. `patience` is added to the
        deadline."""
        job = self._job(requests, patience, loop)
        self._lane(requests[0]).submit(job)
        return job

    def ask(self, requests: Sequence[Request], *, patience: float = 0) -> Job:
        """Queues requests and waits in the calling thread for their answers."""
        job = self._job(requests, patience)
        lane = self._lane(requests[0])
        if lane.thread is threading.current_thread():
            raise Busy(
                "asked from within another call, by a finalizer or a tracer; nothing was done, ask "
                "again outside of it"
            )
        try:
            lane.submit(job)
            return job.wait()
        except GenlockError:
            raise
        except BaseException:
            # Ctrl-C: no caller is left for present and later grants.
            self.abandon(job)
            raise

    def _job(
        self, requests: Sequence[Request], patience: float, loop: AbstractEventLoop | None = None
    ) -> Job:
        if self._closed:
            raise Closed("the coordinator is closed")
        return Job(requests, time.monotonic() + self.deadline_seconds + patience, loop)

    def read(self, function: Callable[[], T]) -> T:
        """Reads the store in the calling thread. While it is unavailable, retries until the
        deadline, as commands do."""
        return retry_until(function, time.monotonic() + self.deadline_seconds)

    def abandon(self, job: Job) -> None:
        """Abandons a job without a caller. It is dropped if it has not begun, and claims granted to
        it are released."""
        # Its grants must be found out even after the caller's deadline.
        job.deadline = max(job.deadline, time.monotonic() + TO_GIVE_BACK_SECONDS)
        job.cancelled = True
        if job.left == 0:
            self._lane(job.requests[0]).give_back(job)
        else:
            self._lane(job.requests[0]).poke()

    def look(self) -> BatchRound:
        """Returns a round for reading. It must not be committed."""
        return BatchRound(
            self.store,
            Counts(self.store, self.outages, self.activity),
            profile=self.profile,
            outages=self.outages,
        )

    def outage_grace(self, place: tuple[str, str], now: datetime) -> OutageGrace | None:
        """Returns the grace for this project, if an outage ended a short time ago."""
        return None if self.outages is None else self.outages.outage_grace(place, now)

    def depths(self) -> dict[str, tuple[int, int]]:
        """Returns, by lane, the number of jobs in the inbox and of requests that wait for a
        task."""
        return {str(n): (lane.depth, lane.waiters) for n, lane in enumerate(self._lanes)}

    @property
    def is_broken(self) -> bool:
        """Has a lane ended without being closed? Only a bug does that, and only a restart helps."""
        return not self._closed and not all(lane.thread.is_alive() for lane in self._lanes)

    def poke(self) -> None:
        """Makes all waiters try again: time may have moved."""
        for lane in self._lanes:
            lane.poke()

    def watch_edits(self, places: Iterable[tuple[str, str]]) -> None:
        """Turns edits by other tools into events while a caller waits for events of these
        projects."""
        if self._edits is not None:
            self._edits.watch(places)

    def on_close(self, stop: Callable[[], None]) -> None:
        """Calls `stop` when the engine is closed."""
        self._closers.append(stop)

    def close(self) -> None:
        """Finishes the batches in flight, answers the rest with `Closed`, closes the store."""
        self._end()

    def release(self) -> None:
        """Closes an engine that was dropped. A store that is lent stays open: its owner closes
        it."""
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
        if self._edits is not None:
            self._edits.close()
        for lane in self._lanes:
            lane.close()
        for lane in self._lanes:
            if lane.thread is not threading.current_thread():
                lane.thread.join(timeout=_CLOSE_SECONDS)
        if not keep_store:
            self.store.close()
        self._watcher.join()
        if self._edits is not None and not keep_store:
            self._edits.join()

    def _lane(self, request: Request) -> Lane:
        if len(self._lanes) == 1:
            return self._lanes[0]
        key = request.key
        return self._lanes[_spread(key[0], key[1]) % len(self._lanes)]


@lru_cache(maxsize=4096)
def _spread(tenant: str, project: str) -> int:
    """Returns a number that distributes projects among lanes, the same in every process."""
    return crc32(f"{tenant}/{project}".encode())


# The monitor


INTERVAL_SECONDS = 5.0


class Monitor:
    """A thread that sweeps projects at intervals and ends with its engine.

    No answer depends on it: it only records earlier what any caller would find. At every sweep it
    checks everything that is due. It searches for lost holders in tours, some at each sweep, so
    that a hundred thousand claims cost no more than a thousand. A monitor of a single project
    checks all of them at every sweep, and therefore sweeps rarely.
    """

    def __init__(
        self,
        engine: Engine,
        interval_seconds: float = INTERVAL_SECONDS,
        place: tuple[str, str] | None = None,
    ) -> None:
        """Monitors every project, or only the one at this place."""
        self._engine = engine
        self._interval = interval_seconds
        self._place = place
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name="genlock-monitor", daemon=True)
        engine.on_close(self._stop.set)

    def start(self) -> None:
        self.thread.start()

    def sweep(self) -> None:
        """Sweeps every project once, as far as a tour goes, and drops events past their tenant's
        retention. A monitor of one project sweeps all of it."""
        if self._place is not None:
            self._engine.submit([Sweep(project_key(*self._place))], patience=120).wait()
            return
        for tenant, project in places(self._engine.store)[1:]:
            # A damaged project must not keep the others from being swept.
            with suppress(StoreCorrupt):
                self._look_after(tenant, project)

    def _look_after(self, tenant: str, project: str) -> None:
        store = self._engine.store
        self._engine.submit(
            [Sweep(Key(tenant, project, PROJECT, project), tour=True)], patience=60
        ).wait()
        stored = store.load([tenant_key(tenant)]).records.get(tenant_key(tenant))
        record = decode_record(TENANT, stored.body) if stored is not None else None
        if isinstance(record, TenantRecord):
            purge_old(store, (tenant, project), record.limits)

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            with suppress(GenlockError):
                self.sweep()
