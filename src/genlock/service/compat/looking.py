"""What /api shows: who works on what, how it is doing, and what an agent should take next."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec import UNSET, UnsetType

from genlock import __version__
from genlock.core.model import SessionRecord, Task
from genlock.core.names import check_session
from genlock.core.results import ClaimHistory, Feed
from genlock.engine.processes import gone
from genlock.errors import BadArgument, SessionNotFound
from genlock.service.compat.claims import Asked, milliseconds
from genlock.service.compat.config import ClaimConfig
from genlock.service.compat.health import Health
from genlock.service.compat.history import Histories
from genlock.service.compat.messages import (
    Cleaned,
    Cleanup,
    CurrentClaim,
    CurrentTask,
    FlightSummary,
    Flying,
    FlyingClaim,
    InFlight,
    InFlightQuery,
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
)
from genlock.service.compat.records import Flight, Held, Records

_OFFERS: Final = 5
_CARDS: Final = 500
_REASONS: Final = {"CLAIM_EXPIRED": "expired", "CLAIM_ORPHANED": "session_dead"}


class Looking:
    """The questions about one project."""

    def __init__(self, records: Records, config: ClaimConfig) -> None:
        self._records, self._config = records, config
        self._histories = Histories(records)
        tenant, project = records.place
        self._place: dict[str, Any] = {"tenant_id": tenant, "project_id": project}

    async def in_flight(self, asked: Asked) -> InFlight:
        """All claims, or a session's; those whose lease is over only when asked for."""
        wanted: InFlightQuery = asked.body
        flight = await self._records.flight(wanted.session_id, heard=True)
        # There may be thousands: whoever claims meanwhile is not to wait for a list.
        flying = await asyncio.to_thread(self._listed, flight, wanted.include_expired)
        by_session = Counter(one.claim.session_id for one in flying)
        return InFlight(in_flight=flying, summary=FlightSummary(total=len(flying), by_session=dict(by_session)))

    async def current_task(self, asked: Asked) -> SessionTask:
        """What a session works on: of several tasks the one that it claimed last."""
        await self._known(asked.name)
        flight = await self._records.flight(asked.name)
        held = _current(flight.held)
        if held is None:
            return SessionTask(session_id=asked.name, current_task=None)
        task, claim = held.record.task, held.claim
        return SessionTask(
            session_id=asked.name,
            current_task=CurrentTask(
                task_id=task.id,
                title=task.title,
                claim=CurrentClaim(claimed_at=stamp(claim.claimed_at), remaining_ms=milliseconds(claim.expires_at - flight.now)),
            ),
        )

    async def cleanup(self, asked: Asked) -> Cleanup:
        """Sweeps, and says whose claims were found lost: those of the feed since."""
        start: Feed = await asked.speaker.read_events(tail=True, **self._place)
        await asked.speaker.sweep(**self._place)
        cleaned: list[Cleaned] = []
        after, more = start.cursor, True
        while more:
            feed: Feed = await asked.speaker.read_events(after=after, limit=1000, **self._place)
            after, more = feed.cursor, feed.more
            cleaned += [
                Cleaned(task_id=found.id, session_id=found.event["holder_session_id"], reason=_REASONS[found.event_type])
                for found in feed.events
                if found.event_type in _REASONS
            ]
        return Cleanup(cleaned=cleaned, count=len(cleaned))

    async def stats(self, _: Asked) -> Stats:
        """Claims in numbers, those whose lease is over among them."""
        flight = await self._records.flight(heard=True)
        health = await asyncio.to_thread(lambda: Counter(held.health(flight.now, self._config) for held in flight.held))
        oldest = min((held.claim.claimed_at for held in flight.held), default=None)
        return Stats(
            total=len(flight.held),
            by_session=dict(Counter(held.claim.session for held in flight.held)),
            by_health={name.value: health[name] for name in Health},
            oldest_ms=None if oldest is None else milliseconds(flight.now - oldest),
        )

    async def summary(self, _: Asked) -> Summary:
        """Every session that has not ended, those heard of last first."""
        sessions = await self._records.sessions()
        flight = await self._records.flight()
        held: dict[str, list[Held]] = {}
        for one in flight.held:
            held.setdefault(one.claim.session, []).append(one)
        heard = await self._records.heard()
        cards = [(_last_activity(session, held.get(session.id, []), heard.get(session.id)), session) for session in sessions]
        cards.sort(key=lambda card: (card[0], card[1].id), reverse=True)
        histories = await self._histories.of(session.id for _, session in cards[:_CARDS])
        shown = [self._card(session, held.get(session.id, []), histories[session.id], last, flight.now) for last, session in cards[:_CARDS]]
        return Summary(sessions=shown, total=len(sessions))

    async def status(self, _: Asked) -> ProjectHealth:
        """DDB: how the project is doing, and who has been silent for longer than its policy takes for granted."""
        threshold = timedelta(seconds=(await self._records.policy()).stale_threshold_seconds)
        flight = await self._records.flight()
        stale = [
            StaleClaim(
                task_id=held.record.task.id,
                session_id=held.claim.session,
                agent_id=held.claim.agent,
                claimed_at=stamp(held.claim.claimed_at),
                last_active=stamp(held.claim.renewed_at),
                silent_ms=milliseconds(flight.now - held.claim.renewed_at),
            )
            for held in flight.held
            if flight.now - held.claim.renewed_at > threshold
        ]
        counts = {state.lower(): count for state, count in sorted((await self._records.counts()).items())}
        health = "degraded" if stale else "healthy"
        return ProjectHealth(status=health, version=__version__, tasks=counts, claims=len(flight.held), stale_claims=stale)

    async def start(self, asked: Asked) -> Start:
        """DDB: what this agent should take. Nothing is claimed; warnings of overlap come with the routing by modules."""
        request: StartRequest = asked.body
        ready = await asked.speaker.ready(agent_id=request.agent_id, tracks=request.tracks, limit=_OFFERS, **self._place)
        offers = [_offer(one.task) for one in ready]
        return Start(
            agent_id=request.agent_id,
            agent_role=request.agent_role,
            next=offers[0] if offers else None,
            alternatives=offers[1:],
            warnings=[],
        )

    def _listed(self, flight: Flight, include_expired: bool) -> list[Flying]:
        found = ((held, held.health(flight.now, self._config)) for held in flight.held)
        return [_flying(held, health) for held, health in found if include_expired or health is not Health.EXPIRED]

    async def _known(self, session_id: str) -> None:
        try:
            known = await self._records.session(check_session(session_id)) is not None
        except BadArgument as error:
            raise SessionNotFound(str(error)) from None
        if not known:
            raise SessionNotFound(f"there is no session {session_id!r}; a session is registered by its first claim")

    def _card(self, session: SessionRecord, held: list[Held], history: list[ClaimHistory], last: datetime, now: datetime) -> SessionCard:
        current = _current(held)
        said = session.metadata
        silent = now - last > timedelta(milliseconds=self._config.orphan_threshold)
        return SessionCard(
            session_id=session.id,
            active=not silent and not gone(session.process),
            last_activity=stamp(last),
            current_task_id=current.record.task.id if current else None,
            current_task_claimed_at=stamp(current.claim.claimed_at) if current else None,
            claim_history=[_past(entry) for entry in history],
            agent_type=_agent_type(current) or session.agent_type or UNSET,
            context_percent=said.get("contextPercent", UNSET),
            score=said.get("score", UNSET),
            phase=said.get("phase", UNSET),
        )


def _current(held: list[Held]) -> Held | None:
    live = [one for one in held if one.cause is None]
    return live[-1] if live else None


def _last_activity(session: SessionRecord, held: list[Held], heard: datetime | None) -> datetime:
    return max([session.updated_at, *(one.last_activity for one in held), *([heard] if heard is not None else [])])


def _agent_type(held: Held | None) -> str:
    said = held.claim.metadata.get("agentType") if held is not None else None
    return said if isinstance(said, str) else ""


def _flying(held: Held, health: Health) -> Flying:
    task, claim = held.record.task, held.claim
    kind: str | UnsetType = _agent_type(held) or (held.session.agent_type if held.session is not None else "") or UNSET
    return Flying(
        task_id=task.id,
        task=TaskWords(title=task.title, phase=task.phase, priority=task.priority),
        claim=FlyingClaim(
            session_id=claim.session,
            claimed_at=stamp(claim.claimed_at),
            expires_at=stamp(claim.expires_at),
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
        release_reason=entry.release_reason.lower(),
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
