"""Adds tasks to a plan at a steady rate, and says when each was there.

adder.py URL RATE SECONDS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import genlock
from bench.plans import ids_of


async def main(url: str, rate: str, seconds: str) -> None:
    fleet = genlock.aio.connect(url, create=True, deadline_seconds=60)
    added: dict[str, float] = {}
    start = time.perf_counter() + 0.2

    async def add(number: int, task: str) -> None:
        await asyncio.sleep(start + number / float(rate) - time.perf_counter())
        await fleet.add_tasks(tasks=[task])
        added[task] = time.perf_counter()

    await asyncio.gather(
        *(
            add(number, task)
            for number, task in enumerate(ids_of(int(float(rate) * float(seconds)), "W"))
        )
    )
    print(json.dumps(added), flush=True)
    await fleet.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
