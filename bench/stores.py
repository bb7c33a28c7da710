"""Server stores: the engine against its own commits replayed raw, one caller against load and commit by hand, cycles, waking.

The raw replay is what one would write by hand: the one statement of the commit, on the same schema and the same rows, with its values
encoded before the clock starts. Every measurement begins with a copy of the same database.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

import genlock
from bench.claims import BATCH, BATCH_CALLERS, CALLERS, Work, _batched, _measure, _single
from bench.floor import Recorder
from bench.plans import ids_of, register, tasks_of
from bench.report import Line, at_least, at_most, percentile, show
from genlock import AsyncCoordinator
from genlock.store import Change, Key
from genlock.stores.postgres import PostgresStore
from genlock.stores.postgres.link import Link
from genlock.stores.postgres.loading import load
from genlock.stores.postgres.queries import queries_for
from genlock.stores.postgres.settings import settings_of
from genlock.stores.postgres.writing import Batch
from tests.servers.postgres import Postgres, running

TASKS = 10_240
ROUNDS = 3
ONE_CALLER_CLAIMS = 400
WAKINGS = 100

_QUERIES = queries_for("genlock")


class Databases:
    """Copies of one database in a known state."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._number = 0

    def run(self, statement: str) -> None:
        with psycopg.connect(self._server.address, autocommit=True) as connection:
            connection.execute(statement)

    def url(self, name: str) -> str:
        return self._server.address.replace("/postgres", f"/{name}")

    def create(self, name: str) -> str:
        self.run(f"DROP DATABASE IF EXISTS {name}")
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    @contextmanager
    def copy(self, name: str) -> Iterator[str]:
        """A copy's URL; it goes with the block."""
        self._number += 1
        other = f"{name}_{self._number}"
        self.run(f"CREATE DATABASE {other} TEMPLATE {name}")
        yield self.url(other)
        self.run(f"DROP DATABASE {other} (FORCE)")


def prepare(url: str, ids: list[str]) -> None:
    """A store with these tasks and the callers' sessions, vacuumed as it would be after a while."""
    with genlock.connect(url, deadline_seconds=60) as fleet:
        fleet.add_tasks(tasks=tasks_of(ids))
        register(fleet, CALLERS)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def replay(url: str, commits: Sequence[Sequence[Change]]) -> float:
    """Runs the commits; the seconds that took."""
    batches = [Batch(commit).columns() for commit in commits]
    with linked(url) as link:
        start = time.perf_counter()
        for columns in batches:
            link.call(_QUERIES["commit"], columns)
        return time.perf_counter() - start


def replay_one_by_one(url: str, commits: Sequence[Sequence[Change]], loads: Sequence[Sequence[Key]]) -> list[float]:
    """Loads what the engine loaded, then commits; the seconds of each."""
    times = []
    with linked(url) as link:
        for commit, keys in zip(commits, loads, strict=True):
            columns = Batch(commit).columns()
            start = time.perf_counter()
            load(link, _QUERIES["load"], keys)
            link.call(_QUERIES["commit"], columns)
            times.append(time.perf_counter() - start)
    return times


@contextmanager
def linked(url: str) -> Iterator[Link]:
    link = Link(settings_of(url))
    link.prepare()
    try:
        yield link
    finally:
        link.close()


def recorded(url: str) -> tuple[Recorder, Any]:
    recorder = Recorder(PostgresStore(url))
    return recorder, recorder


def compare(databases: Databases, title: str, work: Work, target: float | None) -> list[Line]:
    """Best of a few rounds of each, in turn."""
    engine, floor, sizes, ids = [], [], [], ids_of(TASKS)
    for _ in range(ROUNDS):
        with databases.copy("before") as url:
            recorder, store = recorded(url)
            _measure(store, work, ids)
            commits = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
        sizes.append(len(ids) / len(commits))
        with databases.copy("before") as url:
            floor.append(replay(url, commits))
        del recorder, store, commits
        gc.collect()
        with databases.copy("before") as url:
            engine.append(_measure(PostgresStore(url), work, ids)[0])
    ratio = min(floor) / min(engine)
    return [
        Line(f"{title}: claims/s", f"{TASKS / min(engine):,.0f}"),
        Line(f"{title}: replay of its commits, claims/s", f"{TASKS / min(floor):,.0f}"),
        Line(f"{title}: claims a commit", f"{max(sizes):.0f}"),
        Line(f"{title}: of the replay", f"{ratio:.2f}") if target is None else at_least(f"{title}: of the replay", ratio, target),
    ]


def one_caller(databases: Databases) -> list[Line]:
    """One synchronous caller, one claim at a time."""
    ids = ids_of(TASKS)[:ONE_CALLER_CLAIMS]
    with databases.copy("before") as url:
        recorder, store = recorded(url)
        fleet = genlock.connect(store, agent_id="agent-0", session_id="session-0")
        times = [_timed(fleet, task) for task in ids]
        fleet.close()
    claims = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
    with databases.copy("before") as url:
        raw = replay_one_by_one(url, claims, recorder.loads[: len(claims)])
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
            granted: Any = await fleet.batch_claim(task_ids=chunk, agent_id=f"agent-{number}", session_id=session)
            results = [{"task_id": name, "generation": granted[name].claim.generation} for name in chunk]
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
            took.append(_measure(PostgresStore(url), _cycles, ids_of(TASKS))[0])
    return [Line("claim + complete: cycles/s, one process", f"{TASKS / min(took):,.0f}")]


def waking(databases: Databases) -> list[Line]:
    """A task is added by one coordinator; how long until one who waits at another has it, counted from the answer to who added it."""
    with databases.copy("empty") as url:
        heard = _delays(url)
    with databases.copy("empty") as url:
        polled = _delays(f"{url}?listen=off")
    return [
        at_most("woken by NOTIFY, p95", percentile(heard, 0.95) * 1000, 8, " ms"),
        Line("woken by polling, p95", f"{percentile(polled, 0.95) * 1000:.2f} ms"),
    ]


def _delays(url: str) -> list[float]:
    delays = []
    with genlock.connect(url) as adding, genlock.connect(url, session_id="waiter", agent_id="waiter") as waiting:
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


def main() -> None:
    with running(shared_buffers="256MB", max_wal_size="4GB") as server:
        databases = Databases(server)
        PostgresStore(databases.create("empty")).close()
        prepare(databases.create("before"), ids_of(TASKS))
        steps: list[tuple[str, Callable[[], list[Line]]]] = [
            (f"PostgreSQL: batches of {BATCH}, {BATCH_CALLERS} callers", lambda: compare(databases, "batches", _batched, 0.6)),
            (f"PostgreSQL: single claims, {CALLERS} callers", lambda: compare(databases, "single", _single, None)),
            ("PostgreSQL: one caller", lambda: one_caller(databases)),
            ("PostgreSQL: cycles", lambda: cycles(databases)),
            ("PostgreSQL: waking a waiting caller", lambda: waking(databases)),
        ]
        for title, step in steps:
            show(title, step())


if __name__ == "__main__":
    main()
