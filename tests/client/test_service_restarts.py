"""The service is killed and started anew on its file while clients work: nothing is lost, nothing
is done twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from genlock.engine.replay_check import check
from tests.logs import PLANTED
from tests.processes import service as program
from tests.service.events.streaming import Client

_TASKS = 48
_CLIENTS = 4
_KILLS = 2
_PATIENCE = 60


class Running:
    """A service in a process of its own, on a file; it keeps its port."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.port = 0
        self.up = threading.Event()
        """Set while it is there, as far as is known."""
        self.start()

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, program.__file__, f"sqlite://{self._file}", str(self.port)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.up.set()

    def end(self, number: int) -> None:
        assert self._process.stdout is not None
        self.up.clear()
        self._process.send_signal(number)
        self._process.wait(_PATIENCE)
        self._process.stdout.close()


class Watchers:
    """Those who look on: one by the client, and one as a browser would, which comes back with the
    id of the last event it has.

    Each reads until all tasks are done.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self.seen: dict[str, list[tuple[str, str]]] = {"client": [], "browser": []}
        self.connections = 0
        self.faults: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(watch,), daemon=True)
            for watch in (self._by_client, self._as_browser)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(_PATIENCE)
            assert not thread.is_alive(), "a watcher misses something"
        assert self.faults == []

    def _run(self, watch: Callable[[], None]) -> None:
        try:
            watch()
        except BaseException as error:  # noqa: BLE001 - for the test
            self.faults.append(error)

    def _is_over(self, who: str, kind: str, task: str) -> bool:
        self.seen[who].append((kind, task))
        return sum(kind == "RESULT_ACCEPTED" for kind, _ in self.seen[who]) == _TASKS

    def _by_client(self) -> None:
        with genlock.connect(
            f"http://127.0.0.1:{self._running.port}", deadline_seconds=30
        ) as fleet:
            for event in fleet.watch(after=fleet.read_events(limit=1).events[0].cursor):
                if self._is_over("client", event.event_type, event.id):
                    return

    def _as_browser(self) -> None:
        last, over = "", False
        while not over:
            assert self._running.up.wait(_PATIENCE)
            try:
                with Client(
                    self._running.port, "/v1/default/default/events/stream?after=start", last=last
                ) as stream:
                    self.connections += 1
                    for event in stream.events():
                        if event.name.startswith("genlock:"):
                            break
                        last = event.id
                        if over := self._is_over(
                            "browser", event.data["event_type"], event.data["id"]
                        ):
                            break
            except (OSError, IndexError):  # refused, cut off, or ended before it was answered
                continue


class Clients:
    """Threads, each a client of its own, that take one task after the other until there is none
    left.

    They go no further than they are let, but never rest: who may not submit yet renews meanwhile.
    So whenever the service is ended, there is work left and calls are under way.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._let = 0
        self.granted: Counter[tuple[str, int]] = Counter()
        self.accepted: Counter[str] = Counter()
        self.faults: list[BaseException] = []
        self._progress = threading.Condition()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(_CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def let(self, done: int) -> None:
        """Returns when so many are done; no more are, but for those under way."""
        with self._progress:
            self._let = done
            assert self._progress.wait_for(
                lambda: self.faults or self.accepted.total() >= done, _PATIENCE
            ), "no progress"

    def join(self) -> None:
        for thread in self._threads:
            thread.join(_PATIENCE)
            assert not thread.is_alive(), "a client does not come to an end"
        assert self.faults == []

    def _run(self, number: int) -> None:
        try:
            with genlock.connect(
                self._url, session_id=f"s{number}", agent_id=f"a{number}", deadline_seconds=30
            ) as fleet:
                while self._work(fleet):
                    pass
        except BaseException as error:  # noqa: BLE001 - for the test
            with self._progress:
                self.faults.append(error)
                self._progress.notify_all()

    def _work(self, fleet: Coordinator) -> bool:
        claim = fleet.claim_next().claim
        if claim is None:
            return False
        while self.accepted.total() >= self._let:
            assert fleet.renew_lease(
                task_id=claim.task_id, expected_generation=claim.generation
            ).success
        answer = fleet.submit_result(
            task_id=claim.task_id,
            generation=claim.generation,
            result_data={"by": claim.session_id, "of": PLANTED},
        )
        with self._progress:
            self.granted[claim.task_id, claim.generation] += 1
            self.accepted[claim.task_id] += answer.accepted
            self._progress.notify_all()
        return True


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_service_that_is_ended_under_load_loses_nothing_and_doubles_nothing(
    how: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "genlock.db"
    running = Running(file)
    try:
        url = f"http://127.0.0.1:{running.port}"
        with genlock.connect(url) as planner:
            planner.add_tasks(tasks=[f"t-{number:03}" for number in range(_TASKS)])
        watchers = Watchers(running)
        clients = Clients(url)
        for kill in range(1, _KILLS + 1):
            clients.let(kill * _TASKS // (_KILLS + 2))
            running.end(how)
            assert clients.accepted.total() < _TASKS, "they were through before it was killed"
            running.start()
        clients.let(_TASKS)
        clients.join()
        watchers.join()
    finally:
        running.end(signal.SIGTERM)
    # Every task was granted once, at its first generation, and accepted once: also those whose
    # answers the kills swallowed.
    assert clients.granted == {(f"t-{number:03}", 1): 1 for number in range(_TASKS)}
    assert clients.accepted == {f"t-{number:03}": 1 for number in range(_TASKS)}
    assert watchers.connections > 1, "its stream was never cut"
    _examine(file, watchers)


def _examine(file: Path, watchers: Watchers) -> None:
    store = genlock.open_store(f"sqlite://{file}", create=True)
    try:
        assert check(store) == []
    finally:
        store.close()
    with genlock.connect(f"sqlite://{file}", create=True) as fleet:
        feed = list(_feed(fleet))
    told = Counter(feed)
    for who, seen in watchers.seen.items():
        # In the order of the feed, without a gap and without a double, up to the last result.
        begin = feed.index(seen[0])
        assert seen == feed[begin : begin + len(seen)], who
    for kind in ("CLAIM_ACQUIRED", "RESULT_ACCEPTED"):
        assert {count for (name, _), count in told.items() if name == kind} == {1}
        assert sum(name == kind for name, _ in told) == _TASKS


def _feed(fleet: Coordinator) -> Iterator[tuple[str, str]]:
    page = fleet.read_events(limit=1000)
    while page.events:
        yield from ((event.event_type, event.id) for event in page.events)
        page = fleet.read_events(after=page.cursor, limit=1000)


def test_a_service_that_is_stopped_answers_those_who_wait_and_they_ask_the_next(
    tmp_path: Path,
) -> None:
    running = Running(tmp_path / "genlock.db")
    try:
        url = f"http://127.0.0.1:{running.port}"
        found: list[str | None] = []
        with genlock.connect(url, session_id="s1", agent_id="a1", deadline_seconds=30) as fleet:
            fleet.next_id()
            waiter = threading.Thread(
                target=lambda: found.append(fleet.claim_next(wait_seconds=60).task_id), daemon=True
            )
            waiter.start()
            running.end(signal.SIGTERM)
            running.start()
            with genlock.connect(url) as planner:
                planner.add_tasks(tasks=["T"])
            waiter.join(_PATIENCE)
        assert found == ["T"]
    finally:
        running.end(signal.SIGTERM)
