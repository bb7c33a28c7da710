"""A task record as others see it."""

from __future__ import annotations

from datetime import datetime, timedelta

from genlock.core.facts import Mercy
from genlock.core.keys import Key
from genlock.core.model import Claim, SessionRecord, TaskRecord
from genlock.core.reasons import Cause, ClaimState, Status
from genlock.core.results import Holder, TaskClaim

MERCY_SECONDS = 60.0
_MERCY_SHARE = 0.4
_STEP_SLACK_SECONDS = 5.0
_COMPLETED, _CANCELLED = Status.COMPLETED, Status.CANCELLED


def task_claim(key: Key, record: TaskRecord, claim: Claim) -> TaskClaim:
    """The claim with GC's field names."""
    task = record.task
    return TaskClaim(
        id=claim.id,
        tenant_id=key.tenant,
        project_id=key.project,
        task_id=task.id,
        track=task.track,
        sequence=task.sequence,
        agent_id=claim.agent,
        generation=claim.generation,
        session_id=claim.session,
        claimed_at=claim.claimed_at,
        lease_seconds=claim.lease_seconds,
        expires_at=claim.expires_at,
        state=claim.state,
        agent_role=claim.role,
        metadata=claim.metadata,
    )


def overdue(
    claim: Claim, now: datetime, holder: SessionRecord | None = None, gone: bool = False, mercy: Mercy | None = None
) -> Cause | None:
    """Why the claim is no longer live, or None while it is. The holder's session and process are looked at by others only."""
    seconds = (claim.expires_at - now).total_seconds()
    if claim.state is not ClaimState.ACTIVE:
        return Cause.LEASE_OVER
    if seconds + claim.grace_seconds <= 0 and (mercy is None or not is_spared(claim, now, mercy)):
        return Cause.LEASE_OVER
    if seconds > claim.lease_seconds + max(claim.lease_seconds / 10, _STEP_SLACK_SECONDS):
        return Cause.CLOCK_STEPPED
    if holder is not None and holder.ended_at is not None:
        return Cause.SESSION_ENDED
    return Cause.PROCESS_GONE if gone else None


def spared_until(claim: Claim, mercy: Mercy) -> datetime | None:
    """Until when a claim counts as live although its lease is over; None if it was over before the outage, or has been found to be.

    A holder renews at 40 % of its lease: so long it may take until one that lives is heard of again.
    """
    due = claim.expires_at + timedelta(seconds=claim.grace_seconds)
    if claim.state is not ClaimState.ACTIVE or due <= mercy.since:
        return None
    return mercy.back + timedelta(seconds=min(claim.lease_seconds * _MERCY_SHARE, MERCY_SECONDS))


def is_spared(claim: Claim, now: datetime, mercy: Mercy) -> bool:
    """Does it count as live for the outage's sake?"""
    until = spared_until(claim, mercy)
    return until is not None and now < until


def holder_of(claim: Claim, *, alive: bool) -> Holder:
    """Who holds the task."""
    return Holder(claim.agent, claim.session, claim.user, claim.claimed_at, claim.expires_at, alive)


def waits_for(record: TaskRecord, now: datetime | None = None) -> tuple[str, ...]:
    """What keeps a task blocked: unmet dependencies, then unfinished children, then `not before …`.

    With `now`, that instant is none that has passed, whether or not anyone has written that down."""
    # Spelt out, since whole plans are gone through: a call of `finished` for each would be a tenth of such a look.
    waiting = [name for name, heard in record.dependencies.items() if heard.status is not _COMPLETED and heard.status is not _CANCELLED]
    if record.children:
        waiting += [other for other, heard in record.children.items() if not heard.finished]
    if record.early and record.task.not_before and (now is None or now < record.task.not_before):
        waiting.append(f"not before {record.task.not_before.isoformat().replace('+00:00', 'Z')}")
    return tuple(waiting)


def shown(instant: datetime) -> str:
    """An instant as people read it."""
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")


def is_claimed(record: TaskRecord) -> bool:
    """Has someone a claim of it that nobody has found over-due? A task that is held may have a holder still."""
    return record.claim is not None and record.claim.state is ClaimState.ACTIVE


def claimable(record: TaskRecord) -> bool:
    """Does the task's own state admit a claim?"""
    return record.state is Status.PENDING or record.state is Status.BACKLOG
