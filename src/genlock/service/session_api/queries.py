"""The queries of /api: who works on what, the health of claims, and what an agent should take
next."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import UNSET, UnsetType

from genlock import __version__
from genlock.core.commands import Caller
from genlock.core.keys import SESSION, Key
from genlock.core.model import SessionRecord, Task
from genlock.core.names import check_session
from genlock.core.reasons import Status
from genlock.core.results import ClaimHistory, Feed
from genlock.errors import BadArgument, SessionNotFound
from genlock.messages import describe_overlaps
from genlock.reads.claims import ActiveClaims, HeldTask, SessionHistories, active_claims
from genlock.reads.next_task import overlaps_of
from genlock.reads.progress import state_counts
from genlock.reads.sessions import active_sessions
from genlock.service.events.formats import lapse_reason
from genlock.service.session_api.claims import (
    AGENT_TYPE,
    ApiProject,
    Asked,
    milliseconds,
    remaining,
)
from genlock.service.session_api.health import ClaimConfig, Health, health_of
from genlock.service.session_api.messages import (
    Cleaned,
    Cleanup,
    CurrentClaim,
    CurrentTask,
    Flying,
    FlyingClaim,
    InFlight,
    InFlightQuery,
    InFlightSummary,
    Offer,
    PastClaim,
    ProjectHealth,
    SessionCard,
    SessionTask,
    StaleClaim,
    Start,
    StartRequest,
    Stats,
    Summary,
    TaskWords,
    stamp,
    stamp_or_none,
)

_OFFERS: Final = 5
_CARDS: Final = 500


class SessionQueries:
    """The queries about one project."""

    def __init__(self, project: ApiProject, config: ClaimConfig) -> None:
        self._project, self._config = project, config
        self._histories = SessionHistories(project.scope)
        self._reading_histories = asyncio.Lock()
        tenant, project_id = project.scope
        self._place: dict[str, Any] = {"tenant_id": tenant, "project_id": project_id}

    async def in_flight(self, asked: Asked) -> InFlight:
        """All claims, or those of a session. Expired ones only on request."""
        wanted: InFlightQuery = asked.body
        found = await self._claims(wanted.session_id, with_expired=wanted.include_expired)
        # In a thread: there may be thousands, and claims must not wait for a list.
        flying = await asyncio.to_thread(self._listed, found, wanted.include_expired)
        by_session = Counter(one.claim.session_id for one in flying)
        return InFlight(
            in_flight=flying,
            summary=InFlightSummary(total=len(flying), by_session=dict(by_session)),
        )

    async def current_task(self, asked: Asked) -> SessionTask:
        """The task that a session works on; of several, the one claimed last."""
        await self._known(asked.name)
        found = await self._claims(asked.name)
        held = _current(found.held)
        if held is None:
            return SessionTask(session_id=asked.name, current_task=None)
        task, claim = held.record.task, held.claim
        return SessionTask(
            session_id=asked.name,
            current_task=CurrentTask(
                task_id=task.id,
                title=task.title,
                claim=CurrentClaim(
                    claimed_at=stamp(claim.claimed_at),
                    last_heartbeat=stamp(claim.renewed_at),
                    remaining_ms=remaining(claim.expires_at, found.now),
                ),
            ),
        )

    async def cleanup(self, asked: Asked) -> Cleanup:
        """Sweeps, and returns the claims found lost, read from the feed since then."""
        start: Feed = await asked.speaker.read_events(tail=True, **self._place)
        await asked.speaker.sweep(**self._place)
        cleaned: list[Cleaned] = []
        after, more = start.cursor, True
        while more:
            feed: Feed = await asked.speaker.read_events(after=after, limit=1000, **self._place)
            after, more = feed.cursor, feed.more
            cleaned += [
                Cleaned(
                    task_id=found.id,
                    session_id=found.event["holder_session_id"],
                    reason=lapse_reason(found.event),
                )
                for found in feed.events
                if found.event_type in ("CLAIM_EXPIRED", "CLAIM_ORPHANED")
            ]
        return Cleanup(cleaned=cleaned, count=len(cleaned))

    async def stats(self, _: Asked) -> Stats:
        """Claims in numbers, including expired ones."""
        found = await self._claims()
        health = await asyncio.to_thread(
            lambda: Counter(self._health(held, found.now) for held in found.held)
        )
        oldest = min((held.claim.claimed_at for held in found.held), default=None)
        return Stats(
            total=len(found.held),
            by_session=dict(Counter(held.claim.session for held in found.held)),
            by_health={name.value: health[name] for name in Health},
            oldest_ms=None if oldest is None else milliseconds(found.now - oldest),
        )

    async def summary(self, _: Asked) -> Summary:
        """Every session that has not ended, the most recently active first."""
        sessions = await self._project.read(
            lambda reader: active_sessions(reader, self._project.scope)
        )
        found = await self._claims()
        held: dict[str, list[HeldTask]] = {}
        for one in found.held:
            held.setdefault(one.claim.session, []).append(one)
        acted = await self._project.read(lambda reader: reader.activity(self._project.scope))
        cards = [
            (_last_activity(session, held.get(session.id, []), acted.get(session.id)), session)
            for session in sessions
        ]
        cards.sort(key=lambda card: (card[0], card[1].id), reverse=True)
        histories, completed = await self._past_claims(
            [session.id for _, session in cards[:_CARDS]]
        )
        states = await self._project.read(lambda reader: state_counts(reader, self._project.scope))
        total = sum(states.values()) - states.get(Status.CANCELLED, 0)
        shown = [
            self._card(
                session,
                held.get(session.id, []),
                histories[session.id],
                last,
                found.now,
                gone=self._project.reader.is_gone(session),
                tasks=(completed[session.id], total),
            )
            for last, session in cards[:_CARDS]
        ]
        return Summary(sessions=shown, total=len(sessions))

    async def status(self, _: Asked) -> ProjectHealth:
        """DDB: the health of the project, with the holders that have been silent for longer than
        the policy allows."""
        policy, counts = await self._project.read(
            lambda reader: (
                reader.settings(self._project.scope).policy,
                state_counts(reader, self._project.scope),
            )
        )
        threshold = timedelta(seconds=policy.stale_threshold_seconds)
        found = await self._claims()
        stale = [
            StaleClaim(
                task_id=held.record.task.id,
                session_id=held.claim.session,
                agent_id=held.claim.agent,
                claimed_at=stamp(held.claim.claimed_at),
                last_active=stamp(held.claim.renewed_at),
                silent_ms=milliseconds(found.now - held.claim.renewed_at),
            )
            for held in found.held
            if found.now - held.claim.renewed_at > threshold
        ]
        health = "degraded" if stale else "healthy"
        return ProjectHealth(
            status=health,
            version=__version__,
            tasks={state.lower(): count for state, count in sorted(counts.items())},
            claims=len(found.held),
            stale_claims=stale,
        )

    async def start(self, asked: Asked) -> Start:
        """DDB: what this agent should take. Claims nothing. With the policy `overlap`, the answer
        warns of work in flight that shares modules with the first offer."""
        request: StartRequest = asked.body
        ready = await asked.speaker.ready(
            agent_id=request.agent_id,
            agent_role=request.agent_role,
            tracks=request.tracks,
            limit=_OFFERS,
            **self._place,
        )
        offers = [_offer(one.task) for one in ready]
        warnings = []
        if ready:
            first, by = ready[0].task, Caller("", request.agent_id)
            shared = await self._project.read(
                lambda reader: overlaps_of(reader, self._project.scope, first, by)
            )
            warnings = [describe_overlaps(first.id, shared)] if shared else []
        return Start(
            agent_id=request.agent_id,
            agent_role=request.agent_role,
            next=offers[0] if offers else None,
            alternatives=offers[1:],
            warnings=warnings,
        )

    async def _claims(
        self, session: str | None = None, *, with_expired: bool = False
    ) -> ActiveClaims:
        return await self._project.read(
            lambda reader: active_claims(
                reader, self._project.scope, session=session, with_expired=with_expired
            )
        )

    async def _past_claims(
        self, sessions: list[str]
    ) -> tuple[dict[str, list[ClaimHistory]], dict[str, int]]:
        """The last claims of each session, and the number of tasks it has completed."""
        async with self._reading_histories:
            return await self._project.read(
                lambda reader: (
                    self._histories.of(reader, sessions),
                    {name: self._histories.completed(name) for name in sessions},
                )
            )

    def _health(self, held: HeldTask, now: datetime) -> Health:
        return health_of(held.claim, now, self._config, cause=held.cause)

    def _listed(self, found: ActiveClaims, include_expired: bool) -> list[Flying]:
        healths = ((held, self._health(held, found.now)) for held in found.held)
        return [
            _flying(held, health)
            for held, health in healths
            if include_expired or health is not Health.EXPIRED
        ]

    async def _known(self, session_id: str) -> None:
        try:
            key = Key(*self._project.scope, SESSION, check_session(session_id))
        except BadArgument as error:
            raise SessionNotFound(str(error)) from None
        if not await self._project.read(lambda reader: reader.records([key])):
            raise SessionNotFound(
                f"there is no session {session_id!r}; a session is registered by its first claim"
            )

    def _card(
        self,
        session: SessionRecord,
        held: list[HeldTask],
        history: list[ClaimHistory],
        last: datetime,
        now: datetime,
        *,
        gone: bool,
        tasks: tuple[int, int],
    ) -> SessionCard:
        current = _current(held)
        said = session.metadata
        silent = now - last > timedelta(milliseconds=self._config.orphan_threshold)
        return SessionCard(
            session_id=session.id,
            active=not silent and not gone,
            last_activity=stamp(last),
            current_task_id=current.record.task.id if current else None,
            current_task_claimed_at=stamp(current.claim.claimed_at) if current else None,
            claim_history=[_past(entry) for entry in history],
            tasks_completed=tasks[0],
            tasks_total=tasks[1],
            agent_type=_agent_type(current) or _known_type(session) or UNSET,
            context_percent=said.get("contextPercent", UNSET),
            score=said.get("score", UNSET),
            phase=said.get("phase", UNSET),
        )


def _current(held: list[HeldTask]) -> HeldTask | None:
    live = [one for one in held if one.cause is None]
    return live[-1] if live else None


def _last_activity(
    session: SessionRecord, held: list[HeldTask], acted: datetime | None
) -> datetime:
    return max(
        [
            session.updated_at,
            *(one.last_activity for one in held),
            *([acted] if acted is not None else []),
        ]
    )


def _agent_type(held: HeldTask | None) -> str:
    said = held.claim.metadata.get(AGENT_TYPE) if held is not None else None
    return said if isinstance(said, str) else ""


def _known_type(session: SessionRecord | None) -> str:
    said = session.metadata.get(AGENT_TYPE) if session is not None else None
    return said if isinstance(said, str) else session.agent_type if session is not None else ""


def _flying(held: HeldTask, health: Health) -> Flying:
    task, claim = held.record.task, held.claim
    kind: str | UnsetType = _agent_type(held) or _known_type(held.session) or UNSET
    return Flying(
        task_id=task.id,
        task=TaskWords(title=task.title, phase=task.phase, priority=task.priority),
        claim=FlyingClaim(
            session_id=claim.session,
            claimed_at=stamp(claim.claimed_at),
            expires_at=stamp_or_none(claim.expires_at),
            last_heartbeat=stamp(claim.renewed_at),
            agent_type=kind,
            health_status=health,
            generation=claim.generation,
        ),
    )


def _past(entry: ClaimHistory) -> PastClaim:
    assert entry.released_at is not None
    assert entry.release_reason is not None
    return PastClaim(
        task_id=entry.task_id,
        claimed_at=stamp(entry.acquired_at),
        released_at=stamp(entry.released_at),
        release_reason=entry.stated_reason or entry.release_reason.lower(),
        canonical_reason=entry.release_reason.lower() if entry.stated_reason else UNSET,
        duration=milliseconds(entry.released_at - entry.acquired_at),
    )


def _offer(task: Task) -> Offer:
    return Offer(
        task_id=task.id,
        title=task.title,
        priority=task.priority,
        track=task.track or UNSET,
        feature=task.feature or UNSET,
        edge=task.edge or UNSET,
    )
