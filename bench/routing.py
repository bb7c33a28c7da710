"""`python -m bench.routing`: what claim_next costs with overlap and with the order closest-to-done,
by the size of the plan.

So many tasks are ready and 500 are in flight; each has three modules. One caller claims the next
task and releases it again. The cost must not grow with the plan.

For closest-to-done every ten tasks are a feature, and those in flight are the last ones of 500
features: all of these are nearer to completion than the one whose task is granted.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import genlock
from genlock import Coordinator

SIZES = (1_000, 100_000)
IN_FLIGHT = 500
OF_FEATURE = 10
MODULES = 5_000
ROUNDS = 300
_AT_ONCE = 5_000


def filled(fleet: Coordinator, size: int) -> None:
    """A plan of so many ready tasks, and 500 more that are held."""
    chance = random.Random(1)

    def modules() -> list[str]:
        return [f"m{chance.randrange(MODULES)}" for _ in range(3)]

    for start in range(0, size + IN_FLIGHT, _AT_ONCE):
        names = range(start, min(start + _AT_ONCE, size + IN_FLIGHT))
        fleet.add_tasks(tasks=[{"id": f"task-{n}", "modules": modules()} for n in names])
    held = [f"task-{n}" for n in range(size, size + IN_FLIGHT)]
    fleet.batch_claim(task_ids=held, session_id="other", agent_id="other")


def filled_with_features(fleet: Coordinator, size: int) -> None:
    """Features of ten ready tasks each, and 500 more with one task, which is held."""
    fleet.set_policy(policy={"order": "closest-to-done"})
    names = [f"F{n // OF_FEATURE}:edge{n % OF_FEATURE}" for n in range(size)]
    held = [f"HELD{n}:edge" for n in range(IN_FLIGHT)]
    for start in range(0, size, _AT_ONCE):
        fleet.add_tasks(tasks=[{"id": name} for name in names[start : start + _AT_ONCE]])
    fleet.add_tasks(tasks=[{"id": name} for name in held])
    fleet.batch_claim(task_ids=held, session_id="other", agent_id="other")


def milliseconds(fleet: Coordinator) -> float:
    """The median of a claim_next, its release left out."""
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        claim = fleet.claim_next().require()
        taken.append(time.perf_counter() - start)
        fleet.release_claim(task_id=claim.task_id, generation=claim.generation)
    return median(taken) * 1000


def measured(store: str, size: int, costs: dict[str, list[float]]) -> None:
    """Adds what each strategy costs on a plan of this size."""
    for fill, policies in (
        (filled, [{"overlap": overlap} for overlap in ("off", "warn", "avoid", "forbid")]),
        (filled_with_features, [{"order": "closest-to-done"}, {"order": "track"}]),
    ):
        with tempfile.TemporaryDirectory() as folder:
            url = "memory://" if store == "memory" else f"sqlite://{Path(folder) / 'a.db'}"
            with genlock.connect(url, create=True, session_id="s1", agent_id="alice") as fleet:
                fill(fleet, size)
                for policy in policies:
                    fleet.set_policy(policy=policy)
                    milliseconds(fleet)
                    (named,) = policy.items()
                    costs.setdefault(" ".join(named), []).append(milliseconds(fleet))


def main() -> None:
    for store in sys.argv[1:] or ["memory", "sqlite"]:
        costs: dict[str, list[float]] = {}
        for size in SIZES:
            measured(store, size, costs)
        for strategy, (small, large) in costs.items():
            print(
                f"{store:8} {strategy:21} {SIZES[0]:,} tasks {small:.2f} ms, "
                f"{SIZES[1]:,} tasks {large:.2f} ms, ratio {large / small:.2f}"
            )


if __name__ == "__main__":
    main()
