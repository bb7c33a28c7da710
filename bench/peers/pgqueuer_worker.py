"""pgqueuer at work: installs its tables, fills its queue, or empties it. Run by the Python of
pgqueuer's own environment.

pgqueuer_worker.py install|fill|drain URL [JOBS]
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import QueueManager
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH = 500
"""The size at which it is fastest."""


async def fill(queries: Queries, jobs: int) -> None:
    for start in range(0, jobs, 1000):
        count = min(1000, jobs - start)
        await queries.enqueue(["work"] * count, [None] * count, [0] * count)


async def drain(queries: Queries) -> None:
    """Takes and completes jobs until there are none; says how many, and in how many seconds. Begins
    when it is told to."""
    manager = QueueManager(queries)
    done = 0

    @manager.entrypoint("work")
    async def work(job: Job) -> None:
        nonlocal done
        done += 1

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    start = time.perf_counter()
    await manager.run(
        batch_size=BATCH, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=1)
    )
    print(done, time.perf_counter() - start, flush=True)


async def main(what: str, url: str, jobs: str = "0") -> None:
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    if what == "install":
        await queries.install()
    elif what == "fill":
        await fill(queries, int(jobs))
        await connection.execute("VACUUM ANALYZE")
    else:
        await drain(queries)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
