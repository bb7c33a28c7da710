"""Sixteen processes with one caller each on one file, against one process with one caller."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import genlock
from bench.plans import ids_of, open_plan
from bench.report import Line, at_least, at_most, show

PROCESSES = 16
SECONDS = 5.0
TASKS_EACH = 3000


def work(path: str, number: int) -> None:
    """One process: claims its own tasks one by one, from the common start to the common end."""
    fleet = genlock.connect(
        f"sqlite://{path}",
        create=True,
        session_id=f"session-{number}",
        agent_id=f"agent-{number}",
        deadline_seconds=60,
    )
    fleet.register_session()
    ids = ids_of(TASKS_EACH * PROCESSES)[number::PROCESSES]
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    while time.time() < start:
        time.sleep(0.001)
    done, longest = 0, 0.0
    for task in ids:
        begin = time.perf_counter()
        assert fleet.claim_task(task_id=task).success
        longest = max(longest, time.perf_counter() - begin)
        done += 1
        if time.time() >= start + SECONDS:
            break
    took = time.time() - start
    fleet.close()
    print(
        json.dumps({"rate": done / took, "longest": longest, "all": done == len(ids)}), flush=True
    )


def run(number: int) -> list[dict[str, float]]:
    """So many processes at once, on a new store."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "plan.db"
        open_plan(path, ids_of(TASKS_EACH * PROCESSES)).close()
        command = [sys.executable, "-m", "bench.processes", str(path)]
        crew = [
            subprocess.Popen(
                [*command, str(at)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for at in range(number)
        ]
        for process in crew:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        start = time.time() + 0.2
        for process in crew:
            assert process.stdin is not None
            process.stdin.write(f"{start}\n")
            process.stdin.flush()
        return [json.loads(process.communicate()[0]) for process in crew]


def main() -> None:
    one = run(1)[0]
    many = run(PROCESSES)
    rates = [result["rate"] for result in many]
    together, mean = sum(rates), sum(rates) / len(rates)
    show(
        f"{PROCESSES} processes with one caller each, {SECONDS:g} s",
        [
            Line("one process, one caller: claims/s", f"{one['rate']:,.0f}"),
            Line(f"{PROCESSES} processes together: claims/s", f"{together:,.0f}"),
            at_least("together, of one process", together / one["rate"], 0.6),
            at_least("slowest, of the mean", min(rates) / mean, 0.7),
            at_most("longest call", max(result["longest"] for result in many) * 1000, 250, " ms"),
        ],
    )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        work(sys.argv[1], int(sys.argv[2]))
    else:
        main()
