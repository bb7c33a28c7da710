"""Rules and fold of the records that are not tasks: sessions, refused results, counters, projects, tenants, denials, settling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from genlock.core import api_keys
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, Draft, decide_one
from genlock.core.facts import Facts
from genlock.core.model import (
    NO_DATA,
    AccessRecord,
    Claim,
    CounterRecord,
    ProjectRecord,
    Record,
    RefusedRecord,
    SessionRecord,
    SettledRecord,
    TaskRecord,
    TenantRecord,
)
from genlock.core.policy import PROFILES, Policy, change_limits, change_policy
from genlock.core.reasons import RefusedState, Verdict
from genlock.errors import BadArgument, LimitReached, NotAllowed, ResultNotFound, SessionEnded, SessionNotFound, StoreCorrupt


def _decided(record: Any, command: c.Command, facts: Facts, outcome: Any, kind: type[e.Event], **fields: Any) -> Decision:
    """A decision of exactly one event."""
    return decide_one(record, command, facts, evolve_other, kind, outcome, **fields)


# Sessions


def decide_register(record: SessionRecord | None, command: c.RegisterSession, facts: Facts) -> Decision:
    """A session begins, or says more about itself. One that has ended does not come back."""
    if record is not None:
        if command.implied:
            return _follow(record, command, facts)
        if record.ended_at is not None:
            raise SessionEnded(f"session {record.id!r} has ended; register a new one")
        same = record.process == command.by.process and record.agent_type == command.agent_type and record.metadata == command.metadata
        if same and record.user == command.by.actor.user_id:
            return Decision(Verdict.UNCHANGED)
    most = facts.limits.max_active_sessions
    if record is None and not command.implied and most is not None and facts.sessions is not None and facts.sessions >= most:
        raise LimitReached(f"the tenant has {facts.sessions} active sessions, the limit max_active_sessions is {most}; end one first")
    return _decided(
        record,
        command,
        facts,
        Verdict.DONE,
        e.SessionRegistered,
        session_id=command.key.id,
        process=command.by.process,
        agent_type=command.agent_type,
        metadata=command.metadata,
        implied=command.implied,
    )


def _follow(record: SessionRecord, command: c.RegisterSession, facts: Facts) -> Decision:
    """Another process claims for a session of which nobody has said which it is.

    If the one before is gone, the tool was started anew under the same name: what it claims now must not pass for a dead one's. If not,
    they are several, and that one of them ends says nothing of the others: their leases decide."""
    if not moved(record, command.by):
        return Decision(Verdict.UNCHANGED)
    by = command.by
    actor = replace(by.actor, user_id=by.actor.user_id or record.user)
    return _decided(
        record,
        replace(command, by=replace(by, actor=actor)),
        facts,
        Verdict.DONE,
        e.SessionRegistered,
        session_id=record.id,
        process=by.process if facts.holder_gone else None,
        agent_type=record.agent_type,
        metadata=record.metadata,
        implied=True,
    )


def moved(session: SessionRecord, by: c.Caller) -> bool:
    """Does another process act for a session than the one that it was taken to be?"""
    return session.implied and session.process is not None and by.process is not None and session.process != by.process


def decide_heartbeat(record: SessionRecord | None, command: c.HeartbeatSession, facts: Facts) -> Decision:
    record = _session(record, command)
    if record.ended_at is not None:
        raise SessionEnded(f"session {record.id!r} has ended; register a new one")
    return _decided(record, command, facts, Verdict.DONE, e.SessionHeartbeat, session_id=record.id, metadata=command.metadata)


def decide_end(record: SessionRecord | None, command: c.EndSession, facts: Facts) -> Decision:
    record = _session(record, command)
    if record.ended_at is not None:
        return Decision(Verdict.UNCHANGED)
    return _decided(record, command, facts, Verdict.DONE, e.SessionEndedEvent, session_id=record.id)


def last_activity(session: SessionRecord, claims: Iterable[Claim] = (), heard: datetime | None = None) -> datetime:
    """By what the session says of itself, what its claims say, and what was heard of it in the feed."""
    last = max([session.updated_at, *(claim.renewed_at for claim in claims)])
    return last if heard is None else max(last, heard)


def is_active(session: SessionRecord, last: datetime, policy: Policy, now: datetime, *, gone: bool) -> bool:
    """Is it neither over nor known dead nor silent? Whoever holds something and does nothing is silent, however long its lease."""
    return session.ended_at is None and not gone and now - last <= timedelta(seconds=policy.orphan_threshold_seconds)


def _session(record: SessionRecord | None, command: c.Command) -> SessionRecord:
    if record is None:
        raise SessionNotFound(f"there is no session {command.key.id!r} in project {command.key.project!r}")
    return record


# Refused results


def decide_keep(record: RefusedRecord | None, command: c.KeepRefused, facts: Facts) -> Decision:
    """The same thing refused again is the same record; what was discarded and comes again is kept again.

    So is what was adopted by a task that was reset since: it is nobody's result any more. The outcome is the record as it is kept."""
    adopted = record is not None and record.state is RefusedState.ADOPTED
    if record is not None and (record.state is RefusedState.KEPT or (adopted and _counts(record, facts))):
        return Decision(record)
    content = command.content
    if record is not None and adopted:
        # It has these very bytes already.
        content = replace(content, payload_id=record.payload_id)
    return _decided(
        record,
        command,
        facts,
        None,
        e.ResultRejected,
        task_id=command.task,
        generation=command.generation,
        submitted_generation=command.generation,
        current_generation=command.current_generation,
        rejection_reason=command.reason,
        work_lost=True,
        work_product_ref=command.work_product_ref,
        digest=content.digest,
        size=content.size,
        result_data=content.data,
        payload=content.payload,
        payload_id=content.payload_id,
        metadata={"result_size_bytes": content.size},
    )


def decide_mark_adopted(record: RefusedRecord | None, command: c.MarkAdopted, facts: Facts) -> Decision:
    """One that was discarded while it was being adopted stays so: its data is gone, the task has a copy."""
    record = _refused(record, command)
    if record.state is not RefusedState.KEPT:
        return Decision(Verdict.UNCHANGED)
    return _decided(record, command, facts, Verdict.DONE, e.ResultAdopted, task_id=record.task, generation=record.generation)


def decide_discard(record: RefusedRecord | None, command: c.DiscardRefused, facts: Facts) -> Decision:
    """The outcome is the record as it was discarded: if it has a payload, it is that one whose bytes may go."""
    record = _refused(record, command)
    if _counts(record, facts):
        raise NotAllowed(f"refused result {command.key.id!r} was adopted; it is the task's result")
    if record.state is RefusedState.DISCARDED:
        return Decision(record)
    return _decided(record, command, facts, None, e.ResultDiscarded, task_id=record.task, generation=record.generation)


def _counts(record: RefusedRecord, facts: Facts) -> bool:
    """Is it the task's result? That it was adopted may not be written here yet, nor that the task was reset since: the task knows."""
    return record.state is RefusedState.ADOPTED if facts.task is None else _is_result_of(facts.task, record)


def _is_result_of(task: TaskRecord, record: RefusedRecord) -> bool:
    """Is it this one that the task has adopted?"""
    result = task.result
    adopted = (record.digest, record.generation, record.session)
    return result is not None and (result.digest, result.adopted_generation, result.adopted_session) == adopted


def _refused(record: RefusedRecord | None, command: c.Command) -> RefusedRecord:
    if record is None:
        raise ResultNotFound(f"there is no refused result {command.key.id!r} in project {command.key.project!r}")
    return record


# Counters, projects, tenants, denials, settling


def decide_take_ids(record: CounterRecord | None, command: c.TakeIds, facts: Facts) -> Decision:
    """Gives out the next `count` numbers; the outcome is the last of them."""
    if command.count < 1:
        raise BadArgument(f"one id or more can be taken, not {command.count}")
    value = (record.value if record else 0) + command.count
    return _decided(record, command, facts, value, e.IdsTaken, prefix=command.prefix, value=value, count=command.count)


def decide_change_project(record: ProjectRecord | None, command: c.ChangeProject, facts: Facts) -> Decision:
    old = record.policy if record else Policy()
    policy = change_policy(old, command.policy) if command.policy else old
    tracks = command.tracks if command.tracks is not None else record.tracks if record else None
    if record is not None and (policy, tracks) == (record.policy, record.tracks):
        return Decision(policy)
    epoch = facts.epoch if record is None else 0
    return _decided(record, command, facts, policy, e.ProjectChanged, policy=policy, tracks=tracks, epoch=epoch)


def decide_change_tenant(record: TenantRecord | None, command: c.ChangeTenant, facts: Facts) -> Decision:
    profile = command.profile or (record.profile if record else command.initial)
    if profile not in PROFILES:
        raise BadArgument(f"there is no profile {profile!r}; there are: {', '.join(PROFILES)}")
    fresh = record is None or command.profile is not None
    limits = PROFILES[profile] if fresh else record.limits if record else PROFILES[profile]
    if command.limits:
        limits = change_limits(limits, command.limits)
    if record is not None and (profile, limits) == (record.profile, record.limits):
        return Decision(limits)
    return _decided(record, command, facts, limits, e.TenantChanged, tenant=command.key.id, profile=profile, limits=limits)


def decide_note_epoch(record: ProjectRecord | None, command: c.NoteEpoch, facts: Facts) -> Decision:
    """Never silently: whoever reads the feed, or asks why the generations leapt, finds the reason there."""
    if record is None or facts.epoch <= record.epoch:
        return Decision(Verdict.UNCHANGED)
    return _decided(record, command, facts, Verdict.DONE, e.EpochRaised, epoch=facts.epoch, previous=record.epoch)


def decide_note_denials(record: AccessRecord | None, command: c.NoteDenials, facts: Facts) -> Decision:
    draft: Draft[Any] = Draft(record, command, facts)
    events = tuple(
        e.ClaimDenied(
            timestamp=draft.at,
            tenant_id=command.key.tenant,
            project_id=command.key.project,
            task_id=denial.task,
            session_id=denial.session,
            agent_id=denial.agent,
            access_id=command.key.id,
            reason=denial.reason,
            count=denial.count,
            metadata={"last": denial.at},
        )
        for denial in command.denials
    )
    folded: Record | None = record
    for event in events:
        folded = evolve_other(folded, event)
    return Decision(Verdict.DONE, events, folded)


def decide_move_settled(record: SettledRecord | None, command: c.MoveSettled, facts: Facts) -> Decision:
    if record is not None and record.cursor != command.seen:
        return Decision(Verdict.UNCHANGED)
    if record is not None and record.cursor == command.cursor:
        return Decision(Verdict.UNCHANGED)
    return _decided(record, command, facts, Verdict.DONE, e.Settled, cursor=command.cursor)


# Fold


def evolve_other(record: Any, event: e.Event) -> Record:
    """The record after this event."""
    fold = _FOLDS.get(type(event))
    if fold is None:
        raise StoreCorrupt(f"{type(event).__name__} does not belong to a record of this kind")
    folded: Record = fold(record, event)
    return folded


def _registered(record: SessionRecord | None, event: e.SessionRegistered) -> SessionRecord:
    return SessionRecord(
        id=event.session_id,
        created_at=record.created_at if record else event.timestamp,
        updated_at=event.timestamp,
        user=event.actor.user_id,
        agent_type=event.agent_type,
        process=event.process,
        heartbeat_at=event.timestamp,
        metadata=event.metadata,
        implied=event.implied,
    )


def _heartbeat(record: SessionRecord, event: e.SessionHeartbeat) -> SessionRecord:
    metadata = record.metadata | event.metadata if event.metadata else record.metadata
    return replace(record, updated_at=event.timestamp, heartbeat_at=event.timestamp, metadata=metadata)


def _ended(record: SessionRecord, event: e.SessionEndedEvent) -> SessionRecord:
    return replace(record, updated_at=event.timestamp, ended_at=event.timestamp)


def _rejected(_: RefusedRecord | None, event: e.ResultRejected) -> RefusedRecord:
    return RefusedRecord(
        task=event.task_id,
        generation=event.submitted_generation,
        session=event.session_id,
        agent=event.agent_id,
        digest=event.digest,
        reason=event.rejection_reason,
        current_generation=event.current_generation,
        work_product_ref=event.work_product_ref,
        size=event.size,
        submitted_at=event.timestamp,
        updated_at=event.timestamp,
        data=event.result_data,
        payload=event.payload,
        payload_id=event.payload_id,
    )


def _adopted(record: RefusedRecord, event: e.ResultAdopted) -> RefusedRecord:
    return replace(record, updated_at=event.timestamp, state=RefusedState.ADOPTED)


def _discarded(record: RefusedRecord, event: e.ResultDiscarded) -> RefusedRecord:
    return replace(record, updated_at=event.timestamp, state=RefusedState.DISCARDED, data=NO_DATA)


def _taken(_: CounterRecord | None, event: e.IdsTaken) -> CounterRecord:
    return CounterRecord(event.prefix, event.value, event.timestamp)


def _project(record: ProjectRecord | None, event: e.ProjectChanged) -> ProjectRecord:
    created = record.created_at if record else event.timestamp
    epoch = record.epoch if record else event.epoch
    return ProjectRecord(event.project_id, created, event.timestamp, event.policy, event.tracks, epoch)


def _raised(record: ProjectRecord, event: e.EpochRaised) -> ProjectRecord:
    return replace(record, updated_at=event.timestamp, epoch=event.epoch)


def _tenant(record: TenantRecord | None, event: e.TenantChanged) -> TenantRecord:
    created = record.created_at if record else event.timestamp
    return TenantRecord(event.tenant, created, event.timestamp, event.profile, event.limits)


def _denied(record: AccessRecord | None, event: e.ClaimDenied) -> AccessRecord:
    denials = dict(record.denials) if record else {}
    denials[event.reason] = denials.get(event.reason, 0) + event.count
    return AccessRecord(event.access_id, event.timestamp, denials)


def _settled(_: SettledRecord | None, event: e.Settled) -> SettledRecord:
    return SettledRecord(event.cursor, event.timestamp)


_FOLDS: dict[type, Callable[[Any, Any], Record]] = {
    **api_keys.FOLDS,
    e.SessionRegistered: _registered,
    e.SessionHeartbeat: _heartbeat,
    e.SessionEndedEvent: _ended,
    e.ResultRejected: _rejected,
    e.ResultAdopted: _adopted,
    e.ResultDiscarded: _discarded,
    e.IdsTaken: _taken,
    e.ProjectChanged: _project,
    e.EpochRaised: _raised,
    e.TenantChanged: _tenant,
    e.ClaimDenied: _denied,
    e.Settled: _settled,
}
