"""PostgreSQL while somebody holds an old snapshot in our database and a writing transaction in
another, at a steady load.

`python -m bench snapshot --minutes 10`: so long without them, then so long with them, each on a
schema of its own. With `--hot` the same few tasks are claimed and given back again and again: that
is what an old snapshot makes dear, as nobody may tidy up behind them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

import genlock
from bench.plans import tasks_of
from bench.report import Line, at_most, percentile, show
from genlock import AsyncCoordinator
from genlock.core.results import FeedEvent
from tests.servers.postgres import Postgres, running

AGENTS = 8
TASKS_EACH = 8
WINDOWS = 10
"""Into so many pieces the time is cut: a loss that grows shows in the last one."""


class Phase(NamedTuple):
    """Operations a second in each window, and how late each event reached a watcher, in seconds."""

    rates: list[float]
    delays: list[float]

    @property
    def rate(self) -> float:
        return sum(self.rates) / len(self.rates)


async def work(url: str, seconds: float, hot: bool) -> None:
    """One process with its agents: each adds a few tasks, claims, renews and completes them, and so
    on. Prints operations by window."""
    done = [0] * WINDOWS

    async def agent(fleet: AsyncCoordinator, number: int, began: float) -> None:
        session, turn = f"session-{number}", 0
        while (at := time.monotonic() - began) < seconds:
            names = [f"agent-{number}-{turn}-{each}" for each in range(TASKS_EACH)]
            if turn == 0 or not hot:
                await fleet.add_tasks(tasks=tasks_of(names))
            for name in (
                names if not hot else [f"agent-{number}-0-{each}" for each in range(TASKS_EACH)]
            ):
                granted = await fleet.claim_task(
                    task_id=name, agent_id=f"agent-{number}", session_id=session
                )
                assert granted.claim is not None
                given: Any = {"task_id": name, "session_id": session}
                await fleet.renew_lease(expected_generation=granted.claim.generation, **given)
                if hot:
                    await fleet.release_claim(expected_generation=granted.claim.generation, **given)
                else:
                    await fleet.submit_result(generation=granted.claim.generation, **given)
                done[min(WINDOWS - 1, int(at / seconds * WINDOWS))] += 3
            turn += 1

    fleet = genlock.aio.connect(url, create=True, deadline_seconds=60)
    await fleet.get_policy()  # the schema is there
    print("ready", flush=True)
    began = time.monotonic()
    await asyncio.gather(*(agent(fleet, number, began) for number in range(AGENTS)))
    await fleet.close()
    print(json.dumps([count * WINDOWS / seconds for count in done]), flush=True)


def watched(url: str, enough: threading.Event, delays: list[float]) -> None:
    """Follows the feed, and notes how old each event is when it arrives: on this machine all clocks
    are one."""
    with genlock.connect(url, create=True) as fleet:
        while not enough.is_set():
            delays.extend(age_of(event) for event in fleet.watch(timeout_seconds=1))


def age_of(event: FeedEvent) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(event.event["timestamp"])).total_seconds()


def phase(url: str, seconds: float, hot: bool) -> Phase:
    """The load and a watcher."""
    delays: list[float] = []
    enough = threading.Event()
    command = [
        sys.executable,
        "-m",
        "bench.snapshot",
        "work",
        url,
        str(seconds),
        "hot" if hot else "",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        watcher = threading.Thread(target=watched, args=(url, enough, delays))
        watcher.start()
        rates = json.loads(process.stdout.readline())
    enough.set()
    watcher.join()
    return Phase(rates, delays)


@contextmanager
def held(server: Postgres) -> Iterator[None]:
    """A transaction that has written, in another database, and an old snapshot in ours."""
    with psycopg.connect(server.address, autocommit=True) as owner:
        owner.execute("CREATE DATABASE elsewhere")
    with (
        psycopg.connect(server.address.replace("/postgres", "/elsewhere")) as writing,
        psycopg.connect(server.address) as old,
    ):
        writing.execute("CREATE TABLE notes (text text)")
        writing.execute("INSERT INTO notes VALUES ('not committed')")
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM pg_class")
        yield
        assert (
            writing.info.transaction_status
            == old.info.transaction_status
            == psycopg.pq.TransactionStatus.INTRANS
        )


def lines_of(free: Phase, burdened: Phase) -> list[Line]:
    first, last = burdened.rates[0], burdened.rates[-1]
    return [
        Line("without: operations/s", f"{free.rate:,.0f}"),
        Line("with both transactions open: operations/s", f"{burdened.rate:,.0f}"),
        at_most("loss", 100 * (1 - burdened.rate / free.rate), 10, " %"),
        Line("with: first and last tenth of the time", f"{first:,.0f}  {last:,.0f}"),
        Line(
            "without: first and last tenth of the time",
            f"{free.rates[0]:,.0f}  {free.rates[-1]:,.0f}",
        ),
        Line("with: events that a watcher saw", f"{len(burdened.delays):,}"),
        Line(
            "with: an event reaches a watcher, p99",
            f"{percentile(burdened.delays, 0.99) * 1000:.1f} ms",
        ),
        at_most(
            "with: an event reaches a watcher, longest", max(burdened.delays) * 1000, 100, " ms"
        ),
        Line("without: longest", f"{max(free.delays) * 1000:.1f} ms"),
    ]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench snapshot", description="PostgreSQL while old transactions are open."
    )
    parser.add_argument("--minutes", type=float, default=10, help="of each of the two phases")
    parser.add_argument("--hot", action="store_true", help="the same few tasks again and again")
    given = parser.parse_args(arguments)
    minutes, hot = given.minutes, given.hot
    with running(max_wal_size="4GB") as server:
        free = phase(server.url(), minutes * 60, hot)
        with held(server):
            burdened = phase(server.url(), minutes * 60, hot)
    show(
        f"PostgreSQL: {AGENTS} agents, {minutes:g} minutes without and with old "
        f"transactions{', a few hot tasks' if hot else ''}",
        lines_of(free, burdened),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2], float(sys.argv[3]), bool(sys.argv[4])))
    else:
        main()
