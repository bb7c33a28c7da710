"""`make fleet`: a fleet of `genlock run` under kill -9, SIGSTOP and restarts of its coordinator.

    python -m bench.fleet [sqlite postgres] [--workers 50] [--tasks 1000] [--seed N]

Each worker starts one `genlock run --next` after the other, through a service. Meanwhile runs are
killed or stopped for longer than their lease, and the service is killed or ended and started again.
At the end the feed says whether every task was completed exactly once, by the last generation that
was granted and after its dependencies. A lock on a file for each task says whether commands of two
generations ever ran at the same time.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import genlock
from bench.report import Line, show
from genlock.core.results import FeedEvent
from tests.cli.console import COMMAND, environment
from tests.servers.postgres import free_port, running

_TASK = """
import fcntl, os, random, sys, time
place, result = sys.argv[1], os.environ["GENLOCK_RESULT"]
lock = open(os.path.join(place, os.environ["GENLOCK_TASK"]), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    open(os.path.join(place, "overlap"), "a").write(os.environ["GENLOCK_TASK"] + "\\n")
open(result, "w").write("a draft")
time.sleep(random.uniform(0.05, 0.4))
open(result, "w").write("done at generation " + os.environ["GENLOCK_GENERATION"])
"""


class Settings(NamedTuple):
    """One run."""

    workers: int = 50
    tasks: int = 1000
    lease: float = 6.0
    hits: float = 0.03
    """How often a run of each worker is killed or stopped, per second."""
    restart: float = 10.0
    """Seconds between two restarts of the service."""
    seconds: float = 3000.0
    """After which it counts as stuck."""
    seed: int = 1


class Verdict(NamedTuple):
    """What the feed says, and what was done to the fleet."""

    done: Counter[str]
    """What the workers and the chaos did."""
    generations: Counter[int]
    """How many tasks were completed at each generation."""
    refused: int
    kept: int
    """Refused results that are kept."""
    overlaps: int
    faults: list[str]
    """What must never be."""
    seconds: float


class _Fleet:
    """The workers, and what happens to them."""

    def __init__(self, url: str, folder: Path, settings: Settings) -> None:
        self.url, self.folder, self.settings = url, folder, settings
        self.random = random.Random(settings.seed)
        self.done: Counter[str] = Counter()
        self.over = threading.Event()
        self.port = free_port()
        self._runs: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def count(self, what: str) -> None:
        with self._lock:
            self.done[what] += 1

    def work(self, number: int) -> None:
        """One worker: one run after the other."""
        url = f"http://127.0.0.1:{self.port}"
        env = environment({"GENLOCK_SESSION": None, "GENLOCK_URL": url, "TMPDIR": str(self.folder)})
        command = [*COMMAND, "run", "--next"]
        command += [
            "--wait",
            "300",
            "--lease",
            f"{self.settings.lease:g}",
            "--patience",
            "60",
            "--",
        ]
        command += [sys.executable, "-I", "-S", "-c", _TASK, str(self.folder / "locks")]
        while not self.over.is_set():
            with (self.folder / f"worker-{number}.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            with self._lock:
                self._runs.add(process)
            code = process.wait()
            with self._lock:
                self._runs.discard(process)
            self.count(f"exit {code}")
            self.over.wait(1.0 if code not in (0, 120, 121) else 0.0)

    def hit(self) -> None:
        """Now and then a run is killed, or stopped past its lease."""
        rate = self.settings.hits * self.settings.workers
        while not self.over.wait(self.random.expovariate(rate)):
            with self._lock:
                victims = list(self._runs)
            if not victims:
                continue
            victim = self.random.choice(victims)
            if self.random.random() < 0.5:
                victim.kill()
                self.count("killed")
            else:
                threading.Thread(target=self._stop, args=(victim,), daemon=True).start()

    def _stop(self, victim: subprocess.Popen[bytes]) -> None:
        victim.send_signal(signal.SIGSTOP)
        self.count("stopped")
        self.over.wait(self.settings.lease * self.random.uniform(0.5, 1.5))
        victim.send_signal(signal.SIGCONT)

    def serve(self) -> None:
        """The service, again and again."""
        command = [*COMMAND, "serve", "--port", str(self.port), "--url", self.url]
        env = environment({"PYTHONWARNINGS": None})
        while not self.over.is_set():
            with (
                (self.folder / "serve.log").open("ab") as log,
                subprocess.Popen(
                    command, cwd=self.folder, env=env, stdout=log, stderr=log
                ) as service,
            ):
                self.count("services")
                self.over.wait(self.settings.restart * self.random.uniform(0.5, 1.5))
                if self.random.random() < 0.5:
                    service.kill()
                else:
                    service.terminate()

    def run(self) -> bool:
        """Until the plan is done; False if it took too long."""
        began = time.monotonic()
        (self.folder / "locks").mkdir()
        threads = [threading.Thread(target=self.serve), threading.Thread(target=self.hit)]
        threads += [
            threading.Thread(target=self.work, args=(number,))
            for number in range(self.settings.workers)
        ]
        for thread in threads:
            thread.start()
        try:
            with genlock.connect(self.url, process=None) as fleet:
                while not _is_done(fleet, self.settings.tasks):
                    if time.monotonic() - began > self.settings.seconds:
                        return False
                    time.sleep(0.5)
            return True
        finally:
            self.over.set()
            for process in list(self._runs):
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.terminate()
            for thread in threads:
                thread.join(30)


def _is_done(fleet: genlock.Coordinator, tasks: int) -> bool:
    return sum(each.completed for each in fleet.track_progress().values()) == tasks


def plan(tasks: int, width: int) -> list[dict[str, Any]]:
    """Tasks that each wait for one or two others, about `width` of them side by side."""
    return [
        {
            "id": f"T-{number:04}",
            "depends_on": [
                f"T-{other:04}" for other in (number - width, number - width - 7) if other >= 0
            ],
        }
        for number in range(tasks)
    ]


def play(url: str, folder: Path, settings: Settings) -> Verdict:
    """One fleet on one store."""
    tasks = plan(settings.tasks, max(3, settings.workers))
    with genlock.connect(url, create=True, process=None) as fleet:
        fleet.set_policy(policy={"breaker_threshold": 0})
        fleet.add_tasks(tasks=tasks)
    crew = _Fleet(url, folder, settings)
    began = time.monotonic()
    finished = crew.run()
    seconds = time.monotonic() - began
    with genlock.connect(url, process=None) as fleet:
        verdict = judge(list(_feed(fleet)), {task["id"]: task["depends_on"] for task in tasks})
        kept = len(fleet.list_refused_results(limit=100_000))
    overlap = folder / "locks" / "overlap"
    overlaps = overlap.read_text().splitlines() if overlap.exists() else []
    faults = [] if finished else [f"not finished after {seconds:.0f} s"]
    faults += [f"two commands of {task} at the same time" for task in overlaps]
    return verdict._replace(
        done=crew.done,
        kept=kept,
        overlaps=len(overlaps),
        faults=faults + verdict.faults,
        seconds=seconds,
    )


def _feed(fleet: genlock.Coordinator) -> Iterator[FeedEvent]:
    cursor = None
    while True:
        page = fleet.read_events(after=cursor, limit=1000)
        yield from page.events
        if not page.more:
            return
        cursor = page.cursor


def judge(events: list[FeedEvent], depends_on: dict[str, list[str]]) -> Verdict:
    """Was every task completed exactly once, at the last generation, and after its
    dependencies?"""
    granted: dict[str, int] = defaultdict(int)
    accepted: dict[str, int] = {}
    faults: list[str] = []
    refused = 0
    for event in events:
        task, told = event.id, event.event
        if event.event_type == "CLAIM_ACQUIRED":
            if told["generation"] <= granted[task]:
                faults.append(f"{task}: generation {told['generation']} was granted twice")
            granted[task] = told["generation"]
            faults += [
                f"{task}: granted before {other}"
                for other in depends_on[task]
                if other not in accepted
            ]
        elif event.event_type == "RESULT_ACCEPTED":
            if task in accepted:
                faults.append(f"{task}: completed twice")
            if told["generation"] != granted[task]:
                faults.append(f"{task}: completed at {told['generation']}, not {granted[task]}")
            accepted[task] = told["generation"]
        elif event.event_type == "RESULT_REJECTED":
            refused += 1
    faults += [f"{task}: not completed" for task in depends_on if task not in accepted]
    return Verdict(Counter(), Counter(accepted.values()), refused, 0, 0, faults, 0.0)


def lines_of(verdict: Verdict) -> list[Line]:
    """The figures as a table."""
    done, tasks = verdict.done, sum(verdict.generations.values())
    runs = sum(number for what, number in done.items() if what.startswith("exit"))
    later = {n: tasks for n, tasks in sorted(verdict.generations.items()) if n > 1}
    return [
        Line("tasks completed", f"{tasks:,} in {verdict.seconds:.0f} s"),
        Line("runs started", f"{runs:,}"),
        Line("… killed (kill -9)", str(done["killed"])),
        Line("… stopped (SIGSTOP), up to 1.5 leases", str(done["stopped"])),
        Line("… whose claim was lost, and command ended", str(done["exit 120"])),
        Line("… whose result was refused and kept", str(done["exit 121"])),
        Line("starts of the service", str(done["services"])),
        Line("completed at generation 1", f"{verdict.generations[1]:,}"),
        *(Line(f"… at generation {number}", f"{tasks:,}") for number, tasks in later.items()),
        Line("results refused", str(verdict.refused)),
        Line("… and kept", str(verdict.kept), "all", verdict.kept == verdict.refused),
        Line(
            "commands of two generations at once", str(verdict.overlaps), "0", not verdict.overlaps
        ),
        Line(
            "completed exactly once, in order",
            "yes" if not verdict.faults else f"{len(verdict.faults)} faults",
            "yes",
            not verdict.faults,
        ),
    ]


@contextmanager
def _store(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite://{folder}/fleet.db"
        return
    with running() as server:
        yield server.url("fleet")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet")
    parser.add_argument("stores", nargs="*", metavar="STORE")
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args(arguments)
    failed = False
    for kind in told.stores or ["sqlite", "postgres"]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            os.environ["XDG_STATE_HOME"] = str(folder)
            url = stack.enter_context(_store(kind, folder))
            settings = Settings(told.workers, told.tasks, seed=told.seed)
            verdict = play(url, folder, settings)
        show(f"{kind}: {told.workers} workers, {told.tasks:,} tasks", lines_of(verdict))
        for fault in verdict.faults[:20]:
            print(fault)
        failed = failed or bool(verdict.faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
