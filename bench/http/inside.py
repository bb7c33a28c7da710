"""`python -m bench.http.inside FILE TASKS`: the rate of claims in batches, in process, on the
server's core."""

from __future__ import annotations

import asyncio
import sys
import time

import uvloop

import genlock.aio
from bench.http.rates import BATCH, BATCH_CONNECTIONS
from bench.http.serving import SERVER_CORE, pin
from bench.plans import ids_of


async def _run(path: str, tasks: int) -> float:
    ids = ids_of(tasks)
    chunks = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]
    fleet = genlock.aio.connect(f"sqlite://{path}", create=True, deadline_seconds=60)

    async def caller(number: int) -> None:
        for chunk in chunks[number::BATCH_CONNECTIONS]:
            granted = await fleet.batch_claim(
                task_ids=chunk, agent_id=f"agent-{number}", session_id=f"session-{number}"
            )
            assert all(getattr(result, "success", False) for result in granted.values())

    start = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(BATCH_CONNECTIONS)))
    took = time.perf_counter() - start
    await fleet.close()
    return tasks / took


if __name__ == "__main__":
    pin(SERVER_CORE)
    print(uvloop.run(_run(sys.argv[1], int(sys.argv[2]))))
