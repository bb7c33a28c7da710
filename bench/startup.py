"""How long a call of the command line takes, against the bare interpreter, in one alternating
loop."""

from __future__ import annotations

import compileall
import os
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

        def run(command: list[str]) -> float:
            begin = time.perf_counter()
            subprocess.run(
                command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
            )
            return time.perf_counter() - begin

        folder = Path(name)
        run(call("init"))
        with genlock.connect(f"sqlite://{folder}/.genlock/genlock.db", create=True) as fleet:
            fleet.add_tasks(
                tasks=[
                    {"id": f"A-{number:03}-task", "title": f"Task {number}"}
                    for number in range(1, TASKS + 1)
                ]
            )
        commands = {
            "nothing": [sys.executable, "-c", "pass"],
            "version": call("version"),
            "ready": call("ready", "--json"),
        }
        times: dict[str, list[float]] = {what: [] for what in commands}
        for _ in range(RUNS):
            for what, command in commands.items():
                times[what].append(run(command))
    middle = {what: median(taken) for what, taken in times.items()}
    show(
        f"start-up, medians of {RUNS} alternating runs",
        [
            *(
                Line(
                    " ".join(Path(word).name for word in commands[what]) + ": ms",
                    f"{taken * 1000:.1f}",
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
        ],
    )


if __name__ == "__main__":
    main()
