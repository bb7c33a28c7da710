"""What keeping a claim costs: `genlock run -- true` beside `true`, and the memory of keepers.

python -m bench.worker_costs [ROUNDS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import genlock
from bench.report import Line, show
from tests.cli.console import COMMAND, environment

_KEEPER = """
import os, sys, time
import genlock
fleet = genlock.connect(sys.argv[1])
def kilobytes(pid="self"):
    return int(open(f"/proc/{pid}/status").read().partition("VmRSS:")[2].split()[0])
fleet.add_tasks(tasks=[f"K-{n}" for n in range(101)])
with fleet.claim("K-100") as warm:
    warm.submit()
before = kilobytes()
blocks = [fleet.claim(f"K-{n}", lease_seconds=30, keeper=sys.argv[2]) for n in range(100)]
for block in blocks:
    block.__enter__()
time.sleep(1)
helper = getattr(fleet._keeper(sys.argv[2]), "_helper", None)
print(kilobytes() - before, kilobytes(helper._process.pid) if helper else 0, flush=True)
os._exit(0)
"""


class Spent(NamedTuple):
    """By one command, in milliseconds."""

    wall: float
    processor: float
    """With its children. A busy machine changes it less."""


def _milliseconds(command: list[str], folder: str) -> Spent:
    env = environment({"GENLOCK_SESSION": None, "PYTHONWARNINGS": None})
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=env, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall * 1000, processor * 1000)


def _median(spent: list[Spent]) -> Spent:
    return Spent(*(statistics.median(each) for each in zip(*spent, strict=True)))


def _run_memory(folder: str) -> tuple[float, float]:
    """Of `genlock run` and of its warden, in MB."""
    env = environment({"GENLOCK_SESSION": None, "PYTHONWARNINGS": None})
    with subprocess.Popen(
        [*COMMAND, "run", "--next", "--", "sleep", "2"], cwd=folder, env=env
    ) as run:
        time.sleep(1.5)
        (warden,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        return _private(str(run.pid)), _private(warden)


def _private(pid: str) -> float:
    """What the process alone has: shared pages are counted in shares."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def _keeper(folder: str, kind: str) -> tuple[int, int]:
    url = f"sqlite://{folder}/{kind}.db"
    genlock.connect(url, create=True).close()
    ran = subprocess.run(
        [sys.executable, "-c", _KEEPER, url, kind], capture_output=True, text=True, check=True
    )
    grown, helper = map(int, ran.stdout.split())
    return grown, helper


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        (Path(folder) / ".genlock").mkdir(mode=0o700)
        url = f"sqlite://{folder}/.genlock/genlock.db"
        with genlock.connect(url, create=True) as fleet:
            fleet.add_tasks(tasks=[f"T-{n}" for n in range(rounds + 1)])
        bare, alone, kept = [], [], []
        for _ in range(rounds):
            bare.append(_milliseconds(["true"], folder))
            alone.append(_milliseconds([sys.executable, "-c", "pass"], folder))
            kept.append(_milliseconds([*COMMAND, "run", "--next", "--", "true"], folder))
        run, warden = _run_memory(folder)
        thread, _ = _keeper(folder, "thread")
        grown, helper = _keeper(folder, "process")
    true, python, run_true = map(_median, (bare, alone, kept))
    show(
        f"genlock run and keepers on SQLite, medians of {rounds}",
        [
            Line("true", f"{true.wall:.1f} ms"),
            Line("python -c pass", f"{python.wall:.0f} ms"),
            Line("genlock run --next -- true", f"{run_true.wall:.0f} ms"),
            Line("… on top of true", f"{run_true.wall - true.wall:.0f} ms"),
            Line("… of it processor time", f"{run_true.processor - true.processor:.0f} ms"),
            Line("genlock run: memory", f"{run:.1f} MB"),
            Line("… its warden", f"{warden:.1f} MB"),
            Line("a keeper thread with 100 claims", f"{thread / 1024:.1f} MB"),
            Line("a keeper process with 100 claims", f"{helper / 1024:.1f} MB"),
            Line("… and in its owner", f"{grown / 1024:.1f} MB"),
        ],
    )
    print(f"load: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
