"""Completion: the one place where a result becomes a task's, or waits for a review instead.

Every way to submit a result ends in `complete_or_escalate`: a submission, an adoption, a fan-in, a
release as completed, and work that was finished outside Genlock. No other code may write
`ResultAccepted` or `ConvergenceEscalated`.

1. A result waits for a review if the task is marked `human_required` or its edge is, if the role of
   the claim may not converge the task's edge, or if an evaluator of the edge has not passed.
2. Escalation ends the claim and keeps the generation. Nothing depends on the result: the task is
   IN_REVIEW, which is unfinished for dependents and parents.
3. A reviewed result counts at its author's generation. The event has the reviewer's name and the
   author's.
4. Work that a plan declares as finished before the import is accepted without a review: it cannot
   be reviewed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.model import Evaluation, Review, TaskRecord
from genlock.core.reasons import ReviewCause, SubmitReason
from genlock.core.results import SubmissionResult
from genlock.core.task.draft import TaskDraft, actor_of


class Submission(Struct, frozen=True, gc=False, kw_only=True):
    """A result that has passed the fence: its submitter holds the task at its present
    generation."""

    content: c.Content
    reference: str
    by: c.Caller
    agent: str = ""
    """The author's name, if the caller does not state it."""
    role: str = ""
    """The role of the claim."""
    operation: str = ""
    evaluations: Mapping[str, bool] = {}
    adopted: tuple[int, str] | None = None
    """The generation and session whose refused result this was."""
    fan_in: bool = False
    remembers: int = 0
    finished_elsewhere: bool = False


def complete_or_escalate(draft: TaskDraft, submission: Submission) -> SubmissionResult:
    """Completes the task or escalates its result; the answer says which. Rules 1, 2 and 4."""
    task, table = draft.task.task, draft.facts.roles_in_force
    rule = table.edges.get(task.edge) if task.edge is not None and table.edges else None
    causes = []
    if not submission.finished_elsewhere:
        if not table.may_converge(submission.role, task.edge):
            causes.append(ReviewCause.OUTSIDE_ROLE)
        if task.human_required or (rule is not None and rule.human_required):
            causes.append(ReviewCause.HUMAN_REQUIRED)
        passed = submission.evaluations
        if rule is not None and not all(passed.get(name) for name in rule.evaluators):
            causes.append(ReviewCause.EVALUATORS)
    fields = _handed_in(draft, submission)
    if not causes:
        draft.add(e.ResultAccepted(**fields))
        return accepted(draft.task.generation, submission.reference)
    draft.add(
        e.ConvergenceEscalated(
            **fields,
            causes=tuple(causes),
            edge=task.edge or "",
            agent_role=submission.role,
            evaluators=rule.evaluators if rule is not None else (),
            evaluations={
                name: Evaluation(passed, draft.at, submission.agent or submission.by.agent)
                for name, passed in submission.evaluations.items()
            },
        )
    )
    assert draft.task.review is not None
    return escalated(draft.task.generation, draft.task.review)


def _handed_in(draft: TaskDraft, submission: Submission) -> dict[str, Any]:
    """Returns the fields of both events, at the present generation."""
    key, by, content, record = draft.command.key, submission.by, submission.content, draft.task
    adopted = submission.adopted
    return {
        "timestamp": draft.at,
        "tenant_id": key.tenant,
        "project_id": key.project,
        "task_id": key.id,
        "generation": record.generation,
        "session_id": by.session,
        "agent_id": submission.agent or by.agent,
        "actor": actor_of(by, record),
        "result_id": "result-" + draft.facts.fresh,
        "work_product_ref": submission.reference,
        "digest": content.digest,
        "size": content.size,
        "result_data": content.data,
        "payload": content.payload,
        "payload_id": content.payload_id,
        "reference": content.reference,
        "manifest": content.manifest,
        "operation": submission.operation,
        "fan_in": submission.fan_in,
        "adopted_generation": adopted[0] if adopted else None,
        "adopted_session": adopted[1] if adopted else None,
        "remembers": submission.remembers,
    }


def complete_reviewed(draft: TaskDraft, review: Review) -> None:
    """Completes a task in review. The caller of the command is the reviewer. Rule 3."""
    result = review.result
    draft.emit(
        e.ResultAccepted,
        author_session_id=result.session,
        author_agent_id=result.agent,
        author_user_id=review.user,
        result_id=result.id,
        work_product_ref=result.work_product_ref,
        digest=result.digest,
        size=result.size,
        result_data=result.data,
        payload=result.payload,
        payload_id=result.payload_id,
        reference=result.reference,
        manifest=result.manifest,
        operation=result.operation,
        fan_in=result.fan_in,
        adopted_generation=result.adopted_generation,
        adopted_session=result.adopted_session,
    )


def accepted(generation: int, reference: str) -> SubmissionResult:
    """Returns the answer to a result that counts."""
    return SubmissionResult(True, SubmitReason.ACCEPTED, generation, work_product_ref=reference)


def escalated(generation: int, review: Review) -> SubmissionResult:
    """Returns the answer to a result that waits for a review."""
    return SubmissionResult(
        True,
        SubmitReason.CONVERGENCE_ESCALATED,
        generation,
        work_product_ref=review.result.work_product_ref,
        review_causes=review.causes,
    )


def submitted_before(
    record: TaskRecord, generation: int, session: str, digest: str
) -> SubmissionResult | None:
    """Returns the answer to a submission whose result already waits for a review."""
    review = record.review
    if review is None:
        return None
    known = (review.result.generation, review.result.session, review.result.digest)
    return escalated(generation, review) if known == (generation, session, digest) else None
