"""SC's three verbs: claim, release, heartbeat. Each acts on the named session's claim at its
current generation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import UNSET

from genlock.coordinator import AsyncCoordinator
from genlock.core.ids import check_task_id
from genlock.core.keys import TASK, Key, Scope
from genlock.core.results import ClaimResult
from genlock.errors import BadArgument, TaskNotFound
from genlock.messages import title
from genlock.reads.reader import Reader
from genlock.reads.tasks import TaskAndLimits, task_and_limits
from genlock.service.auth.permissions import Grant
from genlock.service.context import ServiceContext
from genlock.service.session_api.health import HEARTBEAT, ClaimConfig
from genlock.service.session_api.messages import (
    CODES,
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
    stamp_or_none,
)

T = TypeVar("T")

COMPLETED: Final = "completed"
AGENT_TYPE: Final = "agentType"
"""The name in the metadata of claims and sessions."""


class Asked(NamedTuple):
    """One request."""

    speaker: AsyncCoordinator
    grant: Grant
    name: str
    """The task or session in the path."""
    body: Any


class ApiProject:
    """The project of /api, with reads in threads."""

    def __init__(self, context: ServiceContext, scope: Scope) -> None:
        self._context = context
        self.scope = scope

    @property
    def reader(self) -> Reader:
        """The coordinator's reader."""
        return self._context.coordinator.reader

    async def read(self, function: Callable[[Reader], T]) -> T:
        """Calls the function in a thread, and waits for a store that is unavailable."""
        reader = self.reader
        return await asyncio.get_running_loop().run_in_executor(
            None, reader.retry, lambda: function(reader)
        )

    async def task(self, task_id: str) -> TaskAndLimits:
        """One task with its tenant's limits."""
        key = Key(*self.scope, TASK, task_id)
        return await self.read(lambda reader: task_and_limits(reader, key))


class Claims:
    """The verbs on one project."""

    def __init__(self, project: ApiProject, config: ClaimConfig) -> None:
        self._project, self._config = project, config
        tenant, project_id = project.scope
        self._place: dict[str, Any] = {"tenant_id": tenant, "project_id": project_id}

    async def claim(self, asked: Asked) -> Claimed | Refused:
        """Claim a task for a session."""
        request: ClaimRequest = asked.body
        found = await self._task(asked.name)
        given = {
            **self._place,
            "task_id": asked.name,
            "session_id": request.session_id,
            "lease_duration_seconds": self._config.lease_seconds(request.ttl_ms, found.limits),
            "metadata": ({AGENT_TYPE: request.agent_type} if request.agent_type else {})
            | {HEARTBEAT: self._config.heartbeat_interval},
            "agent_role": asked.grant.role_of_agent(request.agent_role),
        }
        named = asked.speaker.identity.agent_id
        result = await asked.speaker.claim_task(
            agent_id=named or found.policy.lone_agent or request.session_id, **given
        )
        holder = result.holder
        if holder is not None and holder.session == request.session_id:
            # SC knows only sessions, so a claim of the same session under another agent's name is
            # its own.
            result = await asked.speaker.claim_task(agent_id=holder.agent, **given)
        if result.claim is None:
            return _denied(result, found)
        claim = result.claim
        await self._note_agent_type(asked)
        return Claimed(
            claim=GrantedClaim(
                task_id=claim.task_id,
                session_id=claim.session_id,
                claimed_at=stamp(claim.claimed_at),
                expires_at=stamp_or_none(claim.expires_at),
                last_heartbeat=stamp(found.now if result.already_held else claim.claimed_at),
                generation=claim.generation,
            ),
            already_held=result.already_held or UNSET,
        )

    async def release(self, asked: Asked) -> Released | Refused:
        """Give a task back; `completed` is a submission with an empty result."""
        request: ReleaseRequest = asked.body
        found = await self._task(asked.name)
        generation = _generation(found, request.generation)
        fence = {**self._place, "task_id": asked.name, "session_id": request.session_id}
        reason: object
        if request.reason.lower() == COMPLETED:
            reason = (await asked.speaker.submit_result(generation=generation, **fence)).reason
        else:
            answer = await asked.speaker.release_claim(
                generation=generation, reason=request.reason, **fence
            )
            reason = answer.reason
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

    async def _note_agent_type(self, asked: Asked) -> None:
        """Stores the agent type in the session, so that it lasts when the session holds nothing."""
        request: ClaimRequest = asked.body
        session = request.session_id
        if not request.agent_type:
            return
        known = await self._project.read(
            lambda reader: reader.sessions(self._project.scope, [session])
        )
        if session in known and known[session].metadata.get(AGENT_TYPE) != request.agent_type:
            await asked.speaker.heartbeat_session(
                session_id=session, metadata={AGENT_TYPE: request.agent_type}, **self._place
            )

    async def heartbeat(self, asked: Asked) -> Beaten | Refused:
        """Renew a claim's lease, and report the session's state."""
        request: HeartbeatRequest = asked.body
        found = await self._task(asked.name)
        lease = (
            None
            if request.extend_ms is None
            else self._config.lease_seconds(request.extend_ms, found.limits)
        )
        fence = {**self._place, "session_id": request.session_id}
        result = await asked.speaker.renew_lease(
            task_id=asked.name,
            generation=_generation(found, request.generation),
            lease_duration_seconds=lease,
            **fence,
        )
        if not result.success:
            return refused(result.reason)
        if request.said:
            await asked.speaker.heartbeat_session(metadata=request.said, **fence)
        after = (await self._project.task(asked.name)).record
        claim = after.claim if after is not None else None
        return Beaten(
            claim=BeatenClaim(
                expires_at=stamp_or_none(result.new_expiry),
                last_heartbeat=stamp(claim.renewed_at if claim is not None else found.now),
                heartbeat_count=claim.renewals if claim is not None else 1,
            )
        )

    async def session_heartbeat(self, asked: Asked) -> SessionBeaten:
        """Report that a session is alive, and its state."""
        request: SessionHeartbeatRequest = asked.body
        info = await asked.speaker.heartbeat_session(
            session_id=asked.name, metadata=request.said, **self._place
        )
        return SessionBeaten(session_id=info.session_id, last_activity=stamp(info.last_activity))

    async def _task(self, name: str) -> TaskAndLimits:
        try:
            found = await self._project.task(check_task_id(name))
        except BadArgument as error:
            # An id of invalid form belongs to no task.
            raise TaskNotFound(str(error)) from None
        if found.record is None:
            raise TaskNotFound(
                f"there is no task {name!r}; GET /api/tasks/in-flight lists those that are claimed"
            )
        return found

    async def _duration(self, asked: Asked, found: TaskAndLimits, generation: int) -> int:
        """The duration of the claim. For a repeated release it is looked up in the history."""
        claim = found.record.claim if found.record is not None else None
        if claim is not None:
            return milliseconds(found.now - claim.claimed_at)
        history = await asked.speaker.get_claim_history(task_id=asked.name, **self._place)
        past = next((entry for entry in history if entry.generation == generation), None)
        return (
            milliseconds(past.released_at - past.acquired_at)
            if past is not None and past.released_at is not None
            else 0
        )


def remaining(expires_at: datetime | None, now: datetime) -> int | None:
    """What is left of a lease in milliseconds; None where there is no lease."""
    return None if expires_at is None else milliseconds(expires_at - now)


def milliseconds(length: timedelta) -> int:
    """The length in whole milliseconds, at least zero."""
    return max(0, length // timedelta(milliseconds=1))


def refused(reason: object, detail: str = "") -> Refused:
    """A refusal in SC's words."""
    told = title(str(reason))
    return Refused(
        error=str(CODES[reason]),
        message=f"{told}: {detail}" if detail else told,
        reason=str(reason),
    )


def _generation(found: TaskAndLimits, sent: int | None) -> int:
    return sent if sent is not None else found.record.generation if found.record is not None else 0


def _denied(result: ClaimResult, found: TaskAndLimits) -> Refused:
    answer = refused(result.reason, result.detail or ", ".join(result.waits_for))
    holder = result.holder
    if holder is not None:
        claim = found.record.claim if found.record is not None else None
        known = claim is not None and claim.session == holder.session
        answer.claim = OtherClaim(
            session_id=holder.session,
            claimed_at=stamp(holder.claimed_at),
            remaining_ms=remaining(holder.expires_at, found.now),
            last_heartbeat=stamp(claim.renewed_at) if known and claim is not None else UNSET,
        )
    return answer
