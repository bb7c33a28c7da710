"""Server stores: the engine against its own commits replayed raw, one caller against load and
commit by hand, cycles, waking.

The raw replay is what one would write by hand: the one statement of the commit, on the same schema
and the same rows, with its values encoded before the clock starts. Every measurement begins with a
copy of the same database.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import genlock
from bench.claims import BATCH, BATCH_CALLERS, CALLERS, Work, _batched, _measure, _single
from bench.floor import Recorder
from bench.mysql import mysql_databases
from bench.plans import ids_of, register, tasks_of
from bench.postgres import postgres_databases
from bench.report import Line, at_least, at_most, percentile, show
from bench.wakeups import AGENTS, wakeups
from genlock import AsyncCoordinator
from genlock.store import Change, Key, Store

TASKS = 10_240
ROUNDS = 3
ONE_CALLER_CLAIMS = 400
WAKINGS = 100


class Databases(Protocol):
    """A server with databases in a known state."""

    @property
    def name(self) -> str: ...
    @property
    def deaf(self) -> str | None:
        """The option with which a store looks for what others commit instead of being told; None if
        it always does."""

    def open(self, url: str) -> Store: ...
    def create(self, name: str) -> str: ...
    def settle(self, url: str) -> None: ...
    def copy(self, name: str) -> AbstractContextManager[str]: ...
    def replay(self, url: str, commits: Sequence[Sequence[Change]]) -> float: ...
    def replay_one_by_one(
        self, url: str, commits: Sequence[Sequence[Change]], loads: Sequence[Sequence[Key]]
    ) -> list[float]: ...


def prepare(databases: Databases, url: str, ids: list[str]) -> None:
    """A store with these tasks and the callers' sessions."""
    with genlock.connect(url, create=True, deadline_seconds=60) as fleet:
        fleet.add_tasks(tasks=tasks_of(ids))
        register(fleet, CALLERS)
    databases.settle(url)


def recorded(store: Store) -> tuple[Recorder, Any]:
    recorder = Recorder(store)
    return recorder, recorder


def compare(databases: Databases, title: str, work: Work, target: float | None) -> list[Line]:
    """Best of a few rounds of each, in turn."""
    engine, floor, sizes, ids = [], [], [], ids_of(TASKS)
    for _ in range(ROUNDS):
        with databases.copy("before") as url:
            recorder, store = recorded(databases.open(url))
            _measure(store, work, ids)
            commits = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
        sizes.append(len(ids) / len(commits))
        with databases.copy("before") as url:
            floor.append(databases.replay(url, commits))
        del recorder, store, commits
        gc.collect()
        with databases.copy("before") as url:
            engine.append(_measure(databases.open(url), work, ids)[0])
    ratio = min(floor) / min(engine)
    return [
        Line(f"{title}: claims/s", f"{TASKS / min(engine):,.0f}"),
        Line(f"{title}: replay of its commits, claims/s", f"{TASKS / min(floor):,.0f}"),
        Line(f"{title}: claims a commit", f"{max(sizes):.0f}"),
        Line(f"{title}: of the replay", f"{ratio:.2f}")
        if target is None
        else at_least(f"{title}: of the replay", ratio, target),
    ]


def one_caller(databases: Databases) -> list[Line]:
    """One synchronous caller, one claim at a time."""
    ids = ids_of(TASKS)[:ONE_CALLER_CLAIMS]
    with databases.copy("before") as url:
        recorder, store = recorded(databases.open(url))
        fleet = genlock.connect(store, agent_id="agent-0", session_id="session-0")
        times = [_timed(fleet, task) for task in ids]
        fleet.close()
    claims = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
    with databases.copy("before") as url:
        raw = databases.replay_one_by_one(url, claims, recorder.loads[: len(claims)])
    ours, floor = percentile(times, 0.5), percentile(raw, 0.5)
    return [
        Line("one caller: a claim, median", f"{ours * 1e6:,.0f} µs"),
        Line("one caller: raw load and commit, median", f"{floor * 1e6:,.0f} µs"),
        at_least("one caller: of the raw load and commit", floor / ours, 0.8),
    ]


def _timed(fleet: genlock.Coordinator, task: str) -> float:
    start = time.perf_counter()
    assert fleet.claim_task(task_id=task).success
    return time.perf_counter() - start


async def cycles_of(fleet: AsyncCoordinator, ids: list[str], share: str = "") -> None:
    """Claims and completes everything, in batches."""

    async def caller(number: int) -> None:
        session = f"session{share}-{number}"
        for start in range(number * BATCH, len(ids), BATCH * BATCH_CALLERS):
            chunk = ids[start : start + BATCH]
            granted: Any = await fleet.batch_claim(
                task_ids=chunk, agent_id=f"agent-{number}", session_id=session
            )
            results = [
                {"task_id": name, "generation": granted[name].claim.generation} for name in chunk
            ]
            submitted: Any = await fleet.batch_submit(results=results, session_id=session)
            assert all(result.accepted for result in submitted.values())

    await asyncio.gather(*(caller(number) for number in range(BATCH_CALLERS)))


async def _cycles(fleet: AsyncCoordinator, ids: list[str], latencies: list[float]) -> None:
    await cycles_of(fleet, ids)


def cycles(databases: Databases) -> list[Line]:
    """Claims and completions, one process."""
    took = []
    for _ in range(ROUNDS):
        with databases.copy("before") as url:
            took.append(_measure(databases.open(url), _cycles, ids_of(TASKS))[0])
    return [Line("claim + complete: cycles/s, one process", f"{TASKS / min(took):,.0f}")]


def waking(databases: Databases) -> list[Line]:
    """A task is added by one coordinator; how long until one who waits at another has it, counted
    from the answer to who added it."""
    lines = []
    if databases.deaf is not None:
        with databases.copy("empty") as url:
            lines.append(
                at_most("woken by NOTIFY, p95", percentile(_delays(url), 0.95) * 1000, 8, " ms")
            )
    with databases.copy("empty") as url:
        polled = _delays(f"{url}?{databases.deaf}" if databases.deaf is not None else url)
    return [*lines, Line("woken by polling, p95", f"{percentile(polled, 0.95) * 1000:.2f} ms")]


def waking_many(databases: Databases) -> list[Line]:
    """At a low and at a high rate of new tasks."""
    lines: list[Line] = []
    for rate in (20, 300):
        with databases.copy("empty") as url:
            lines += wakeups(url, rate, None if databases.deaf is None else 8)
    return lines


def _delays(url: str) -> list[float]:
    delays = []
    with (
        genlock.connect(url, create=True) as adding,
        genlock.connect(url, create=True, session_id="waiter", agent_id="waiter") as waiting,
    ):
        waiting.register_session()
        for task in ids_of(WAKINGS, "W"):
            woken: list[float] = []
            thread = threading.Thread(target=_wait_for_one, args=(waiting, woken))
            thread.start()
            time.sleep(0.05)
            adding.add_tasks(tasks=[task])
            added = time.perf_counter()
            thread.join()
            delays.append(max(0.0, woken[0] - added))
    return delays


def _wait_for_one(fleet: genlock.Coordinator, woken: list[float]) -> None:
    granted = fleet.claim_next(wait_seconds=30)
    woken.append(time.perf_counter())
    assert granted.claim is not None
    fleet.submit_result(task_id=granted.claim.task_id, generation=granted.claim.generation)


SERVERS: dict[str, Callable[[], AbstractContextManager[Databases]]] = {
    "postgres": postgres_databases,
    "mysql": mysql_databases,
}


def measure(databases: Databases) -> None:
    databases.open(databases.create("empty")).close()
    prepare(databases, databases.create("before"), ids_of(TASKS))
    steps: list[tuple[str, Callable[[], list[Line]]]] = [
        (
            f"batches of {BATCH}, {BATCH_CALLERS} callers",
            lambda: compare(databases, "batches", _batched, 0.6),
        ),
        (f"single claims, {CALLERS} callers", lambda: compare(databases, "single", _single, None)),
        ("one caller", lambda: one_caller(databases)),
        ("cycles", lambda: cycles(databases)),
        ("waking a waiting caller", lambda: waking(databases)),
        (f"waking one of {AGENTS} waiting agents", lambda: waking_many(databases)),
    ]
    for title, step in steps:
        show(f"{databases.name}: {title}", step())


def main() -> None:
    """All servers, or those that are named."""
    for name in sys.argv[1:] or SERVERS:
        with SERVERS[name]() as databases:
            measure(databases)


if __name__ == "__main__":
    main()
