"""What is made to happen while the agents work: now and then one is killed and replaced, and when the plan is done it begins again."""

from __future__ import annotations

import asyncio
import random

from genlock.cli.dev.crew import Crew
from genlock.cli.dev.plan import PLAN, PROJECT, ROOTS
from genlock.coordinator import AsyncCoordinator
from genlock.core.results import TaskState
from genlock.errors import Closed, GenlockError

LOOK_SECONDS = 1.0
ACCIDENT_EVERY_SECONDS = 14.0
ABSENT_SECONDS = 2.0


class Director:
    """Looks once a second."""

    def __init__(self, fleet: AsyncCoordinator, crew: Crew) -> None:
        self._fleet = fleet
        self._crew = crew
        self.tasks: tuple[str, ...] = ()
        self._clock = asyncio.get_running_loop().time
        self._accident = self._clock() + ACCIDENT_EVERY_SECONDS
        self._replace = 0.0

    async def prepare(self) -> None:
        """The plan is there, whatever became of it in an earlier run."""
        await self._fleet.import_plan(source=PLAN, project_id=PROJECT)
        plan = await self._fleet.get_plan(project_id=PROJECT)
        self.tasks = tuple(definition.task.id for definition in plan.tasks)

    async def direct(self) -> None:
        """Until it is called off."""
        await asyncio.to_thread(self._crew.start)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Closed:
                return
            except GenlockError:
                continue  # a store that is away for a moment; the next look will tell

    async def look(self) -> None:
        """Begins another round if this one is done, lets nothing be held, and makes trouble when it is time."""
        states = await self._fleet.batch_get_states(task_ids=self.tasks, project_id=PROJECT)
        if states and all(state.state in ("COMPLETED", "CANCELLED") for state in states.values()):
            for root in ROOTS:
                await self._fleet.reset_task(task_id=root, cascade=True, project_id=PROJECT)
        for name, state in states.items():
            if state.state == "HELD":
                await self._fleet.reopen_task(task_id=name, project_id=PROJECT)
        await asyncio.to_thread(self._make_trouble, list(states.values()))

    def _make_trouble(self, states: list[TaskState]) -> None:
        now = self._clock()
        at_work = [state.claim.agent_id for state in states if state.claim is not None]
        if now >= self._accident and at_work:
            self._crew.kill(random.choice(at_work))
            self._accident = now + random.uniform(0.7, 1.3) * ACCIDENT_EVERY_SECONDS
            self._replace = now + ABSENT_SECONDS
        elif now >= self._replace:
            self._crew.start()
