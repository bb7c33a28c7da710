"""One worker: a process of its own that claims whatever comes next, works on it, renews its lease, and hands in the result.

Nothing here knows of the accidents that are made to happen: this is how any worker would look. It leaves when its standard input is
closed, so that it does not outlive whoever started it.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

from genlock.coordinator import Coordinator
from genlock.core.results import ClaimResult
from genlock.open import connect

RENEW_AT = 0.3
"""Renewed after this part of the lease, so that one renewal may be late without anything being lost."""


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "agent", "session", "user"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--pace", type=float, default=1.0)
    options = parser.parse_args()

    leaving = threading.Event()
    threading.Thread(target=leave_with_our_starter, args=[leaving], daemon=True).start()

    with connect(options.url, session_id=options.session, agent_id=options.agent, user_id=options.user) as fleet:
        fleet.register_session(agent_type="demo")
        while not leaving.is_set():
            granted = fleet.claim_next(wait_seconds=0.3)
            if granted.success:
                carry_out(fleet, granted, options.pace)
        fleet.end_session()


def leave_with_our_starter(leaving: threading.Event) -> None:
    """Standard input ends when whoever started us closes it, or is gone."""
    sys.stdin.read()
    leaving.set()


def carry_out(fleet: Coordinator, granted: ClaimResult, pace: float) -> None:
    """Does the task, or splits it if the plan says so."""
    claim, task = granted.claim, granted.task
    assert claim is not None
    assert task is not None
    parts = task.metadata.get("split")
    if parts:
        subtasks = [{"title": part, "estimate_seconds": 2, "lease_seconds": 4} for part in parts]
        fleet.spawn_subtasks(task_id=task.id, generation=claim.generation, subtasks=subtasks, mode="fan-out-fan-in")
        return
    # Whoever takes over finds most of the work done.
    seconds = (task.estimate_seconds or 1) * pace / (1 if claim.generation == 1 else 4)
    work(fleet, task.id, claim.generation, seconds, claim.lease_seconds * RENEW_AT)
    # No look at the clock and no question whether the claim is still ours: the generation answers that, where it counts.
    fleet.submit_result(task_id=task.id, generation=claim.generation, result_data={"task": task.id, "made_by": claim.agent_id})


def work(fleet: Coordinator, task_id: str, generation: int, seconds: float, renew_every: float) -> None:
    """Takes its time, and renews meanwhile. Ends early if the claim is lost: what there is by then is handed in all the same."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, renew_every))
        if time.monotonic() < end and not fleet.renew_lease(task_id=task_id, expected_generation=generation).success:
            return


if __name__ == "__main__":
    main()
