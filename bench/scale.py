"""claim_next + submit on plans of 1,000 and of 100,000 tasks: the cost must not grow with the
plan."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.plans import complete, ids_of, open_plan, tasks_of
from bench.report import Line, at_most, percentile, show
from genlock import Coordinator

SMALL, LARGE = 1_000, 100_000
CYCLES = 200
LAST = 10

Build = Callable[[Path, int], tuple[Coordinator, str | None]]


def all_ready(path: Path, size: int) -> tuple[Coordinator, str | None]:
    return open_plan(path, ids_of(size)), None


def mostly_completed(path: Path, size: int) -> tuple[Coordinator, str | None]:
    ids = ids_of(size)
    fleet = open_plan(path, ids)
    complete(fleet, ids[: size - max(size // 100, CYCLES)])
    return fleet, None


def mostly_blocked(path: Path, size: int) -> tuple[Coordinator, str | None]:
    """All but 1 % (and what the cycles take) wait for a task that is never done."""
    ids = ids_of(size)
    ready = max(size // 100, CYCLES)
    fleet = open_plan(path, ["Z-001-never", *ids[:ready]])
    fleet.hold_task(task_id="Z-001-never")
    fleet.add_tasks(
        tasks=[task | {"depends_on": ["Z-001-never"]} for task in tasks_of(ids[ready:])]
    )
    return fleet, None


def last_track(path: Path, size: int) -> tuple[Coordinator, str | None]:
    """The last few tasks have a track of their own, and only that is asked for."""
    fleet = open_plan(path, ids_of(size - LAST))
    fleet.add_tasks(tasks=tasks_of(ids_of(LAST, "Q")))
    return fleet, "Q"


def cycle_seconds(fleet: Coordinator, track: str | None) -> float:
    """One claim_next + submit."""
    start = time.perf_counter()
    granted = fleet.claim_next(agent_id="a", session_id="s", tracks=track)
    assert granted.claim is not None, granted
    fleet.submit_result(
        task_id=granted.claim.task_id, generation=granted.claim.generation, session_id="s"
    )
    return time.perf_counter() - start


def compare(title: str, build: Build) -> list[Line]:
    """Both plans are open at once and take turns, so that both see the same machine."""
    times: dict[int, list[float]] = {SMALL: [], LARGE: []}
    with tempfile.TemporaryDirectory() as name:
        plans = {size: build(Path(name) / f"{size}.db", size) for size in (SMALL, LARGE)}
        for fleet, _ in plans.values():
            fleet.sweep()
        for cycle in range(CYCLES):
            for size, (fleet, track) in plans.items():
                times[size].append(cycle_seconds(fleet, track))
                if track is not None and cycle % LAST == LAST - 1:
                    # There are only ten: they are taken, reset and taken again.
                    for task in ids_of(LAST, track):
                        fleet.reset_task(task_id=task)
        for fleet, _ in plans.values():
            fleet.close()
    medians = {size: percentile(taken, 0.5) for size, taken in times.items()}
    return [
        Line(f"{title}: at {SMALL:,}, median", f"{medians[SMALL] * 1e6:,.0f} µs"),
        Line(f"{title}: at {LARGE:,}, median", f"{medians[LARGE] * 1e6:,.0f} µs"),
        at_most(f"{title}: growth", medians[LARGE] / medians[SMALL], 1.3, " ×"),
    ]


def main() -> None:
    lines = compare("all ready", all_ready)
    lines += compare("99 % completed", mostly_completed)
    lines += compare("99 % blocked", mostly_blocked)
    lines += compare("track filter, last ten", last_track)
    show("claim_next + submit by size of the plan", lines)


if __name__ == "__main__":
    main()
