"""evolve for tasks: what a task record is after an event. It decides nothing and cannot refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.model import SYSTEM_SESSION, Act, Claim, Heard, Hold, Released, Result, TaskRecord
from genlock.core.reasons import FAILURES, ClaimState, ReleaseReason, Status
from genlock.errors import StoreCorrupt


def evolve_task(record: TaskRecord | None, event: e.Event) -> TaskRecord:
    """The task after this event."""
    fold = _FOLDS.get(type(event))
    if record is not None and fold is not None:
        return fold(record, event)
    if isinstance(event, e.TaskAdded):
        return _added(event)
    raise StoreCorrupt(f"a task cannot begin or go on with {type(event).__name__} ({event.task_id})")


def rest(record: TaskRecord) -> Status:
    """The state of a task that nobody holds and nothing holds back but its dependencies, children and not_before."""
    if record.early or record.spawning or not all(h.finished for h in record.dependencies.values()):
        return Status.BLOCKED
    if not all(h.finished for h in record.children.values()):
        return Status.BLOCKED
    return Status.BACKLOG if record.backlog else Status.PENDING


def _resting(record: TaskRecord) -> TaskRecord:
    """Puts the task into the state it has by itself, unless a claim, a hold or its end says otherwise."""
    if record.state in _SETTLED_STATES or (record.claim is not None and record.claim.state is ClaimState.ACTIVE):
        return record
    state = rest(record)
    return record if record.state is state else replace(record, state=state)


_SETTLED_STATES = frozenset({Status.COMPLETED, Status.CANCELLED, Status.HELD, Status.IN_REVIEW})


def _added(event: e.TaskAdded) -> TaskRecord:
    record = TaskRecord(
        task=event.task,
        state=Status.PENDING,
        created_at=event.timestamp,
        updated_at=event.timestamp,
        order=event.order,
        dependencies={other: Heard() for other in event.task.depends_on},
        backlog=event.backlog,
        early=event.early,
        assigned_until=event.assigned_until,
    )
    return replace(record, state=rest(record))


def _edited(record: TaskRecord, event: e.TaskEdited) -> TaskRecord:
    known = record.dependencies
    record = replace(
        record,
        updated_at=event.timestamp,
        task=event.task,
        dependencies={other: known.get(other, Heard()) for other in event.task.depends_on},
        early=event.early,
        backlog=record.backlog if event.backlog is None else event.backlog,
    )
    return _resting(record)


def _reordered(record: TaskRecord, event: e.TaskReordered) -> TaskRecord:
    return replace(record, updated_at=event.timestamp, order=event.order)


def _due(record: TaskRecord, event: e.TaskDue) -> TaskRecord:
    return _resting(replace(record, updated_at=event.timestamp, early=False))


def _acquired(record: TaskRecord, event: e.ClaimAcquired) -> TaskRecord:
    at = event.timestamp
    claim = Claim(
        event.claim_id,
        event.session_id,
        event.agent_id,
        event.generation,
        at,
        at,
        event.expires_at,
        event.lease_duration_seconds,
        event.grace_seconds,
        ClaimState.ACTIVE,
        event.actor.user_id,
        event.agent_role,
        event.operation,
        0,
        None,
        event.metadata,
    )
    # Built whole, not replaced: this is the hottest line of the product, and `replace` looks at every field by name.
    return TaskRecord(
        record.task,
        Status.IN_PROGRESS,
        record.created_at,
        at,
        record.order,
        event.generation,
        True,
        record.grants + 1,
        record.failures,
        claim,
        record.released,
        record.result,
        record.dependencies,
        record.children,
        record.spawning,
        record.spawn_mode,
        None,
        False,
        record.early,
        (),
        record.assigned_until,
        record.act,
        record.acts,
    )


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
    record = replace(record, updated_at=event.timestamp, claim=None, released=ended, failures=failures)
    return _resting(record)


def _lapsed(record: TaskRecord, event: e.Lapsed) -> TaskRecord:
    claim = replace(_claim(record, event), state=ClaimState.EXPIRED)
    return _resting(replace(record, updated_at=event.timestamp, claim=claim, failures=record.failures + 1))


def _stale(record: TaskRecord, event: e.ClaimStale) -> TaskRecord:
    return replace(record, updated_at=event.timestamp, claim=replace(_claim(record, event), stale_at=event.timestamp))


def _superseded(record: TaskRecord, event: e.ClaimSuperseded) -> TaskRecord:
    claim = record.claim
    # Who was at work when it was taken away has not failed: those before it were the last in a row.
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


def _taken_away(record: TaskRecord) -> Released | None:
    """How the last claim ended, if it ends now by being taken away."""
    claim = record.claim
    return Released(claim.generation, claim.session, ReleaseReason.SUPERSEDED) if claim else record.released


def _assigned(record: TaskRecord, event: e.TaskAssigned) -> TaskRecord:
    task = replace(record.task, assigned_to=event.assigned_to, assigned_at=event.timestamp)
    return replace(record, updated_at=event.timestamp, task=task, assigned_until=event.assigned_until)


def _unassigned(record: TaskRecord, event: e.AssignmentLapsed) -> TaskRecord:
    task = replace(record.task, assigned_to=None, assigned_at=None)
    return replace(record, updated_at=event.timestamp, task=task, assigned_until=None)


def _accepted(record: TaskRecord, event: e.ResultAccepted) -> TaskRecord:
    result = Result(
        event.result_id,
        event.generation,
        event.session_id,
        event.agent_id,
        event.work_product_ref,
        event.digest,
        event.size,
        event.timestamp,
        event.result_data,
        event.payload,
        event.operation,
        event.fan_in,
        event.adopted_generation,
        event.adopted_session,
        event.payload_id,
    )
    completed = replace(
        record,
        updated_at=event.timestamp,
        state=Status.COMPLETED,
        claim=None,
        released=Released(event.generation, event.session_id, ReleaseReason.COMPLETED),
        result=result,
        hold=None,
        failures=0,
        inputs_changed=(),
    )
    return _remember(completed, event, event.digest) if event.remembers else completed


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
        fan_in_due=False,
    )


def _held(record: TaskRecord, event: e.TaskHeld) -> TaskRecord:
    hold = Hold(event.reason, event.timestamp, event.until)
    return replace(record, updated_at=event.timestamp, state=Status.HELD, hold=hold)


def _reopened(record: TaskRecord, event: e.TaskReopened) -> TaskRecord:
    record = replace(record, updated_at=event.timestamp, hold=None, backlog=event.backlog, opened=record.opened or event.opened)
    if not event.by_time:
        record = replace(record, failures=0, grants=0)
    active = record.claim is not None and record.claim.state is ClaimState.ACTIVE
    return replace(record, state=Status.IN_PROGRESS if active else rest(record))


def _heard_dependency(record: TaskRecord, event: e.News) -> TaskRecord:
    changed = _inputs_changed(record, event, record.dependencies)
    heard = record.dependencies | event.others
    return _resting(replace(record, updated_at=event.timestamp, dependencies=heard, inputs_changed=changed))


def _heard_child(record: TaskRecord, event: e.ChildNews) -> TaskRecord:
    changed = _inputs_changed(record, event, record.children)
    heard = record.children | event.others
    spawning = tuple(child for child in record.spawning if child.id not in event.others)
    record = replace(record, updated_at=event.timestamp, children=heard, spawning=spawning, inputs_changed=changed, fan_in_due=event.last)
    return _resting(record)


def _inputs_changed(record: TaskRecord, event: e.News, known: dict[str, Heard]) -> tuple[str, ...]:
    """What has begun or ended on inputs that are open again is marked; it keeps what it has."""
    begun = record.state is Status.COMPLETED or (record.claim is not None and record.claim.state is ClaimState.ACTIVE)
    if not begun or not isinstance(event, (e.DependencyReopened, e.ChildReopened)):
        return record.inputs_changed
    lost = [other for other in event.others if other in known and known[other].finished]
    return tuple(dict.fromkeys([*record.inputs_changed, *lost]))


def _spawned(record: TaskRecord, event: e.SubtasksSpawned) -> TaskRecord:
    children = record.children | {child.id: Heard() for child in event.children}
    record = replace(
        record,
        updated_at=event.timestamp,
        children=children,
        spawning=(*record.spawning, *event.children),
        spawn_mode=event.mode,
    )
    if event.keep:
        return _resting(record)
    claim = _claim(record, event)
    ended = Released(claim.generation, claim.session, ReleaseReason.SPAWNED, event.operation)
    return _resting(replace(record, claim=None, released=ended, failures=0))


def _remembering(fold: Callable[[TaskRecord, Any], TaskRecord]) -> Callable[[TaskRecord, Any], TaskRecord]:
    """The same fold, of an event whose operation the record keeps. An act without one does not make it forget the last that had one."""

    def remember(record: TaskRecord, event: Any) -> TaskRecord:
        folded = fold(record, event)
        return _remember(folded, event, getattr(event, "assigned_to", "")) if event.operation else folded

    return remember


def _remember(record: TaskRecord, event: Any, whom: str) -> TaskRecord:
    # Who has no session adopts in the coordinator's.
    session = "" if type(event) is e.ResultAccepted and event.session_id == SYSTEM_SESSION else event.session_id
    children = tuple(child.id for child in event.children) if type(event) is e.SubtasksSpawned else ()
    what = f"{event.__struct_config__.tag} {whom}".rstrip()
    known = (*record.acts, record.act) if record.act is not None else ()
    earlier = known[-event.remembers :] if event.remembers else ()
    superseded = event.superseded if isinstance(event, e.Taking) else None
    act = Act(event.operation, session, what, children, getattr(event, "arguments", ""), superseded)
    return replace(record, act=act, acts=earlier)


def _claim(record: TaskRecord, event: e.Occurrence) -> Claim:
    if record.claim is None:
        raise StoreCorrupt(f"{type(event).__name__} of a task that has no claim ({record.task.id})")
    return record.claim


_FOLDS: dict[type, Callable[[TaskRecord, Any], TaskRecord]] = {
    e.TaskEdited: _remembering(_edited),
    e.TaskReordered: _reordered,
    e.TaskDue: _due,
    e.ClaimAcquired: _acquired,
    e.LeaseRenewed: _renewed,
    e.ClaimReleased: _released,
    e.ClaimExpired: _lapsed,
    e.ClaimOrphaned: _lapsed,
    e.ClaimStale: _stale,
    e.ClaimSuperseded: _remembering(_superseded),
    e.TaskAssigned: _remembering(_assigned),
    e.AssignmentLapsed: _unassigned,
    e.ResultAccepted: _accepted,
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
    e.SubtasksSpawned: _remembering(_spawned),
}
