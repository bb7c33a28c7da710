"""Redis: the engine against its own commits replayed raw, one caller against load and commit by
hand, cycles, waking.

The raw replay is what one would write by hand: the one script of the commit, on the same keys, with
its arguments made before the clock starts. Every measurement begins with a server of its own on a
copy of the same files.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import genlock
from bench.claims import BATCH, BATCH_CALLERS, CALLERS, Work, _batched, _measure, _single
from bench.floor import Recorder
from bench.plans import ids_of, register, tasks_of
from bench.report import Line, at_least, percentile, show
from bench.stores import ONE_CALLER_CLAIMS, ROUNDS, TASKS, _cycles, _delays, _timed
from genlock.store import Change, Key
from genlock.stores.redis import RedisStore
from genlock.stores.redis.commit import Run, runs_of
from genlock.stores.redis.connection import RedisConnection
from genlock.stores.redis.queries import load
from genlock.stores.round_trips import complete
from tests.servers.redis import Redis

OPTIONS = "?durability=always&alone=on"


class Copies:
    """Servers on copies of one server's files."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._before = scratch / "before"
        self._number = 0

    @contextmanager
    def made(self) -> Iterator[str]:
        """The first server: what it has when the block ends is what all others begin with."""
        self._before.mkdir()
        with self._serving(self._before) as url:
            yield url

    @contextmanager
    def copy(self, *, empty: bool = False) -> Iterator[str]:
        """Another server's URL; it goes with the block."""
        self._number += 1
        folder = self._scratch / str(self._number)
        if empty:
            folder.mkdir()
        else:
            shutil.copytree(self._before, folder)
        with self._serving(folder) as url:
            yield url
        shutil.rmtree(folder)

    @contextmanager
    def _serving(self, folder: Path) -> Iterator[str]:
        server = Redis(folder, appendfsync="always", auto_aof_rewrite_percentage="0")
        server.start()
        try:
            yield server.address + OPTIONS
        finally:
            server.stop()


def prepare(url: str, ids: list[str]) -> None:
    """A store with these tasks and the callers' sessions."""
    with genlock.connect(url, create=True, deadline_seconds=60) as fleet:
        fleet.add_tasks(tasks=tasks_of(ids))
        register(fleet, CALLERS)


def recorded(url: str) -> tuple[Recorder, Any]:
    recorder = Recorder(RedisStore(url))
    return recorder, recorder


def runs_for(store: RedisStore, commit: Sequence[Change]) -> list[Run]:
    """The scripts of one commit, with their arguments."""
    places: dict[tuple[str, str], list[Change]] = {}
    for change in commit:
        places.setdefault(change.key.place, []).append(change)
    return runs_of(store._context, places, None)


@contextmanager
def linked(url: str) -> Iterator[tuple[RedisStore, RedisConnection]]:
    store = RedisStore(url)
    try:
        with store._pool.lent() as link:
            yield store, link
    finally:
        store.close()


def replay(url: str, commits: Sequence[Sequence[Change]]) -> float:
    """Runs the commits; the seconds that took."""
    with linked(url) as (store, link):
        batches = [runs_for(store, commit) for commit in commits]
        start = time.perf_counter()
        for runs in batches:
            link.run_all(runs)
        return time.perf_counter() - start


def replay_one_by_one(
    url: str, commits: Sequence[Sequence[Change]], loads: Sequence[Sequence[Key]]
) -> list[float]:
    """Loads what the engine loaded, then commits; the seconds of each."""
    times = []
    with linked(url) as (store, link):
        for commit, keys in zip(commits, loads, strict=True):
            runs = runs_for(store, commit)
            start = time.perf_counter()
            complete(load(store._names, store._birth, keys, "", with_index=False), link.ask)
            link.run_all(runs)
            times.append(time.perf_counter() - start)
    return times


def compare(copies: Copies, title: str, work: Work, target: float | None) -> list[Line]:
    """Best of a few rounds of each, in turn."""
    engine, floor, sizes, ids = [], [], [], ids_of(TASKS)
    for _ in range(ROUNDS):
        with copies.copy() as url:
            recorder, store = recorded(url)
            _measure(store, work, ids)
            commits = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
        sizes.append(len(ids) / len(commits))
        with copies.copy() as url:
            floor.append(replay(url, commits))
        del recorder, store, commits
        gc.collect()
        with copies.copy() as url:
            engine.append(_measure(RedisStore(url), work, ids)[0])
    ratio = min(floor) / min(engine)
    return [
        Line(f"{title}: claims/s", f"{TASKS / min(engine):,.0f}"),
        Line(f"{title}: replay of its commits, claims/s", f"{TASKS / min(floor):,.0f}"),
        Line(f"{title}: claims a commit", f"{max(sizes):.0f}"),
        Line(f"{title}: of the replay", f"{ratio:.2f}")
        if target is None
        else at_least(f"{title}: of the replay", ratio, target),
    ]


def one_caller(copies: Copies) -> list[Line]:
    """One synchronous caller, one claim at a time."""
    ids = ids_of(TASKS)[:ONE_CALLER_CLAIMS]
    with copies.copy() as url:
        recorder, store = recorded(url)
        with genlock.connect(store, agent_id="agent-0", session_id="session-0") as fleet:
            times = [_timed(fleet, task) for task in ids]
    claims = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
    with copies.copy() as url:
        raw = replay_one_by_one(url, claims, recorder.loads[: len(claims)])
    ours, floor = percentile(times, 0.5), percentile(raw, 0.5)
    return [
        Line("one caller: a claim, median", f"{ours * 1e6:,.0f} µs"),
        Line("one caller: raw load and commit, median", f"{floor * 1e6:,.0f} µs"),
        at_least("one caller: of the raw load and commit", floor / ours, 0.8),
    ]


def cycles(copies: Copies) -> list[Line]:
    """Claims and completions, one process."""
    took = []
    for _ in range(ROUNDS):
        with copies.copy() as url:
            took.append(_measure(RedisStore(url), _cycles, ids_of(TASKS))[0])
    return [Line("claim + complete: cycles/s, one process", f"{TASKS / min(took):,.0f}")]


def waking(copies: Copies) -> list[Line]:
    """A task is added by one coordinator; how long until one who waits at another has it, counted
    from the answer to who added it."""
    with copies.copy(empty=True) as url:
        delays = _delays(url)
    return [Line("woken by what is published, p95", f"{percentile(delays, 0.95) * 1000:.2f} ms")]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        copies = Copies(Path(scratch))
        with copies.made() as url:
            prepare(url, ids_of(TASKS))
        steps: list[tuple[str, Callable[[], list[Line]]]] = [
            (
                f"Redis, every write synced: batches of {BATCH}, {BATCH_CALLERS} callers",
                lambda: compare(copies, "batches", _batched, 0.6),
            ),
            (
                f"Redis: single claims, {CALLERS} callers",
                lambda: compare(copies, "single", _single, None),
            ),
            ("Redis: one caller", lambda: one_caller(copies)),
            ("Redis: cycles", lambda: cycles(copies)),
            ("Redis: waking a waiting caller", lambda: waking(copies)),
        ]
        for title, step in steps:
            show(title, step())


if __name__ == "__main__":
    main()
