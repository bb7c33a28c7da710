"""Single and batched durable claims against the replay of the same commits, and one caller against
one raw load and commit."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import genlock
from bench.floor import Replay, by_the_store_alone, copy_of, recorded
from bench.plans import ids_of, open_plan, register
from bench.report import Line, at_least, at_most, percentile, show
from genlock import AsyncCoordinator
from genlock.store import Store
from genlock.stores.sqlite import SQLiteStore

CALLERS = 128
TASKS = 25_600
BATCH = 256
BATCH_CALLERS = 4
ROUNDS = 3
ONE_CALLER_CLAIMS = 1000

Work = Callable[[AsyncCoordinator, list[str], list[float]], Awaitable[None]]


async def _single(fleet: AsyncCoordinator, ids: list[str], latencies: list[float]) -> None:
    async def caller(number: int) -> None:
        for name in ids[number::CALLERS]:
            start = time.perf_counter()
            granted = await fleet.claim_task(
                task_id=name, agent_id=f"agent-{number}", session_id=f"session-{number}"
            )
            latencies.append(time.perf_counter() - start)
            assert granted.success

    await asyncio.gather(*(caller(number) for number in range(CALLERS)))


async def _batched(fleet: AsyncCoordinator, ids: list[str], latencies: list[float]) -> None:
    async def caller(number: int) -> None:
        for start in range(number * BATCH, len(ids), BATCH * BATCH_CALLERS):
            begin = time.perf_counter()
            granted = await fleet.batch_claim(
                task_ids=ids[start : start + BATCH],
                agent_id=f"agent-{number}",
                session_id=f"session-{number}",
            )
            latencies.append(time.perf_counter() - begin)
            assert all(getattr(result, "success", False) for result in granted.values())

    await asyncio.gather(*(caller(number) for number in range(BATCH_CALLERS)))


def _prepare(path: Path, ids: list[str]) -> Path:
    """A store with these tasks and the callers' sessions."""
    plan = open_plan(path, ids)
    register(plan, CALLERS)
    plan.close()
    return path


def _measure(store: Store, work: Work, ids: list[str]) -> tuple[float, list[float]]:
    """Runs the work; the seconds, and the latencies."""
    latencies: list[float] = []

    async def run() -> float:
        fleet = genlock.aio.connect(store)
        start = time.perf_counter()
        await work(fleet, ids, latencies)
        took = time.perf_counter() - start
        await fleet.close()
        return took

    return asyncio.run(run()), latencies


def compare(title: str, work: Work, target: float) -> list[Line]:
    """Best of a few rounds of each, in turn: the engine, its commits replayed, and those without
    secondary indexes.

    The commits are recorded in a run of their own: whoever keeps all that was ever written in
    memory makes the collector of garbage walk through it, which is no part of the engine's work.
    """
    engine, floor, bare, alone, latencies, sizes = [], [], [], [], [], []
    ids = ids_of(TASKS)
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            before = _prepare(folder / "before.db", ids)
            recorder, store = recorded(copy_of(before, folder / "recorded.db"))
            _measure(store, work, ids)
            commits = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
            sizes.append(len(ids) / len(commits))
            floor.append(Replay(copy_of(before, folder / "floor.db"), commits).run())
            bare.append(Replay(copy_of(before, folder / "bare.db"), commits, indexes=False).run())
            alone.append(by_the_store_alone(copy_of(before, folder / "alone.db"), recorder))
            del recorder, store, commits
            gc.collect()
            took, waits = _measure(SQLiteStore(copy_of(before, folder / "engine.db")), work, ids)
            engine.append(took)
            latencies += waits
    rate = TASKS / min(engine)
    lines = [
        Line(f"{title}: claims/s", f"{rate:,.0f}"),
        Line(f"{title}: replay of its commits, claims/s", f"{TASKS / min(floor):,.0f}"),
        Line(f"{title}: without secondary indexes, claims/s", f"{TASKS / min(bare):,.0f}"),
        Line(
            f"{title}: load and commit by the store alone, claims/s", f"{TASKS / min(alone):,.0f}"
        ),
        Line(
            f"{title}: … of the replay, and so the most that an engine could reach",
            f"{min(floor) / min(alone):.2f}",
        ),
        Line(f"{title}: claims a commit", f"{max(sizes):.0f}"),
        at_least(f"{title}: of the replay", min(floor) / min(engine), target),
        at_least(f"{title}: replay of the bare rows", min(bare) / min(floor), 0.5),
    ]
    if work is _single:
        lines.append(at_most(f"{title}: p99", percentile(latencies, 0.99) * 1000, 50, " ms"))
    return lines


def one_caller() -> list[Line]:
    """One synchronous caller, one claim at a time."""
    ids = ids_of(ONE_CALLER_CLAIMS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "plan.db"
        plan = open_plan(path, ids)
        register(plan, 1)
        plan.close()
        before = copy_of(path, folder / "before.db")
        recorder, store = recorded(path)
        fleet = genlock.connect(store, agent_id="agent-0", session_id="session-0")
        times = []
        for task in ids:
            start = time.perf_counter()
            assert fleet.claim_task(task_id=task).success
            times.append(time.perf_counter() - start)
        fleet.close()
        raw = Replay(copy_of(before, folder / "floor.db"), recorder.commits).run_one_by_one(
            recorder.loads[: len(recorder.commits)]
        )
    ours, floor = percentile(times, 0.5), percentile(raw, 0.5)
    return [
        Line("one caller: a claim, median", f"{ours * 1e6:,.0f} µs"),
        Line("one caller: raw load and commit, median", f"{floor * 1e6:,.0f} µs"),
        at_most("one caller: of the raw load and commit", ours / floor, 1.5, " ×"),
    ]


def main() -> None:
    show(f"Single durable claims, async API, {CALLERS} callers", compare("single", _single, 0.6))
    show(
        f"Batches of {BATCH}, async API, {BATCH_CALLERS} callers",
        compare("batches", _batched, 0.75),
    )
    show("One caller", one_caller())


if __name__ == "__main__":
    main()
