"""The agent registry: which agents exist, and what each of them does.

An agent is a name within a session. Agents that hold tasks are known by their claims. An idle agent
is known by its session, whose metadata may contain `agent` (its name), `status` (only the agent
itself can report waiting or stopping), `workspace` and `worktree`. Heartbeats set them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from genlock.core.keys import Scope
from genlock.core.model import SessionRecord, TaskRecord
from genlock.core.reasons import AgentStatus, Status
from genlock.core.records.session import is_active, last_activity
from genlock.core.results import AgentInfo
from genlock.reads.claims import HeldTask, active_claims
from genlock.reads.progress import TaskCounts
from genlock.reads.reader import PAGE, Reader, StoreReader
from genlock.reads.sessions import active_sessions
from genlock.store import Query

AGENT: Final = "agent"
STATUS: Final = "status"
WORKSPACE: Final = "workspace"
WORKTREE: Final = "worktree"
"""A key of a session's metadata: where its agent works."""
TOLD: Final = (
    AgentStatus.STARTING,
    AgentStatus.IDLE,
    AgentStatus.WORKING,
    AgentStatus.WAITING,
    AgentStatus.STOPPING,
)
"""The values of `status` that an agent may report."""

Completed = Mapping[tuple[str, str], int]
"""The number of completed tasks by agent and session."""


class _Project(NamedTuple):
    """The data that all agents of a project share."""

    sessions: Mapping[str, SessionRecord]
    activity: Mapping[str, datetime]
    completed: Completed | None


def agents(reader: Reader, scope: Scope, *, idle: bool = False) -> tuple[AgentInfo, ...]:
    """Returns the agents that hold tasks. With `idle` also those of active sessions that hold none,
    and how many tasks each has completed, which reads every completed task."""
    held: dict[tuple[str, str], list[HeldTask]] = {}
    for one in active_claims(reader, scope).held:
        held.setdefault((one.claim.agent, one.claim.session), []).append(one)
    if not idle:
        names = {session for _, session in held}
        project = _Project(reader.sessions(scope, sorted(names)), {}, None)
    else:
        completed = completed_tasks(reader, scope)
        found = {session.id: session for session in active_sessions(reader, scope)}
        project = _Project(found, reader.activity(scope), completed)
        held |= {name: [] for name in _idle(reader, scope, project, {name for _, name in held})}
    return tuple(
        _agent(agent, session, tasks, project) for (agent, session), tasks in sorted(held.items())
    )


def completed_tasks(reader: StoreReader, scope: Scope) -> Completed:
    """Counts the accepted results of each agent in the plan."""
    records = reader.find_tasks(Query(*scope, state=Status.COMPLETED), page=PAGE)
    return Counter(
        (record.result.agent, record.result.session)
        for record in records
        if record.result is not None
    )


def with_people(reader: StoreReader, scope: Scope, counts: TaskCounts) -> TaskCounts:
    """Adds the number of active sessions and agents to a project's counts, if the reader has an
    engine."""
    if not isinstance(reader, Reader):
        return counts
    policy, now, acted = reader.settings(scope).policy, reader.now(), reader.activity(scope)
    held = active_claims(reader, scope).held
    claimed = {one.claim.session: one.last_activity for one in held}
    sessions = sum(
        is_active(
            session,
            max(
                last_activity(session, (), acted.get(session.id)),
                claimed.get(session.id, session.updated_at),
            ),
            policy,
            now,
            gone=reader.is_gone(session),
        )
        for session in active_sessions(reader, scope)
    )
    live = {(one.claim.agent, one.claim.session) for one in held if one.cause is None}
    return counts._replace(sessions=sessions, agents=len(live))


def _idle(
    reader: Reader, scope: Scope, project: _Project, at_work: set[str]
) -> list[tuple[str, str]]:
    """Returns the agents of active sessions that hold no task."""
    policy, now = reader.settings(scope).policy, reader.now()
    by_session = {session: agent for agent, session in project.completed or ()}
    return [
        (said_of(session, AGENT) or by_session.get(name) or name, name)
        for name, session in project.sessions.items()
        if name not in at_work
        and is_active(
            session, _last(session, (), project), policy, now, gone=reader.is_gone(session)
        )
    ]


def _agent(agent: str, name: str, held: list[HeldTask], project: _Project) -> AgentInfo:
    session = project.sessions.get(name)
    record = held[-1].record if held else None
    current = record.task if record is not None else None
    completed = None if project.completed is None else project.completed.get((agent, name), 0)
    worktree = worktree_of(record) if record is not None else ""
    return AgentInfo(
        agent_id=agent,
        session_id=name,
        status=_status(session, held, completed),
        tasks=tuple(sorted(one.record.task.id for one in held)),
        current_task=current.id if current is not None else None,
        tasks_completed=completed,
        started=session.created_at if session is not None else None,
        last_heartbeat=_last(session, held, project) if session is not None else None,
        user_id=session.user if session is not None else "",
        instance_type=_type(session),
        workspace=said_of(session, WORKSPACE),
        worktree=worktree or said_of(session, WORKTREE),
    )


def worktree_of(record: TaskRecord) -> str:
    """Returns where the current generation works: as reported by its holder, else as planned."""
    log = record.progress
    reported = log.worktree_path if log is not None and log.generation == record.generation else ""
    return reported or record.task.worktree_path


def _status(
    session: SessionRecord | None, held: list[HeldTask], completed: int | None
) -> AgentStatus:
    live = [one for one in held if one.cause is None]
    if held and not live:
        return AgentStatus.LOST
    said = said_of(session, STATUS)
    if said in (AgentStatus.WAITING, AgentStatus.STOPPING):
        return AgentStatus(said)
    if live:
        unfinished = [
            any(not child.finished for child in one.record.children.values()) for one in live
        ]
        return AgentStatus.WAITING if all(unfinished) else AgentStatus.WORKING
    return AgentStatus.STARTING if said == "starting" and not completed else AgentStatus.IDLE


def _last(session: SessionRecord, held: list[HeldTask] | tuple[()], project: _Project) -> datetime:
    acted = project.activity.get(session.id)
    return max(
        [session.updated_at, *(one.last_activity for one in held), *([acted] if acted else [])]
    )


def _type(session: SessionRecord | None) -> str:
    return "" if session is None else session.agent_type or said_of(session, "agentType")


def said_of(session: SessionRecord | None, name: str) -> str:
    """A text of the session's metadata; empty if it says none."""
    value = session.metadata.get(name) if session is not None else None
    return value if isinstance(value, str) else ""
