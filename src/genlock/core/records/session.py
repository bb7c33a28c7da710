"""Sessions: one run of one user's tool.

1. A session registers itself, or a granted claim registers it (`command.implied`). The same
   registration again changes nothing. An ended session cannot be registered again.
2. If a registration names the session's process, it is that one. Otherwise the process is implied:
   the one that registers or claims. A session may have several processes, such as the subagents of
   one tool. The end of one says nothing about the others, so none of them stands for the session,
   and the leases decide. A new process takes the place of one that is known to be gone.
3. An explicit registration of a new session is refused when the tenant has `max_active_sessions`
   already. For an implied one the claim has checked that limit.
4. The holder of a claim is lost (`is_silent`) if its session was registered through the
   session-claiming interface, no process of it is known, and it has been silent for longer than
   that interface allows (`orphan_seconds`). For all other sessions without a known process the
   lease decides, so that they never lose a live lease by silence.
5. A session is active until it ends, its process is known to be gone, or it has been silent for
   longer than the policy's `orphan_threshold_seconds`. A long lease does not excuse silence.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.index import Index
from genlock.core.keys import SESSION
from genlock.core.model import Actor, Claim, Process, SessionRecord, for_user
from genlock.core.policy import Policy
from genlock.core.reasons import Verdict
from genlock.errors import LimitReached, SessionEnded, SessionNotFound


def decide_register(
    record: SessionRecord | None, command: c.RegisterSession, facts: Facts
) -> Decision:
    """Registers a session. Rules 1 to 3."""
    process, implied = _process_of(record, command, facts)
    if record is not None:
        if command.implied:
            return _follow(record, command, process, facts)
        if record.ended_at is not None:
            raise SessionEnded(f"session {record.id!r} has ended; register a new one")
        same = (
            (record.process, record.implied) == (process, implied)
            and record.agent_type == command.agent_type
            and record.orphan_seconds == command.by.orphan_seconds
            and record.metadata == command.metadata
        )
        if same and record.user == command.by.actor.user_id:
            return Decision(Verdict.UNCHANGED)
    most = facts.limits.max_active_sessions
    if (
        record is None
        and not command.implied
        and most is not None
        and facts.sessions is not None
        and facts.sessions >= most
    ):
        raise LimitReached(
            f"the tenant has {facts.sessions} active sessions, the limit max_active_sessions is "
            f"{most}; end one first"
        )
    return decide_one(
        record,
        command,
        facts,
        _registered,
        e.SessionRegistered,
        Verdict.DONE,
        session_id=command.key.id,
        process=process,
        agent_type=command.agent_type,
        metadata=command.metadata,
        implied=implied,
        orphan_seconds=command.by.orphan_seconds,
    )


def _process_of(
    record: SessionRecord | None, command: c.RegisterSession, facts: Facts
) -> tuple[Process | None, bool]:
    """Returns the session's process from now on, and whether it is only implied. Rule 2."""
    own = command.by.process
    if command.named is not None:
        return command.named, False
    if record is None:
        return own, True
    if record.process == own:
        return own, record.implied
    return own if facts.holder_gone else None, True


def _follow(
    record: SessionRecord, command: c.RegisterSession, process: Process | None, facts: Facts
) -> Decision:
    """Records the process that claims, or renews a claim, for a session that exists. Rule 2."""
    if not moved(record, command.by):
        return Decision(Verdict.UNCHANGED)
    by = command.by
    actor = replace(by.actor, user_id=by.actor.user_id or record.user)
    return decide_one(
        record,
        replace(command, by=replace(by, actor=actor)),
        facts,
        _registered,
        e.SessionRegistered,
        Verdict.DONE,
        session_id=record.id,
        process=process,
        agent_type=record.agent_type,
        metadata=record.metadata,
        implied=True,
        orphan_seconds=record.orphan_seconds,
    )


def moved(session: SessionRecord, by: c.Caller) -> bool:
    """Does a process other than the implied session's claim for it?"""
    return session.implied and session.process is not None and session.process != by.process


def decide_heartbeat(
    record: SessionRecord | None, command: c.HeartbeatSession, facts: Facts
) -> Decision:
    record = _session(record, command)
    if record.ended_at is not None:
        raise SessionEnded(f"session {record.id!r} has ended; register a new one")
    return decide_one(
        record,
        command,
        facts,
        _heartbeat,
        e.SessionHeartbeat,
        Verdict.DONE,
        actor=_actor(record, command),
        session_id=record.id,
        metadata=command.metadata,
    )


def decide_end(record: SessionRecord | None, command: c.EndSession, facts: Facts) -> Decision:
    record = _session(record, command)
    if record.ended_at is not None:
        return Decision(Verdict.UNCHANGED)
    return decide_one(
        record,
        command,
        facts,
        _ended,
        e.SessionEndedEvent,
        Verdict.DONE,
        actor=_actor(record, command),
        session_id=record.id,
    )


def _actor(record: SessionRecord, command: c.Command) -> Actor:
    """Returns the actor: the session's user for its own commands, the operator for an
    operator's."""
    by = command.by
    return for_user(by.actor, record.user) if by.session == record.id else by.actor


def last_activity(
    session: SessionRecord, claims: Iterable[Claim] = (), heard: datetime | None = None
) -> datetime:
    """Returns the latest sign of life: the session's own, that of its claims, or `heard`, from the
    feed."""
    last = max([session.updated_at, *(claim.renewed_at for claim in claims)])
    return last if heard is None else max(last, heard)


def is_silent(session: SessionRecord, last: datetime, now: datetime) -> bool:
    """Is the holder lost because of its silence? Rule 4."""
    return (
        session.process is None
        and session.orphan_seconds is not None
        and now - last > timedelta(seconds=session.orphan_seconds)
    )


def is_active(
    session: SessionRecord, last: datetime, policy: Policy, now: datetime, *, gone: bool
) -> bool:
    """Is the session active? Rule 5."""
    return (
        session.ended_at is None
        and not gone
        and now - last <= timedelta(seconds=policy.orphan_threshold_seconds)
    )


def _session(record: SessionRecord | None, command: c.Command) -> SessionRecord:
    if record is None:
        raise SessionNotFound(
            f"there is no session {command.key.id!r} in project {command.key.project!r}"
        )
    return record


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
        orphan_seconds=event.orphan_seconds,
    )


def _heartbeat(record: SessionRecord, event: e.SessionHeartbeat) -> SessionRecord:
    metadata = record.metadata | event.metadata if event.metadata else record.metadata
    return replace(
        record, updated_at=event.timestamp, heartbeat_at=event.timestamp, metadata=metadata
    )


def _ended(record: SessionRecord, event: e.SessionEndedEvent) -> SessionRecord:
    return replace(record, updated_at=event.timestamp, ended_at=event.timestamp)


def _index(record: SessionRecord) -> Index:
    return Index(state="ENDED" if record.ended_at else "ACTIVE")


RECORD = RecordKind(
    kind=SESSION,
    record=SessionRecord,
    commands={
        c.RegisterSession: decide_register,
        c.HeartbeatSession: decide_heartbeat,
        c.EndSession: decide_end,
    },
    begins=e.SessionRegistered,
    folds={
        e.SessionRegistered: _registered,
        e.SessionHeartbeat: _heartbeat,
        e.SessionEndedEvent: _ended,
    },
    index_of=_index,
)
