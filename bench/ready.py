"""`genlock ready --json` beside `gptodo ready --json`, on the same plan, with the same ids
printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import genlock
from bench.report import Line, at_least, show
from bench.startup import call, compile_all

SIZES = {1_000: 2.0, 10_000: 10.0}
"""How many tasks, and how many times as fast we want to be."""

RUNS = 7
WAITING = 9
"""For each task that is ready so many wait for it, one behind the other."""

Plan = dict[str, list[str]]


def plan_of(size: int) -> Plan:
    """Tasks with what each waits for: chains whose first task is ready."""
    names = [f"T{number:05}-task" for number in range(size)]
    return {name: [names[at - 1]] if at % (WAITING + 1) else [] for at, name in enumerate(names)}


def write_files(folder: Path, plan: Plan) -> None:
    """gptodo's form: a file a task. In `backlog`, since its `ready` does not list `todo`; with both
    times, without which it asks git about every file and takes seven times as long."""
    tasks = folder / "tasks"
    tasks.mkdir()
    for number, (name, waits_for) in enumerate(plan.items()):
        time_of = (
            f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}+00:00"
        )
        head = {"state": "backlog", "created": time_of, "modified": time_of, "priority": "medium"}
        lines = [f"{key}: {value}" for key, value in head.items()] + (
            [f"requires: [{', '.join(waits_for)}]"] if waits_for else []
        )
        (tasks / f"{name}.md").write_text(
            "---\n" + "\n".join(lines) + f"\n---\n# {name}\n", encoding="utf-8"
        )


def ids(answer: bytes) -> set[str]:
    return {task["id"] for task in json.loads(answer)["ready_tasks"]}


def compare(size: int) -> tuple[float, float, int]:
    """Both in one alternating loop; medians, and how many ids both printed."""
    with tempfile.TemporaryDirectory() as name:
        folder, plan = Path(name), plan_of(size)
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("GENLOCK_", "GPTODO_", "GIT_"))
        }
        environment["TASKS_REPO_ROOT"] = name

        def run(command: list[str]) -> tuple[float, bytes]:
            begin = time.perf_counter()
            done = subprocess.run(
                command, cwd=folder, env=environment, check=True, capture_output=True
            )
            return time.perf_counter() - begin, done.stdout

        write_files(folder, plan)
        run(call("init"))
        with genlock.connect(
            f"sqlite://{folder}/.genlock/genlock.db", create=True, deadline_seconds=600
        ) as fleet:
            fleet.add_tasks(
                tasks=[
                    {"id": task, "title": task, "depends_on": waits_for}
                    for task, waits_for in plan.items()
                ]
            )
        gptodo = str(Path(sys.executable).with_name("gptodo"))
        ready = {task for task, waits_for in plan.items() if not waits_for}
        theirs, ours = [], []
        for _ in range(RUNS):
            taken, answer = run([gptodo, "ready", "--json"])
            theirs.append(taken)
            assert ids(answer) == ready
            taken, answer = run(call("ready", "--json", "--limit", str(len(ready))))
            ours.append(taken)
            assert ids(answer) == ready
    return median(theirs), median(ours), len(ready)


def main() -> None:
    compile_all()
    lines = []
    for size, target in SIZES.items():
        theirs, ours, printed = compare(size)
        lines += [
            Line(
                f"{size:,} tasks, {printed:,} ready: gptodo ready --json, ms",
                f"{theirs * 1000:,.0f}",
            ),
            Line(
                f"{size:,} tasks, {printed:,} ready: genlock ready --json, ms",
                f"{ours * 1000:,.0f}",
            ),
            at_least(f"{size:,} tasks: times as fast", theirs / ours, target),
        ]
    show(f"ready --json, medians of {RUNS} alternating runs, same ids", lines)


if __name__ == "__main__":
    main()
