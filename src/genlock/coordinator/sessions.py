"""Sessions and agents: who is there, what they hold, what they have done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from genlock.coordinator.arguments import LONGEST_WORD, check_after, check_flag, check_limit, check_text, check_whole, plain
from genlock.coordinator.base import task_of
from genlock.coordinator.queries import Queries
from genlock.coordinator.scripts import Ask, Read, Script
from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.codec import decode_event, encode_json, event_to_builtins
from genlock.core.ids import parse_task_id
from genlock.core.keys import SESSION, TASK, Key
from genlock.core.model import Claim, Process, SessionRecord, TaskRecord
from genlock.core.names import check_session, check_user
from genlock.core.others import is_active, last_activity
from genlock.core.processes import check_process
from genlock.core.reasons import ClaimState, ReleaseReason, Status
from genlock.core.results import (
    AgentInfo,
    ClaimRef,
    ReleaseResult,
    SessionEnd,
    SessionInfo,
    SessionMemory,
    TaskLogEntry,
)
from genlock.engine.processes import gone, identify
from genlock.errors import BadArgument, GenlockError, SessionNotFound
from genlock.store import EventQuery, Query

_PAGE = 500


class Sessions(Queries):
    """Operations on sessions."""

    def register_session(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_type: str = "",
        pid: int | None = None,
        process: Process | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[SessionInfo]:
        """Say that a session begins, and which process it is: `pid` on this machine, or a `process` identity from elsewhere."""
        place = self.place(tenant_id, project_id)
        caller = self.caller(session_id)
        agent_type = check_text("agent_type", agent_type, LONGEST_WORD)
        if process is not None:
            check_process(process)
        if pid is not None:
            pid = check_whole("pid", pid, 1, 2**31 - 1)
            process = identify(pid)
            if process is None:
                raise BadArgument(f"there is no process {pid} on this machine")
        actor = caller.actor
        if user_id is not None:
            actor = msgspec.structs.replace(actor, user_id=check_user(user_id))
        by = c.Caller(caller.session, caller.agent, actor, process or caller.process)
        key = Key(*place, SESSION, caller.session)
        yield from self.ensure_place(place)
        yield from self.ask_one(c.RegisterSession(key, by, agent_type, plain(metadata)))
        return (yield from self._info(key))

    def heartbeat_session(
        self,
        *,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[SessionInfo]:
        """Say that a session lives. Leases are renewed by `renew_lease`, not by this."""
        key = Key(*self.place(tenant_id, project_id), SESSION, self.caller(session_id).session)
        yield from self.ask_one(c.HeartbeatSession(key, self.caller(session_id), plain(metadata)))
        return (yield from self._info(key))

    def end_session(
        self, *, session_id: str | None = None, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[SessionEnd]:
        """End a session and release what it holds in this project."""
        place = self.place(tenant_id, project_id)
        caller = self.caller(session_id)
        yield from self.ask_one(c.EndSession(Key(*place, SESSION, caller.session), caller))
        held: list[tuple[Key, TaskRecord]] = yield Read(lambda: self._held(place, caller.session))
        released: list[str] = []
        errors: list[GenlockError] = []
        for start in range(0, len(held), _PAGE):
            commands = [
                c.ReleaseClaim(key, caller, record.generation, ReleaseReason.VOLUNTARY) for key, record in held[start : start + _PAGE]
            ]
            job = yield Ask(commands)
            errors += [outcome for outcome in job.results if isinstance(outcome, GenlockError)]
            released += [
                command.key.id
                for command, outcome in zip(commands, job.results, strict=True)
                if isinstance(outcome, ReleaseResult) and outcome.success
            ]
        if errors:
            raise errors[0]
        return SessionEnd(caller.session, tuple(released))

    def list_sessions(
        self,
        *,
        include_ended: bool = False,
        limit: int = 1000,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[SessionInfo, ...]]:
        """The sessions of a project by id, with what they hold and whether they look alive; `after` is the last id of the page before."""
        state = None if check_flag("include_ended", include_ended) else "ACTIVE"
        place = self.place(tenant_id, project_id)
        limit, behind = check_limit(limit), check_after(after)

        def read() -> tuple[SessionInfo, ...]:
            found = self._find(Query(*place, kind=SESSION, state=state), behind)
            keys = [stored.key for stored in islice(found, limit)]
            heard = self.engine.activity.of(place) if keys else {}
            return tuple(self._session_info(key, heard.get(key.id)) for key in keys)

        found: tuple[SessionInfo, ...] = yield Read(read)
        return found

    def list_agents(self, *, tenant_id: str | None = None, project_id: str | None = None) -> Script[tuple[AgentInfo, ...]]:
        """The agents that hold tasks now."""
        place = self.place(tenant_id, project_id)

        def read() -> tuple[AgentInfo, ...]:
            held: dict[tuple[str, str], list[str]] = {}
            for state in (Status.IN_PROGRESS, Status.HELD):
                for stored in self._find(Query(*place, state=state)):
                    claim = task_of(stored).claim
                    if claim is not None and claim.state is ClaimState.ACTIVE:
                        held.setdefault((claim.agent, claim.session), []).append(stored.key.id)
            return tuple(AgentInfo(agent, session, "working", tuple(sorted(tasks))) for (agent, session), tasks in sorted(held.items()))

        found: tuple[AgentInfo, ...] = yield Read(read)
        return found

    def get_session_memory(
        self, *, session_id: str | None = None, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[SessionMemory]:
        """GC 3.5: what a session has done, holds and has completed, read from the project's feed."""
        place = self.place(tenant_id, project_id)
        session = check_session(session_id) if session_id is not None else self.caller(None).session
        memory: SessionMemory = yield Read(lambda: self._memory(place, session))
        return memory

    # How it is read

    def _info(self, key: Key) -> Script[SessionInfo]:
        """Of a session that was heard of just now: there is nothing later to be looked for."""
        info: SessionInfo = yield Read(lambda: self._session_info(key))
        return info

    def _session_info(self, key: Key, heard: datetime | None = None) -> SessionInfo:
        session = self._session(key)
        policy = self.read_settings(key.place)[0]
        now = self.store.load([]).now
        held = self._held(key.place, key.id)
        last = last_activity(session, _claims(held), heard)
        is_gone = gone(session.process)
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
            claims=tuple(_claim_ref(record) for _, record in held),
            metadata=session.metadata,
        )

    def _session(self, key: Key) -> SessionRecord:
        record = self.read_records([key]).get(key)
        if not isinstance(record, SessionRecord):
            raise SessionNotFound(f"there is no session {key.id!r} in project {key.project!r}")
        return record

    def _held(self, place: tuple[str, str], session: str) -> list[tuple[Key, TaskRecord]]:
        held = []
        for stored in self._find(Query(*place, session=session)):
            record = task_of(stored)
            if record.claim is not None and record.claim.session == session and record.claim.state is ClaimState.ACTIVE:
                held.append((stored.key, record))
        return held

    def _memory(self, place: tuple[str, str], name: str) -> SessionMemory:
        key = Key(*place, SESSION, name)
        session = self._session(key)
        log = self._placed(place, list(self._log(place, name)))
        held = self._held(place, name)
        completed = dict.fromkeys(entry.task_id for entry in log if entry.event == "RESULT_SUBMITTED" and entry.outcome == "ACCEPTED")
        # That it lost a claim was found out by others; and not all that it did has a word in the log.
        signs = [entry.timestamp for entry in log if entry.event != "CLAIM_LOST"]
        signs += filter(None, [self.engine.activity.of(place).get(name)])
        return SessionMemory(
            session_id=name,
            tenant_id=place[0],
            project_id=place[1],
            user_id=session.user,
            created_at=session.created_at,
            last_activity=last_activity(session, _claims(held), max(signs, default=None)),
            task_log=tuple(log),
            active_claims=tuple(_claim_ref(record) for _, record in held),
            completed_tasks=tuple(completed),
            track_assignments={
                record.task.track: record.claim.agent for _, record in held if record.task.track is not None and record.claim is not None
            },
            track_progress=self._progress(place),
        )

    def _placed(self, place: tuple[str, str], log: list[TaskLogEntry]) -> list[TaskLogEntry]:
        """The same, with the tracks of those tasks whose ids do not name theirs."""
        names = list(dict.fromkeys(entry.task_id for entry in log if entry.track is None))
        tracks: dict[str, str | None] = {}
        for start in range(0, len(names), _PAGE):
            records = self.read_records([Key(*place, TASK, each) for each in names[start : start + _PAGE]])
            tracks |= {key.id: record.task.track for key, record in records.items() if isinstance(record, TaskRecord)}
        return [msgspec.structs.replace(entry, track=tracks[entry.task_id]) if tracks.get(entry.task_id) else entry for entry in log]

    def _log(self, place: tuple[str, str], session: str) -> Iterator[TaskLogEntry]:
        cursor: str | None = None
        mark = encode_json(session)[1:-1]  # as it stands in an event
        while True:
            page = self.store.read_events(EventQuery(*place, after=cursor, limit=_PAGE))
            for recorded in page.events:
                if mark in recorded.body:
                    entry = _log_entry(session, decode_event(recorded.body).event)
                    if entry is not None:
                        yield entry
            if not page.more:
                return
            cursor = page.cursor


def _claims(held: list[tuple[Key, TaskRecord]]) -> list[Claim]:
    return [record.claim for _, record in held if record.claim is not None]


def _claim_ref(record: TaskRecord) -> ClaimRef:
    assert record.claim is not None
    return ClaimRef(record.task.id, record.claim.generation, record.claim.expires_at)


def _log_entry(session: str, event: e.Event) -> TaskLogEntry | None:
    """GC's five words for what a session's log says."""
    name: str | None = None
    outcome = reference = None
    agent = event.agent_id
    mine = event.session_id == session
    match event:
        case e.ClaimAcquired() if mine:
            name = "CLAIM_ACQUIRED"
        case e.LeaseRenewed() if mine:
            name = "LEASE_RENEWED"
        case e.ResultAccepted() if mine:
            name, outcome, reference = "RESULT_SUBMITTED", "ACCEPTED", event.work_product_ref
        case e.ResultRejected() if mine:
            name, outcome = "RESULT_SUBMITTED", "REJECTED"
        case e.ClaimReleased() if mine:
            name = "CLAIM_RELEASED"
        case e.SubtasksSpawned() if mine and not event.keep:
            name = "CLAIM_RELEASED"
        case e.ClaimExpired() | e.ClaimOrphaned() | e.ClaimSuperseded() | e.TaskReset() | e.TaskCancelled() if (
            event.holder_session_id == session
        ):
            name, agent = "CLAIM_LOST", event.holder_agent_id
        case _:
            pass
    if name is None:
        return None
    task = parse_task_id(event.task_id)
    common = {"timestamp", "tenant_id", "project_id", "task_id", "generation", "session_id", "agent_id", "event_type", "result_data"}
    details = {field: value for field, value in event_to_builtins(event).items() if field not in common}
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
