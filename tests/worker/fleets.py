"""A fleet in memory whose renewals a test can count, break and hold up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import genlock
from genlock import Coordinator
from genlock.core.results import ReleaseResult, RenewalResult, TaskClaim
from genlock.worker import schedule
from genlock.worker.keeper import Answer, Keeper
from genlock.worker.kept_claim import KeptClaim


class Renewal(NamedTuple):
    """One round trip."""

    at: float
    tasks: tuple[str, ...]


class Way:
    """The way between a keeper and a real fleet, on which things go wrong."""

    def __init__(self, fleet: Coordinator) -> None:
        self.fleet = fleet
        self.renewals: list[Renewal] = []
        self.before: Callable[[], object] = lambda: None
        """Happens to a renewal before the coordinator sees it."""
        self.after: Callable[[], object] = lambda: None
        """Happens to its answer."""

    def renew_lease(self, *, task_id: str, **more: Any) -> RenewalResult:
        self.renewals.append(Renewal(schedule.now(), (task_id,)))
        self.before()
        answer = self.fleet.renew_lease(task_id=task_id, **more)
        self.after()
        return answer

    def batch_renew(self, *, generations: Mapping[str, int], **more: Any) -> Mapping[str, Answer]:
        self.renewals.append(Renewal(schedule.now(), tuple(generations)))
        self.before()
        answer = self.fleet.batch_renew(generations=generations, **more)
        self.after()
        return answer

    def release_claim(self, **more: Any) -> ReleaseResult:
        self.before()
        return self.fleet.release_claim(**more)


class Worker(NamedTuple):
    """A keeper on its way to a fleet, and its claims."""

    fleet: Coordinator
    way: Way
    keeper: Keeper

    def claim(self, task: str, lease: float = 1.0) -> TaskClaim:
        """A granted claim."""
        answer = self.fleet.claim_task(task_id=task, lease_duration_seconds=lease)
        assert answer.claim is not None, answer
        return answer.claim

    def keep(self, task: str, lease: float = 1.0, **more: Any) -> KeptClaim:
        """A claim that is kept."""
        asked = schedule.now()
        return self.keeper.add(self.claim(task, lease), asked=asked, **more)


@contextmanager
def working(*tasks: str) -> Iterator[Worker]:
    """A keeper on a fleet in memory that has these tasks."""
    with genlock.connect("memory://", session_id="s", agent_id="a", process=None) as fleet:
        fleet.add_tasks(tasks=list(tasks))
        way = Way(fleet)
        keeper = Keeper(way)
        try:
            yield Worker(fleet, way, keeper)
        finally:
            keeper.close()


class Held:
    """A place where calls wait until a test lets them go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.go_on.wait(60)
