"""Gets a task: claims it, determines how long the lease runs, and reads what earlier generations
left."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from genlock.core.model import Task
from genlock.core.policy import agent_for
from genlock.core.reasons import ClaimReason, ReleaseReason
from genlock.core.results import ClaimHistory, ClaimResult, Lineage, TaskClaim, TaskResult
from genlock.core.task.view import lease_shown
from genlock.errors import GenlockError
from genlock.worker import schedule
from genlock.worker.script import Script, persistent

PATIENCE_SECONDS: Final = 60.0
"""How long a worker tries to reach its coordinator before it gives up on a claim or a
submission."""
_SLOW_ANSWER_SHARE: Final = 0.1
_HISTORY_PATIENCE_SECONDS: Final = 5.0

SHORTEST_LEASE_SECONDS: Final = 60.0
LONGEST_LEASE_SECONDS: Final = 900.0
SHARE_OF_WORK: Final = 0.25


class NotGranted(GenlockError):
    """The claim was denied. `result` is the whole answer."""

    def __init__(self, result: ClaimResult) -> None:
        self.result = result
        super().__init__(_why(result))

    def __reduce__(self) -> tuple[type[NotGranted], tuple[ClaimResult]]:
        """So that it can be sent between processes."""
        return type(self), (self.result,)


class NothingReady(NotGranted):
    """No task suits this worker now."""


class Previous(NamedTuple):
    """The data that earlier generations of the task left. Empty at the first attempt."""

    generations: tuple[ClaimHistory, ...] = ()
    refused: tuple[TaskResult, ...] = ()
    """Results of earlier generations that were refused and kept."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The last note of each generation that wrote one, with the reason if its work failed."""
        return tuple(entry.note for entry in self.generations if entry.note)

    @property
    def feedback(self) -> str:
        """The last generation's final message, such as the error that it failed with."""
        return self.generations[-1].note if self.generations else ""

    @property
    def fraction(self) -> float | None:
        """The progress of the last generation."""
        return self.generations[-1].fraction if self.generations else None


class Wanted(NamedTuple):
    """The claim that a worker asks for."""

    session_id: str
    agent_id: str
    task_id: str | None = None
    """None: the next task."""
    tracks: str | Collection[str] | None = None
    wait_seconds: float = 0.0
    lease_seconds: float | None = None
    role: str = ""
    patience: float = PATIENCE_SECONDS
    named: bool = True
    """Was the agent's name given? A generated one yields to the project's policy."""


class Grant(NamedTuple):
    """A claim, and the time from which its lease certainly runs."""

    claim: TaskClaim
    task: Task
    sent: float
    lease_seconds: float
    """The lease length that renewals ask for."""
    attempt: int
    previous: Previous
    inputs_changed: tuple[str, ...]


def granted(wanted: Wanted) -> Script[Grant]:
    """Claims the wanted task, or raises NotGranted."""
    until = time.monotonic() + wanted.wait_seconds
    if not wanted.named:
        settings = yield from persistent("get_policy", wanted.patience)
        wanted = wanted._replace(agent_id=agent_for(settings.policy, wanted.agent_id))
    while True:
        asked = schedule.now()
        answer: ClaimResult = yield from _ask(wanted, until)
        claim, task = answer.claim, answer.task
        if claim is None or task is None:
            kind = NothingReady if answer.reason is ClaimReason.NOTHING_READY else NotGranted
            raise kind(answer)
        if answer.already_held:
            # Another worker of the same session and agent works on it.
            raise NotGranted(answer)
        if schedule.now() - asked > claim.lease_seconds * _SLOW_ANSWER_SHARE:
            # The lease may have begun at any time during the call. A renewal makes its start
            # certain.
            asked = schedule.now()
            renewal = yield from persistent("renew_lease", wanted.patience, **_fence(claim))
            if not renewal.success:
                continue
        previous = yield from _previous(claim, answer.attempt)
        lease = lease_for(task, claim.lease_seconds, wanted.lease_seconds, previous)
        return Grant(claim, task, asked, lease, answer.attempt, previous, answer.inputs_changed)


def _ask(wanted: Wanted, until: float) -> Script[ClaimResult]:
    who: dict[str, Any] = {"session_id": wanted.session_id, "agent_id": wanted.agent_id}
    who |= {"operation_id": f"work-{os.urandom(12).hex()}", "agent_role": wanted.role}
    if wanted.lease_seconds is not None:
        who["lease_duration_seconds"] = wanted.lease_seconds
    left = max(0.0, until - time.monotonic())
    answer: ClaimResult
    if wanted.task_id is None:
        who |= {"tracks": wanted.tracks, "wait_seconds": left}
        answer = yield from persistent("claim_next", left + wanted.patience, **who)
    else:
        who |= {"task_id": wanted.task_id}
        answer = yield from persistent("claim_task", wanted.patience, **who)
    return answer


def _fence(claim: TaskClaim) -> dict[str, Any]:
    return {
        "task_id": claim.task_id,
        "expected_generation": claim.generation,
        "session_id": claim.session_id,
    }


def _previous(claim: TaskClaim, attempt: int) -> Script[Previous]:
    """Reads what earlier generations left, if there are any. A failure to read it does not stop the
    work."""
    if attempt <= 1:
        return Previous()
    try:
        lineage: Lineage = yield from persistent(
            "get_lineage", _HISTORY_PATIENCE_SECONDS, task_id=claim.task_id
        )
    except GenlockError:
        return Previous()
    earlier = tuple(each for each in lineage.generations if each.generation < claim.generation)
    return Previous(earlier, lineage.refused)


def lease_for(
    task: Task, granted_seconds: float, asked_seconds: float | None, previous: Previous
) -> float:
    """Returns a suitable lease length for this task.

    The caller's or the plan's length is used if given. Otherwise it is a quarter of the time that
    the work is expected to take, or has taken before: short work is handed on soon after its worker
    has died, and long work is not renewed more often than necessary. Each consecutive expired lease
    doubles it.
    """
    if asked_seconds is not None or task.lease_seconds is not None:
        return granted_seconds
    lease = granted_seconds
    if task.estimate_seconds:
        lease = max(task.estimate_seconds * SHARE_OF_WORK, SHORTEST_LEASE_SECONDS)
    longest = max(map(_seconds, previous.generations), default=0.0)
    lease = min(max(lease, longest * SHARE_OF_WORK), LONGEST_LEASE_SECONDS)
    for entry in reversed(previous.generations):
        if entry.release_reason is not ReleaseReason.EXPIRED:
            break
        lease = min(lease * 2, max(LONGEST_LEASE_SECONDS, granted_seconds))
    return lease


def _seconds(entry: ClaimHistory) -> float:
    if entry.released_at is None:
        return 0.0
    return (entry.released_at - entry.acquired_at).total_seconds()


def _why(result: ClaimResult) -> str:
    if result.already_held:
        why = "this session and agent hold it already, perhaps by another worker of theirs"
    elif result.holder is not None:
        why = f"{result.holder.agent} holds it, {lease_shown(result.holder.expires_at)}"
    elif result.waits_for:
        why = f"it waits for {', '.join(result.waits_for)}"
    else:
        why = result.detail or "no task suits this worker now"
    if result.reason is ClaimReason.NOTHING_READY:
        return f"nothing is ready: {why}"
    return f"{result.task_id} was not granted, {result.reason}: {why}"
