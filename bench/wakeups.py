"""How long a task waits for an agent that waits for it, at a steady rate of tasks: one process adds
them, agents wait in another.

Counted from the answer to whoever added the task until an agent has its claim, which is durable.
The clock is the machine's, the same in both processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import genlock
from bench.report import Line, at_most, percentile

AGENTS = 64
SECONDS = 6
_ROOT = Path(__file__).parent.parent


async def _agent(
    fleet: genlock.AsyncCoordinator, number: int, claimed: dict[str, float], enough: asyncio.Event
) -> None:
    while not enough.is_set():
        granted = await fleet.claim_next(
            agent_id=f"agent-{number}", session_id=f"session-{number}", wait_seconds=2
        )
        if granted.claim is not None:
            claimed[granted.claim.task_id] = time.perf_counter()
            await fleet.submit_result(
                task_id=granted.claim.task_id,
                generation=granted.claim.generation,
                session_id=f"session-{number}",
            )


async def _run(url: str, rate: int) -> list[float]:
    """The delays of all tasks."""
    fleet = genlock.aio.connect(url, create=True, deadline_seconds=60)
    for number in range(AGENTS):
        await fleet.register_session(session_id=f"session-{number}")
    claimed: dict[str, float] = {}
    enough = asyncio.Event()
    agents = [
        asyncio.create_task(_agent(fleet, number, claimed, enough)) for number in range(AGENTS)
    ]
    adder = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.peers.adder", url, str(rate), str(SECONDS),
        stdout=subprocess.PIPE, cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )  # fmt: skip
    said, _ = await adder.communicate()
    added: dict[str, float] = json.loads(said)
    async with asyncio.timeout(60):
        while len(claimed) < len(added):  # noqa: ASYNC110 - what happens meanwhile is what is measured
            await asyncio.sleep(0.05)
    enough.set()
    await asyncio.gather(*agents)
    await fleet.close()
    return [max(0.0, claimed[task] - when) for task, when in added.items()]


def wakeups(url: str, rate: int, target: float | None) -> list[Line]:
    delays = asyncio.run(_run(url, rate))
    p95 = percentile(delays, 0.95) * 1000
    title = f"{rate} tasks/s: p95 from added to claimed"
    return [
        Line(f"{rate} tasks/s: median", f"{percentile(delays, 0.5) * 1000:.2f} ms"),
        at_most(title, p95, target, " ms") if target is not None else Line(title, f"{p95:.2f} ms"),
    ]
