"""How soon a waiting caller is woken: by its own process, by another one, and by a lease that runs
out with no monitor."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import genlock
from bench.plans import ids_of
from bench.report import Line, at_most, percentile, show
from genlock import Coordinator

ROUNDS = 100
IDLE_SECONDS = 5.0


def _wait_for_one(fleet: Coordinator, woken: list[float], answers: list[str]) -> None:
    granted = fleet.claim_next(agent_id="waiter", session_id="waiter", wait_seconds=30)
    woken.append(time.time())
    assert granted.claim is not None
    answers.append(granted.claim.task_id)
    fleet.submit_result(
        task_id=granted.claim.task_id, generation=granted.claim.generation, session_id="waiter"
    )


def same_process(path: Path) -> list[float]:
    """A task is added by another thread; how long until the waiter has it, counted from the answer
    to the one who added."""
    delays = []
    with genlock.connect(f"sqlite://{path}", create=True) as fleet:
        for task in ids_of(ROUNDS, "S"):
            woken: list[float] = []
            thread = threading.Thread(target=_wait_for_one, args=(fleet, woken, []))
            thread.start()
            time.sleep(0.02)
            fleet.add_tasks(tasks=[task])
            added = time.time()
            thread.join()
            delays.append(max(0.0, woken[0] - added))
    return delays


def other_process(path: Path) -> tuple[list[float], float]:
    """The same with the waiter in another process; and the share of a core it takes while nothing
    happens."""
    command = [sys.executable, "-m", "bench.waking", str(path)]
    waiter = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert waiter.stdout is not None
    assert waiter.stdin is not None
    delays = []
    with genlock.connect(f"sqlite://{path}", create=True) as fleet:
        assert waiter.stdout.readline() == "ready\n"
        for task in ids_of(ROUNDS, "T"):
            time.sleep(0.03)
            fleet.add_tasks(tasks=[task])
            added = time.time()
            delays.append(max(0.0, float(waiter.stdout.readline()) - added))
        idle = float(waiter.stdout.readline())
        waiter.stdin.close()
        waiter.wait()
    return delays, idle


def _waiter(path: str) -> None:
    with genlock.connect(f"sqlite://{path}", create=True) as fleet:
        fleet.register_session(session_id="waiter")
        print("ready", flush=True)
        for _ in range(ROUNDS):
            woken: list[float] = []
            _wait_for_one(fleet, woken, [])
            print(woken[0], flush=True)
        used, start = time.process_time(), time.perf_counter()
        fleet.claim_next(agent_id="waiter", session_id="waiter", wait_seconds=IDLE_SECONDS)
        print((time.process_time() - used) / (time.perf_counter() - start), flush=True)


def lease_runs_out(path: Path) -> list[float]:
    """A task is held with a lease of a second; how long after its end a waiter has it."""
    delays = []
    with genlock.connect(f"sqlite://{path}", create=True) as fleet:
        for task in ids_of(5, "U"):
            fleet.add_tasks(tasks=[task])
            held = fleet.claim_task(
                task_id=task, agent_id="a", session_id="lost", lease_duration_seconds=1
            )
            assert held.claim is not None
            assert held.claim.expires_at is not None
            woken: list[float] = []
            _wait_for_one(fleet, woken, [])
            delays.append(woken[0] - held.claim.expires_at.timestamp())
    return delays


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        near = same_process(Path(name) / "near.db")
        far, idle = other_process(Path(name) / "far.db")
        over = lease_runs_out(Path(name) / "over.db")
    show(
        "Waking a waiting caller",
        [
            at_most("same process, p95", percentile(near, 0.95) * 1000, 5, " ms"),
            at_most("another process, p95", percentile(far, 0.95) * 1000, 15, " ms"),
            at_most("a waiter's share of a core while idle", idle * 100, 1, " %"),
            at_most("after a lease has run out, worst", max(over) * 1000, 100, " ms"),
            Line("rounds", f"{len(near)}, {len(far)}, {len(over)}"),
        ],
    )


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _waiter(sys.argv[1])
    else:
        main()
