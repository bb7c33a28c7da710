"""Worker loops: take a task, call the handler, submit its return value, and repeat.

A handler's return value is its result, unless it has submitted or released the task itself. An
exception releases the task with the error. After consecutive failures a loop pauses, longer each
time.

The first SIGINT or SIGTERM shuts the loops down gracefully: they take no further tasks, and running
handlers finish. The second one releases the tasks and raises KeyboardInterrupt.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from genlock.core.results import Progress
from genlock.errors import BadArgument
from genlock.retry import Backoff
from genlock.worker.fleet import KeeperKind, Tracks
from genlock.worker.grant import NothingReady
from genlock.worker.kept_claim import ClaimLost
from genlock.worker.work import AsyncWork, BaseWork, Work

LOG: Final = logging.getLogger("genlock.worker")
AFTER_FAILURES: Final = Backoff(0.1, 10.0, jitter=0.5)
PIECE_SECONDS: Final = 5.0
"""A wait for a task is split into pieces of this length, so that a loop detects in between that it
was stopped."""
_MOST_AT_ONCE: Final = 1000


class Totals(Struct):
    """The outcomes of the tasks that a worker took."""

    accepted: int = 0
    refused: int = 0
    """Results that came too late. They are kept."""
    released: int = 0
    failed: int = 0
    """The handler raised an exception."""
    lost: int = 0
    """The claim was lost while the handler was working."""

    @property
    def taken(self) -> int:
        """The number of tasks taken."""
        return self.accepted + self.refused + self.released + self.failed + self.lost


class _Loops:
    """The base of both kinds of worker: the options, the totals and the rules."""

    def __init__(
        self,
        fleet: Any,
        handler: Callable[[Any], Any],
        *,
        concurrency: int = 1,
        track: Tracks = None,
        lease_seconds: float | None = None,
        role: str = "",
        keeper: KeeperKind = "thread",
        wait: float = PIECE_SECONDS,
        until_done: bool = False,
        max_tasks: int | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        if isinstance(concurrency, bool) or not 1 <= concurrency <= _MOST_AT_ONCE:
            raise BadArgument(f"concurrency is from 1 to {_MOST_AT_ONCE:,}, not {concurrency!r}")
        self.fleet = fleet
        self.handler = handler
        self.totals = Totals()
        self._concurrency = concurrency
        self._claiming: dict[str, Any] = {
            "track": track,
            "lease_seconds": lease_seconds,
            "role": role,
            "keeper": keeper,
        }
        self._wait = min(wait, PIECE_SECONDS)
        self._until_done = until_done
        self._left = max_tasks
        self._lock = threading.Lock()
        self.stopped = stop or threading.Event()

    def stop(self) -> None:
        """Ends the loops after their running handlers. May be called from any thread."""
        self.stopped.set()

    def _goes_on(self) -> bool:
        """May another task be taken? If so, counts it."""
        with self._lock:
            if self.stopped.is_set() or self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            return True

    def _not_taken(self) -> None:
        with self._lock:
            if self._left is not None:
                self._left += 1

    def _count(self, outcome: str) -> None:
        with self._lock:
            setattr(self.totals, outcome, getattr(self.totals, outcome) + 1)

    def _after(self, work: BaseWork | None, error: Exception | None) -> bool:
        """Counts the outcome of one turn. Returns False if it failed and the loop should pause."""
        if work is None:
            self._not_taken()
            if error is not None and not isinstance(error, NothingReady):
                LOG.warning("no task can be taken: %s", error)
            return isinstance(error, NothingReady)
        if error is None:
            self._count(work.outcome)
        elif isinstance(error, ClaimLost):
            self._count("lost")
            LOG.warning("%s", error)
        else:
            self._count("failed")
            LOG.warning("the handler failed on %s", work.id, exc_info=error)
            return False
        return True


def is_over(progress: Mapping[str, Progress]) -> bool:
    """Is nothing ready, and is no agent working on a task that others could wait for?"""
    return all(each.in_progress == 0 and each.pending == 0 for each in progress.values())


class Worker(_Loops):
    """A handler and its loops, each in a thread."""

    def __call__(self, work: Work) -> Any:
        """The handler itself."""
        return self.handler(work)

    def run(self) -> Totals:
        """Works until it is stopped, or until all is done."""
        if inspect.iscoroutinefunction(self.handler):
            return asyncio.run(AsyncWorker._in_place_of(self).run())
        threads = [
            threading.Thread(target=self._loop, name=f"genlock-worker-{n}", daemon=True)
            for n in range(self._concurrency)
        ]
        with _stopped_by_signals(self.stop):
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            except KeyboardInterrupt:
                self.stop()
                self.fleet._keeper(self._claiming["keeper"]).close(release=True, within=1.0)
                raise
        return self.totals

    def _loop(self) -> None:
        failures = 0
        while self._goes_on():
            work, error = self._take()
            failures = 0 if self._after(work, error) else failures + 1
            if failures:
                self.stopped.wait(AFTER_FAILURES.pause(failures))
            elif work is None and self._until_done and is_over(self.fleet.track_progress()):
                self.stop()

    def _take(self) -> tuple[Work | None, Exception | None]:
        """Works on one task, if there is one. Returns it, and the exception that ended it, if
        any."""
        work: Work | None = None
        try:
            with self.fleet.next_task(wait=self._wait, **self._claiming) as work:
                if not self.stopped.is_set():
                    result = self.handler(work)
                    if not work.finished:
                        work.submit(result)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return work, error
        return work, None


class AsyncWorker(_Loops):
    """An async handler and its loops, each a task of the event loop."""

    async def __call__(self, work: AsyncWork) -> Any:
        """The handler itself."""
        return await self.handler(work)

    @classmethod
    def _in_place_of(cls, worker: Worker) -> AsyncWorker:
        """Runs an async handler for a fleet of plain methods."""
        other: AsyncWorker = object.__new__(cls)
        other.__dict__.update(worker.__dict__)
        other.fleet = worker.fleet._async_face()
        return other

    async def run(self) -> Totals:
        """Works until it is stopped, or until all is done."""
        if not inspect.iscoroutinefunction(self.handler):
            raise BadArgument("in an event loop the handler is an async function")
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        loops = [asyncio.ensure_future(self._loop()) for _ in range(self._concurrency)]

        def interrupted() -> None:
            if not self.stopped.is_set():
                self.stop()
                return
            for each in loops:
                each.cancel()

        caught = _catch_in(loop, numbers, interrupted)
        try:
            await asyncio.gather(*loops)
        finally:
            for each in loops:
                each.cancel()
            for number in caught:
                loop.remove_signal_handler(number)
        return self.totals

    async def _loop(self) -> None:
        failures = 0
        while self._goes_on():
            work, error = await self._take()
            failures = 0 if self._after(work, error) else failures + 1
            if failures:
                await asyncio.sleep(AFTER_FAILURES.pause(failures))
            elif work is None and self._until_done and is_over(await self.fleet.track_progress()):
                self.stop()

    async def _take(self) -> tuple[AsyncWork | None, Exception | None]:
        work: AsyncWork | None = None
        try:
            async with self.fleet.next_task(wait=self._wait, **self._claiming) as work:
                if not self.stopped.is_set():
                    result = await self.handler(work)
                    if not work.finished:
                        await work.submit(result)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return work, error
        return work, None


def _catch_in(
    loop: asyncio.AbstractEventLoop, numbers: tuple[signal.Signals, ...], call: Callable[[], None]
) -> list[signal.Signals]:
    """Installs the loop's handlers. Returns the signals handled; none outside the main thread."""
    caught = []
    for number in numbers:
        try:
            loop.add_signal_handler(number, call)
        except (NotImplementedError, RuntimeError, ValueError):
            continue
        caught.append(number)
    return caught


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT or SIGTERM calls `stop`, the second raises KeyboardInterrupt. Only the main
    thread receives signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = 0

    def hear(number: int, frame: object) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            raise KeyboardInterrupt
        stop()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
