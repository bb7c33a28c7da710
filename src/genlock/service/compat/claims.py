"""SC's three verbs: claim, release, heartbeat. Each acts on the named session's claim at its current generation."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from genlock.coordinator import AsyncCoordinator
from genlock.core.ids import check_task_id
from genlock.core.results import ClaimResult
from genlock.errors import BadArgument, TaskNotFound
from genlock.service.access.grant import Grant
from genlock.service.compat.codes import CODES
from genlock.service.compat.config import ClaimConfig
from genlock.service.compat.health import HEARTBEAT
from genlock.service.compat.messages import (
    Beaten,
    BeatenClaim,
    Claimed,
    ClaimRequest,
    GrantedClaim,
    HeartbeatRequest,
    OtherClaim,
    Refused,
    Released,
    ReleasedClaim,
    ReleaseRequest,
    SessionBeaten,
    SessionHeartbeatRequest,
    stamp,
)
from genlock.service.compat.records import One, Records
from genlock.wire.problems import TITLES

COMPLETED: Final = "completed"
_FAILED: Final = frozenset({"error", "failed"})
"""The reasons of a release that the circuit breaker counts."""


class Asked(NamedTuple):
    """One request."""

    speaker: AsyncCoordinator
    grant: Grant
    name: str
    """The task or session in the path."""
    body: Any


class Claims:
    """The verbs on one project."""

    def __init__(self, records: Records, config: ClaimConfig) -> None:
        self._records, self._config = records, config
        tenant, project = records.place
        self._place: dict[str, Any] = {"tenant_id": tenant, "project_id": project}

    async def claim(self, asked: Asked) -> Claimed | Refused:
        """Claim a task for a session."""
        request: ClaimRequest = asked.body
        found = await self._task(asked.name)
        given = {
            **self._place,
            "task_id": asked.name,
            "session_id": request.session_id,
            "lease_duration_seconds": self._config.lease_seconds(request.ttl_ms, found.limits),
            "metadata": ({"agentType": request.agent_type} if request.agent_type else {}) | {HEARTBEAT: self._config.heartbeat_interval},
        }
        result = await asked.speaker.claim_task(agent_id=asked.speaker.identity.agent_id or request.session_id, **given)
        holder = result.holder
        if holder is not None and holder.session == request.session_id:
            # SC knows sessions only: its own claim, made under another agent's name, is its own.
            result = await asked.speaker.claim_task(agent_id=holder.agent, **given)
        if result.claim is None:
            return _denied(result, found.now)
        claim = result.claim
        return Claimed(
            claim=GrantedClaim(
                task_id=claim.task_id,
                session_id=claim.session_id,
                claimed_at=stamp(claim.claimed_at),
                expires_at=stamp(claim.expires_at),
                generation=claim.generation,
            )
        )

    async def release(self, asked: Asked) -> Released | Refused:
        """Give a task back; `completed` is a submission with an empty result."""
        request: ReleaseRequest = asked.body
        found = await self._task(asked.name)
        generation = _generation(found, request.generation)
        fence = {**self._place, "task_id": asked.name, "session_id": request.session_id}
        reason: object
        if request.reason == COMPLETED:
            reason = (await asked.speaker.submit_result(generation=generation, **fence)).reason
        else:
            ending = "ERROR" if request.reason in _FAILED else "VOLUNTARY"
            reason = (await asked.speaker.release_claim(expected_generation=generation, reason=ending, **fence)).reason
        if CODES[reason] is not None:
            return refused(reason)
        duration = await self._duration(asked, found, generation)
        return Released(
            released=ReleasedClaim(
                task_id=asked.name,
                reason=request.reason,
                claim_duration=duration,
            )
        )

    async def heartbeat(self, asked: Asked) -> Beaten | Refused:
        """Let a claim's lease run anew, and say how the session is doing."""
        request: HeartbeatRequest = asked.body
        found = await self._task(asked.name)
        lease = None if request.extend_ms is None else self._config.lease_seconds(request.extend_ms, found.limits)
        fence = {**self._place, "session_id": request.session_id}
        result = await asked.speaker.renew_lease(
            task_id=asked.name, expected_generation=_generation(found, request.generation), lease_duration_seconds=lease, **fence
        )
        if result.new_expiry is None:
            return refused(result.reason)
        if request.said:
            await asked.speaker.heartbeat_session(metadata=request.said, **fence)
        after = (await self._records.task(asked.name)).record
        count = after.claim.renewals if after is not None and after.claim is not None else 1
        return Beaten(claim=BeatenClaim(expires_at=stamp(result.new_expiry), heartbeat_count=count))

    async def session_heartbeat(self, asked: Asked) -> SessionBeaten:
        """Say that a session lives, and how it is doing."""
        request: SessionHeartbeatRequest = asked.body
        info = await asked.speaker.heartbeat_session(session_id=asked.name, metadata=request.said, **self._place)
        return SessionBeaten(session_id=info.session_id, last_activity=stamp(info.last_activity))

    async def _task(self, name: str) -> One:
        try:
            found = await self._records.task(check_task_id(name))
        except BadArgument as error:
            # What can be no task's id is no task's id.
            raise TaskNotFound(str(error)) from None
        if found.record is None:
            raise TaskNotFound(f"there is no task {name!r}; GET /api/tasks/in-flight lists those that are claimed")
        return found

    async def _duration(self, asked: Asked, found: One, generation: int) -> int:
        """How long the claim lasted. What was released before, and is answered again, is looked up."""
        claim = found.record.claim if found.record is not None else None
        if claim is not None:
            return milliseconds(found.now - claim.claimed_at)
        history = await asked.speaker.get_claim_history(task_id=asked.name, **self._place)
        past = next((entry for entry in history if entry.generation == generation), None)
        return milliseconds(past.released_at - past.acquired_at) if past is not None and past.released_at is not None else 0


def milliseconds(length: timedelta) -> int:
    """Whole milliseconds, never less than none."""
    return max(0, length // timedelta(milliseconds=1))


def refused(reason: object, detail: str = "") -> Refused:
    """A refusal in SC's words."""
    title = TITLES[str(reason)]
    return Refused(error=str(CODES[reason]), message=f"{title}: {detail}" if detail else title, reason=str(reason))


def _generation(found: One, sent: int | None) -> int:
    return sent if sent is not None else found.record.generation if found.record is not None else 0


def _denied(result: ClaimResult, now: datetime) -> Refused:
    answer = refused(result.reason, result.detail or ", ".join(result.waits_for))
    if result.holder is not None:
        answer.claim = OtherClaim(
            session_id=result.holder.session,
            claimed_at=stamp(result.holder.claimed_at),
            remaining_ms=milliseconds(result.holder.expires_at - now),
        )
    return answer
