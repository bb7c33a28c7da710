"""Sessions: which exist, what each holds, and what it has done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.codec import decode_event, decode_record, encode_json, event_to_builtins
from genlock.core.ids import parse_task_id
from genlock.core.keys import SESSION, Key, Scope
from genlock.core.model import Claim, SessionRecord, TaskRecord
from genlock.core.reasons import ClaimState
from genlock.core.records.session import is_active, last_activity
from genlock.core.results import (
    ClaimRef,
    SessionInfo,
    SessionMemory,
    TaskClaim,
    TaskLogEntry,
)
from genlock.core.task.view import task_claim
from genlock.errors import SessionNotFound
from genlock.reads.progress import track_progress
from genlock.reads.reader import PAGE, Reader, StoreReader, task_of
from genlock.store import Query

_ACTIVE = "ACTIVE"


def session_record(reader: StoreReader, key: Key) -> SessionRecord:
    """One session, or SessionNotFound."""
    record = reader.records([key]).get(key)
    if not isinstance(record, SessionRecord):
        raise SessionNotFound(f"there is no session {key.id!r} in project {key.project!r}")
    return record


def active_sessions(reader: StoreReader, scope: Scope) -> list[SessionRecord]:
    """Every session that has not ended."""
    stored = reader.find(Query(*scope, kind=SESSION, state=_ACTIVE))
    records = (decode_record(SESSION, found.body) for found in stored)
    return [record for record in records if isinstance(record, SessionRecord)]


def claims_of_session(reader: StoreReader, tenant: str, session: str) -> Iterator[TaskClaim]:
    """The claims of a session, in all projects of its tenant."""
    for stored in reader.find(Query(tenant, session=session)):
        record = task_of(stored)
        if record.claim is not None and record.claim.session == session:
            yield task_claim(stored.key, record, record.claim)


def held_tasks(reader: StoreReader, scope: Scope, session: str) -> list[tuple[TaskRecord, Claim]]:
    """The tasks that a session holds in one project."""
    return [
        (record, record.claim)
        for record in reader.find_tasks(Query(*scope, session=session))
        if record.claim is not None
        and record.claim.session == session
        and record.claim.state is ClaimState.ACTIVE
    ]


def session_infos(
    reader: Reader, scope: Scope, *, include_ended: bool, limit: int, after_id: str
) -> tuple[SessionInfo, ...]:
    """The sessions of a project by id, with what they hold and whether they look alive."""
    query = Query(*scope, kind=SESSION, state=None if include_ended else _ACTIVE)
    keys = [stored.key for stored in islice(reader.find(query, after_id), limit)]
    activity = reader.activity(scope) if keys else {}
    return tuple(session_info(reader, key, activity.get(key.id)) for key in keys)


def session_info(reader: Reader, key: Key, acted_at: datetime | None = None) -> SessionInfo:
    """One session. `acted_at` is when it last did something to a task, if that is known to be later
    than its record."""
    session = session_record(reader, key)
    policy = reader.settings(key.place).policy
    now = reader.now()
    held = held_tasks(reader, key.place, key.id)
    last = last_activity(session, [claim for _, claim in held], acted_at)
    is_gone = reader.is_gone(session)
    return SessionInfo(
        session_id=key.id,
        tenant_id=key.tenant,
        project_id=key.project,
        user_id=session.user,
        agent_type=session.agent_type,
        created_at=session.created_at,
        last_activity=last,
        ended_at=session.ended_at,
        active=is_active(session, last, policy, now, gone=is_gone),
        host=session.process.host if session.process else None,
        pid=session.process.pid if session.process else None,
        process_gone=is_gone,
        claims=_claim_refs(held),
        metadata=session.metadata,
    )


def session_memory(reader: Reader, scope: Scope, name: str) -> SessionMemory:
    """GC 3.5: what a session has done, holds and has completed, read from the project's feed."""
    session = session_record(reader, Key(*scope, SESSION, name))
    events = list(_events_about(reader, scope, name))
    entries = [entry for event in events if (entry := _log_entry(name, event)) is not None]
    log = _with_tracks(reader, scope, entries)
    held = held_tasks(reader, scope, name)
    completed = dict.fromkeys(
        entry.task_id
        for entry in log
        if entry.event == "RESULT_SUBMITTED" and entry.outcome == "ACCEPTED"
    )
    # Losing a claim is not an act of the session, and not every act is in the log.
    acts = [event.timestamp for event in events if event.task_id and event.session_id == name]
    return SessionMemory(
        session_id=name,
        tenant_id=scope[0],
        project_id=scope[1],
        user_id=session.user,
        created_at=session.created_at,
        last_activity=last_activity(session, [claim for _, claim in held], max(acts, default=None)),
        task_log=tuple(log),
        active_claims=_claim_refs(held),
        completed_tasks=tuple(completed),
        track_assignments={
            record.task.track: claim.agent
            for record, claim in held
            if record.task.track is not None
        },
        track_progress=track_progress(reader, scope),
    )


def _claim_refs(held: list[tuple[TaskRecord, Claim]]) -> tuple[ClaimRef, ...]:
    return tuple(
        ClaimRef(record.task.id, claim.generation, claim.expires_at) for record, claim in held
    )


def _with_tracks(reader: StoreReader, scope: Scope, log: list[TaskLogEntry]) -> list[TaskLogEntry]:
    """Adds to the log the tracks of tasks whose ids do not contain them."""
    names = dict.fromkeys(entry.task_id for entry in log if entry.track is None)
    tracks = {name: record.task.track for name, record in reader.tasks(scope, names).items()}
    return [
        replace(entry, track=tracks[entry.task_id]) if tracks.get(entry.task_id) else entry
        for entry in log
    ]


def _events_about(reader: StoreReader, scope: Scope, session: str) -> Iterator[e.Event]:
    """The events of the feed that name a session, from the beginning of the session on."""
    # The first event of a session precedes all its acts, except the claim that began the session.
    cursor = reader.cursor_before(Key(*scope, SESSION, session))
    needle = encode_json(session)[1:-1]  # the session's name as encoded in an event
    more = True
    while more:
        page = reader.events(scope, cursor, PAGE)
        for recorded in page.events:
            if needle in recorded.body:
                yield decode_event(recorded.body).event
        cursor, more = page.cursor, page.more


def _log_entry(session: str, event: e.Event) -> TaskLogEntry | None:
    """Returns the log entry of an event, with GC's five words for acts; None for other events."""
    name: str | None = None
    outcome = reference = None
    agent = event.agent_id
    mine = event.session_id == session
    match event:
        case e.ClaimAcquired() if mine:
            name = "CLAIM_ACQUIRED"
        case e.LeaseRenewed() if mine:
            name = "LEASE_RENEWED"
        case e.ResultAccepted() if (event.author_session_id or event.session_id) == session:
            name, outcome, reference = "RESULT_SUBMITTED", "ACCEPTED", event.work_product_ref
            agent = event.author_agent_id or agent
        case e.ConvergenceEscalated() if mine:
            name, outcome, reference = "RESULT_SUBMITTED", "IN_REVIEW", event.work_product_ref
        case e.ResultRejected() if mine:
            name, outcome = "RESULT_SUBMITTED", "REJECTED"
        case e.ClaimReleased() if mine:
            name = "CLAIM_RELEASED"
        case e.SubtasksSpawned() if mine and not event.keep:
            name = "CLAIM_RELEASED"
        case (
            e.ClaimExpired()
            | e.ClaimOrphaned()
            | e.ClaimSuperseded()
            | e.TaskReset()
            | e.TaskCancelled()
        ) if event.holder_session_id == session:
            name, agent = "CLAIM_LOST", event.holder_agent_id
        case _:
            pass
    if name is None:
        return None
    task = parse_task_id(event.task_id)
    common = {
        "timestamp",
        "tenant_id",
        "project_id",
        "task_id",
        "generation",
        "session_id",
        "agent_id",
        "event_type",
        "result_data",
    }
    details = {
        field: value for field, value in event_to_builtins(event).items() if field not in common
    }
    return TaskLogEntry(
        timestamp=event.timestamp,
        event=name,
        task_id=event.task_id,
        track=task.track,
        sequence=task.sequence,
        generation=event.generation,
        agent_id=agent,
        outcome=outcome,
        work_product_ref=reference,
        details=details,
    )
