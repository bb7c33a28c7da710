"""The folds of a task: its record after each event. They decide nothing and cannot refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.model import (
    MOST_NOTES,
    SYSTEM_SESSION,
    Act,
    Claim,
    Evaluation,
    Feedback,
    Hold,
    KnownState,
    ProgressLog,
    ProgressNote,
    Released,
    Result,
    Review,
    Task,
    TaskRecord,
)
from genlock.core.reasons import FAILURES, ClaimState, ReleaseReason, SpawnMode, Status, Waiting
from genlock.errors import StoreCorrupt


def evolve_task(record: TaskRecord | None, event: e.Event) -> TaskRecord:
    """Returns the task after this event."""
    return FOLDS[type(event)](record, event)


def rest(record: TaskRecord) -> Status:
    """Returns the state of a task without a claim, a hold or an end: only dependencies, children
    and not_before count."""
    if record.waiting is Waiting.TEXT:
        return Status.BLOCKED
    if record.early or record.spawning or not all(h.finished for h in record.dependencies.values()):
        return Status.BLOCKED
    if not all(h.finished for h in record.children.values()):
        return Status.BLOCKED
    return Status.BACKLOG if record.backlog else Status.PENDING


def _resting(record: TaskRecord) -> TaskRecord:
    """Puts the task into its resting state, unless it has a claim, a hold or an end."""
    if record.state in _SETTLED_STATES or (
        record.claim is not None and record.claim.state is ClaimState.ACTIVE
    ):
        return record
    state = rest(record)
    return record if record.state is state else replace(record, state=state)


_SETTLED_STATES = frozenset({Status.COMPLETED, Status.CANCELLED, Status.HELD, Status.IN_REVIEW})


def _added(_: TaskRecord | None, event: e.TaskAdded) -> TaskRecord:
    waiting = event.waiting or Waiting.NOTHING
    record = TaskRecord(
        task=event.task,
        state=Status.PENDING,
        created_at=event.timestamp,
        updated_at=event.timestamp,
        order=event.order,
        dependencies={other: KnownState() for other in _awaited(event.task, waiting)},
        waiting=waiting,
        spawn_mode=event.spawn_mode,
        backlog=event.backlog,
        early=event.early,
        assigned_until=event.assigned_until,
    )
    return replace(record, state=rest(record))


def _edited(record: TaskRecord, event: e.TaskEdited) -> TaskRecord:
    known = record.dependencies
    waiting = event.waiting or record.waiting
    record = replace(
        record,
        updated_at=event.timestamp,
        task=event.task,
        dependencies={
            other: known.get(other, KnownState()) for other in _awaited(event.task, waiting)
        },
        waiting=waiting,
        spawn_mode=event.spawn_mode or record.spawn_mode,
        early=event.early,
        backlog=record.backlog if event.backlog is None else event.backlog,
    )
    return _resting(record)


def _awaited(task: Task, waiting: Waiting) -> tuple[str, ...]:
    """Returns the tasks that this one waits for: its dependencies, and the task that `waiting_for`
    names."""
    if waiting is not Waiting.TASK or task.waiting_for in task.depends_on:
        return task.depends_on
    return (*task.depends_on, task.waiting_for)


def _reordered(record: TaskRecord, event: e.TaskReordered) -> TaskRecord:
    return replace(record, updated_at=event.timestamp, order=event.order)


def _due(record: TaskRecord, event: e.TaskDue) -> TaskRecord:
    return _resting(replace(record, updated_at=event.timestamp, early=False))


def _acquired(record: TaskRecord, event: e.ClaimAcquired) -> TaskRecord:
    at = event.timestamp
    claim = Claim(
        id=event.claim_id,
        session=event.session_id,
        agent=event.agent_id,
        generation=event.generation,
        claimed_at=at,
        renewed_at=at,
        expires_at=event.expires_at,
        lease_seconds=event.lease_duration_seconds,
        grace_seconds=event.grace_seconds,
        user=event.actor.user_id,
        role=event.agent_role,
        operation=event.operation,
        metadata=event.metadata,
    )
    return replace(
        record,
        state=Status.IN_PROGRESS,
        updated_at=at,
        generation=event.generation,
        granted=True,
        grants=record.grants + 1,
        claim=claim,
        hold=None,
        backlog=False,
        # The grants of an operator's adoption and of a fan-in have no lease: no work begins, and
        # the result is based on the inputs of earlier work.
        inputs_changed=() if event.lease_duration_seconds else record.inputs_changed,
        fan_in_due=False,
    )


def _progressed(record: TaskRecord, event: e.ProgressReported) -> TaskRecord:
    return replace(
        record, updated_at=event.timestamp, progress=merged_progress(record.progress, event)
    )


def merged_progress(log: ProgressLog | None, event: e.ProgressReported) -> ProgressLog:
    """Returns the log after a report. New figures of a generation replace the old ones. A note with
    the same text as the last one replaces it."""
    at, generation = event.timestamp, event.generation
    log = log or ProgressLog(generation, at)
    if log.generation != generation:
        units = (*log.earlier_cost, *(unit for unit in log.cost if unit not in log.earlier_cost))
        total = {unit: log.earlier_cost.get(unit, 0.0) + log.cost.get(unit, 0.0) for unit in units}
        log = ProgressLog(generation, at, earlier_cost=total, notes=log.notes)
    fraction = log.fraction if event.fraction is None else event.fraction
    notes = log.notes
    if event.note:
        last = notes[-1] if notes else None
        if last is not None and (last.generation, last.text) == (generation, event.note):
            notes = notes[:-1]
        note = ProgressNote(at, generation, event.agent_id, event.note, fraction)
        notes = (*notes, note)[-MOST_NOTES:]
    path = log.worktree_path if event.worktree_path is None else event.worktree_path
    cost = {**log.cost, **event.cost}
    return ProgressLog(generation, at, fraction, cost, log.earlier_cost, notes, path)


def _renewed(record: TaskRecord, event: e.LeaseRenewed) -> TaskRecord:
    claim = _claim(record, event)
    claim = replace(
        claim,
        renewed_at=event.timestamp,
        expires_at=event.expires_at,
        lease_seconds=event.lease_duration_seconds,
        renewals=claim.renewals + 1,
        stale_at=None,
    )
    return replace(record, updated_at=event.timestamp, claim=claim)


def _released(record: TaskRecord, event: e.ClaimReleased) -> TaskRecord:
    claim = _claim(record, event)
    ended = Released(claim.generation, claim.session, event.release_reason, event.operation)
    failures = record.failures
    if claim.state is ClaimState.ACTIVE:
        failures = failures + 1 if event.release_reason in FAILURES else 0
    record = replace(
        record, updated_at=event.timestamp, claim=None, released=ended, failures=failures
    )
    return _resting(record)


def _lapsed(record: TaskRecord, event: e.Lapsed) -> TaskRecord:
    claim = replace(_claim(record, event), state=ClaimState.EXPIRED)
    return _resting(
        replace(record, updated_at=event.timestamp, claim=claim, failures=record.failures + 1)
    )


def _stale(record: TaskRecord, event: e.ClaimStale) -> TaskRecord:
    return replace(
        record,
        updated_at=event.timestamp,
        claim=replace(_claim(record, event), stale_at=event.timestamp),
    )


def _superseded(record: TaskRecord, event: e.ClaimSuperseded) -> TaskRecord:
    claim = record.claim
    # A holder whose live claim is superseded has not failed. This ends the row of failures before
    # it.
    failures = 0 if claim is not None and claim.state is ClaimState.ACTIVE else record.failures
    record = replace(
        record,
        updated_at=event.timestamp,
        claim=None,
        released=_taken_away(record),
        failures=failures,
        generation=event.generation,
        granted=False,
    )
    return _resting(record)


def _edited_outside(record: TaskRecord, event: e.ExternalChange) -> TaskRecord:
    return replace(record, updated_at=event.timestamp)


def _taken_away(record: TaskRecord) -> Released | None:
    """Returns the end of the last claim if the present one, if any, is superseded now."""
    claim = record.claim
    return (
        Released(claim.generation, claim.session, ReleaseReason.SUPERSEDED)
        if claim
        else record.released
    )


def _assigned(record: TaskRecord, event: e.TaskAssigned) -> TaskRecord:
    task = replace(record.task, assigned_to=event.assigned_to, assigned_at=event.timestamp)
    return replace(
        record, updated_at=event.timestamp, task=task, assigned_until=event.assigned_until
    )


def _unassigned(record: TaskRecord, event: e.AssignmentLapsed) -> TaskRecord:
    task = replace(record.task, assigned_to=None, assigned_at=None)
    return replace(record, updated_at=event.timestamp, task=task, assigned_until=None)


def _result_of(event: e.ResultAccepted | e.ConvergenceEscalated) -> Result:
    return Result(
        id=event.result_id,
        generation=event.generation,
        session=event.session_id,
        agent=event.agent_id,
        work_product_ref=event.work_product_ref,
        digest=event.digest,
        size=event.size,
        submitted_at=event.timestamp,
        data=event.result_data,
        payload=event.payload,
        operation=event.operation,
        fan_in=event.fan_in,
        adopted_generation=event.adopted_generation,
        adopted_session=event.adopted_session,
        payload_id=event.payload_id,
        reference=event.reference,
        manifest=event.manifest,
    )


def _accepted(record: TaskRecord, event: e.ResultAccepted) -> TaskRecord:
    result = _result_of(event)
    if event.author_session_id:
        result = replace(
            result,
            session=event.author_session_id,
            agent=event.author_agent_id,
            reviewer=_name_of(event),
        )
    completed = replace(
        record,
        updated_at=event.timestamp,
        state=Status.COMPLETED,
        claim=None,
        released=Released(event.generation, result.session, ReleaseReason.COMPLETED),
        result=result,
        hold=None,
        failures=0,
        review=None,
        feedback=None,
    )
    return _remember(completed, event, event.digest) if event.remembers else completed


def _escalated(record: TaskRecord, event: e.ConvergenceEscalated) -> TaskRecord:
    # A hold outlives the review: it applies again if the result is rejected.
    waiting = replace(
        record,
        updated_at=event.timestamp,
        state=Status.IN_REVIEW,
        claim=None,
        released=Released(event.generation, event.session_id, ReleaseReason.COMPLETED),
        failures=0,
        review=Review(
            result=_result_of(event),
            causes=event.causes,
            role=event.agent_role,
            user=event.actor.user_id,
            evaluators=event.evaluators,
            evaluations=event.evaluations,
        ),
    )
    return _remember(waiting, event, event.digest) if event.remembers else waiting


def _evaluated(record: TaskRecord, event: e.EvaluationReported) -> TaskRecord:
    review = record.review
    if review is None:
        raise StoreCorrupt(f"an evaluation of a task that is not in review ({record.task.id})")
    found = Evaluation(event.passed, event.timestamp, _name_of(event), event.note)
    review = replace(review, evaluations=review.evaluations | {event.evaluator: found})
    return replace(record, updated_at=event.timestamp, review=review)


def _rejected(record: TaskRecord, event: e.ReviewRejected) -> TaskRecord:
    feedback = Feedback(
        at=event.timestamp,
        generation=event.rejected_generation,
        by=_name_of(event),
        digest=event.digest,
        text=event.feedback,
        refused_id=event.refused_id,
    )
    record = replace(
        record,
        updated_at=event.timestamp,
        state=Status.PENDING if record.hold is None else Status.HELD,
        generation=event.generation,
        granted=False,
        review=None,
        feedback=feedback,
        fan_in_due=False,
    )
    return _resting(record)


def _name_of(event: e.Occurrence) -> str:
    """Returns the user's name of a person, or an agent's own name."""
    return event.actor.user_id or event.agent_id or event.session_id or "an operator"


def _reset(record: TaskRecord, event: e.TaskReset) -> TaskRecord:
    record = replace(
        record,
        updated_at=event.timestamp,
        state=Status.PENDING,
        generation=event.generation,
        granted=False,
        claim=None,
        released=_taken_away(record),
        result=None,
        hold=None,
        failures=0,
        grants=0,
        inputs_changed=(),
        fan_in_due=False,
        feedback=None,
    )
    return _resting(record)


def _cancelled(record: TaskRecord, event: e.TaskCancelled) -> TaskRecord:
    return replace(
        record,
        updated_at=event.timestamp,
        state=Status.CANCELLED,
        generation=event.generation,
        granted=False,
        claim=None,
        released=_taken_away(record),
        hold=None,
        spawning=(),
        spawning_backlog=(),
        fan_in_due=False,
    )


def _held(record: TaskRecord, event: e.TaskHeld) -> TaskRecord:
    hold = Hold(event.reason, event.timestamp, event.until)
    return replace(record, updated_at=event.timestamp, state=Status.HELD, hold=hold)


def _reopened(record: TaskRecord, event: e.TaskReopened) -> TaskRecord:
    record = replace(
        record,
        updated_at=event.timestamp,
        hold=None,
        backlog=event.backlog,
        opened=record.opened or event.opened,
    )
    if not event.by_time:
        record = replace(record, failures=0, grants=0)
    active = record.claim is not None and record.claim.state is ClaimState.ACTIVE
    return replace(record, state=Status.IN_PROGRESS if active else rest(record))


def _heard_dependency(record: TaskRecord, event: e.RelatedChanged) -> TaskRecord:
    changed = _inputs_changed(record, event, record.dependencies)
    heard = record.dependencies | event.others
    record = replace(record, updated_at=event.timestamp, dependencies=heard, inputs_changed=changed)
    return _resting(_without_met_waiting(record))


def _without_met_waiting(record: TaskRecord) -> TaskRecord:
    """Removes the task that `waiting_for` names once that task is finished."""
    task = record.task
    if record.waiting is not Waiting.TASK or not record.dependencies[task.waiting_for].finished:
        return record
    kept = {
        other: known
        for other, known in record.dependencies.items()
        if other != task.waiting_for or other in task.depends_on
    }
    return replace(
        record,
        task=replace(task, waiting_for=""),
        waiting=Waiting.NOTHING,
        dependencies=kept,
    )


def _heard_child(record: TaskRecord, event: e.ChildNews) -> TaskRecord:
    changed = _inputs_changed(record, event, record.children)
    heard = record.children | event.others
    record = replace(
        record,
        updated_at=event.timestamp,
        children=heard,
        spawning=tuple(child for child in record.spawning if child.id not in event.others),
        spawning_backlog=tuple(
            child for child in record.spawning_backlog if child not in event.others
        ),
        inputs_changed=changed,
        fan_in_due=event.last,
    )
    return _resting(record)


def _without_children(record: TaskRecord, event: e.ChildIdTaken) -> TaskRecord:
    record = replace(
        record,
        updated_at=event.timestamp,
        children={
            child: heard for child, heard in record.children.items() if child not in event.others
        },
        spawning=tuple(child for child in record.spawning if child.id not in event.others),
        spawning_backlog=tuple(
            child for child in record.spawning_backlog if child not in event.others
        ),
        # A part of the fan-out is missing: the results of the other parts do not complete the task.
        spawn_mode=SpawnMode.PARALLEL
        if record.spawn_mode is SpawnMode.FAN_OUT_FAN_IN
        else record.spawn_mode,
        fan_in_due=False,
    )
    return _resting(record)


def _inputs_changed(
    record: TaskRecord, event: e.RelatedChanged, known: dict[str, KnownState]
) -> tuple[str, ...]:
    """Marks a task whose work began or ended on inputs that are open again. The task keeps its
    claim and result."""
    begun = record.state in (Status.COMPLETED, Status.IN_REVIEW) or (
        record.claim is not None and record.claim.state is ClaimState.ACTIVE
    )
    if not begun or not isinstance(event, (e.DependencyReopened, e.ChildReopened)):
        return record.inputs_changed
    lost = [other for other in event.others if other in known and known[other].finished]
    return tuple(dict.fromkeys([*record.inputs_changed, *lost]))


def _announced(record: TaskRecord, event: e.ChildrenAnnounced) -> TaskRecord:
    record = replace(
        record,
        updated_at=event.timestamp,
        children=record.children | {child.id: KnownState() for child in event.children},
        spawning=(*record.spawning, *event.children),
        spawning_backlog=(*record.spawning_backlog, *event.backlog),
        fan_in_due=False,
    )
    return _resting(record)


def _spawned(record: TaskRecord, event: e.SubtasksSpawned) -> TaskRecord:
    children = record.children | {child.id: KnownState() for child in event.children}
    record = replace(
        record,
        updated_at=event.timestamp,
        task=replace(record.task, coordination_mode=event.mode)
        if event.defines_mode
        else record.task,
        children=children,
        spawning=(*record.spawning, *event.children),
        spawn_mode=event.mode,
    )
    if event.keep:
        return _resting(record)
    claim = _claim(record, event)
    ended = Released(claim.generation, claim.session, ReleaseReason.SPAWNED, event.operation)
    return _resting(replace(record, claim=None, released=ended, failures=0))


def _remembering(
    fold: Callable[[TaskRecord, Any], TaskRecord],
) -> Callable[[TaskRecord, Any], TaskRecord]:
    """Wraps a fold of an event whose operation the record remembers. An event without an operation
    id does not make it forget the last one that had an id."""

    def remember(record: TaskRecord, event: Any) -> TaskRecord:
        folded = fold(record, event)
        return (
            _remember(folded, event, getattr(event, "assigned_to", ""))
            if event.operation
            else folded
        )

    return remember


def _remember(record: TaskRecord, event: Any, whom: str) -> TaskRecord:
    # An adoption without a session has the session of the coordinator.
    session = (
        ""
        if isinstance(event, e.HandedIn) and event.session_id == SYSTEM_SESSION
        else event.session_id
    )
    children = (
        tuple(child.id for child in event.children) if type(event) is e.SubtasksSpawned else ()
    )
    what = f"{event.__struct_config__.tag} {whom}".rstrip()
    known = (*record.acts, record.act) if record.act is not None else ()
    earlier = known[-event.remembers :] if event.remembers else ()
    superseded = event.superseded if isinstance(event, e.RightTaken) else None
    act = Act(event.operation, session, what, children, getattr(event, "arguments", ""), superseded)
    return replace(record, act=act, acts=earlier)


def _claim(record: TaskRecord, event: e.Occurrence) -> Claim:
    if record.claim is None:
        raise StoreCorrupt(f"{type(event).__name__} of a task that has no claim ({record.task.id})")
    return record.claim


FOLDS: dict[type[e.Occurrence], Callable[[Any, Any], TaskRecord]] = {
    e.TaskAdded: _added,
    e.TaskEdited: _remembering(_edited),
    e.TaskReordered: _reordered,
    e.TaskDue: _due,
    e.ClaimAcquired: _acquired,
    e.LeaseRenewed: _renewed,
    e.ProgressReported: _progressed,
    e.ClaimReleased: _released,
    e.ClaimExpired: _lapsed,
    e.ClaimOrphaned: _lapsed,
    e.ClaimStale: _stale,
    e.ClaimSuperseded: _remembering(_superseded),
    e.ExternalChange: _edited_outside,
    e.TaskAssigned: _remembering(_assigned),
    e.AssignmentLapsed: _unassigned,
    e.ResultAccepted: _accepted,
    e.ConvergenceEscalated: _escalated,
    e.EvaluationReported: _evaluated,
    e.ReviewRejected: _rejected,
    e.TaskReset: _remembering(_reset),
    e.TaskCancelled: _remembering(_cancelled),
    e.TaskHeld: _remembering(_held),
    e.TaskReopened: _remembering(_reopened),
    e.DependencyMet: _heard_dependency,
    e.DependencyCancelled: _heard_dependency,
    e.DependencyReopened: _heard_dependency,
    e.ChildAdded: _heard_child,
    e.ChildFinished: _heard_child,
    e.ChildReopened: _heard_child,
    e.ChildIdTaken: _without_children,
    e.ChildrenAnnounced: _announced,
    e.SubtasksSpawned: _remembering(_spawned),
}
