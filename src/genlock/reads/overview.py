"""A project at a glance: counts, tasks that need a person, rates, sessions, next tasks and refused
results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from heapq import nlargest
from typing import Final

from msgspec.structs import replace

from genlock.core.dashboard import (
    LOST,
    CardTask,
    HolderHealth,
    Need,
    NeedKind,
    Overview,
    Rates,
    Refusal,
    SessionCard,
    TaskRow,
    TrackCounts,
)
from genlock.core.model import SessionRecord
from genlock.core.policy import Expired, Policy
from genlock.core.reasons import FINISHED, RefusedState, Status
from genlock.core.records.session import is_active
from genlock.messages import command, describe_need, describe_refusal, review_causes
from genlock.reads.agents import AGENT, said_of
from genlock.reads.project_view import ProjectView, RefusedEntry, TaskEntry
from genlock.reads.reader import Reader, Settings
from genlock.reads.task_rows import Holding, holdings, own_figures, rows_of
from genlock.reads.tasks import ready_tasks

_NEXT: Final = 10
_REFUSALS: Final = 20
_TASKS_ON_CARD: Final = 10
_MINUTES: Final = 15
_RATED_MINUTES: Final = 5
_TAKEN_OVER_WITHIN: Final = 60.0
"""Seconds within which a worker of a busy fleet usually takes over an overdue task."""
_URGENCY: Final = {kind: rank for rank, kind in enumerate(NeedKind)}
_HEALTH_RANK: Final = {health: rank for rank, health in enumerate(HolderHealth)}


def overview(reader: Reader, view: ProjectView, limit: int) -> Overview:
    """Returns the project's current overview. `view` must be current and from the same reader."""
    now, settings = reader.now(), reader.settings(view.scope)
    claimed = [entry for held in view.held_by.values() for entry in held.values()]
    health = holdings(reader, view, claimed, now, settings.policy)
    needs = sorted(
        _NeedsFinder(view, health, settings.policy, now).find(),
        key=lambda need: (_URGENCY[need.kind], need.since, need.task_id),
    )
    cards = _cards(reader, view, health, settings.policy, now, limit)
    assert view.cursor is not None
    return Overview(
        tenant_id=view.scope[0],
        project_id=view.scope[1],
        now=now,
        cursor=view.cursor,
        total=len(view.tasks),
        states={state.value: view.states[state] for state in Status if view.states[state]},
        tracks=tuple(_tracks(view, settings, claimed)),
        claims=len(claimed),
        refused_results=view.refused_of.total(),
        needs=tuple(needs[:limit]),
        needs_counts=dict(Counter(need.kind.value for need in needs)),
        rates=_rates(view, now),
        sessions=cards,
        sessions_count=sum(session.ended_at is None for session in view.sessions.values()),
        next_up=tuple(_next_up(reader, view, now)),
        refusals=tuple(
            _refusal(entry)
            for entry in nlargest(_REFUSALS, view.refused.values(), key=lambda one: one.at)
        ),
    )


def _tracks(
    view: ProjectView, settings: Settings, claimed: list[TaskEntry]
) -> Iterator[TrackCounts]:
    project = settings.project
    purposes = (project.tracks if project is not None else None) or {}
    agents: dict[str, set[str]] = {}
    for entry in claimed:
        if entry.claim is not None:
            agents.setdefault(entry.track or "", set()).add(entry.claim.agent)
    for track in sorted(view.tracks, key=lambda name: (not name, name)):
        states = view.tracks[track]
        if states.total():
            yield TrackCounts(
                track=track,
                purpose=purposes.get(track, ""),
                states={state.value: states[state] for state in Status if states[state]},
                total=states.total(),
                agents=tuple(sorted(agents.get(track, ()))),
            )


# Tasks that need a person


class _NeedsFinder:
    """Searches the tasks and refused results of a view."""

    def __init__(
        self, view: ProjectView, health: dict[str, Holding], policy: Policy, now: datetime
    ) -> None:
        self._view, self._health, self._policy, self._now = view, health, policy, now
        self._waited_for = Counter(
            other for entry in view.tasks.values() for other in entry.waits_for
        )

    def find(self) -> Iterator[Need]:
        """Yields all needs, in no particular order."""
        for entry in self._view.tasks.values():
            if entry.state not in FINISHED:
                found = self._of_task(entry)
                if found is not None:
                    yield found
        for cycle in self._view.cycles():
            entry = self._view.tasks[cycle[0]]
            if entry.state is Status.BLOCKED:
                why = " → ".join(cycle)
                yield self._need(NeedKind.CYCLE, entry, entry.updated_at, why, "edit")
        for refused in self._view.refused.values():
            if refused.state is RefusedState.KEPT and refused.task in self._view.tasks:
                yield self._of_result(self._view.tasks[refused.task], refused)

    def _of_task(self, entry: TaskEntry) -> Need | None:
        match entry.state:
            case Status.HELD:
                since = entry.held_since or entry.updated_at
                return self._need(NeedKind.HELD, entry, since, entry.hold_reason, "reopen")
            case Status.IN_PROGRESS:
                return self._of_holder(entry)
            case Status.IN_REVIEW:
                return self._of_review(entry)
            case Status.BLOCKED if entry.waits_for_text:
                kind, text = NeedKind.WAITS_FOR_PERSON, entry.waits_for[-1]
                return self._need(kind, entry, entry.updated_at, text, "edit")
            case Status.BACKLOG if self._waited_for[entry.id] and not self._policy.offer_backlog:
                kind = NeedKind.IN_BACKLOG
                return self._need(kind, entry, entry.updated_at, None, "reopen")
            case _:
                return None

    def _of_review(self, entry: TaskEntry) -> Need:
        review = entry.review
        if review is None:
            return self._need(NeedKind.IN_REVIEW, entry, entry.updated_at)
        why = review_causes(review.causes)
        need = self._need(NeedKind.IN_REVIEW, entry, review.submitted_at, why, "approve", "reject")
        return replace(
            need,
            generation=review.generation,
            agent_id=review.agent_id,
            session_id=review.session_id,
            size=review.size,
        )

    def _of_holder(self, entry: TaskEntry) -> Need | None:
        claim, holding = entry.claim, self._health.get(entry.id)
        if claim is None or holding is None:
            return None
        acts = ("release", "hold")
        if holding.health in LOST:
            return self._need(NeedKind.LOST_HOLDER, entry, claim.renewed_at, holding.why, *acts)
        if holding.health is not HolderHealth.OVERDUE:
            return None
        since = claim.expires_at or claim.renewed_at
        if self._policy.expired is Expired.HUMAN:
            return self._need(NeedKind.OVERDUE, entry, since, holding.why, *acts)
        if (self._now - since).total_seconds() < _TAKEN_OVER_WITHIN:
            return None
        return self._need(NeedKind.NOT_TAKEN_OVER, entry, since, holding.why, *acts)

    def _need(
        self, kind: NeedKind, entry: TaskEntry, since: datetime, why: str | None = None, *acts: str
    ) -> Need:
        claim = entry.claim
        return Need(
            kind=kind,
            task_id=entry.id,
            title=entry.title,
            state=entry.state,
            generation=entry.generation,
            since=since,
            why=describe_need(kind, why or ""),
            waited_for_by=self._waited_for[entry.id],
            agent_id=claim.agent if claim is not None else None,
            session_id=claim.session if claim is not None else None,
            acts=acts,
            command=command(_COMMANDS.get(acts[0] if acts else "", "explain"), entry.id),
        )

    def _of_result(self, entry: TaskEntry, refused: RefusedEntry) -> Need:
        finished = entry.state in FINISHED
        return Need(
            kind=NeedKind.REFUSED_RESULT,
            task_id=entry.id,
            title=entry.title,
            state=entry.state,
            generation=refused.generation,
            since=refused.at,
            why=describe_refusal(refused.reason, entry.id, refused.current_generation),
            waited_for_by=self._waited_for[entry.id],
            agent_id=refused.agent or None,
            session_id=refused.session or None,
            refused_id=refused.id,
            size=refused.size,
            acts=("discard",) if finished else ("adopt", "discard"),
            command=command("history", entry.id),
        )


_COMMANDS: Final = {"reopen": "reopen", "release": "unlock", "approve": "review show"}
"""The command for the most likely act. For all other acts, `explain` shows the command."""


def _refusal(refused: RefusedEntry) -> Refusal:
    return Refusal(
        refused_id=refused.id,
        task_id=refused.task,
        at=refused.at,
        agent_id=refused.agent,
        session_id=refused.session,
        generation=refused.generation,
        current_generation=refused.current_generation,
        reason=refused.reason,
        why=describe_refusal(refused.reason, refused.task, refused.current_generation),
        size=refused.size,
        state=refused.state,
    )


# Rates


def _rates(view: ProjectView, now: datetime) -> Rates:
    minutes = view.minutes_until(now, _MINUTES)
    start = minutes[-_RATED_MINUTES].at
    since = minutes[0].at
    if view.counted_since is not None:
        start, since = max(start, view.counted_since), max(since, view.counted_since)
    seconds = max((now - start).total_seconds(), 60.0)
    rated = [minute for minute in minutes if minute.at > start - timedelta(minutes=1)]

    def per_minute(*counts: int) -> float:
        return round(sum(counts) * 60 / seconds, 1)

    return Rates(
        claims=per_minute(*(minute.claims for minute in rated)),
        completions=per_minute(*(minute.completions for minute in rated)),
        refusals=per_minute(*(minute.refusals for minute in rated)),
        denials=per_minute(*(minute.denials for minute in rated)),
        seconds=seconds,
        since=since,
        minutes=tuple(minutes),
    )


# Sessions


def _cards(
    reader: Reader,
    view: ProjectView,
    health: dict[str, Holding],
    policy: Policy,
    now: datetime,
    limit: int,
) -> tuple[SessionCard, ...]:
    last = {name: _last_sign(view, session) for name, session in view.sessions.items()}
    first = nlargest(limit, last, key=lambda name: (name in view.held_by, last[name], name))
    agents = _last_agents(view)
    return tuple(
        _card(
            reader,
            view,
            view.sessions[name],
            last[name],
            health,
            policy,
            now,
            agents.get(name, ""),
        )
        for name in first
    )


def _last_agents(view: ProjectView) -> dict[str, str]:
    """Returns the agent of each session's last result."""
    last: dict[str, TaskEntry] = {}
    for entry in view.tasks.values():
        session = entry.done_in
        if session and (session not in last or last[session].updated_at < entry.updated_at):
            last[session] = entry
    return {session: entry.done_by or "" for session, entry in last.items()}


def _last_sign(view: ProjectView, session: SessionRecord) -> datetime:
    signs = [session.updated_at, view.heard.get(session.id, session.updated_at)]
    signs += [
        entry.claim.renewed_at
        for entry in view.held_by.get(session.id, {}).values()
        if entry.claim is not None
    ]
    return max(signs)


def _card(
    reader: Reader,
    view: ProjectView,
    session: SessionRecord,
    last: datetime,
    health: dict[str, Holding],
    policy: Policy,
    now: datetime,
    agent: str,
) -> SessionCard:
    held = view.held_by.get(session.id, {})
    gone, said = reader.is_gone(session), own_figures(session)
    worst = max((health[name].health for name in held), key=_HEALTH_RANK.__getitem__, default=None)
    tasks = [_card_task(entry, health[entry.id]) for entry in held.values()]
    tasks.sort(key=lambda task: (task.claimed_at, task.task_id), reverse=True)
    return SessionCard(
        session_id=session.id,
        agent_id=tasks[0].agent_id if tasks else agent or said_of(session, AGENT),
        agent_type=session.agent_type,
        user_id=session.user,
        host=session.process.host if session.process else None,
        pid=session.process.pid if session.process else None,
        active=is_active(session, last, policy, now, gone=gone),
        process_gone=gone,
        health=worst,
        tasks=tuple(tasks[:_TASKS_ON_CARD]),
        tasks_held=len(tasks),
        tasks_done=view.done_in[session.id],
        refused_results=view.refused_in[session.id],
        score=said.score,
        context_percent=said.context_percent,
        phase=said.phase,
        created_at=session.created_at,
        last_sign=last,
        metadata=session.metadata,
    )


def _card_task(entry: TaskEntry, holding: Holding) -> CardTask:
    claim = entry.claim
    assert claim is not None
    reported = entry.reported
    current = reported is not None and reported[0] == claim.generation
    return CardTask(
        task_id=entry.id,
        title=entry.title,
        agent_id=claim.agent,
        generation=claim.generation,
        claimed_at=claim.claimed_at,
        expires_at=claim.expires_at,
        lease_seconds=claim.lease_seconds,
        health=holding.health,
        why=holding.why,
        fraction=reported[2] if reported is not None and current else None,
        note=reported[3] if reported is not None and current else "",
    )


def _next_up(reader: Reader, view: ProjectView, now: datetime) -> list[TaskRow]:
    ready = ready_tasks(reader, view.scope, _NEXT, None, None)
    entries = [view.tasks[line.task.id] for line in ready if line.task.id in view.tasks]
    return rows_of(reader, view, entries, now)
