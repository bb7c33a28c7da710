"""A process with one coordinator and many agents in it, each a thread with a session of its own.

It is run as a program, takes one order, and says what happened by lines of JSON, as `worker.py`
does.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import genlock
from genlock.errors import GenlockError, OutcomeUnknown, StoreUnavailable
from genlock.store import (
    Change,
    Committed,
    Conflict,
    Deferred,
    Key,
    Page,
    PendingCommit,
    Query,
    Snapshot,
    Store,
)
from genlock.stores.clock import SystemClock
from tests.processes.worker import digest_of, is_all_completed, order, say

T = TypeVar("T")

LATE = 0.05
"""The share of the tasks whose results come only after somebody else has taken over."""
GIVEN_BACK = 0.1
"""The share that is released."""
LATE_SECONDS = 20.0
"""So long a late one waits at most for somebody to take over."""


class Noted:
    """A store that says when a commit is under way and when a call went wrong: outside of the
    engine nobody else can tell."""

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self.limits = store.limits

    def commit(
        self, changes: Sequence[Change], *, epoch: int | None = None
    ) -> Sequence[Committed | Conflict]:
        say(fact="commit", session=self._session, under_way=True)
        try:
            return self._noted(lambda: self._store.commit(changes, epoch=epoch))
        finally:
            say(fact="commit", session=self._session, under_way=False)

    def start_commit(self, changes: Sequence[Change], *, epoch: int | None = None) -> PendingCommit:
        return Deferred(partial(self.commit, epoch=epoch), changes)

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        return self._noted(lambda: self._store.load(keys, queries, with_index=with_index))

    def find(self, query: Query, *, count_by: str | None = None) -> Page:
        return self._noted(lambda: self._store.find(query, count_by=count_by))

    def _noted(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (OutcomeUnknown, StoreUnavailable) as error:
            say(fact="trouble", session=self._session, kind=error.code)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Agent:
    """Works as long as there is anything to do. Every answer is a fact, and so is every error."""

    def __init__(
        self,
        fleet: genlock.Coordinator,
        session: str,
        asked: dict[str, Any],
        hand_in: threading.Event,
    ) -> None:
        self._fleet = fleet
        self._session = session
        self._chance = random.Random(f"{asked['seed']} {session}")
        self._lease: float = asked["lease"]
        self._diligent: bool = asked["diligent"]
        """Does it hand everything in at once?"""
        self._hand_in = hand_in if asked["holds"] else None

    def run(self) -> None:
        try:
            while self._again():
                pass
        except GenlockError as error:
            self._say(fact="failed", kind=error.code, text=str(error))

    def _say(self, **fact: Any) -> None:
        say(session=self._session, at=time.monotonic(), **fact)

    def _again(self) -> bool:
        """One task; False when all are completed."""
        answer = self._fleet.claim_next(
            session_id=self._session,
            agent_id=self._session,
            lease_duration_seconds=self._lease,
            wait_seconds=0.5,
        )
        if answer.claim is None:
            return not is_all_completed(self._fleet)
        task, generation = answer.claim.task_id, answer.claim.generation
        self._say(fact="granted", task=task, generation=generation)
        if self._hand_in is not None:
            self._say(fact="holding", task=task, generation=generation)
            self._hand_in.wait()
            self._hand_in = None
            self._submit(task, generation)
            return True
        renewal = self._fleet.renew_lease(
            task_id=task, expected_generation=generation, session_id=self._session
        )
        self._say(fact="renewed", task=task, generation=generation, reason=renewal.reason)
        fate = 1.0 if self._diligent else self._chance.random()
        if fate < GIVEN_BACK:
            released = self._fleet.release_claim(
                task_id=task, expected_generation=generation, session_id=self._session
            )
            self._say(fact="released", task=task, generation=generation, reason=released.reason)
            return True
        if fate < GIVEN_BACK + LATE:
            self._wait_for_a_rival(task, generation)
        self._submit(task, generation)
        return True

    def _wait_for_a_rival(self, task: str, generation: int) -> None:
        """Works too long: until somebody else has the task."""
        deadline = time.monotonic() + LATE_SECONDS
        while (
            self._fleet.get_task_state(task_id=task).generation == generation
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)

    def _submit(self, task: str, generation: int) -> None:
        data = {"task": task, "by": self._session, "mark": self._chance.getrandbits(64)}
        result = self._fleet.submit_result(
            task_id=task, generation=generation, result_data=data, session_id=self._session
        )
        self._say(
            fact="submitted",
            task=task,
            generation=generation,
            reason=result.reason,
            refused_id=result.refused_id,
            digest=digest_of(data),
            data=data,
        )


def put_off(seconds: float) -> SystemClock:
    """From now on this host's clock is wrong by so much, wherever this process asks for the time of
    day."""
    told, seconds_of_day = SystemClock.now, time.time
    SystemClock.now = lambda self: told(self) + timedelta(seconds=seconds)  # type: ignore[method-assign]
    time.time = lambda: seconds_of_day() + seconds
    return SystemClock()


def main() -> None:
    say(fact="here")
    asked = order()
    assert asked is not None
    hand_in = threading.Event()
    clock = put_off(asked["clock_off"])
    store: Any = Noted(
        genlock.open_store(
            asked["url"], create=True, clock=clock if asked["clock"] == "host" else None
        ),
        asked["session"],
    )
    # `process=None`: as if each were on a machine of its own, so that nothing but the lease tells
    # of its end.
    with genlock.connect(store, process=None, deadline_seconds=asked["deadline"]) as fleet:
        say(fact="ready")
        assert order() == {"do": "go"}
        agents = [
            Agent(fleet, f"{asked['session']}.{number}", asked, hand_in)
            for number in range(asked["agents"])
        ]
        threads = [threading.Thread(target=agent.run) for agent in agents]
        for thread in threads:
            thread.start()
        if asked["holds"]:
            assert order() == {"do": "hand in"}
            hand_in.set()
        for thread in threads:
            thread.join()
    say(fact="finished", session=asked["session"])


if __name__ == "__main__":
    main()
