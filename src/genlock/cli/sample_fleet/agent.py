"""An agent of the sample fleet: a process that claims the next task, pretends to work, renews its
lease and submits a result.

It knows nothing of the staged accidents: any agent would look like this. It ends when its standard
input is closed, so that it does not outlive the process that started it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import genlock
from genlock.core.model import Task
from genlock.core.results import ClaimResult, TaskClaim
from genlock.errors import Closed, ServiceError, SessionEnded

RENEW_AT = 0.3
"""Renew after this part of the lease, so that one renewal may be late."""
FAILS = 0.06
"""How often the work fails."""
_PHASES = ("PLAN", "IMPL", "TEST")
_NOTES = ("reading what is there", "writing the code", "running the tests")
_LAST_SECONDS = 3.0
_STEADY_WAIT_SECONDS, _WAIT_SECONDS = 0.3, 5.0


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("url", "project", "agent", "session", "user", "kind"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--steady", type=float, metavar="PACE")
    options = parser.parse_args()
    leaving = threading.Event()
    threading.Thread(target=leave_with_parent, args=[leaving], daemon=True).start()
    with genlock.connect(
        options.url,
        project_id=options.project,
        session_id=options.session,
        agent_id=options.agent,
        user_id=options.user,
    ) as fleet:
        fleet.register_session(agent_type=options.kind, metadata={"agent": options.agent})
        agent = Agent(fleet, leaving, options.steady)
        while not leaving.is_set():
            agent.work_once()
        fleet.end_session()


def leave_with_parent(leaving: threading.Event) -> None:
    """Waits until standard input ends, then sets `leaving`. It ends when the parent closes it or
    has ended, and the service may have ended with it."""
    sys.stdin.read()
    leaving.set()
    time.sleep(_LAST_SECONDS)
    os._exit(0)


class Agent:
    """One worker. A steady one takes as long as its tasks say, times its pace, and never fails."""

    def __init__(self, fleet: Any, leaving: threading.Event, steady: float | None) -> None:
        self._fleet, self._leaving, self._steady = fleet, leaving, steady
        self._wait = _WAIT_SECONDS if steady is None else _STEADY_WAIT_SECONDS
        self._score, self._context = random.randint(82, 99), random.uniform(5, 30)

    def work_once(self) -> None:
        """Claims the next task, if there is one, and finishes it."""
        try:
            granted: ClaimResult = self._fleet.claim_next(wait_seconds=self._wait)
        except (Closed, ServiceError):
            self._leaving.wait(0.5)  # the service is about to stop, or unavailable
            return
        if granted.claim is not None and granted.task is not None:
            self._finish(granted.claim, granted.task)

    def _finish(self, claim: TaskClaim, task: Task) -> None:
        fence = {"task_id": task.id, "expected_generation": claim.generation}
        if parts := task.metadata.get("split"):
            self._split(claim, parts)
        elif not self._pretend(claim, self._seconds(claim, task)):
            self._fleet.release_claim(**fence)
        elif self._steady is None and random.random() < FAILS:
            self._fleet.release_claim(**fence, reason="ERROR")
        else:
            # The agent does not ask whether the claim is still its own: the generation decides.
            result = {"task": task.id, "made_by": claim.agent_id, "lines": random.randint(20, 900)}
            self._fleet.submit_result(
                task_id=task.id, generation=claim.generation, result_data=result
            )

    def _split(self, claim: TaskClaim, parts: list[str]) -> None:
        subtasks = [{"title": part, "estimate_seconds": 2, "lease_seconds": 4} for part in parts]
        self._fleet.spawn_subtasks(
            task_id=claim.task_id,
            generation=claim.generation,
            subtasks=subtasks,
            mode="fan-out-fan-in",
        )

    def _seconds(self, claim: TaskClaim, task: Task) -> float:
        if self._steady is None:
            return random.uniform(0.6, 1.3) * (task.estimate_seconds or 2)
        # An agent that takes over finds most of the work done.
        return (task.estimate_seconds or 1) * self._steady / (1 if claim.generation == 1 else 4)

    def _pretend(self, claim: TaskClaim, seconds: float) -> bool:
        """Pretends to work for this time and renews the lease; False if the agent has to leave
        first. If a renewal is refused, it stops and submits what it has."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._steady is None:
                self._report(claim, 1 - left / seconds)
            if self._leaving.wait(min(left, claim.lease_seconds * RENEW_AT)):
                return False
            if time.monotonic() < end and not self._renew(claim):
                return True
        return True

    def _report(self, claim: TaskClaim, share: float) -> None:
        """Reports progress, for the display."""
        at = min(int(share * len(_PHASES)), len(_PHASES) - 1)
        self._context = min(self._context + random.uniform(0.5, 3), 95)
        self._score = min(max(self._score + random.randint(-2, 2), 60), 100)
        told = {"score": self._score, "contextPercent": round(self._context), "phase": _PHASES[at]}
        fence = {"task_id": claim.task_id, "generation": claim.generation}
        # A session that has ended meanwhile cannot report. Its result is refused in any case.
        with suppress(SessionEnded):
            self._fleet.heartbeat_session(metadata=told)
            self._fleet.report_progress(**fence, fraction=round(share, 2), note=_NOTES[at])

    def _renew(self, claim: TaskClaim) -> bool:
        renewed = self._fleet.renew_lease(task_id=claim.task_id, generation=claim.generation)
        return bool(renewed.success)


if __name__ == "__main__":
    main()
