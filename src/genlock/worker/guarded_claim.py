"""A claim under which a command runs: the command's warden knows how long the claim can be trusted,
and its loss ends the command.

`genlock run` has one of them, `genlock work` one for each of its agents.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from genlock.core.reasons import SubmitReason
from genlock.core.results import SubmissionResult, TaskResult, TaskState
from genlock.errors import BadArgument, GenlockError
from genlock.worker import schedule
from genlock.worker.grant import Grant
from genlock.worker.keeper import Keeper
from genlock.worker.kept_claim import KeptClaim, Loss
from genlock.worker.products_file import VARIABLE
from genlock.worker.script import AWAY, persistent, run
from genlock.worker.warded import Ended, WardedCommand
from genlock.worker.work import SUBMIT_PATIENCE_SECONDS, Work

BACKSTOP_SHARE: Final = 0.6
"""Share of the margin. If this much of it has passed since the keeper detected a loss, the warden
acts by itself."""
_LONGEST_EXCERPT: Final = 600


class GuardedClaim:
    """A claim that a keeper renews, and the command that works under it."""

    def __init__(self, fleet: Any, keeper: Keeper, grant: Grant, command: WardedCommand) -> None:
        self._fleet = fleet
        self._command = command
        self._lost = False
        self.submitted: SubmissionResult | None = None
        """Set if the command has submitted the task itself."""
        self.kept = keeper.add(
            grant.claim,
            asked=grant.sent,
            lease_seconds=grant.lease_seconds,
            on_lost=self._notice_loss,
            on_renewed=self._trust,
            known=True,
        )
        self._trust(self.kept)
        self.work = Work(fleet, keeper, self.kept, grant)

    def _trust(self, kept: KeptClaim) -> None:
        """Sets the time until which the command may run, for the warden."""
        margin = schedule.margin(kept.lease_seconds)
        self._command.margin = margin
        if self.submitted is None:
            self._command.deadline.set(kept.trusted_until + margin * BACKSTOP_SHARE)

    def _notice_loss(self, kept: KeptClaim) -> None:
        """Handles a loss, in a thread of the keeper. A command that has submitted its task itself
        has lost nothing."""
        if kept.reason is Loss.TAKEN:
            with suppress(GenlockError):
                self.submitted = self._submission_in(self._look(0.0))
        if self.submitted is not None:
            self._command.deadline.set(float("inf"))
        self._lost = self.submitted is None
        self._command.wake()

    def _look(self, patience: float) -> TaskState:
        state: TaskState = run(
            self._fleet, persistent("get_task_state", patience, task_id=self.kept.task_id)
        )
        return state

    def _submission_in(self, state: TaskState) -> SubmissionResult | None:
        kept, result = self.kept, state.result
        if result is None or (result.generation, result.session_id) != (
            kept.generation,
            kept.session_id,
        ):
            return None
        return SubmissionResult(
            True, SubmitReason.ACCEPTED, kept.generation, work_product_ref=result.work_product_ref
        )

    @property
    def must_end(self) -> bool:
        """Is the claim lost, so that the command has to end?"""
        return self._lost or (self.kept.is_lost and self.submitted is None)

    def was_lost(self, ended: Ended) -> bool:
        """Was the command ended because of the loss, or may it have been?"""
        return ended.why == "lost" or (
            ended.code != 0 and self.kept.is_lost and self.submitted is None
        )

    def was_submitted(self) -> bool:
        """Has the command submitted the task itself? During an outage this check is retried for as
        long as a submission would be."""
        if self.submitted is None:
            self.submitted = self._submission_in(self._look(SUBMIT_PATIENCE_SECONDS))
        return self.submitted is not None

    def keep_refused(self, submit: Callable[[], SubmissionResult]) -> str | None:
        """After a loss, submits the command's unfinished result if another holder has the task by
        now, so that it is refused and kept. Without another holder it would be accepted although it
        is not finished."""
        with suppress(*AWAY, BadArgument):
            state: TaskState = self._fleet.get_task_state(task_id=self.work.id)
            if state.generation > self.work.generation:
                return submit().refused_id
        return None


def products_file_in(folder: Path) -> Path:
    """The file in which a command that works with this folder records its products."""
    return folder / "products"


def environment_of(grant: Grant, folder: Path, prompt: str) -> dict[str, str]:
    """Returns the environment variables that describe the claim to a command, with files in this
    folder."""
    claim = grant.claim
    file = folder / "prompt"
    file.write_text(prompt, encoding="utf-8")
    found = {
        "GENLOCK_TENANT": claim.tenant_id,
        "GENLOCK_PROJECT": claim.project_id,
        "GENLOCK_SESSION": claim.session_id,
        "GENLOCK_AGENT": claim.agent_id,
        "GENLOCK_TASK": claim.task_id,
        "GENLOCK_GENERATION": str(claim.generation),
        "GENLOCK_RESULT": str(folder / "result"),
        "GENLOCK_PROMPT_FILE": str(file),
        VARIABLE: str(products_file_in(folder)),
    }
    if grant.task.worktree_path:
        found["GENLOCK_WORKTREE"] = grant.task.worktree_path
    return found


def prompt_of(grant: Grant) -> str:
    """Returns the task as a text for an agent: instructions, and what earlier attempts left."""
    task = grant.task
    parts = [f"# {task.title or task.id}", f"Task {task.id}, generation {grant.claim.generation}."]
    if task.description:
        parts.append(task.description)
    notes = [
        f"- generation {entry.generation}: {entry.note}{_reached(entry.fraction)}"
        for entry in grant.previous.generations
        if entry.note or entry.fraction
    ]
    if notes:
        parts.append("Earlier attempts left these notes:\n" + "\n".join(notes))
    if grant.previous.refused:
        late = [f"- {refused.id}{_excerpt(refused)}" for refused in grant.previous.refused]
        parts.append("Results that came too late and were kept:\n" + "\n".join(late))
    return "\n\n".join(parts) + "\n"


def _reached(fraction: float | None) -> str:
    return f" ({fraction:.0%} done)" if fraction else ""


def _excerpt(refused: TaskResult) -> str:
    """Returns an excerpt of a refused result. The full text is in `genlock refused`."""
    if refused.result_data is None:
        return ""
    text = json.dumps(refused.result_data, ensure_ascii=False)
    return f": {text if len(text) <= _LONGEST_EXCERPT else text[:_LONGEST_EXCERPT] + '…'}"
