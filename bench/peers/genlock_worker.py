"""Genlock at work on one share of a plan: claims and completes its tasks in batches, as a fleet's
coordinator would.

genlock_worker.py URL SHARE OF TASKS
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time

import genlock
from bench.plans import ids_of
from bench.stores import cycles_of


async def main(url: str, share: str, of: str, tasks: str) -> None:
    ids = ids_of(int(tasks))[int(share) :: int(of)]
    fleet = genlock.aio.connect(url, create=True, deadline_seconds=60)
    await fleet.get_task_state(task_id=ids[0])
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    start = time.perf_counter()
    await cycles_of(fleet, ids, share)
    print(len(ids), time.perf_counter() - start, flush=True)
    await fleet.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
