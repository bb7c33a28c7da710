"""Pushes: may a git repository take these commits for a task? The fence, at the repository.

1. A branch belongs to one generation of a task. It takes commits only while that generation is the
   highest, and its claim is live.
2. A submission names its commit. From then on the generation's branch is frozen: it takes that
   commit and no other. A submission that names no commit freezes the branch in its present state.
3. A protected branch takes a commit only if it is the one of the task's accepted result. A result
   that waits for a review, was refused, or was taken back by a reset is not accepted.
"""

from __future__ import annotations

import re
from typing import Final

from genlock.core.model import Result, TaskRecord
from genlock.core.reasons import ClaimState, PushReason, Status
from genlock.core.results import PushVerdict

_COMMIT: Final = re.compile(r"(?:git:)?([0-9a-f]{40}|[0-9a-f]{64})")


def judge_branch(
    record: TaskRecord, generation: int, commit: str, *, holder_lives: bool
) -> PushVerdict:
    """Judges commits for the branch of this generation, which would end at `commit`. Rules 1 and
    2."""
    result = record.review.result if record.review is not None else record.result
    if result is not None and generation == author_generation(result):
        frozen = commit_of(result)
        reason = PushReason.ALLOWED if frozen and commit == frozen else PushReason.FROZEN
        return _verdict(record, generation, reason, frozen)
    if generation < record.generation:
        return _verdict(record, generation, PushReason.STALE_GENERATION)
    if generation > record.generation:
        return _verdict(record, generation, PushReason.FUTURE_GENERATION)
    claim = record.claim
    if claim is None or claim.state is not ClaimState.ACTIVE or claim.generation != generation:
        return _verdict(record, generation, PushReason.NO_CLAIM)
    if not holder_lives:
        return _verdict(record, generation, PushReason.CLAIM_OVERDUE)
    return _verdict(record, generation, PushReason.ALLOWED)


def judge_protected(record: TaskRecord, generation: int, commit: str) -> PushVerdict:
    """Judges this commit, of this generation's branch, for a protected branch. Rule 3."""
    result = record.result
    if result is None or record.state is not Status.COMPLETED:
        return _verdict(record, generation, PushReason.NOT_ACCEPTED)
    named = commit_of(result)
    is_accepted = generation == author_generation(result) and named == commit
    reason = PushReason.ALLOWED if is_accepted else PushReason.NOT_ACCEPTED
    return _verdict(record, generation, reason, named)


def unknown_task(task_id: str, generation: int) -> PushVerdict:
    """Returns the verdict on a branch of a task that does not exist."""
    return PushVerdict(
        allowed=False,
        reason=PushReason.UNKNOWN_TASK,
        task_id=task_id,
        generation=generation,
        current_generation=0,
        state=Status.CANCELLED,
    )


def commit_of(result: Result) -> str:
    """Returns the commit that a submission named; "" if it named none. Results of earlier versions
    have it in place of the generated name."""
    for text in (result.reference, result.work_product_ref):
        found = _COMMIT.fullmatch(text)
        if found is not None:
            return found[1]
    return ""


def author_generation(result: Result) -> int:
    """Returns the generation at which the work was done."""
    adopted = result.adopted_generation
    return result.generation if adopted is None else adopted


def _verdict(
    record: TaskRecord, generation: int, reason: PushReason, commit: str = ""
) -> PushVerdict:
    claim = record.claim
    held = claim is not None and claim.state is ClaimState.ACTIVE
    return PushVerdict(
        allowed=reason is PushReason.ALLOWED,
        reason=reason,
        task_id=record.task.id,
        generation=generation,
        current_generation=record.generation,
        state=record.state,
        commit=commit,
        held_by=claim.agent if claim is not None and held else "",
    )
