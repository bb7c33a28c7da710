"""The registration of tasks, as every kind of record has one."""

from __future__ import annotations

from datetime import timedelta

from genlock.core import commands as c
from genlock.core.decision import RecordKind
from genlock.core.events import TaskAdded
from genlock.core.index import MET, NEVER_DUE, READY_IN, Index, microseconds
from genlock.core.keys import TASK
from genlock.core.model import TaskRecord
from genlock.core.policy import Order
from genlock.core.reasons import ClaimState, Status
from genlock.core.routing import order_of, pool_of
from genlock.core.task import claims, due, observe, operate, progress, relate, review, spawn
from genlock.core.task.fold import FOLDS
from genlock.core.task.react import REACTIONS

# The index fields of a task.


def index_of_task(record: TaskRecord) -> Index:
    """Returns the index fields of this task."""
    claim, state = record.claim, record.state
    offered = state is Status.PENDING or state is Status.BACKLOG
    waits_on = waits_of(record) if record.dependencies else ()
    if offered and record.order is Order.CLOSEST_TO_DONE and record.task.feature is not None:
        waits_on = (*waits_on, READY_IN + record.task.feature)
    session = claim.session if claim is not None and claim.state is ClaimState.ACTIVE else None
    return Index(
        state=state,
        pool=pool_of(record) if offered else None,
        order=order_of(record) if offered else None,
        due_at=_due_at(record),
        session=session,
        parent=record.task.parent,
        waits_on=waits_on,
    )


def waits_of(record: TaskRecord) -> tuple[str, ...]:
    """Returns the task's dependencies as `waits_on` lists them."""
    return tuple(
        [MET + other if heard.finished else other for other, heard in record.dependencies.items()]
    )


def _due_at(record: TaskRecord) -> int | None:
    claim, state = record.claim, record.state
    held = claim is not None and claim.state is ClaimState.ACTIVE
    lease_end = None if claim is None or not held else claim.expires_at
    if lease_end is not None and claim is not None and claim.grace_seconds:
        lease_end += timedelta(seconds=claim.grace_seconds)
    if held and not record.early and record.hold is None:
        # A shortcut for the most common case.
        return NEVER_DUE if lease_end is None else microseconds(lease_end)
    if state is Status.COMPLETED or state is Status.CANCELLED:
        return None
    instants = [
        lease_end,
        record.hold.until if record.hold is not None and state is not Status.IN_REVIEW else None,
        record.task.not_before if record.early else None,
        record.assigned_until if not held else None,
    ]
    due = [instant for instant in instants if instant is not None]
    if due:
        return microseconds(min(due))
    return NEVER_DUE if held else None


RECORD = RecordKind(
    kind=TASK,
    record=TaskRecord,
    commands={
        c.AddTask: operate.decide_add,
        c.AnnounceChildren: spawn.decide_announce,
        c.EditTask: operate.decide_edit,
        c.ReorderTask: operate.decide_reorder,
        c.ClaimTask: claims.decide_claim,
        c.RenewLease: claims.decide_renew,
        c.ReportProgress: progress.decide_progress,
        c.ReleaseClaim: claims.decide_release,
        c.SubmitResult: claims.decide_submit,
        c.SpawnSubtasks: spawn.decide_spawn,
        c.AdoptResult: spawn.decide_adopt,
        c.ForceRelease: operate.decide_force_release,
        c.AssignTask: operate.decide_assign,
        c.ResetTask: operate.decide_reset,
        c.CancelTask: operate.decide_cancel,
        c.HoldTask: operate.decide_hold,
        c.ReopenTask: operate.decide_reopen,
        c.ApproveReview: review.decide_approve,
        c.RejectReview: review.decide_reject,
        c.ReportEvaluation: review.decide_evaluation,
        c.CheckDue: due.decide_check_due,
        c.CheckRelated: relate.decide_hear,
        c.ObserveTask: observe.decide_observe,
    },
    begins=TaskAdded,
    folds=FOLDS,
    index_of=index_of_task,
    reactions=REACTIONS,
)
