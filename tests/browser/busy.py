"""A fleet that writes many events a second: `python -m tests.browser.busy URL RATE SECONDS`.

Four of five events renew a lease, as with real agents; the others claim a task or give it back.
Prints `ready` once its agents hold their tasks, and at the end how many events it has written a
second.
"""

from __future__ import annotations

import sys
import time

import genlock
from genlock import Coordinator
from genlock.core.results import ClaimResult

HELD = 400
SESSIONS = 4
LONG = 3600.0
STEPS = 10
"""A second."""


def work(fleet: Coordinator, rate: int, seconds: float) -> float:
    """Writes so many events a second for so long; returns how many it has managed."""
    ids = [row.id for row in fleet.list_tasks(limit=HELD + 100, sort="id").tasks]
    held, others = ids[:HELD], ids[HELD:]
    each = HELD // SESSIONS
    generations: list[dict[str, int]] = []
    for number in range(SESSIONS):
        mine = held[number * each : (number + 1) * each]
        granted = fleet.batch_claim(
            task_ids=mine,
            session_id=f"s-{number}",
            agent_id=f"agent-{number}",
            lease_duration_seconds=LONG,
        )
        claims = [one.require() for one in granted.values() if isinstance(one, ClaimResult)]
        generations.append({claim.task_id: claim.generation for claim in claims})
    print("ready", flush=True)
    changed = max(1, rate // STEPS // 10)
    renewed = rate // STEPS - 2 * changed
    done, began, step = 0, time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for number, known in enumerate(generations):
            share = renewed // SESSIONS
            chosen = [held[number * each + (step * share + at) % each] for at in range(share)]
            some = {task: known[task] for task in chosen}
            fleet.batch_renew(generations=some, session_id=f"s-{number}")
            done += len(some)
        for at in range(changed):
            task = others[(step * changed + at) % len(others)]
            claim = fleet.claim_task(task_id=task, session_id="s-x", agent_id="x").require()
            fleet.release_claim(task_id=task, generation=claim.generation, session_id="s-x")
            done += 2
        step += 1
        time.sleep(max(0.0, began + step / STEPS - time.monotonic()))
    return done / (time.monotonic() - began)


def main() -> None:
    """What the command line says."""
    url, rate, seconds = sys.argv[1:]
    with genlock.connect(url, process=None) as fleet:
        print(round(work(fleet, int(rate), float(seconds))), flush=True)


if __name__ == "__main__":
    main()
