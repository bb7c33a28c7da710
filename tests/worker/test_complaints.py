"""What users of other leases and heartbeats complain of, with real processes. The numbers are those of
docs/how-to/use-with-any-command.md, which names the tests of the other rows."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.core.results import FeedEvent
from genlock.worker import Loss, NotGranted, schedule
from genlock.worker.keeper import Keeper
from tests.eventually import eventually
from tests.servers.proxy import between
from tests.servers.service import serving
from tests.service.process import serve
from tests.worker.fleets import working
from tests.worker.runs import is_alive, running, store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return store(tmp_path, "T", "U")


@pytest.fixture
def fleet(url: str) -> Iterator[genlock.Coordinator]:
    with genlock.connect(url, session_id="test", agent_id="test") as fleet:
        yield fleet


KEPT = """
import sys, time, genlock
fleet = genlock.connect(sys.argv[1], session_id="owner", agent_id="owner", process=None)
work = fleet.claim("T", lease_seconds=1.0).__enter__()
print("kept", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("ends", ["killed", "by itself"])
def test_the_keeper_ends_with_its_owner(ends: str, url: str, fleet: genlock.Coordinator) -> None:
    """Row 6. Nobody says that the process has gone; its renewals end, and with them the lease."""
    command = [sys.executable, "-c", KEPT, url, "600" if ends == "killed" else "1.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "kept\n"
        if ends == "killed":
            owner.kill()
        owner.wait(60)
    eventually(lambda: fleet.claim_task(task_id="T").success, "the lease to run out", seconds=20)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper and /proc")
def test_a_lost_claim_interrupts_no_thread_and_run_ends_a_system_call(
    url: str, fleet: genlock.Coordinator, tmp_path: Path
) -> None:
    """Row 12. In a program the loss is an event; `genlock run` ends even a blocked read."""
    blocked = "import os, sys; open('pid', 'w').write(str(os.getpid())); os.read(os.pipe()[0], 1)"
    with running(url, tmp_path, "--lease", 2, "T", "--", sys.executable, "-c", blocked) as run:
        pid = int(eventually(lambda: _text(tmp_path / "pid"), "the command"))
        fleet.force_release(task_id="T", take_over=True)
        assert run.end() == 120
        assert not is_alive(pid)
    finished = []
    with fleet.claim("U", lease_seconds=1.0) as work:
        fleet.force_release(task_id="U", take_over=True)
        assert work.lost.wait(10)
        finished.append("undisturbed")
    assert finished == ["undisturbed"]


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def test_the_keeper_takes_no_lock_of_its_caller() -> None:
    """Row 13. The caller holds a lock that its callbacks want, too; other claims are renewed
    meanwhile."""
    mine = threading.Lock()
    with working("T", "U") as worker, mine:
        lost = worker.keep("T", on_lost=lambda kept: mine.acquire(timeout=30))
        other = worker.keep("U")
        worker.fleet.force_release(task_id="T", take_over=True)
        assert lost.lost.wait(10)
        seen = other.sent
        eventually(lambda: other.sent > seen + 1.0, "renewals for another lease")
        worker.keeper.remove(other)
        assert not other.is_lost


def test_a_late_renewal_revives_no_released_claim(fleet: genlock.Coordinator) -> None:
    """Row 14. Released is final, whether somebody else has the task by now or not."""
    claim = fleet.claim_task(task_id="T").require()
    late: dict[str, Any] = {"task_id": "T", "generation": claim.generation}
    assert fleet.release_claim(**late).success
    assert fleet.renew_lease(**late).reason == "NO_CLAIM"
    assert fleet.get_task_state(task_id="T").claim is None
    heir = fleet.claim_task(task_id="T", session_id="heir", agent_id="heir").require()
    assert fleet.renew_lease(**late).reason == "GENERATION_MISMATCH"
    told = fleet.get_task_state(task_id="T").claim
    assert told is not None
    assert (told.session_id, told.expires_at) == ("heir", heir.expires_at)


SILENT_LEASE = 3.0


# A black-holed network: nobody is told of a loss after the lease


@pytest.mark.parametrize(
    "trials", [10, pytest.param(200, marks=(pytest.mark.slow, pytest.mark.timeout(900)))]
)
def test_a_loss_by_a_silent_network_is_noticed_before_the_lease_ends(
    trials: int, tmp_path: Path
) -> None:
    """At a random moment the proxy passes nothing on any more. `lost` is never later than the end
    of the lease at the coordinator."""
    tasks = [f"N-{n:03}" for n in range(trials)]
    late: list[tuple[str, float]] = []

    def trial(task: str) -> None:
        with (
            between(service.port) as proxy,
            genlock.connect(f"http://127.0.0.1:{proxy.port}", session_id=task) as fleet,
            fleet.claim(task, lease_seconds=SILENT_LEASE) as work,
        ):
            time.sleep(random.uniform(0, SILENT_LEASE))
            proxy.black_hole()
            assert work.lost.wait(2 * SILENT_LEASE)
            noticed = time.time()
            claim = service.do(service.coordinator.get_task_state(task_id=task)).claim
            assert claim is not None
            assert claim.expires_at is not None
            if noticed > claim.expires_at.timestamp():
                late.append((task, noticed - claim.expires_at.timestamp()))
            assert work._kept.reason is Loss.OUTAGE
            proxy.cut()
            work._keeper.remove(work._kept)
            work.finished = True  # nobody waits for the release

    with serving(store(tmp_path, *tasks)) as service, ThreadPoolExecutor(10) as pool:
        list(pool.map(trial, tasks))
    assert late == []


# A fleet whose coordinator is restarted


@pytest.mark.parametrize(
    ("workers", "seconds"),
    [(8, 6.0), pytest.param(50, 30.0, marks=(pytest.mark.slow, pytest.mark.timeout(600)))],
)
def test_a_coordinator_restarted_every_few_seconds_loses_and_doubles_nothing(
    workers: int, seconds: float, tmp_path: Path
) -> None:
    """Each worker keeps taking tasks from the same service, which is ended and started again."""
    tasks = [f"N-{n:04}" for n in range(workers * 6)]
    url = store(tmp_path, *tasks)
    stop = threading.Event()
    lock = threading.Lock()
    at_work: set[str] = set()
    begun: set[tuple[str, int]] = set()
    overlaps: list[str] = []
    finished: Counter[str] = Counter()

    def work(address: str) -> None:
        with genlock.connect(address, process=None) as fleet:
            while not stop.is_set():
                try:
                    with fleet.next_task(wait=2, lease_seconds=20) as work:
                        with lock:
                            overlaps.extend({work.id} & at_work)
                            at_work.add(work.id)
                            begun.add((work.id, work.generation))
                        time.sleep(random.uniform(0.1, 0.5))
                        with lock:
                            at_work.discard(work.id)
                        assert work.submit(work.id).accepted
                        with lock:
                            finished[work.id] += 1
                except NotGranted:
                    return

    with serve(tmp_path, url=url) as service:
        port, address = service.port, service.url
        threads = [threading.Thread(target=work, args=(address,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        service.end()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with serve(tmp_path, "--port", str(port), url=url):
            time.sleep(2.0)  # and then it is killed
    with serve(tmp_path, "--port", str(port), url=url):
        for thread in threads:
            thread.join(100)
    stop.set()
    assert finished == Counter(tasks)  # each once, and none twice
    assert overlaps == []
    with genlock.connect(url) as fleet:
        told = list(_events(fleet))
    events = Counter(event.event_type for event in told)
    assert events["RESULT_ACCEPTED"] == len(tasks)
    assert events["CLAIM_EXPIRED"] == events["RESULT_REJECTED"] == 0
    # A service that ends may release what it granted to a caller who has gone, and the retry is
    # granted the task anew. It never releases what a worker has begun.
    released = {(e.id, e.event["generation"]) for e in told if e.event_type == "CLAIM_RELEASED"}
    assert released & begun == set()
    assert events["CLAIM_ACQUIRED"] == len(begun) + len(released)
    assert len(begun) == len(tasks)


def _events(fleet: genlock.Coordinator) -> Iterator[FeedEvent]:
    cursor = None
    while True:
        page = fleet.read_events(after=cursor, limit=1000)
        yield from page.events
        if not page.more:
            return
        cursor = page.cursor


# Renewals of many agents


def test_renewals_of_real_keepers_that_claimed_together_are_spread() -> None:
    """A hundred agents claim within a moment; the first renewals come at different times."""
    with working(*(f"N-{n}" for n in range(100))) as worker:
        keepers = [Keeper(worker.way) for _ in range(100)]
        try:
            asked = schedule.now()
            for n, keeper in enumerate(keepers):
                claim = worker.fleet.claim_task(
                    task_id=f"N-{n}",
                    session_id=f"s-{n}",
                    agent_id="a",
                    lease_duration_seconds=10.0,
                ).require()
                keeper.add(claim, asked=asked, known=True)
            eventually(lambda: len(worker.way.renewals) >= 100, "the first renewals", seconds=30)
        finally:
            for keeper in keepers:
                keeper.close()
    first = [each.at - asked for each in worker.way.renewals[:100]]
    assert min(first) >= 1.0
    quarters = Counter(int((at - 1.0) / 0.75) for at in first)
    assert max(quarters.values()) <= 45  # of 25 on average: never all at once
