"""A folder of task files: Genlock and gptodo side by side, on workspaces that are alike.

    python -m bench.folders [NUMBER OF TASKS]…

Each figure is the shortest of several calls, since other work on the machine only adds to it. CPU
time is beside it: on a busy machine it says more.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import genlock

TOOLS = Path(sys.executable).parent
TRIES = 3
CLAIMS = 40


class Cost(NamedTuple):
    """Of a call, in seconds."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall * 1000:,.0f} ms ({self.cpu * 1000:,.0f} ms CPU)"


def main(sizes: list[int]) -> None:
    print("| tasks | what | Genlock | gptodo |")
    print("|---|---|---|---|")
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="genlock-bench-") as place:
            measure(Path(place), size)


def measure(root: Path, size: int) -> None:
    """One workspace, in turns."""
    write_plan(root, size)
    begun = call(root, "genlock", "init", "--folder", ".")
    ready = best(root, ["genlock", "ready", "--json"])
    print(f"| {size:,} | ready, the first time (init) | {begun} | |")
    print(f"| {size:,} | ready --json | {ready} | {best(root, ['gptodo', 'ready', '--json'])} |")
    ours = min(cycle(root, number) for number in range(TRIES))
    lock = best(root, ["gptodo", "lock", "task-00100", "-w", "w1"])
    unlock = best(root, ["gptodo", "unlock", "task-00100", "-w", "w1"])
    theirs = Cost(lock.wall + unlock.wall, lock.cpu + unlock.cpu)
    print(f"| {size:,} | claim and submit; lock and unlock | {ours} | {theirs} |")
    print(f"| {size:,} | a claim in a process that is open | {embedded(root)} | |")
    print(f"| {size:,} | opening the folder and a claim | {opened(root)} | |", flush=True)


def write_plan(root: Path, size: int) -> None:
    tasks = root / "tasks"
    tasks.mkdir()
    subprocess.run(["git", "init", "--quiet", root], check=True)  # by which gptodo finds it
    for number in range(size):
        requires = f"requires: [task-{number - 1:05}]\n" if number % 2 else ""
        (tasks / f"task-{number:05}.md").write_text(
            f"---\nstate: todo\ncreated: 2026-01-27T10:00:00+00:00\npriority: medium\n"
            f"tags: [feature, api]\n{requires}---\n# Task {number}\n\nSome text about it.\n"
        )


def best(root: Path, command: list[str]) -> Cost:
    return min(call(root, *command) for _ in range(TRIES))


def call(root: Path, *command: str) -> Cost:
    cost, _ = answered(root, *command)
    return cost


def answered(root: Path, *command: str) -> tuple[Cost, str]:
    before, began = cpu_of_children(), time.perf_counter()
    done = subprocess.run(
        [TOOLS / command[0], *command[1:]],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TASKS_REPO_ROOT": str(root)},
    )
    return Cost(time.perf_counter() - began, cpu_of_children() - before), done.stdout


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cycle(root: Path, number: int) -> Cost:
    """A claim and its result, by the command line."""
    task, session = f"task-{number * 2:05}", ("--session", "bench")
    claim, text = answered(root, "genlock", "claim", task, "--json", "--agent", "a", *session)
    generation = str(json.loads(text)["claim"]["generation"])
    submit = call(root, "genlock", "submit", task, "-g", generation, "--text", "done", *session)
    return Cost(claim.wall + submit.wall, claim.cpu + submit.cpu)


def opened(root: Path) -> Cost:
    """A claim by a coordinator that is opened for it."""
    costs = []
    for number in range(TRIES):
        began, used = time.perf_counter(), time.process_time()
        with genlock.connect(
            f"folder://{root}?layout=gptodo", session_id="bench", agent_id="bench"
        ) as fleet:
            assert fleet.claim_task(task_id=f"task-{number * 2 + 200:05}").success
            costs.append(Cost(time.perf_counter() - began, time.process_time() - used))
    return min(costs)


def embedded(root: Path) -> Cost:
    """A claim by a coordinator that is open."""
    with genlock.connect(
        f"folder://{root}?layout=gptodo", session_id="bench", agent_id="bench"
    ) as fleet:
        fleet.claim_task(task_id="task-00020")
        costs = []
        for number in range(CLAIMS):
            began, used = time.perf_counter(), time.process_time()
            assert fleet.claim_task(task_id=f"task-{number * 2 + 22:05}").success
            costs.append(Cost(time.perf_counter() - began, time.process_time() - used))
    return Cost(sorted(each.wall for each in costs)[CLAIMS // 2], min(each.cpu for each in costs))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [1000, 10_000])
