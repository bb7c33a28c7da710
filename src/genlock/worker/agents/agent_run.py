"""One agent's run on one task, from the grant to the outcome.

The order of the shutdown matters: first the agent and every process below it end, then the result
is submitted or the claim released.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct

from genlock.core.reasons import SubmitReason
from genlock.core.results import SubmissionResult
from genlock.errors import BadArgument, GenlockError, ResultTooLarge
from genlock.private_files import FILE_MODE
from genlock.worker.agents.catalog import INHERITED, AgentClient
from genlock.worker.agents.log import AgentLog
from genlock.worker.agents.outcome import Outcome, Stop, Verdict, judge, result_of
from genlock.worker.agents.output import AgentOutput
from genlock.worker.agents.template import Template
from genlock.worker.agents.transcript import Transcript
from genlock.worker.block import given_back
from genlock.worker.completion_hook import run_on_complete
from genlock.worker.grant import Grant
from genlock.worker.guarded_claim import (
    GuardedClaim,
    environment_of,
    products_file_in,
    prompt_of,
)
from genlock.worker.keeper import Keeper
from genlock.worker.kept_claim import ClaimLost, Loss
from genlock.worker.nursery import Nursery, Streams
from genlock.worker.result_file import has_result, read_result, save_file, submit_result
from genlock.worker.script import AWAY, run
from genlock.worker.task_run import refusal_text
from genlock.worker.warded import Ended, WardedCommand
from genlock.worker.warden import GRACE_SECONDS
from genlock.worker.workspace import Workspace, Workspaces, place_environment

_TICK_SECONDS: Final = 0.5
_STRAGGLER_SECONDS: Final = 2.0
"""The time after the agent's end for reading the rest of its streams."""
_LONGEST_WORD: Final = 200
_SETUP_FAILED: Final = 97
_WITH_SETUP: Final = (
    'sh -c "$1" </dev/null >&2 || { touch "${GENLOCK_RESULT%/*}/setup-failed"; exit 97; }; '
    'shift; exec "$@"'
)
_COUNTED: Final = (Outcome.FAILED, Outcome.HUNG, Outcome.CUT_OFF)
"""Outcomes that count as failures for the task's circuit breaker."""
_LOST: Final = {
    Loss.OUTAGE: "the lease could not be renewed in time",
    Loss.TAKEN: "the claim was taken over, taken away or ended",
}
_ENDING: Final = (
    "Work on this task alone, without asking questions. Genlock keeps the claim and hands in the "
    "result, so claim, submit and release nothing yourself. When you are done, end with a short "
    "summary: it is the task's result. If the result is data, write it as JSON to the file that "
    "$GENLOCK_RESULT names instead."
)


class Limits(NamedTuple):
    """The limits of one agent for one task."""

    timeout: float | None = None
    idle_timeout: float = 900.0
    linger: float = 30.0
    """How long an agent may take to end after its result."""
    max_turns: int | None = None


class Job(NamedTuple):
    """The settings that all agents of a pool share."""

    client: AgentClient
    template: Template
    limits: Limits
    workspaces: Workspaces
    logs: Path
    env: Mapping[str, str]
    instructions: str = ""
    setup: str = ""
    """A command for a shell that prepares a workspace."""
    on_complete: str = ""
    """A command that runs after each acceptance."""


class Report(Struct, kw_only=True, omit_defaults=True):
    """The outcome of one generation's work."""

    outcome: Outcome
    agent: str
    task_id: str
    generation: int
    detail: str = ""
    refused_id: str | None = None
    seconds: float = 0.0
    turns: int = 0
    cost_usd: float | None = None
    agent_session: str = ""
    log: str = ""
    kept: str = ""
    """Where the worktree is, if it was kept."""
    commit: str = ""
    on_complete: str = ""
    """The output of the `on_complete` command, or why it failed."""
    result_file: str = ""
    """The file of the result, if it could not be submitted."""
    resets_at: float | None = None


class AgentRun:
    """One agent, one task, one generation."""

    def __init__(
        self,
        job: Job,
        fleet: Any,
        keeper: Keeper,
        nursery: Nursery,
        slot: int,
        budget: float | None = None,
    ) -> None:
        self.job = job
        self._budget = budget
        self.seen = Transcript()
        self.began = time.monotonic()
        self._fleet, self._keeper, self._nursery, self._slot = fleet, keeper, nursery, slot
        self._wanted_stop: Stop | None = None
        self._stopped: Stop | None = None
        self._ended_for_loss = False
        self._last_output = self._started = self.began
        self._finished: float | None = None
        self._command: WardedCommand | None = None

    def run(self, grant: Grant, may_start: Callable[[], bool]) -> Report:
        """Runs the agent on the task, and ends the claim. `may_start` waits for this agent's turn,
        and returns whether it may be started."""
        self.grant, self._task = grant, grant.task
        self.generation = grant.claim.generation
        with tempfile.TemporaryDirectory(
            prefix="genlock-work-", ignore_cleanup_errors=True
        ) as folder:
            self._folder = Path(folder)
            self._result = self._folder / "result"
            (self._folder / "prompt").touch(FILE_MODE)
            command, streams = self._warden()
            try:
                self.claim = GuardedClaim(self._fleet, self._keeper, grant, command)
                self.claim.work.products_file = products_file_in(self._folder)
                self._command = command
                self._log = AgentLog(log_path(self.job.logs, grant.task.id, self.generation))
                self._output = AgentOutput(self.job.client, streams, self._log, self.seen)
                try:
                    return self._work(may_start)
                finally:
                    self._output.close()
                    self._log.close()
            finally:
                command.close()

    def _warden(self) -> tuple[WardedCommand, Streams]:
        """Returns a warden whose stdin is the prompt, which is written before the agent starts."""
        on_stdin = not self.job.template.takes_prompt
        stdin = os.open(self._folder / "prompt" if on_stdin else os.devnull, os.O_RDONLY)
        try:
            return self._nursery.warden(self._slot, stdin)
        except OSError:
            run(self._fleet, given_back(self.grant))
            raise
        finally:
            os.close(stdin)

    def stop(self, why: Stop, *, at_once: bool = False) -> None:
        """Ends the agent soon, from any thread."""
        self._wanted_stop = self._wanted_stop or why
        if self._command is not None:
            if at_once:
                self._command.end(why, 0.0)
            self._command.wake()

    def report_progress(self) -> None:
        """Reports the agent's activity and cost to the coordinator."""
        with suppress(GenlockError):
            if self.seen.activity:
                self.claim.work.progress(note=self.seen.activity, cost=self.seen.cost_usd)

    # The work

    def _work(self, may_start: Callable[[], bool]) -> Report:
        try:
            workspace = self.job.workspaces.prepare(self._task, self.generation, self._folder)
            argv, env = self._command_line(workspace)
            self._env = env
            if workspace.branch:
                with suppress(ClaimLost):  # the loss is checked below
                    self.claim.work.progress(worktree_path=workspace.folder)
        except (GenlockError, OSError) as error:
            return self._not_started(str(error))
        if not may_start() or self._wanted_stop is not None or self.claim.must_end:
            return self._end_unstarted()
        assert self._command is not None
        self._log.note(
            "started",
            task=self._task.id,
            generation=self.generation,
            argv=[word[:_LONGEST_WORD] for word in argv],
            folder=workspace.folder,
        )
        self._started = self._last_output = time.monotonic()
        why = self._command.start(argv, env, folder=workspace.folder)
        if why:
            return self._not_started(f"{argv[0]}: {why}")
        ended = self._watch()
        report = self._hand_in(ended)
        self._log.note("ended", exit_status=ended.exit_code, why=ended.why, report=report.outcome)
        return report

    def _command_line(self, workspace: Workspace) -> tuple[list[str], dict[str, str]]:
        prompt = self._prompt(workspace)
        env = {name: value for name, value in self.job.env.items() if name not in INHERITED}
        env |= environment_of(self.grant, self._folder, prompt)
        env |= {"GENLOCK_WORKTREE": workspace.folder} | place_environment(workspace)
        turns, cost = self.job.limits.max_turns, self._budget
        values = {
            "prompt": prompt,
            "prompt_file": env["GENLOCK_PROMPT_FILE"],
            "task": self._task.id,
            "generation": str(self.generation),
            "session": str(uuid.uuid4()),
            "worktree": workspace.folder,
            "branch": workspace.branch,
            "git_folders": json.dumps(workspace.git_folders),
            "result": env["GENLOCK_RESULT"],
            "log": str(self._log.path),
            "max_turns": "" if turns is None else str(turns),
            "max_cost": "" if cost is None else f"{cost:.2f}",
        }
        argv = self.job.template.fill(values)
        if self.job.setup:
            argv = ["sh", "-c", _WITH_SETUP, "sh", self.job.setup, *argv]
        return [*workspace.container, *argv], env

    def _prompt(self, workspace: Workspace) -> str:
        parts = [prompt_of(self.grant).rstrip()]
        if workspace.branch:
            parts.append(
                f"You work in a git worktree of your own, on the branch {workspace.branch}. Commit "
                "what you have done: only commits are handed on."
            )
        parts += [_ENDING] + ([self.job.instructions] if self.job.instructions else [])
        return "\n\n".join(parts) + "\n"

    def _watch(self) -> Ended:
        """Waits until the agent and every process below it have ended."""
        command, output = self._command, self._output
        assert command is not None
        ended: Ended | None = None
        while ended is None:
            for ready in command.sleep([command.reports, *output.open], _TICK_SECONDS):
                if ready == command.reports:
                    ended = self._read_report(command)
                else:
                    self._last_output = time.monotonic()
                    output.read(ready)
            self._supervise(command)
        until = time.monotonic() + _STRAGGLER_SECONDS
        while output.open and time.monotonic() < until:
            for ready in command.sleep(output.open, _TICK_SECONDS):
                output.read(ready)
        return ended

    def _read_report(self, command: WardedCommand) -> Ended | None:
        report = command.read_report()
        if report is None:  # the warden was killed
            self._nursery.settle()
            return Ended(-signal.SIGKILL, "")
        return Ended(report["ended"], report["why"]) if "ended" in report else None

    def _supervise(self, command: WardedCommand) -> None:
        if not self._ended_for_loss and self.claim.must_end:
            self._ended_for_loss = True
            command.end("lost", command.grace_for_loss())
        if self._stopped is None:
            self._stopped = self._wanted_stop or self._due_stop(time.monotonic())
            if self._stopped is not None:
                command.end(self._stopped, GRACE_SECONDS)

    def _due_stop(self, now: float) -> Stop | None:
        limits, seen = self.job.limits, self.seen
        if seen.finished:
            self._finished = now if self._finished is None else self._finished
            return Stop.LINGERED if now - self._finished >= limits.linger else None
        if now - self._last_output >= limits.idle_timeout:
            return Stop.IDLE
        if limits.timeout is not None and now - self._started >= limits.timeout:
            return Stop.TIMEOUT
        if limits.max_turns is not None and seen.turns > limits.max_turns:
            return Stop.TURNS
        return None

    # The end

    def _hand_in(self, ended: Ended) -> Report:
        if self.claim.was_lost(ended):
            return self._after_loss(ended)
        try:
            if self.claim.was_submitted():
                self.claim.work._finish()
                detail = "the agent has submitted it itself"
                if self._has_result and self._differs(ended):
                    detail += f", and something else to the file: {save_file(self._result)}"
                return self._accepted(detail)
            verdict = judge(
                self.job.client, self.seen, ended, self._stopped, has_result=self._has_result
            )
            if verdict.outcome is None:
                return self._submit(ended)
            return self._release(ended, verdict)
        except AWAY as error:
            report = self._report(Outcome.UNREACHABLE, str(error))
            report.result_file = save_file(self._result)
            return report
        except BadArgument as error:  # the agent's fault, not the fleet's
            return self._not_submitted(str(error))

    def _not_submitted(self, why: str) -> Report:
        """Returns the report for a result that cannot be submitted, for instance because it names
        products that were not put."""
        report = self._report(Outcome.FAILED, why)
        report.result_file = save_file(self._result)
        with suppress(*AWAY):
            self.claim.work.release(f"{Outcome.FAILED}: {why}"[:350], error=True)
        return report

    @property
    def _has_result(self) -> bool:
        return has_result(self._result)

    def _differs(self, ended: Ended) -> bool:
        result = self._fleet.get_task_state(task_id=self._task.id).result
        return result is None or result.result_data != read_result(self._result, ended)

    def _outcome_of(self, ended: Ended, commit: str) -> dict[str, Any]:
        """Returns the metadata submitted with the result: how it was produced."""
        about = {
            "exit_status": ended.exit_code,
            "seconds": round(time.monotonic() - self._started, 1),
            "commit": commit,
            "cost_usd": self.seen.cost_usd,
            "turns": self.seen.turns,
            "agent_session": self.seen.agent_session,
        }
        return {name: value for name, value in about.items() if value not in (None, "")}

    def _submit_made(self, ended: Ended, commit: str) -> SubmissionResult:
        """Submits the result file, or otherwise the agent's answer."""
        about = self._outcome_of(ended, commit)

        def submit(result: Any) -> SubmissionResult:
            return self.claim.work.submit({"result": result, "run": about}, ref=commit)

        if self._has_result:
            return submit_result(submit, self._result, ended)
        said = result_of(self.seen)
        try:
            return submit(said)
        except ResultTooLarge:
            return submit({"truncated": True, "log": str(self._log.path)})
        except BadArgument:  # JSON that only Python accepts
            return submit(json.dumps(said))

    def _submit(self, ended: Ended) -> Report:
        self.report_progress()
        ref = self.job.workspaces.commit_of(self._task, self.generation)
        answer = self._submit_made(ended, ref)
        if answer.reason is SubmitReason.ACCEPTED:
            return self._accepted(commit=ref)
        if answer.accepted:  # and waits for a review
            return self._report(Outcome.ACCEPTED, commit=ref)
        if not self.claim.work.finished:
            self.claim.work.release(refusal_text(self.grant, answer))
        report = self._report(Outcome.REFUSED, refusal_text(self.grant, answer), commit=ref)
        report.refused_id = answer.refused_id
        return report

    def _accepted(self, detail: str = "", *, commit: str = "") -> Report:
        """Runs the `on_complete` command, and returns the report. The task is finished, and the
        command cannot change that."""
        commit = commit or self.job.workspaces.commit_of(self._task, self.generation)
        env = self._env | {"GENLOCK_COMMIT": commit}
        hooked = run_on_complete(self.job.on_complete, env)
        if self.job.on_complete:
            self._log.note("on_complete", ok=hooked.ok, text=hooked.text)
        report = self._report(Outcome.ACCEPTED, detail, commit=commit, over=True)
        report.on_complete = hooked.text
        return report

    def _release(self, ended: Ended, verdict: Verdict) -> Report:
        outcome = verdict.outcome
        assert outcome is not None
        detail = verdict.detail
        if ended.code == _SETUP_FAILED and (self._folder / "setup-failed").exists():
            detail = f"the setup command failed: {self.job.setup}"
        report = self._report(outcome, detail)
        report.resets_at = self.seen.resets_at
        counts = outcome in _COUNTED and self._stopped is not Stop.COST
        note = f"{outcome}: {detail}"[:350] + (f"; work left in {report.kept}" * bool(report.kept))
        self.report_progress()
        with suppress(*AWAY):
            self.claim.work.release(note, error=counts)
        return report

    def _after_loss(self, ended: Ended) -> Report:
        why = _LOST[self.claim.kept.reason or Loss.OUTAGE]
        report = self._report(Outcome.LOST, f"{why}, and the agent was ended")
        if self._has_result or self.seen.answer is not None:
            report.refused_id = self.claim.keep_refused(
                lambda: self._submit_made(
                    ended, self.job.workspaces.commit_of(self._task, self.generation)
                )
            )
            if report.refused_id is None and self._has_result:
                report.result_file = save_file(self._result)
        return report

    def _not_started(self, error: str) -> Report:
        self._log.note("not_started", error=error)
        report = self._report(Outcome.NOT_STARTED, error)
        with suppress(*AWAY):
            self.claim.work.release(f"the agent could not be started: {error}"[:350])
        return report

    def _end_unstarted(self) -> Report:
        if self.claim.must_end:
            return self._report(Outcome.LOST, "the claim was lost before the agent was started")
        report = self._report(Outcome.INTERRUPTED, "the fleet was stopped before it had started")
        with suppress(*AWAY):
            self.claim.work.release("the agent was not started")
        return report

    def _report(
        self, outcome: Outcome, detail: str = "", *, commit: str = "", over: bool = False
    ) -> Report:
        kept = self.job.workspaces.finish(self._task, self.generation, over=over)
        return Report(
            outcome=outcome,
            agent=self.grant.claim.agent_id,
            task_id=self._task.id,
            generation=self.generation,
            detail=detail,
            seconds=round(time.monotonic() - self.began, 1),
            turns=self.seen.turns,
            cost_usd=self.seen.cost_usd,
            agent_session=self.seen.agent_session,
            log=str(self._log.path),
            commit=commit,
            kept=kept,
        )


def log_path(folder: Path, task_id: str, generation: int) -> Path:
    """Returns the path of this generation's log."""
    return folder / f"{task_id.replace(':', '+')}.gen{generation}.jsonl"
