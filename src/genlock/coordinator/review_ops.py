"""Operations of reviewers and evaluators: list and show results that wait for a review, and
approve, reject or evaluate them."""

from __future__ import annotations

from genlock.coordinator.arguments import (
    LONGEST_NOTE,
    check_after,
    check_digest,
    check_flag,
    check_generation,
    check_limit,
    check_text,
)
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Read, Script
from genlock.core import commands as c
from genlock.core.agent_roles import check_role_name
from genlock.core.results import ReviewInfo, ReviewResult
from genlock.reads import reviews

LONGEST_FEEDBACK = 4000


class Reviewing(Base):
    """Operations on results that wait for a review. Each act names the result that was reviewed."""

    def list_reviews(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[ReviewInfo, ...]]:
        """The results that wait for a review, by task id; `after` is the last id of the previous
        page."""
        scope = self.place(tenant_id, project_id)
        limit, after_id = check_limit(limit), check_after(after)
        found: tuple[ReviewInfo, ...] = yield Read(
            lambda: reviews.reviews(self.reader, scope, limit, after_id)
        )
        return found

    def get_review(
        self, *, task_id: str, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[ReviewInfo]:
        """The result of a task that waits for a review, with its data unless it is large."""
        key = self.task_key(tenant_id, project_id, task_id)
        found: ReviewInfo = yield Read(lambda: reviews.review_of(self.reader, key))
        return found

    def approve_review(
        self,
        *,
        task_id: str,
        generation: int,
        digest: str,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[ReviewResult]:
        """Accept the result that waits for a review, in the reviewer's name: the task is completed.

        Generation and digest identify the reviewed result; 12 characters of the digest are
        enough."""
        command = c.ApproveReview(
            self.task_key(tenant_id, project_id, task_id),
            self.operator(),
            check_generation(generation),
            check_digest(digest),
        )
        result: ReviewResult = yield from self.ask_one(command)
        return result

    def reject_review(
        self,
        *,
        task_id: str,
        generation: int,
        digest: str,
        feedback: str = "",
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[ReviewResult]:
        """Open the task again, at a higher generation. The work is kept as a refused result, and
        the next holder gets the feedback with its claim."""
        command = c.RejectReview(
            self.task_key(tenant_id, project_id, task_id),
            self.operator(),
            check_generation(generation),
            check_digest(digest),
            check_text("feedback", feedback, LONGEST_FEEDBACK),
        )
        result: ReviewResult = yield from self.ask_one(command)
        return result

    def report_evaluation(
        self,
        *,
        task_id: str,
        generation: int,
        digest: str,
        evaluator: str,
        passed: bool,
        note: str = "",
        session_id: str | None = None,
        agent_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[ReviewResult]:
        """Say whether an evaluator has passed the result that waits for a review. If only
        evaluators were missing, the last one to pass completes the task."""
        command = c.ReportEvaluation(
            self.task_key(tenant_id, project_id, task_id),
            self.caller(session_id, agent_id),
            check_generation(generation),
            check_digest(digest),
            check_role_name("evaluator", evaluator),
            check_flag("passed", passed),
            check_text("note", note, LONGEST_NOTE),
        )
        result: ReviewResult = yield from self.ask_one(command)
        return result
