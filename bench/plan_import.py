"""`genlock plan import` of 100,000 tasks with 300,000 dependencies: time and memory, and how much
less the same plan again costs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.report import Line, at_most, show

TASKS = 100_000
DEPENDENCIES = 3
TRACKS = "ABCDEFGHIJ"
AGAIN = 3
SHARE = 0.2
_COMMAND = [sys.executable, "-m", "genlock.cli"]


class Run(NamedTuple):
    """What one call took."""

    seconds: float
    cpu_seconds: float
    megabytes: float
    answer: dict[str, object]


def write_plan(path: Path, tasks: int) -> int:
    """A plan in which each task waits for three before it, wherever they are; the number of
    dependencies."""
    rng = random.Random(1)
    ids: list[str] = []
    edges = 0
    with path.open("w", encoding="utf-8") as file:
        for at in range(tasks):
            track = TRACKS[at % len(TRACKS)]
            # A few have one more, in place of the first, which have nothing before them.
            others = rng.sample(ids, DEPENDENCIES + (10 <= at < 19)) if at >= DEPENDENCIES else []
            edges += len(others)
            ids.append(f"{track}-{at % 999 + 1:03d}-task-number-{at}")
            title, text = (
                f"Task {at}",
                "Implement the repository pattern for this entity, with tests",
            )
            file.write(
                json.dumps(
                    {"id": ids[-1], "title": title, "description": text, "depends_on": others}
                )
                + "\n"
            )
    return edges


def call(folder: Path, *arguments: str) -> Run:
    """One call of the command, in a process of its own."""
    answer = folder / "answer.json"
    start = time.perf_counter()
    with answer.open("wb") as out:
        process = subprocess.Popen([*_COMMAND, *arguments, "--json"], cwd=folder, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    # It has been waited for already; else it would be waited for again when it is collected.
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return Run(
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        json.loads(answer.read_bytes()),
    )


def measure(tasks: int = TASKS) -> list[Line]:
    """Import once, then the same again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        edges = write_plan(folder / "plan.jsonl", tasks)
        call(folder, "init")
        first = call(folder, "plan", "import", "plan.jsonl")
        assert len(first.answer["added"]) == tasks  # type: ignore[arg-type]
        repeated = [call(folder, "plan", "import", "plan.jsonl") for _ in range(AGAIN)]
        assert all(run.answer["unchanged"] == tasks for run in repeated)
        again = sorted(repeated)[AGAIN // 2]
        size = (folder / ".genlock" / "genlock.db").stat().st_size / 2**20
        plan = (folder / "plan.jsonl").stat().st_size / 2**20
    return [
        Line(f"import of {tasks:,} tasks, {edges:,} dependencies", f"{first.seconds:.1f} s"),
        Line("  of which the processor was used for", f"{first.cpu_seconds:.1f} s"),
        Line("  at most in memory", f"{first.megabytes:,.0f} MB"),
        Line("  the plan, the store", f"{plan:,.0f} MB, {size:,.0f} MB"),
        Line(f"the same again, median of {AGAIN}", f"{again.seconds:.1f} s"),
        Line(
            "  of which the processor was used for",
            f"{again.cpu_seconds:.1f} s, {again.cpu_seconds / first.cpu_seconds:.2f} of the "
            "import's",
        ),
        Line("  at most in memory", f"{again.megabytes:,.0f} MB"),
        at_most("the same again, as a share of the import", again.seconds / first.seconds, SHARE),
    ]


def main() -> None:
    show("genlock plan import", measure())


if __name__ == "__main__":
    main()
