"""The pool of `genlock work`: a fixed number of concurrent agents, until it is stopped or all tasks
are done.

Each agent has a slot, and each slot a thread and a session of its own. If an agent stops for a
reason that applies to all agents, such as a limit of the model's service, the pool takes no more
tasks.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from genlock.core.model import Task
from genlock.core.reasons import Isolation
from genlock.core.results import Progress
from genlock.errors import GenlockError
from genlock.retry import Backoff
from genlock.worker.agents.agent_run import AgentRun, Job, Report
from genlock.worker.agents.outcome import Outcome, Stop
from genlock.worker.block import given_back
from genlock.worker.grant import Grant, NotGranted, NothingReady, Wanted, granted
from genlock.worker.keeper import Keeper
from genlock.worker.nursery import Nursery
from genlock.worker.pool import is_over
from genlock.worker.script import AWAY, run

WAIT_SECONDS: Final = 2.0
"""A wait for a task is split into pieces of this length, so that a slot detects in between that it
was stopped."""
BETWEEN_STARTS: Final = (0.2, 1.0)
"""The pause between two starts. Agents started together would all call the model's service at
once."""
AFTER_LIMIT: Final = Backoff(30.0, 900.0, jitter=0.3)
AFTER_FAILURE: Final = Backoff(0.5, 30.0, jitter=0.5)
_LONGEST_PAUSE: Final = 8 * 24 * 3600.0
"""No known limit lasts longer, so a later time is a misreading."""
_REPORT_SECONDS: Final = 20.0
_TURN_SECONDS: Final = 0.1
_SEEN_READY: Final = 200
_FAILURES: Final = (Outcome.FAILED, Outcome.HUNG, Outcome.CUT_OFF)


class Ending(NamedTuple):
    """Why the pool takes no more tasks."""

    reason: str
    """done, max_tasks, signal, max_failures, max_cost, not_allowed, not_started, unreachable,
    unread or error."""
    detail: str = ""


class PoolSettings(NamedTuple):
    """The settings of a pool."""

    sessions: tuple[str, ...]
    """One session for each agent."""
    agents: tuple[str, ...]
    named: bool = True
    """Were the sessions named by the user?"""
    tracks: Collection[str] | None = None
    lease_seconds: float | None = None
    patience: float = 30.0
    until_done: bool = False
    max_tasks: int | None = None
    max_failures: int = 10
    """The most consecutive failures, over all agents."""
    max_cost: float | None = None


class AgentPool:
    """Runs agents, and calls `listen` for every event, in any thread."""

    def __init__(
        self,
        fleet: Any,
        nursery: Nursery,
        job: Job,
        settings: PoolSettings,
        listen: Callable[[str, dict[str, Any]], object],
    ) -> None:
        self._fleet, self._nursery, self._job, self._settings = fleet, nursery, job, settings
        self._keeper = Keeper(fleet)
        self._tell = listen
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._workspace = threading.Lock()
        """Held for a task that shares its workspace with no other."""
        self._starting = threading.Lock()
        self._next_start = 0.0
        self._running: dict[int, AgentRun] = {}
        self._idle: dict[int, dict[str, Progress]] = {}
        """The progress of the plan as last seen by each slot that found no ready task."""
        self._away_until = 0.0
        self._left = settings.max_tasks
        self._asking: set[int] = set()
        """The slots that have a turn and no task yet. They may give the turn back."""
        self._reached = False
        self._failures = 0
        self._limits = 0
        self.paused_until = 0.0
        """Until this time, by `time.time`, no task is taken."""
        self.ending: Ending | None = None
        self.outcomes: Counter[Outcome] = Counter()
        self._cost = 0.0
        self._turns = 0

    # Methods for its owner

    def start(self) -> None:
        """Starts the slots."""
        count = len(self._settings.sessions)
        works = [(self._work, (slot,), f"genlock-agent-{slot + 1}") for slot in range(count)]
        self._threads = [
            threading.Thread(target=work, args=given, name=name, daemon=True)
            for work, given, name in works
        ]
        reporter = threading.Thread(target=self._report, name="genlock-reporter", daemon=True)
        for thread in (*self._threads, reporter):
            thread.start()

    @property
    def is_over(self) -> bool:
        """Has every slot ended?"""
        return not any(thread.is_alive() for thread in self._threads)

    def stop(self, reason: str, detail: str = "") -> None:
        """Stops taking tasks. Running agents finish."""
        with self._lock:
            if self.ending is not None:
                return
            self.ending = Ending(reason, detail)
        self._stopped.set()
        self._tell("stopping", {"reason": reason, "detail": detail})

    def end(self, why: Stop = Stop.SIGNAL, *, at_once: bool = False) -> None:
        """Ends the running agents, and releases their tasks."""
        for _, running in self.running():
            running.stop(why, at_once=at_once)

    def close(self) -> None:
        """Ends everything that is left."""
        self._keeper.close()
        self._nursery.close()

    def running(self) -> list[tuple[int, AgentRun]]:
        """The running agents, by slot."""
        with self._lock:
            return sorted(self._running.items())

    @property
    def cost_usd(self) -> float:
        """The cost of all agents so far, as far as they report it."""
        with self._lock:
            return self._cost + sum(run.seen.cost_usd or 0.0 for run in self._running.values())

    @property
    def turns(self) -> int:
        """The turns of all agents so far."""
        with self._lock:
            return self._turns + sum(run.seen.turns for run in self._running.values())

    # The slots

    def _work(self, slot: int) -> None:
        failures = 0
        while self._take_turn(slot):
            try:
                report = self._do_one(slot)
            except AWAY as error:
                failures += 1
                self._not_reached(error)
            except GenlockError as error:
                failures += 1
                self._tell("error", {"detail": str(error)})
                self.stop("error", str(error))
            # A slot that ended without a report would look like one that has nothing to do.
            except Exception as error:  # noqa: BLE001
                self.stop("error", f"{type(error).__name__}: {error}")
            else:
                failed = report is not None and report.outcome is not Outcome.ACCEPTED
                failures = failures + 1 if failed else 0
                if report is not None:
                    continue_after = AFTER_FAILURE.pause(failures) if failures else 0.0
                    self._stopped.wait(continue_after)
                    continue
            self._give_turn_back(slot)
            if failures:
                self._stopped.wait(AFTER_FAILURE.pause(failures))

    def _take_turn(self, slot: int) -> bool:
        """May another task be taken, with no limit in effect? If so, counts it."""
        while not self._stopped.is_set():
            if (left := self.paused_until - time.time()) > 0:
                self._stopped.wait(min(left, 1.0))
                continue
            with self._lock:
                if self._left != 0:
                    self._asking.add(slot)
                    if self._left is not None:
                        self._left -= 1
                    return True
                all_taken = not self._asking
            if all_taken:
                # Not under the lock: the listener may take a lock of its own.
                self.stop("max_tasks")
            else:
                self._stopped.wait(_TURN_SECONDS)
        return False

    def _give_turn_back(self, slot: int | None = None) -> None:
        with self._lock:
            self._asking -= {slot}
            if self._left is not None:
                self._left += 1

    def _do_one(self, slot: int) -> Report | None:
        """Works on one task, if there is one."""
        alone = self._workspace.acquire(blocking=False)
        try:
            grant = self._claim(slot, alone=alone)
            self._reached = True
            if grant is None:
                if self._settings.until_done:
                    self._look_for_the_end(slot)
                return None
            self._idle.pop(slot, None)
            if alone and not self._needs_workspace(grant.task):
                self._workspace.release()
                alone = False
            return self._run(slot, grant)
        finally:
            if alone:
                self._workspace.release()

    def _look_for_the_end(self, slot: int) -> None:
        """Stops the pool if no task is ready or in progress, because then none will become ready.
        Something may have changed between the two checks, so this takes two consecutive ones with
        the same result."""
        progress = dict(self._fleet.track_progress())
        if any(each.in_progress for each in progress.values()):
            self._idle.pop(slot, None)
        elif is_over(progress) or self._idle.get(slot) == progress:
            self.stop("done")
        else:
            self._idle[slot] = progress

    def _claim(self, slot: int, *, alone: bool) -> Grant | None:
        settings = self._settings
        wanted = Wanted(
            settings.sessions[slot],
            settings.agents[slot],
            tracks=settings.tracks,
            wait_seconds=WAIT_SECONDS,
            lease_seconds=settings.lease_seconds,
            patience=settings.patience,
            named=settings.named,
        )
        if not alone:
            # Another agent works in the workspace: take only a task that may run beside it, or
            # elsewhere.
            ready = self._fleet.ready(limit=_SEEN_READY, tracks=settings.tracks)
            beside = [each.task.id for each in ready if not self._needs_workspace(each.task)]
            if not beside:
                self._stopped.wait(WAIT_SECONDS / 2)
                return None
            wanted = wanted._replace(task_id=random.choice(beside))
        try:
            grant = run(self._fleet, granted(wanted))
        except NothingReady:
            return None
        except NotGranted:
            self._stopped.wait(WAIT_SECONDS / 10)
            return None
        if not self._may_start():
            run(self._fleet, given_back(grant))
            return None
        return grant

    def _needs_workspace(self, task: Task) -> bool:
        """Must the task be the only one of its kind in the workspace?"""
        return (
            not task.parallelizable
            and task.isolation is not Isolation.CONTAINER
            and not self._job.workspaces.isolates(task)
        )

    def _run(self, slot: int, grant: Grant) -> Report:
        most = self._settings.max_cost
        budget = None if most is None else max(most - self.cost_usd, 0.01)
        agent = AgentRun(self._job, self._fleet, self._keeper, self._nursery, slot, budget)
        claim = grant.claim
        told = {"agent": claim.agent_id, "task_id": claim.task_id, "generation": claim.generation}
        self._tell("claimed", told)
        with self._lock:
            agent.grant = grant
            self._running[slot] = agent
            self._asking.discard(slot)
        try:
            report = agent.run(grant, self._wait_for_start)
        finally:
            with self._lock:
                self._running.pop(slot, None)
                self._cost += agent.seen.cost_usd or 0.0
                self._turns += agent.seen.turns
        self._account(report)
        return report

    def _wait_for_start(self) -> bool:
        """Waits for this agent's turn to start. Returns False if it should not start any more."""
        with self._starting:
            pause = self._next_start - time.monotonic()
            if pause > 0 and self._may_start():
                self._stopped.wait(pause)
            self._next_start = time.monotonic() + random.uniform(*BETWEEN_STARTS)
        return self._may_start()

    def _may_start(self) -> bool:
        """May a granted task be started? It was counted, if tasks are counted."""
        if self.paused_until > time.time():
            return False
        return self.ending is None or self.ending.reason in ("max_tasks", "done")

    # Consequences of an outcome

    def _account(self, report: Report) -> None:
        with self._lock:
            self.outcomes[report.outcome] += 1
            if report.outcome is Outcome.ACCEPTED:
                self._failures = self._limits = 0
            self._failures += report.outcome in _FAILURES
            failures = self._failures
        if report.outcome in (Outcome.INTERRUPTED, Outcome.LIMIT_REACHED):
            self._give_turn_back()
        self._tell("ended", {"report": report})
        self._look_after_budget()
        if report.outcome is Outcome.LIMIT_REACHED:
            self._pause(report)
        elif report.outcome is Outcome.NOT_ALLOWED:
            self.stop("not_allowed", f"{report.detail}. To go on, {self._job.client.login}")
        elif report.outcome is Outcome.NOT_STARTED:
            self.stop("not_started", report.detail)
        elif failures >= self._settings.max_failures:
            self.stop(
                "max_failures", f"{failures} tasks in a row failed; the last: {report.detail}"
            )

    def _pause(self, report: Report) -> None:
        """Pauses all slots until the limit ends. Other running agents reach the same limit later,
        which does not extend the pause."""
        now = time.time()
        with self._lock:
            if self.paused_until <= now:
                self._limits += 1
            until = now + AFTER_LIMIT.pause(max(self._limits, 1))
            if report.resets_at is not None and now < report.resets_at < now + _LONGEST_PAUSE:
                until = report.resets_at + random.uniform(0.0, 1.0)
            elif self.paused_until > now:
                return
            self.paused_until = max(self.paused_until, until)
        self._tell("paused", {"until": self.paused_until, "detail": report.detail})

    def _not_reached(self, error: GenlockError) -> None:
        with self._lock:
            again = time.monotonic() < self._away_until
            self._away_until = time.monotonic() + _REPORT_SECONDS
        if not again:
            self._tell("away", {"detail": str(error)})
        if not self._reached:
            self.stop("unreachable", str(error))

    def _look_after_budget(self) -> None:
        most = self._settings.max_cost
        if most is not None and self.cost_usd >= most:
            self.stop("max_cost", f"{self.cost_usd:.2f} USD of {most:.2f} are spent")
            self.end(Stop.COST)

    # The reporter

    def _report(self) -> None:
        """Reports the agents' progress to the coordinator, and checks the budget."""
        reported = time.monotonic()
        while not self.is_over:
            time.sleep(0.5)
            self._look_after_budget()
            if time.monotonic() - reported >= _REPORT_SECONDS:
                reported = time.monotonic()
                for _, running in self.running():
                    running.report_progress()
