"""A process that completes a task, resets it and claims what depends on it, round after round.

Some resets go wrong between their commit and their reactions: the process kills itself there, or
the store is away. It is run as a program, and says by lines of JSON what was acknowledged, as
`worker.py` does. Times are of the clock that all processes of a machine share.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import genlock
from genlock.engine import reactions
from genlock.errors import GenlockError, StoreUnavailable
from tests.processes.worker import order, say

LEASE_SECONDS = 5
KILLED, AWAY = 0.25, 0.5
"""Of the resets, a quarter is cut off by a kill, and another by an outage."""


class Resetter:
    def __init__(self, asked: dict[str, Any]) -> None:
        self.chance = random.Random(asked["seed"])
        self.inputs, self.dependents = asked["inputs"], asked["dependents"]
        self.operation = ""
        self.fleet = genlock.connect(
            asked["url"],
            create=True,
            session_id=asked["session"],
            agent_id="resetter",
            deadline_seconds=60,
        )
        reactions.Reactor.run = self.cut_off(reactions.Reactor.run)  # type: ignore[method-assign]

    def cut_off(self, run: Any) -> Any:
        """The reactions to a reset, some of which never happen."""

        def running(reactor: Any, found: list[Any], *more: Any) -> Any:
            if any(getattr(reaction.command, "reset", False) for reaction in found):
                fate = self.chance.random()
                if fate < KILLED and self.operation:
                    say(fact="reset", operation=self.operation, at=time.monotonic_ns())
                    os.kill(os.getpid(), signal.SIGKILL)
                if fate < AWAY:
                    raise StoreUnavailable("away")
            return run(reactor, found, *more)

        return running

    def complete(self, task: str) -> None:
        """Whoever holds it loses it."""
        self.fleet.force_release(task_id=task, take_over=True)
        answer = self.fleet.claim_task(task_id=task, lease_duration_seconds=LEASE_SECONDS)
        if answer.claim is not None:
            self.fleet.submit_result(task_id=task, generation=answer.claim.generation)

    def reset(self, task: str, operation: str) -> None:
        self.operation = operation
        done = self.fleet.reset_task(task_id=task, take_over=True, operation_id=operation)
        self.operation = ""
        if done.verdict == "DONE":
            say(fact="reset", operation=operation, at=time.monotonic_ns())

    def claim(self, task: str | None) -> None:
        """This task, or the next one."""
        began = time.monotonic_ns()
        answer = (
            self.fleet.claim_next(lease_duration_seconds=LEASE_SECONDS)
            if task is None
            else self.fleet.claim_task(task_id=task, lease_duration_seconds=LEASE_SECONDS)
        )
        if answer.claim is None or answer.task_id is None or answer.already_held:
            return
        generation = answer.claim.generation
        say(fact="granted", task=answer.task_id, generation=generation, began=began)
        self.fleet.release_claim(task_id=answer.task_id, generation=generation)

    def step(self, number: int) -> None:
        task = self.chance.choice(self.inputs)
        match self.chance.randrange(5):
            case 0 | 1:
                self.complete(task)
            case 2 | 3:
                self.reset(task, f"{os.getpid()}-{number}")
                for dependent in self.chance.sample(self.dependents, 2):
                    self.claim(dependent)
            case _:
                self.claim(self.chance.choice([None, *self.dependents]))


def main() -> None:
    say(fact="here")
    asked = order()
    assert asked is not None
    resetter = Resetter(asked)
    for number in range(asked["steps"]):
        try:
            resetter.step(number)
        except GenlockError as error:
            say(fact="trouble", kind=error.code)
    resetter.fleet.close()
    say(fact="finished")


if __name__ == "__main__":
    main()
