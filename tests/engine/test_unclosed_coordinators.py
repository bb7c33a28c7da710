"""Coordinators that are dropped without being closed release their threads and files."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.coordinator import speaking_for
from genlock.coordinator.abandoned import wait_for_releases
from genlock.core import events as e
from genlock.core.commands import ClaimTask
from genlock.engine.engine import Engine
from genlock.engine.lane import Lane
from genlock.engine.observer import Batch
from tests.engine.gated_store import (
    PATIENCE,
    Home,
    answered,
    caller,
    claim,
    state,
    task_key,
    writing,
)
from tests.engine.test_shutdown import run_script
from tests.eventually import eventually


class Releases:
    """Waits for engines to be released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._released = threading.Semaphore(0)
        self.in_threads: list[str] = []
        really = Engine.release

        def release(engine: Engine) -> None:
            really(engine)
            self.in_threads.append(threading.current_thread().name)
            self._released.release()

        monkeypatch.setattr(Engine, "release", release)

    def wait(self) -> None:
        assert self._released.acquire(timeout=PATIENCE), "nothing was released"


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> Releases:
    gc.collect()  # what tests before this one have left
    wait_for_releases()
    return Releases(monkeypatch)


def threads_of(engine: Engine) -> list[threading.Thread]:
    return [lane.thread for lane in engine._lanes]


def open_files(path: Path) -> list[str]:
    """Those of this process that lie there."""
    links = (
        os.readlink(f"/proc/self/fd/{number}")
        for number in os.listdir("/proc/self/fd")
        if os.path.islink(f"/proc/self/fd/{number}")
    )
    return [link for link in links if link.startswith(str(path))]


def test_a_coordinator_that_is_dropped_ends_its_threads_and_closes_its_store(
    home: Home, releases: Releases
) -> None:
    fleet = genlock.connect(home.url, create=True, monitor=True)
    fleet.add_tasks(tasks=["T"])
    store, threads = fleet.engine.store, threads_of(fleet.engine)
    monitors = [thread for thread in threading.enumerate() if thread.name == "genlock-monitor"]
    assert monitors

    del fleet
    releases.wait()

    for thread in [*threads, *monitors]:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    with pytest.raises(genlock.errors.Closed):
        store.load([])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_coordinator_that_is_dropped_keeps_no_file_open(
    tmp_path: Path, releases: Releases
) -> None:
    fleet = genlock.connect(f"sqlite:///{tmp_path}/genlock.db", create=True)
    fleet.add_tasks(tasks=["T"])
    assert open_files(tmp_path)

    del fleet
    releases.wait()

    assert open_files(tmp_path) == []


def test_one_in_an_event_loop_likewise(home: Home, releases: Releases) -> None:
    async def use() -> list[threading.Thread]:
        fleet = genlock.aio.connect(home.url, create=True)
        await fleet.add_tasks(tasks=["T"])
        return threads_of(fleet.engine)

    threads = asyncio.run(use())
    gc.collect()
    releases.wait()

    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_one_that_was_closed_is_not_released_once_more(home: Home, releases: Releases) -> None:
    fleet = genlock.connect(home.url, create=True)
    fleet.close()
    last = genlock.connect(home.url, create=True)
    del fleet
    del last
    releases.wait()
    assert releases.in_threads == ["genlock-release"]


LOCKS: dict[str, Callable[[Engine], Any]] = {
    "of the lane's inbox": lambda engine: engine._lanes[0]._inbox._wakeup.lock,
    "of the engine": lambda engine: engine._lock,
    "of the watcher": lambda engine: engine._watcher._lock,
    "of all threads": lambda engine: threading._active_limbo_lock,  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", LOCKS)
def test_the_garbage_collector_may_come_while_a_lock_is_held(
    home: Home, releases: Releases, name: str
) -> None:
    fleet = genlock.connect(home.url, create=True)
    lock, threads = LOCKS[name](fleet.engine), threads_of(fleet.engine)
    cycle: list[object] = [fleet]
    cycle.append(cycle)
    del fleet, cycle
    with lock:
        gc.collect()
        assert releases.in_threads == []
    releases.wait()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_the_garbage_collector_may_come_in_the_lane_s_own_thread(
    home: Home, releases: Releases
) -> None:
    class Dropping:
        """Lets go of the coordinator in its lane's thread."""

        def __init__(self) -> None:
            self.held: list[genlock.Coordinator] = []
            self.dropped_in: str | None = None

        def batch_done(self, batch: Batch) -> None:
            if self.held:
                self.held.clear()
                self.dropped_in = threading.current_thread().name

    observer = Dropping()
    fleet = genlock.connect(home.url, create=True, observer=observer)
    threads = threads_of(fleet.engine)
    observer.held.append(fleet)
    job = fleet.engine.submit([ClaimTask(task_key("T"), caller("alice"))])
    del fleet
    answered(job)
    releases.wait()

    assert observer.dropped_in == threads[0].name
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


def test_what_is_under_way_is_finished(home: Home, releases: Releases) -> None:
    store = home.gated()
    fleet = genlock.connect(store, clock=home.clock)
    fleet.add_tasks(tasks=["T"])
    stop = home.stop()
    store.on("commit", when=writing(e.ClaimAcquired, "T"), before=stop)
    job = fleet.engine.submit([ClaimTask(task_key("T"), caller("alice"))])
    stop.wait()
    lane = fleet.engine._lanes[0]

    del fleet
    _until_told_to_end(lane)
    stop.open()
    releases.wait()

    assert answered(job)[0].success
    assert state(home.connect(), "T") == "IN_PROGRESS"


def _until_told_to_end(lane: Lane) -> None:
    """Goes by the lane's own word: it takes nothing more."""
    eventually(lambda: lane._inbox.is_closed, "the lane to take nothing more")


def test_a_store_that_was_handed_over_is_there_for_others(home: Home, releases: Releases) -> None:
    store = home.store()
    fleet = genlock.connect(store, clock=home.clock)
    fleet.add_tasks(tasks=["T"])
    del fleet
    releases.wait()
    assert claim(home.connect(store), "T", "alice").success


def test_who_watches_keeps_the_coordinator(home: Home, releases: Releases) -> None:
    fleet = home.connect()
    before = fleet.read_events(tail=True).cursor
    events = genlock.connect(home.store(), clock=home.clock).watch(
        after=before, timeout_seconds=PATIENCE
    )
    gc.collect()
    fleet.add_tasks(tasks=["T"])
    assert next(event.event_type for event in events if event.id == "T") == "TASK_ADDED"
    assert releases.in_threads == []
    del events
    releases.wait()


def test_who_speaks_through_a_coordinator_keeps_it(home: Home, releases: Releases) -> None:
    async def use() -> None:
        fleet = genlock.aio.connect(home.url, create=True)
        speaker = speaking_for(fleet.identity, fleet)
        del fleet
        gc.collect()
        await speaker.add_tasks(tasks=["T"])
        assert releases.in_threads == []

    asyncio.run(use())
    gc.collect()
    releases.wait()


def test_what_a_child_drops_that_its_parent_has_opened_stays_open_for_the_parent(
    lasting: str,
) -> None:
    script = """
        import gc, os, sys, genlock
        fleet = genlock.connect(sys.argv[1], create=True, agent_id="a", session_id="s")
        fleet.add_tasks(tasks=["A", "B"])
        child = os.fork()
        if child == 0:
            del fleet
            gc.collect()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(fleet.claim_task(task_id="A").reason.value)
        child = os.fork()
        if child == 0:
            print(fleet.claim_task(task_id="B").reason.value)
            del fleet  # this one is the child's own
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(fleet.get_task_state(task_id="B").state)
    """
    assert run_script(script, lasting) == ["GRANTED", "GRANTED", "IN_PROGRESS"]


def test_a_program_that_ends_while_something_is_released_waits_for_it(lasting: str) -> None:
    script = """
        import sys, threading, genlock
        from genlock.engine.engine import Engine
        really, begun = Engine.release, threading.Event()

        def release(engine):
            begun.set()
            threading.main_thread().join()
            really(engine)
            print("released", flush=True)

        Engine.release = release
        fleet = genlock.connect(sys.argv[1], create=True, agent_id="a", session_id="s")
        fleet.add_tasks(tasks=["A"])
        del fleet
        begun.wait()
    """
    assert run_script(script, lasting) == ["released"]
