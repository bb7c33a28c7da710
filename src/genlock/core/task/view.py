"""Views of a task record for answers and checks."""

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
    """Returns the claim with GC's field names."""
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
    """Returns why the claim is no longer live, or None while it is. Only other callers check the
    holder's session and process. `heard` is the time at which the session last changed any task. If
    that was not looked up, the session's silence proves nothing. For a claim without a lease it
    never does."""
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
        last = max(last, outage_grace.back)  # no session could report before
    return Cause.SESSION_SILENT if is_silent(holder, last, now) else None


def _holder_ended(holder: SessionRecord | None, gone: bool) -> Cause | None:
    if holder is not None and holder.ended_at is not None:
        return Cause.SESSION_ENDED
    return Cause.PROCESS_GONE if gone else None


HEARTBEAT = "heartbeatMs"
"""The key in a claim's metadata of the interval at which its holder was asked to report."""
_RENEWED_AT = 0.4
_LONG_LEASE_SECONDS = 1800.0
_STALE_SECONDS = 300.0
_LEAST_STALE_SECONDS = 5.0


def stale_after(claim: Claim) -> float:
    """Returns the number of seconds without a renewal after which a live claim counts as stale.

    A holder that was asked to report at an interval is expected then, any other when 40 % of the
    lease is over. Five minutes are added, and less for leases shorter than half an hour, so a
    well-behaved holder is never called stale."""
    usual = claim.lease_seconds * _RENEWED_AT
    asked = claim.metadata.get(HEARTBEAT)
    expected = min(usual, asked / 1000) if isinstance(asked, (int, float)) and asked > 0 else usual
    scale = min(1.0, claim.lease_seconds / _LONG_LEASE_SECONDS)
    return expected + max(_STALE_SECONDS * scale, _LEAST_STALE_SECONDS)


def last_heard(holder: SessionRecord, claim: Claim, heard: datetime | None = None) -> datetime:
    """Returns the holder's last sign of life, from its record, this claim and `heard`."""
    return last_activity(holder, (claim,), heard)


def seems_silent(holder: SessionRecord | None, claim: Claim, now: datetime) -> bool:
    """Is the holder lost, unless other records show a sign of life? Only then is a search for one
    worth its cost."""
    return (
        claim.expires_at is not None
        and holder is not None
        and holder.ended_at is None
        and is_silent(holder, last_heard(holder, claim), now)
    )


def spared_until(claim: Claim, outage_grace: OutageGrace) -> datetime | None:
    """Returns the time until which a claim counts as live although its lease is over. None if it
    was over before the outage, or was found to be.

    A holder renews at 40 % of its lease, so a living holder needs at most that time to report
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
    """Does the claim count as live because of the outage?"""
    until = spared_until(claim, outage_grace)
    return until is not None and now < until


def lease_shown(expires_at: datetime | None) -> str:
    """Returns a claim's lease as people read it."""
    return NO_LEASE if expires_at is None else f"lease until {shown(expires_at)}"


def holder_of(claim: Claim, *, alive: bool) -> Holder:
    """Returns the holder of the task."""
    return Holder(claim.agent, claim.session, claim.user, claim.claimed_at, claim.expires_at, alive)


def waits_for(record: TaskRecord, now: datetime | None = None) -> tuple[str, ...]:
    """Returns what keeps a task blocked: unmet dependencies, then unfinished children, then `not
    before …`.

    With `now`, an instant that has passed is left out, whether or not that was recorded yet."""
    # Inlined, because callers go through whole plans: calling `finished` for each task would cost a
    # tenth of that time.
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
    """Returns an instant as people read it."""
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")


def is_claimed(record: TaskRecord) -> bool:
    """Does the task have a claim that was not found overdue? A task on hold may still have a
    holder."""
    return record.claim is not None and record.claim.state is ClaimState.ACTIVE


def claimable(record: TaskRecord) -> bool:
    """Does the task's own state allow a claim?"""
    return record.state is Status.PENDING or record.state is Status.BACKLOG
