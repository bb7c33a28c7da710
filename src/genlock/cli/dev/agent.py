"""One agent: a process of its own that knows the service by its URL alone, claims what comes next, works, renews and hands in.

It leaves when its standard input is closed, so that it does not outlive whoever started it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from typing import Any

import genlock
from genlock.cli.dev.plan import PROJECT
from genlock.core.results import ClaimResult
from genlock.errors import Closed, ServiceError

RENEW_AT = 0.3
FAILS = 0.06
"""How often the work fails."""
WAIT_SECONDS = 5.0
_LAST_SECONDS = 3.0


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "agent", "session", "user"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    leaving = threading.Event()
    threading.Thread(target=_leave_with_our_starter, args=[leaving], daemon=True).start()
    with genlock.connect(
        options.url, project_id=PROJECT, session_id=options.session, agent_id=options.agent, user_id=options.user
    ) as fleet:
        fleet.register_session(agent_type="dev")
        while not leaving.is_set():
            try:
                granted = fleet.claim_next(wait_seconds=WAIT_SECONDS)
            except (Closed, ServiceError):
                leaving.wait(0.5)  # it is about to stop, or is away
                continue
            if granted.claim is not None:
                Work(fleet, granted, leaving).do()
        fleet.end_session()


def _leave_with_our_starter(leaving: threading.Event) -> None:
    """Standard input ends when whoever started us closes it, or is gone, and then perhaps the service too."""
    sys.stdin.read()
    leaving.set()
    time.sleep(_LAST_SECONDS)
    os._exit(0)


class Work:
    """One task, from the grant to its end."""

    def __init__(self, fleet: Any, granted: ClaimResult, leaving: threading.Event) -> None:
        assert granted.claim is not None
        assert granted.task is not None
        self._fleet, self._claim, self._task, self._leaving = fleet, granted.claim, granted.task, leaving

    def do(self) -> None:
        """Pretends to work; then it is done, or has failed, or we have to go."""
        task, generation = self._task.id, self._claim.generation
        if not self._pretend(random.uniform(0.6, 1.3) * (self._task.estimate_seconds or 2)):
            self._fleet.release_claim(task_id=task, expected_generation=generation)
        elif random.random() < FAILS:
            self._fleet.release_claim(task_id=task, expected_generation=generation, reason="ERROR")
        else:
            result = {"task": task, "made_by": self._claim.agent_id, "lines": random.randint(20, 900)}
            self._fleet.submit_result(task_id=task, generation=generation, result_data=result)

    def _pretend(self, seconds: float) -> bool:
        """Takes its time, and renews meanwhile; False if it is to leave first. Who has lost the claim hands in what there is."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._leaving.wait(min(left, self._claim.lease_seconds * RENEW_AT)):
                return False
            if time.monotonic() < end and not self._renew():
                return True
        return True

    def _renew(self) -> bool:
        return bool(self._fleet.renew_lease(task_id=self._task.id, expected_generation=self._claim.generation).success)


if __name__ == "__main__":
    main()
