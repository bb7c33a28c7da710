"""`genlock dev`: a service with a sample plan and agents at work.

It shows what Genlock is for. Every few seconds an agent is stopped past its lease, so that it comes
back as a zombie, or killed. One task is held until an operator reopens it, and the result of
another waits for a review. When the plan is done it begins again.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from genlock import token_files
from genlock.cli.answers import Style
from genlock.cli.sample_fleet.crew import Crew, names
from genlock.cli.sample_fleet.plan import DEV_HELD, DEV_PROJECT, DEV_ROOTS, dev_plan
from genlock.cli.sample_fleet.ticker import Ticker, TickerLine
from genlock.coordinator import AsyncCoordinator
from genlock.core.reasons import Status
from genlock.core.results import TaskClaim, TaskState
from genlock.errors import BadArgument, Closed, GenlockError
from genlock.project_folder import sqlite_url
from genlock.service.addresses import listen_near
from genlock.service.host import Hosted, Options, host
from genlock.service.server import run

if TYPE_CHECKING:
    from genlock.cli.app import App


def play(
    app: App,
    options: Options,
    *,
    fresh: bool,
    agents: int,
    seconds: float | None,
    pace: float = 1.0,
) -> None:
    """Runs until it is stopped."""
    from genlock.cli.commands.serve import announce

    def begin(hosted: Hosted) -> None:
        announce(app, hosted)
        if app.answers.style is Style.TEXT:
            app.answers.say(
                f"Ctrl-C ends it. From another terminal: genlock agents --url {hosted.url} "
                f"--project {DEV_PROJECT}"
            )

    if app.settings["serve_log_level"].origin == "default":
        options = replace(
            options, log_level="warning"
        )  # one line for every act of every agent would hide the important ones

    @asynccontextmanager
    async def beside(hosted: Hosted) -> AsyncIterator[None]:
        crew = Crew(hosted.url, names(agents), project=DEV_PROJECT)
        ticker = Ticker(app.answers)
        director = Director(hosted.coordinator, crew, ticker.tell, pace)
        await director.prepare()
        directing = asyncio.gather(director.direct(), _follow(hosted.coordinator, ticker))
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, hosted.server.stop)

        async def send_home() -> None:
            directing.cancel()
            with suppress(asyncio.CancelledError):
                await directing
            await asyncio.to_thread(crew.send_home)

        hosted.server.before_stop.append(send_home)
        try:
            yield
        finally:
            await send_home()

    with _store(app, fresh=fresh) as url:
        listening = listen_near(options.host, options.port)
        folders = token_files.folders(app.project_folder)
        run(
            host(
                url,
                options,
                begin,
                listening=listening,
                create=True,
                profile="local",
                token_folders=folders,
                beside=beside,
            )
        )


async def _follow(fleet: AsyncCoordinator, ticker: Ticker) -> None:
    """Prints events from now on, and continues after the store was unavailable."""
    while True:
        try:
            await ticker.follow(fleet.watch(project_id=DEV_PROJECT))
        except Closed:
            return
        except GenlockError:
            await asyncio.sleep(LOOK_SECONDS)


@contextmanager
def _store(app: App, *, fresh: bool) -> Iterator[str]:
    """Yields the URL of the project's store, or of a temporary one."""
    if not fresh:
        yield _own(app)
        return
    if app.settings["url"].origin.startswith("flag"):
        raise BadArgument(
            "--fresh is a store of its own, and --url names another; leave out one of them"
        )
    folder = Path(tempfile.mkdtemp(prefix="genlock-dev-"))
    try:
        yield sqlite_url(folder / "genlock.db")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _own(app: App) -> str:
    from genlock.cli.commands.init import make_place

    if app.setting("url") is None:
        make_place(app.project_folder)
    return app.store_url


LOOK_SECONDS = 0.5
FIRST_ACCIDENT_SECONDS = 4.0
ACCIDENT_EVERY_SECONDS = 10.0
ABSENT_SECONDS = 2.0
ASLEEP_SECONDS = 20.0
"""A stopped agent wakes when another one has taken over its task; at the latest after this time,
because it may have been stopped between two tasks."""
_KEPT = 5
"""How many refused results stay on the page when another round begins."""


class Director:
    """Stages the accidents of `genlock dev`: checks the tasks twice a second."""

    def __init__(
        self,
        fleet: AsyncCoordinator,
        crew: Crew,
        tell: Callable[[TickerLine], None],
        pace: float = 1.0,
    ) -> None:
        self._fleet = fleet
        self._crew = crew
        self._tell = tell
        self._pace = pace
        self.tasks: tuple[str, ...] = ()
        self._clock = asyncio.get_running_loop().time
        self._accident = self._clock() + FIRST_ACCIDENT_SECONDS * pace
        self._replace = 0.0
        self._asleep_on: TaskClaim | None = None
        """The claim of the stopped agent."""
        self._kills = cycle((False, True))
        self._to_hold = True
        """Has the round just begun?"""

    async def prepare(self) -> None:
        """Imports the plan, or restores it after an earlier run."""
        await self._fleet.import_plan(source=dev_plan(self._pace), project_id=DEV_PROJECT)
        plan = await self._fleet.get_plan(project_id=DEV_PROJECT)
        self.tasks = tuple(definition.task.id for definition in plan.tasks)

    async def direct(self) -> None:
        """Directs the fleet until cancelled."""
        await asyncio.to_thread(self._crew.start)
        while True:
            await asyncio.sleep(LOOK_SECONDS * self._pace)
            try:
                await self.look()
            except Closed:
                return
            except GenlockError:
                continue  # the store is unavailable for a moment; the next check will show

    async def look(self) -> None:
        """Begins another round if this one is done, reopens or approves the task that all others
        wait for, and causes an accident when it is time."""
        if self._to_hold:
            await self._hold()
            self._to_hold = False
        states = await self._fleet.batch_get_states(task_ids=self.tasks, project_id=DEV_PROJECT)
        found = {state.state for state in states.values()}
        if found and found <= {Status.COMPLETED, Status.CANCELLED}:
            await self._begin_again()
        elif found.isdisjoint({Status.PENDING, Status.IN_PROGRESS}):
            for name, state in states.items():
                if state.state is Status.HELD:
                    await self._fleet.reopen_task(task_id=name, project_id=DEV_PROJECT)
                elif state.review is not None:
                    await self._fleet.approve_review(
                        task_id=name,
                        generation=state.review.generation,
                        digest=state.review.digest,
                        project_id=DEV_PROJECT,
                    )
        for line in await asyncio.to_thread(self._make_trouble, states):
            self._tell(line)

    async def _begin_again(self) -> None:
        for root in DEV_ROOTS:
            await self._fleet.reset_task(task_id=root, cascade=True, project_id=DEV_PROJECT)
        self._to_hold = True
        refused = await self._fleet.list_refused_results(project_id=DEV_PROJECT)
        for old in sorted(refused, key=lambda each: each.submitted_at)[:-_KEPT]:
            await self._fleet.discard_result(
                task_id=old.task_id, refused_id=old.id, project_id=DEV_PROJECT
            )

    async def _hold(self) -> None:
        """Holds one task. Called in `look` and not earlier, so that the terminal shows it."""
        state = await self._fleet.get_task_state(task_id=DEV_HELD, project_id=DEV_PROJECT)
        if state.state is Status.BLOCKED:
            await self._fleet.hold_task(
                task_id=DEV_HELD,
                reason="the shop's owner wants to see the design first",
                project_id=DEV_PROJECT,
            )

    def _make_trouble(self, states: Mapping[str, TaskState]) -> list[TickerLine]:
        """Wakes the stopped agent, replaces the killed one, or picks the next victim."""
        now = self._clock()
        if self._crew.stopped():
            return self._wake(states, now)
        if now < self._replace:
            return []
        self._crew.start()
        claims = [state.claim for state in states.values() if state.claim is not None]
        if now < self._accident or not claims:
            return []
        # An agent that has just begun works for a while yet.
        return [self._harm(max(claims, key=lambda claim: claim.claimed_at), now)]

    def _harm(self, claim: TaskClaim, now: float) -> TickerLine:
        """Kills or stops the holder."""
        agent, kill = claim.agent_id, next(self._kills)
        if kill:
            self._crew.kill(agent)
            self._plan_accident(now + ABSENT_SECONDS * self._pace)
            kind, told = "crash", f"kill -9 {agent}, at work on {claim.task_id}"
        else:
            self._crew.stop(agent)
            self._asleep_on = claim
            self._replace = now + ASLEEP_SECONDS * self._pace
            kind = "pause"
            told = f"kill -STOP {agent}, at work on {claim.task_id}: it no longer renews"
        return TickerLine(kind, told, agent, claim.task_id, claim.generation)

    def _wake(self, states: Mapping[str, TaskState], now: float) -> list[TickerLine]:
        """Wakes the stopped agent once another one holds its task; it continues as if nothing had
        happened."""
        claim = self._asleep_on
        assert claim is not None
        state = states.get(claim.task_id)
        moved = state is not None and state.generation > claim.generation
        if not moved and now < self._replace:
            return []
        self._crew.wake(claim.agent_id)
        self._plan_accident(now)
        believes = f": a zombie that believes it still holds {claim.task_id}" if moved else ""
        told = f"kill -CONT {claim.agent_id}{believes}"
        return [TickerLine("resume", told, claim.agent_id, claim.task_id, claim.generation)]

    def _plan_accident(self, replace: float) -> None:
        self._replace = replace
        pause = random.uniform(0.5, 1.0) * ACCIDENT_EVERY_SECONDS
        self._accident = replace + pause * self._pace
