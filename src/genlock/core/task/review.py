"""Reviews: a person or an evaluator decides about a result that was escalated.

1. Approval, rejection and evaluation name the generation and the digest of the result that their
   caller has read. If the task is not in review with that very result, the answer is STALE_REVIEW
   and nothing changes.
2. Approval completes the task in the reviewer's name, at the author's generation. A parent with
   unfinished children is not completed: CHILDREN_UNFINISHED.
3. With `four_eyes` no user may approve their own work: FOUR_EYES. Users are compared, not sessions,
   and an unknown user never counts as a second pair of eyes.
4. Rejection raises the generation without granting it. The work is kept as a refused result, by a
   reaction, and can be adopted; the next holder gets the feedback. A reset or a cancellation of a
   task in review rejects the result first.
5. An evaluator's verdict is added to the review. If only evaluators were missing, the last one to
   pass completes the task.
6. A repeat of the same command on the same result gets the first answer and writes nothing.
"""

from __future__ import annotations

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.commands import EMPTY_RESULTS, SHORTEST_DIGEST
from genlock.core.decision import Decision, require
from genlock.core.facts import Facts
from genlock.core.keys import refused_id
from genlock.core.model import Feedback, Review, TaskRecord
from genlock.core.reasons import ReviewCause, ReviewReason, Status
from genlock.core.results import ReviewResult
from genlock.core.task.claims import look_at_children, unknown
from genlock.core.task.completion import complete_reviewed
from genlock.core.task.draft import TaskDraft
from genlock.errors import BadArgument


def decide_approve(record: TaskRecord | None, command: c.ApproveReview, facts: Facts) -> Decision:
    """Approves a result. Rules 1, 2, 3 and 6."""
    record = require(record, unknown(command))
    review = _reviewed(record, command)
    if review is None:
        if record.result is not None and _is_approved(record, command):
            reviewer = record.result.reviewer
            return Decision(_answer(record, ReviewReason.APPROVED, reviewer=reviewer))
        return Decision(_answer(record, ReviewReason.STALE_REVIEW))
    draft = TaskDraft(record, command, facts)
    user = command.by.actor.user_id
    if facts.policy.four_eyes and (not user or not review.user or user == review.user):
        return draft.decided(
            _answer(record, ReviewReason.FOUR_EYES, author=review.user, reviewer=user)
        )
    waiting = look_at_children(draft) if record.children else ()
    if waiting:
        return draft.decided(
            _answer(draft.task, ReviewReason.CHILDREN_UNFINISHED, waits_for=waiting)
        )
    complete_reviewed(draft, review)
    assert draft.task.result is not None
    return draft.decided(
        _answer(draft.task, ReviewReason.APPROVED, reviewer=draft.task.result.reviewer)
    )


def decide_reject(record: TaskRecord | None, command: c.RejectReview, facts: Facts) -> Decision:
    """Rejects a result. Rules 1, 4 and 6."""
    record = require(record, unknown(command))
    review = _reviewed(record, command)
    if review is None:
        last = record.feedback
        if last is not None and _names(last.generation, last.digest, command):
            return Decision(_rejected(record, last))
        return Decision(_answer(record, ReviewReason.STALE_REVIEW))
    draft = TaskDraft(record, command, facts)
    end_review(draft, command.feedback)
    last = draft.task.feedback
    assert last is not None
    return draft.decided(_rejected(draft.task, last))


def _rejected(record: TaskRecord, last: Feedback) -> ReviewResult:
    kept = last.refused_id or None
    return _answer(record, ReviewReason.REJECTED, reviewer=last.by, refused_id=kept)


def decide_evaluation(
    record: TaskRecord | None, command: c.ReportEvaluation, facts: Facts
) -> Decision:
    """Records an evaluator's verdict. Rules 1, 5 and 6."""
    record = require(record, unknown(command))
    review = _reviewed(record, command)
    if review is None:
        again = command.passed and _is_approved(record, command)
        reason = ReviewReason.EVALUATED if again else ReviewReason.STALE_REVIEW
        return Decision(_answer(record, reason))
    if command.evaluator not in review.evaluators:
        there = ", ".join(review.evaluators) or "none"
        raise BadArgument(
            f"the review of {command.key.id} has no evaluator {command.evaluator!r}; there are: "
            f"{there}. The `edges` of the project's roles name them"
        )
    draft = TaskDraft(record, command, facts)
    known = review.evaluations.get(command.evaluator)
    if known is None or (known.passed, known.note) != (command.passed, command.note):
        draft.emit(
            e.EvaluationReported,
            evaluator=command.evaluator,
            passed=command.passed,
            digest=review.result.digest,
            note=command.note,
        )
    review = draft.task.review
    assert review is not None
    if review.causes == (ReviewCause.EVALUATORS,) and not review.missing:
        waiting = look_at_children(draft) if record.children else ()
        if not waiting:
            complete_reviewed(draft, review)
    return draft.decided(_answer(draft.task, ReviewReason.EVALUATED, missing=review.missing))


def end_review(draft: TaskDraft, feedback: str) -> None:
    """Ends a review without accepting the result, which is kept. Rule 4."""
    review = draft.task.review
    if review is None:
        return
    result, kept = review.result, ""
    adopted = result.adopted_generation
    if not result.fan_in and (
        result.payload or result.manifest or bytes(result.data) not in EMPTY_RESULTS
    ):
        kept = refused_id(
            draft.command.key.id,
            adopted if adopted is not None else result.generation,
            result.adopted_session or result.session,
            result.digest,
        )
    draft.emit(
        e.ReviewRejected,
        generation=draft.next_generation(),
        rejected_generation=result.generation,
        feedback=feedback,
        author_session_id=result.session,
        author_agent_id=result.agent,
        author_user_id=review.user,
        work_product_ref=result.work_product_ref,
        digest=result.digest,
        size=result.size,
        result_data=result.data,
        payload=result.payload,
        payload_id=result.payload_id,
        reference=result.reference,
        manifest=result.manifest,
        refused_id=kept,
        adopted_generation=adopted,
        adopted_session=result.adopted_session,
    )


def _reviewed(
    record: TaskRecord, command: c.ApproveReview | c.RejectReview | c.ReportEvaluation
) -> Review | None:
    """Returns the review that the command means. Rule 1."""
    review = record.review
    if review is None or not _names(review.result.generation, review.result.digest, command):
        return None
    return review


def _is_approved(record: TaskRecord, command: c.ApproveReview | c.ReportEvaluation) -> bool:
    """Is this the same result that a review has accepted? Rule 6."""
    result = record.result
    return (
        record.state is Status.COMPLETED
        and result is not None
        and bool(result.reviewer)
        and _names(result.generation, result.digest, command)
    )


def _names(
    generation: int,
    digest: str,
    command: c.ApproveReview | c.RejectReview | c.ReportEvaluation,
) -> bool:
    given = command.digest
    same = given == digest or (len(given) >= SHORTEST_DIGEST and digest.startswith(given))
    return generation == command.generation and same


def _answer(
    record: TaskRecord,
    reason: ReviewReason,
    *,
    reviewer: str = "",
    author: str = "",
    refused_id: str | None = None,
    waits_for: tuple[str, ...] = (),
    missing: tuple[str, ...] = (),
) -> ReviewResult:
    review = record.review
    return ReviewResult(
        success=reason.succeeds,
        reason=reason,
        task_id=record.task.id,
        state=record.state,
        generation=record.generation,
        digest=review.result.digest if review is not None else "",
        reviewer=reviewer,
        author=author,
        refused_id=refused_id,
        waits_for=waits_for,
        missing_evaluators=missing,
    )
