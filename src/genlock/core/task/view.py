"""A task record as others see it."""

from __future__ import annotations

from datetime import datetime, timedelta

from genlock.core.facts import OutageGrace
from genlock.core.keys import Key
from genlock.core.model import NO_LEASE, Claim, SessionRecord, TaskRecord
from genlock.core.reasons import Cause, ClaimState, Status, Waiting
from genlock.core.records.session import is_silent, last_activity
from genlock.core.results import Holder, TaskClaim

OUTAGE_GRACE_SECONDS = 60.0
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
    claim: Claim,
    now: datetime,
    holder: SessionRecord | None = None,
    gone: bool = False,
    outage_grace: OutageGrace | None = None,
    heard: datetime | None = None,
) -> Cause | None:
    """Why the claim is no longer live, or None while it is. The holder's session and process are
    looked at by others only. `heard` is when the session last did something to any task; if nobody
    has looked for that, its silence says nothing. Of a claim without a lease it never does."""
    if claim.state is not ClaimState.ACTIVE:
        return Cause.LEASE_OVER
    if claim.expires_at is None:
        return _holder_ended(holder, gone)
    seconds = (claim.expires_at - now).total_seconds()
    if seconds + claim.grace_seconds <= 0 and (
        outage_grace is None or not is_spared(claim, now, outage_grace)
    ):
        return Cause.LEASE_OVER
    if seconds > claim.lease_seconds + max(claim.lease_seconds / 10, _STEP_SLACK_SECONDS):
        return Cause.CLOCK_STEPPED
    ended = _holder_ended(holder, gone)
    if ended is not None or holder is None or heard is None:
        return ended
    last = last_heard(holder, claim, heard)
    if outage_grace is not None:
        last = max(last, outage_grace.back)  # nobody could be heard before
    return Cause.SESSION_SILENT if is_silent(holder, last, now) else None


def _holder_ended(holder: SessionRecord | None, gone: bool) -> Cause | None:
    if holder is not None and holder.ended_at is not None:
        return Cause.SESSION_ENDED
    return Cause.PROCESS_GONE if gone else None


HEARTBEAT = "heartbeatMs"
"""In a claim's metadata: how often its holder was asked to be heard."""
_RENEWED_AT = 0.4
_LONG_LEASE_SECONDS = 1800.0
_STALE_SECONDS = 300.0
_LEAST_STALE_SECONDS = 5.0


def stale_after(claim: Claim) -> float:
    """After how many seconds without a renewal a live claim gives cause for concern.

    Whoever was asked to be heard at certain intervals is expected then, everybody else when 40 % of
    the lease is over. Five minutes are added, and less with leases shorter than half an hour, so a
    holder that does as it should is never called stale."""
    usual = claim.lease_seconds * _RENEWED_AT
    asked = claim.metadata.get(HEARTBEAT)
    expected = min(usual, asked / 1000) if isinstance(asked, (int, float)) and asked > 0 else usual
    scale = min(1.0, claim.lease_seconds / _LONG_LEASE_SECONDS)
    return expected + max(_STALE_SECONDS * scale, _LEAST_STALE_SECONDS)


def last_heard(holder: SessionRecord, claim: Claim, heard: datetime | None = None) -> datetime:
    """The holder's last sign of life, as far as its record, this claim and `heard` tell."""
    return last_activity(holder, (claim,), heard)


def seems_silent(holder: SessionRecord | None, claim: Claim, now: datetime) -> bool:
    """Is the holder lost unless it is heard of elsewhere? Only then is it worth a look."""
    return (
        claim.expires_at is not None
        and holder is not None
        and holder.ended_at is None
        and is_silent(holder, last_heard(holder, claim), now)
    )


def spared_until(claim: Claim, outage_grace: OutageGrace) -> datetime | None:
    """Until when a claim counts as live although its lease is over; None if it was over before the
    outage, or has been found to be.

    A holder renews at 40 % of its lease: so long it may take until one that lives is heard of
    again.
    """
    if claim.expires_at is None:
        return None
    due = claim.expires_at + timedelta(seconds=claim.grace_seconds)
    if claim.state is not ClaimState.ACTIVE or due <= outage_grace.since:
        return None
    return outage_grace.back + timedelta(
        seconds=min(claim.lease_seconds * _MERCY_SHARE, OUTAGE_GRACE_SECONDS)
    )


def is_spared(claim: Claim, now: datetime, outage_grace: OutageGrace) -> bool:
    """Does it count as live for the outage's sake?"""
    until = spared_until(claim, outage_grace)
    return until is not None and now < until


def lease_shown(expires_at: datetime | None) -> str:
    """A claim's lease as people read it."""
    return NO_LEASE if expires_at is None else f"lease until {shown(expires_at)}"


def holder_of(claim: Claim, *, alive: bool) -> Holder:
    """Who holds the task."""
    return Holder(claim.agent, claim.session, claim.user, claim.claimed_at, claim.expires_at, alive)


def waits_for(record: TaskRecord, now: datetime | None = None) -> tuple[str, ...]:
    """What keeps a task blocked: unmet dependencies, then unfinished children, then `not before …`.

    With `now`, that instant is none that has passed, whether or not anyone has written that
    down."""
    # Spelt out, since whole plans are gone through: a call of `finished` for each would be a tenth
    # of such a look.
    waiting = [
        name
        for name, heard in record.dependencies.items()
        if heard.status is not _COMPLETED and heard.status is not _CANCELLED
    ]
    if record.children:
        waiting += [other for other, heard in record.children.items() if not heard.finished]
    if record.early and record.task.not_before and (now is None or now < record.task.not_before):
        waiting.append(f"not before {record.task.not_before.isoformat().replace('+00:00', 'Z')}")
    if record.waiting is Waiting.TEXT:
        waiting.append(record.task.waiting_for)
    return tuple(waiting)


def shown(instant: datetime) -> str:
    """An instant as people read it."""
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")


def is_claimed(record: TaskRecord) -> bool:
    """Has someone a claim of it that nobody has found overdue? A task that is held may have a
    holder still."""
    return record.claim is not None and record.claim.state is ClaimState.ACTIVE


def claimable(record: TaskRecord) -> bool:
    """Does the task's own state admit a claim?"""
    return record.state is Status.PENDING or record.state is Status.BACKLOG
