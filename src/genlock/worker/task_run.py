"""One task, one command: claims the task, runs the command, and submits its result. `genlock run`
is this with options.

The order of the shutdown matters: first the command and every process below it end, then the result
is submitted or the claim released.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from genlock.core.reasons import SubmitReason
from genlock.core.results import SubmissionResult
from genlock.errors import GenlockError
from genlock.worker.command import Command
from genlock.worker.completion_hook import run_on_complete
from genlock.worker.grant import Grant, NotGranted, NothingReady, Wanted, granted
from genlock.worker.guarded_claim import (
    GuardedClaim,
    environment_of,
    products_file_in,
    prompt_of,
)
from genlock.worker.keeper import Keeper
from genlock.worker.kept_claim import Loss
from genlock.worker.result_file import has_result, save_file, submit_result
from genlock.worker.script import AWAY, run
from genlock.worker.warded import Ended
from genlock.worker.work import Work
from genlock.worker.workspace import Workspace, Workspaces, place_environment

NOTHING_READY: Final = 3
DENIED: Final = 5
CANNOT_RUN: Final = 127
LOST: Final = 120
REFUSED: Final = 121
UNREACHABLE: Final = 122

_CLOSE_SECONDS: Final = 2.0


class Report(Struct, kw_only=True, omit_defaults=True):
    """The outcome: the content of the status file."""

    outcome: str
    """accepted, refused, failed, interrupted, lost, denied, nothing_ready, unreachable or
    not_started."""
    exit_code: int
    detail: str = ""
    task_id: str | None = None
    generation: int | None = None
    command_exit: int | None = None
    """The command's exit code, or minus the number of the signal that ended it."""
    reason: str = ""
    refused_id: str | None = None
    seconds: float | None = None
    result_file: str = ""
    """The file of the result, if it could not be submitted."""
    commit: str = ""
    """The last commit that was made in the worktree."""
    kept: str = ""
    """Where the worktree is, if it was kept."""
    on_complete: str = ""
    """The output of the `on_complete` command, or why it failed."""


class TaskRun:
    """A command under a claim."""

    def __init__(
        self,
        command: Command,
        open_fleet: Callable[[], Any],
        argv: Sequence[str],
        env: Mapping[str, str],
        workspaces: Workspaces,
        *,
        conflict_exit_code: int = DENIED,
        on_complete: str = "",
    ) -> None:
        self._workspaces = workspaces
        self._on_complete = on_complete
        self._command = command
        self._open_fleet = open_fleet
        self._argv = argv
        self._env = env
        self._conflict_exit_code = conflict_exit_code
        self._fleet: Any = None

    def run(self, wanted: Wanted) -> Report:
        """Claims a task, runs the command, and ends the claim. Returns the report."""
        found = self._claim(wanted)
        if isinstance(found, Report):
            return found
        with tempfile.TemporaryDirectory(
            prefix="genlock-run-", ignore_cleanup_errors=True
        ) as folder:
            return self._work(found, Path(folder))

    # The claim

    def _claim(self, wanted: Wanted) -> Grant | Report:
        """Claims in a thread of its own, so that a signal ends the wait."""
        claiming = _Claiming(self._open_fleet, wanted, self._command.wake)
        number = self._command.sleep_until(lambda: claiming.done)
        if number is not None:
            claiming.give_up()
            return Report(
                outcome="interrupted",
                exit_code=128 + number,
                detail=f"ended by {signal.Signals(number).name} before a task was granted",
            )
        self._fleet = claiming.fleet
        if claiming.grant is not None:
            return claiming.grant
        return self._not_granted(claiming.error)

    def _not_granted(self, error: Exception | None) -> Report:
        if isinstance(error, NotGranted):
            nothing = isinstance(error, NothingReady)
            return Report(
                outcome="nothing_ready" if nothing else "denied",
                exit_code=NOTHING_READY if nothing else self._conflict_exit_code,
                task_id=error.result.task_id,
                reason="ALREADY_HELD" if error.result.already_held else str(error.result.reason),
                detail=str(error),
            )
        if isinstance(error, AWAY):
            return Report(outcome="unreachable", exit_code=UNREACHABLE, detail=str(error))
        assert error is not None
        raise error

    # The work

    def _work(self, grant: Grant, folder: Path) -> Report:
        keeper = Keeper(self._fleet)
        claim = GuardedClaim(self._fleet, keeper, grant, self._command)
        claim.work.products_file = products_file_in(folder)
        began = time.monotonic()
        try:
            try:
                workspace = self._prepare(claim, grant, folder)
            except (GenlockError, OSError) as error:
                return self._not_started(claim, grant, str(error))
            env = {**self._env, **environment_of(grant, folder, prompt_of(grant))}
            env |= place_environment(workspace)
            argv = [*workspace.container, *self._argv]
            why = self._command.launch(argv, env, folder=workspace.folder)
            if why:
                return self._not_started(claim, grant, f"{argv[0]}: {why}")
            ended = self._command.wait(lambda: claim.must_end)
            report = self._hand_in(claim, grant, ended, folder / "result")
            report.seconds = round(time.monotonic() - began, 3)
            over = report.reason == SubmitReason.ACCEPTED
            if over:
                self._complete(report, env)
            report.kept = report.kept or self._finish(grant, over=over)
            return report
        finally:
            keeper.close()

    def _prepare(self, claim: GuardedClaim, grant: Grant, folder: Path) -> Workspace:
        generation = grant.claim.generation
        workspace = self._workspaces.prepare(grant.task, generation, folder)
        if workspace.branch:
            claim.work.progress(worktree_path=workspace.folder)
        return workspace

    def _not_started(self, claim: GuardedClaim, grant: Grant, error: str) -> Report:
        kept = self._finish(grant)
        with suppress(*AWAY):
            claim.work.release(f"the command could not be started: {error}")
        return self._report(grant, "not_started", CANNOT_RUN, detail=error, kept=kept)

    def _finish(self, grant: Grant, *, over: bool = False) -> str:
        return self._workspaces.finish(grant.task, grant.claim.generation, over=over)

    def _complete(self, report: Report, env: Mapping[str, str]) -> None:
        """Runs the `on_complete` command. The task is finished, and the command cannot change
        that."""
        told = {**env, "GENLOCK_COMMIT": report.commit}
        report.on_complete = run_on_complete(self._on_complete, told).text

    # The end

    def _hand_in(self, claim: GuardedClaim, grant: Grant, ended: Ended, file: Path) -> Report:
        if claim.was_lost(ended):
            return self._after_loss(claim, grant, ended, file)
        try:
            if claim.was_submitted():
                claim.work._finish()
                return self._report(grant, "accepted", ended.exit_code, ended, reason="ACCEPTED")
            if ended.code != 0 or self._command.interrupted:
                return self._release(claim.work, grant, ended)
            commit = self._workspaces.commit_of(grant.task, grant.claim.generation)
            answer = submit_result(partial(claim.work.submit, ref=commit), file, ended)
        except GenlockError as error:  # after any error the result must be kept
            return self._report(
                grant,
                "unreachable",
                UNREACHABLE if ended.code == 0 else ended.exit_code,
                ended,
                detail=str(error),
                result_file=save_file(file),
            )
        report = self._submission(grant, ended, answer)
        report.commit = commit
        return report

    def _submission(self, grant: Grant, ended: Ended, answer: SubmissionResult) -> Report:
        return self._report(
            grant,
            "accepted" if answer.accepted else "refused",
            0 if answer.accepted else REFUSED,
            ended,
            reason=str(answer.reason),
            refused_id=answer.refused_id,
            detail="" if answer.accepted else refusal_text(grant, answer),
        )

    def _release(self, work: Work, grant: Grant, ended: Ended) -> Report:
        kept = self._finish(grant)
        left = f"; work left in {kept}" if kept else ""
        if self._command.interrupted:
            work.release(f"interrupted by a signal{left}")
            return self._report(grant, "interrupted", ended.exit_code, ended, kept=kept)
        how = ended.told
        work.release(how + left, error=True)
        return self._report(grant, "failed", ended.exit_code, ended, detail=how, kept=kept)

    def _after_loss(self, claim: GuardedClaim, grant: Grant, ended: Ended, file: Path) -> Report:
        report = self._report(
            grant,
            "lost",
            LOST,
            ended,
            reason=str(claim.kept.reason or Loss.OUTAGE),
            detail="the claim was lost, and the command was ended",
        )
        if has_result(file):
            report.refused_id = claim.keep_refused(
                lambda: submit_result(claim.work.submit, file, ended)
            )
            if report.refused_id is None:
                report.result_file = save_file(file)
        return report

    def _report(
        self,
        grant: Grant,
        outcome: str,
        exit_code: int,
        ended: Ended | None = None,
        **more: Any,
    ) -> Report:
        return Report(
            outcome=outcome,
            exit_code=exit_code,
            task_id=grant.claim.task_id,
            generation=grant.claim.generation,
            command_exit=None if ended is None else ended.code,
            **more,
        )


class _Claiming:
    """A claim in a thread of its own."""

    def __init__(self, open_fleet: Callable[[], Any], wanted: Wanted, wake: Callable[[], None]):
        import threading

        self.fleet: Any = None
        self.grant: Grant | None = None
        self.error: Exception | None = None
        self.done = False
        self._open_fleet, self._wanted, self._wake = open_fleet, wanted, wake
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._claim, name="genlock-claim", daemon=True)
        self._thread.start()

    def _claim(self) -> None:
        try:
            self.fleet = self._open_fleet()
            self.grant = run(self.fleet, granted(self._wanted))
            if self._given_up.is_set():
                self._give_back(self.grant)
        except Exception as error:  # noqa: BLE001 - it is raised again in the main thread
            self.error = error
        finally:
            self.done = True
            self._wake()

    def _give_back(self, grant: Grant) -> None:
        self.fleet.release_claim(
            task_id=grant.claim.task_id,
            expected_generation=grant.claim.generation,
            session_id=grant.claim.session_id,
        )

    def give_up(self) -> None:
        """Gives up the wait: a claim that is granted later is released."""
        self._given_up.set()
        if self.grant is not None and self.done:
            with suppress(GenlockError):
                self._give_back(self.grant)
        elif self.fleet is not None:
            self._thread.join(0.05)
            if not self.done:
                self.fleet.close()  # ends the wait; a claim granted from now on is released
        self._thread.join(_CLOSE_SECONDS)


def refusal_text(grant: Grant, answer: SubmissionResult) -> str:
    """Returns why a result was refused."""
    from genlock.messages import Context, describe

    return describe(answer, Context(grant.task.id, grant.claim.generation)).text
