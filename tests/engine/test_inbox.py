"""What waits for a lane, and when the lane is woken for it."""

from __future__ import annotations

import asyncio
import queue
import threading
import time

from genlock.core.commands import ClaimTask
from genlock.engine.inbox import Inbox
from genlock.engine.jobs import Job
from tests.engine.gated_store import PATIENCE, caller, task_key


class Sleeper:
    """A thread that takes from an inbox whatever it is woken for."""

    def __init__(self) -> None:
        self.inbox = Inbox()
        self._taken: queue.Queue[list[Job]] = queue.Queue()
        self._tired = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while self.inbox.wait(
            lambda: False, self._tired.set
        ):  # set at the last moment, with the lock
            self._taken.put(self.inbox.take(512))

    def falls_asleep(self) -> None:
        assert self._tired.wait(PATIENCE)
        self._tired.clear()
        assert self.is_asleep

    @property
    def is_asleep(self) -> bool:
        with self.inbox._wakeup.lock:
            return self.inbox._wakeup.asleep

    def takes(self) -> list[Job]:
        """What it took when it was woken."""
        return self._taken.get(timeout=PATIENCE)

    def ends(self) -> bool:
        self.inbox.close()
        self._thread.join(PATIENCE)
        return not self._thread.is_alive()


def job(name: str, loop: asyncio.AbstractEventLoop | None = None) -> Job:
    return Job([ClaimTask(task_key(name), caller("alice"))], time.monotonic() + PATIENCE, loop)


def put_and_close(sleeper: Sleeper, loop: asyncio.AbstractEventLoop) -> Job:
    """A job of an event loop that does not come round any more, where many come together."""
    sleeper.inbox.last_taken = 8
    left = job("A", loop)
    loop.call_soon(sleeper.inbox.put, left)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    return left


def test_a_lane_is_woken_once_for_all_that_comes_in_one_round_of_an_event_loop() -> None:
    sleeper, jobs = Sleeper(), []
    sleeper.falls_asleep()
    sleeper.inbox.last_taken = 8

    async def put(name: str) -> None:
        jobs.append(job(name, asyncio.get_running_loop()))
        sleeper.inbox.put(jobs[-1])
        assert sleeper.is_asleep

    async def scenario() -> None:
        await asyncio.gather(*(put(f"T{number}") for number in range(20)))

    asyncio.run(scenario())
    assert sleeper.takes() == jobs
    assert sleeper.ends()


def test_where_few_come_a_lane_is_woken_at_once() -> None:
    sleeper, few, many = Sleeper(), job("A"), [job(f"T{number}") for number in range(8)]
    loop = asyncio.new_event_loop()
    for taken, deferred in (([few], False), (many, True)):
        sleeper.falls_asleep()
        with sleeper.inbox._wakeup.lock:  # so that all are there when it wakes
            sleeper.inbox._normal.extend(taken)
            sleeper.inbox._wakeup.wake()
        assert sleeper.takes() == taken
        sleeper.falls_asleep()
        later = job("B", loop)
        sleeper.inbox.put(later)
        if deferred:
            assert sleeper.is_asleep
            assert sleeper.inbox.depth == 1
        else:
            assert sleeper.takes() == [later]
    loop.close()
    assert sleeper.ends()


def test_what_a_closed_event_loop_has_left_goes_with_the_next_that_comes() -> None:
    sleeper, later = Sleeper(), job("B")
    sleeper.falls_asleep()
    left = put_and_close(sleeper, asyncio.new_event_loop())
    assert sleeper.is_asleep
    sleeper.inbox.put(later)
    assert sleeper.takes() == [left, later]
    assert sleeper.ends()


def test_a_closed_event_loop_does_not_stand_in_the_way_of_another() -> None:
    sleeper = Sleeper()
    sleeper.falls_asleep()
    left = put_and_close(sleeper, asyncio.new_event_loop())
    later: list[Job] = []

    async def another() -> None:
        later.append(job("B", asyncio.get_running_loop()))
        sleeper.inbox.put(later[0])

    asyncio.run(another())
    assert sleeper.takes() == [left, *later]
    assert sleeper.ends()


def test_a_lane_ends_though_an_event_loop_was_about_to_ring() -> None:
    sleeper = Sleeper()
    sleeper.falls_asleep()
    left = put_and_close(sleeper, asyncio.new_event_loop())
    assert sleeper.ends()
    assert sleeper.inbox.clear() == [left]
