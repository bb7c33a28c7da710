"""How long a call of the command line takes, against the bare interpreter, in one alternating
loop."""

from __future__ import annotations

import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import genlock
from bench.report import Line, at_most, show

RUNS = 30
TASKS = 100


def call(*arguments: str) -> list[str]:
    """The installed command, by the interpreter that runs this."""
    return [str(Path(sys.executable).with_name("genlock")), *arguments]


def compile_all() -> None:
    """Bytecode as the set-up leaves it: a call must not be measured with its compilation."""
    for place in genlock.__path__:
        assert compileall.compile_dir(place, quiet=2)


def main() -> None:
    compile_all()
    with tempfile.TemporaryDirectory() as name:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GENLOCK_", "GIT_"))
        }
        environment["GENLOCK_SESSION"] = "startup"
        times: dict[str, list[float]] = {}
        processor: dict[str, list[float]] = {}

        def run(what: str, command: list[str]) -> bytes:
            begin, before = time.perf_counter(), _processor_time()
            done = subprocess.run(
                command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE
            )
            times.setdefault(what, []).append(time.perf_counter() - begin)
            processor.setdefault(what, []).append(_processor_time() - before)
            return done.stdout

        folder = Path(name)
        subprocess.run(
            call("init"), cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
        )
        with genlock.connect(f"sqlite://{folder}/.genlock/genlock.db", create=True) as fleet:
            fleet.add_tasks(
                tasks=[
                    {"id": f"A-{number:03}-task", "title": f"Task {number}"}
                    for number in range(1, TASKS + 1)
                ]
            )
        for turn in range(RUNS):
            run("nothing", [sys.executable, "-c", "pass"])
            run("version", call("version"))
            run("ready", call("ready", "--json"))
            claim = json.loads(run("next", call("next")))["claim"]
            held = (claim["task_id"], "-g", str(claim["generation"]))
            run("renew", call("renew", *held))
            run("submit", call("submit", *held))
            run("claim", call("claim", f"A-{TASKS - turn:03}-task"))
    middle = {what: median(taken) for what, taken in times.items()}
    spent = {what: median(taken) for what, taken in processor.items()}
    show(
        f"start-up, medians of {RUNS} alternating runs",
        [
            *(
                Line(
                    f"{'python -c pass' if what == 'nothing' else f'genlock {what}'}: "
                    "ms, and of processor time",
                    f"{taken * 1000:.1f}, {spent[what] * 1000:.1f}",
                )
                for what, taken in middle.items()
            ),
            at_most("version, of python -c pass", middle["version"] / middle["nothing"], 4, " ×"),
            at_most(
                f"ready --json on {TASKS} tasks, of python -c pass",
                middle["ready"] / middle["nothing"],
                10,
                " ×",
            ),
            *(
                at_most(
                    f"{what}, of python -c pass, processor time",
                    spent[what] / spent["nothing"],
                    5,
                    " ×",
                )
                for what in ("next", "claim", "renew", "submit", "ready")
            ),
        ],
    )


def _processor_time() -> float:
    """What the processes that have ended took of it; it does not grow with what others do."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
