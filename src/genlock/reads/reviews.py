"""Reviews: the results that wait for a person or an evaluator."""

from __future__ import annotations

from itertools import islice
from typing import Any

from genlock.core.keys import Key, Scope
from genlock.core.model import Review, TaskRecord
from genlock.core.reasons import Status
from genlock.core.results import ReviewInfo
from genlock.errors import ReviewNotFound
from genlock.reads.reader import Reader
from genlock.reads.results import data_of_result
from genlock.store import Query


def reviews(reader: Reader, scope: Scope, limit: int, after_id: str) -> tuple[ReviewInfo, ...]:
    """Returns the results that wait for a review, by task id."""
    found = reader.find_tasks(Query(*scope, state=Status.IN_REVIEW), after_id)
    waiting = (review_info(record, record.review) for record in found if record.review is not None)
    return tuple(islice(waiting, limit))


def review_of(reader: Reader, key: Key) -> ReviewInfo:
    """Returns this task's result that waits for a review, with its data unless it is large."""
    record = reader.task(key)
    review = record.review
    if review is None:
        raise ReviewNotFound(f"task {key.id!r} is not in review: it is {record.state}")
    data = None if review.result.payload else data_of_result(reader, key, record, review.result)
    return review_info(record, review, data)


def review_info(record: TaskRecord, review: Review, data: Any = None) -> ReviewInfo:
    """Returns a review in the form that callers get."""
    result, task = review.result, record.task
    return ReviewInfo(
        task_id=task.id,
        title=task.title,
        edge=task.edge,
        generation=result.generation,
        digest=result.digest,
        causes=review.causes,
        session_id=result.session,
        agent_id=result.agent,
        user_id=review.user,
        agent_role=review.role,
        submitted_at=result.submitted_at,
        work_product_ref=result.work_product_ref,
        reference=result.reference,
        manifest=result.manifest,
        size=result.size,
        payload=result.payload,
        missing_evaluators=review.missing,
        evaluations=review.evaluations,
        inputs_changed=record.inputs_changed,
        result_data=data,
    )
