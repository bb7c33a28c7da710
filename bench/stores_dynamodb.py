"""DynamoDB: the engine's claims, and its own commits replayed raw in the same run against the same
server. There is no target.

The server is the tests' own (`make servers`), one process of Python, which most of the time goes
into: the figures compare, and say nothing of AWS.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import genlock
from bench.claims import BATCH, BATCH_CALLERS, CALLERS, Work, _batched, _measure, _single
from bench.floor import Recorder
from bench.plans import ids_of, register, tasks_of
from bench.report import Line, percentile, show
from genlock.store import Change
from genlock.stores.dynamodb import DynamoDBStore
from genlock.stores.dynamodb.store import THREADS
from tests.servers import ministack

TASKS = 768
ONE_CALLER_CLAIMS = 100


def _prepared(folder: Path, name: str, ids: list[str]) -> DynamoDBStore:
    """A table with these tasks and the callers' sessions."""
    url = ministack.url_for(folder / name)
    with genlock.connect(url, create=True, deadline_seconds=60) as fleet:
        fleet.add_tasks(tasks=tasks_of(ids))
        register(fleet, CALLERS)
    return DynamoDBStore(url)


def _replay(store: DynamoDBStore, commits: Sequence[Sequence[Change]]) -> float:
    """The same transactions and the same reservations, made beforehand; nothing is looked at but
    whether they fail."""
    writer, calls = store._writer, store._table.calls
    batches = [writer._plan(commit) for commit in commits]
    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        for plans in batches:
            last = writer._take_positions(plans)
            list(
                threads.map(
                    lambda plan, last=last: calls.transact(
                        writer._actions(plan, last[plan.number])
                    ),
                    plans,
                )
            )
    return time.perf_counter() - start


def compare(folder: Path, title: str, work: Work) -> list[Line]:
    """The engine, and its commits replayed on a table that was made in the same way."""
    ids = ids_of(TASKS)
    recorder = Recorder(_prepared(folder, f"{title}-engine", ids))
    store: Any = recorder
    took, _ = _measure(store, work, ids)
    commits = [commit for commit in recorder.commits if commit[0].key.kind == "task"]
    target = _prepared(folder, f"{title}-replay", ids)
    floor = _replay(target, _rebased(target, commits))
    target.close()
    return [
        Line(f"{title}: claims/s", f"{TASKS / took:,.0f}"),
        Line(f"{title}: replay of its commits, claims/s", f"{TASKS / floor:,.0f}"),
        Line(f"{title}: claims a commit", f"{TASKS / len(commits):.0f}"),
        Line(f"{title}: of the replay", f"{floor / took:.2f}"),
    ]


def _rebased(target: DynamoDBStore, commits: Sequence[Sequence[Change]]) -> list[list[Change]]:
    """The commits over what the other table has: its records were made at other instants, so their
    digests are others."""
    found = target.load([change.key for commit in commits for change in commit]).records
    return [
        [change._replace(read_digest=found[change.key].digest) for change in commit]
        for commit in commits
    ]


def one_caller(folder: Path) -> list[Line]:
    """One synchronous caller, one claim at a time."""
    ids = ids_of(ONE_CALLER_CLAIMS)
    times = []
    with genlock.connect(
        _prepared(folder, "one", ids), agent_id="agent-0", session_id="session-0"
    ) as fleet:
        for task in ids:
            start = time.perf_counter()
            assert fleet.claim_task(task_id=task).success
            times.append(time.perf_counter() - start)
    return [Line("one caller: a claim, median", f"{percentile(times, 0.5) * 1000:,.1f} ms")]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(ministack.ENVIRONMENT)
        with ministack.running(folder) as server:
            os.environ[ministack.ADDRESS] = server.endpoint_url
            show(
                f"DynamoDB (ministack): batches of {BATCH}, {BATCH_CALLERS} callers",
                compare(folder, "batches", _batched),
            )
            show(
                f"DynamoDB (ministack): single claims, {CALLERS} callers",
                compare(folder, "single", _single),
            )
            show("DynamoDB (ministack): one caller", one_caller(folder))


if __name__ == "__main__":
    main()
