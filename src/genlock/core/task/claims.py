"""The generation clock: claim, renew, release, submit. The rules, in the order in which they apply.

1. Generation. To *raise* it is to move to the lowest number never granted, at least epoch x
   1,000,000 + 1. A grant raises it if the present number was granted, and takes it. An operation
   that supersedes a claim without granting one raises without granting. Renewal, release and
   submission do not change it. It never goes down.
2. A lease is over when now >= expires_at. An expired claim is still the claim at its generation
   until another session takes over. After an outage of the service, a claim that fell due since the
   project's newest event counts as live for 40 % of its lease, at most 60 s.
3. Claim: completed or cancelled → DENIED_COMPLETED; held or in review → DENIED_HELD; reserved for
   another agent → DENIED_ASSIGNED; for other roles than the caller's → DENIED_ROLE, unless the
   caller holds it already; live claim of another session or agent → DENIED_ACTIVE_CLAIM; live claim
   of the same session and agent → the same claim, lease extended, `already_held` (for claim_next
   DENIED_ACTIVE_CLAIM); unmet dependencies or unfinished children → DENIED_BLOCKED; over a limit →
   DENIED_LIMIT; else GRANTED, at a new generation, even if the caller's own claim is overdue. The
   repeat of the operation id under which a live claim was granted → the first answer, recorded as a
   renewal that does not change the lease.
4. Submit: lower generation → STALE_GENERATION; higher → FUTURE_GENERATION; completed, in review or
   cancelled → TASK_ALREADY_COMPLETED; no claim at this generation → NO_CLAIM; other session →
   SESSION_MISMATCH; unfinished children → CHILDREN_UNFINISHED; else it counts or waits for a review
   (`completion`), even if the lease has run out. The same session, generation and digest again: the
   same answer, nothing written.
5. Renew: generation differs → GENERATION_MISMATCH; no claim at it → NO_CLAIM; other session →
   SESSION_MISMATCH; overdue → ALREADY_EXPIRED; else RENEWED. Release: the same order, but an
   overdue holder's release is RELEASED. The release of a grant whose answer reached no caller does
   nothing once the claim was renewed or its operation id was repeated. If the policy `agents` is
   `single`, grants and renewals start no lease: such a claim never ends by time, only once its
   session has ended or its process is gone. When the policy changes, a claim keeps what its last
   grant or renewal gave it.
6. A refused result with content is kept, as a record of its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, require
from genlock.core.durations import lease_bounds
from genlock.core.facts import Facts
from genlock.core.keys import REFUSED, SESSION, Key, refused_id
from genlock.core.model import Claim, Overlap, Result, TaskRecord, for_user
from genlock.core.policy import Agents, Expired, Overlapping, TenantLimits, Tracks
from genlock.core.reasons import (
    Cause,
    ClaimReason,
    ClaimState,
    ReleaseAnswer,
    ReleaseReason,
    RenewReason,
    Status,
    SubmitReason,
)
from genlock.core.records.session import moved
from genlock.core.results import ClaimResult, ReleaseResult, RenewalResult, SubmissionResult
from genlock.core.task.completion import (
    Submission,
    accepted,
    complete_or_escalate,
    submitted_before,
)
from genlock.core.task.draft import TaskDraft, next_generation, work_product_ref
from genlock.core.task.due import catch_up, trip_breaker
from genlock.core.task.hold import hold
from genlock.core.task.relate import hear, previous_state
from genlock.core.task.view import (
    claimable,
    holder_of,
    overdue,
    shown,
    spared_until,
    task_claim,
    waits_for,
)
from genlock.errors import OperationMismatch, ResultTooLarge, SessionEnded, TaskNotFound


@lru_cache(maxsize=256)
def _length(lease_seconds: float) -> timedelta:
    """Returns the length of a lease. Cached: most leases have the same few lengths."""
    return timedelta(seconds=lease_seconds)


def _expiry(facts: Facts, lease_seconds: float) -> datetime | None:
    """Returns the end of a lease that starts now; None if claims have no lease."""
    if facts.policy.agents is Agents.SINGLE:
        return None
    return facts.now + _length(lease_seconds)


def unknown(command: c.Command) -> TaskNotFound:
    """Returns the error for a task that does not exist."""
    return TaskNotFound(
        f"there is no task {command.key.id!r} in project {command.key.project!r} of tenant "
        f"{command.key.tenant!r}"
    )


def decide_claim(record: TaskRecord | None, command: c.ClaimTask, facts: Facts) -> Decision:
    """Grants or denies a claim. Rule 3."""
    record = require(record, unknown(command)) if record is None else record
    if facts.session is not None and facts.session.ended_at is not None:
        raise SessionEnded(f"session {command.by.session!r} has ended; register a new one")
    if facts.policy.agents is Agents.SINGLE:
        command = replace(command, role=facts.policy.role_of(command.role))
    if command.operation:
        repeated = _repeated_claim(record, command, facts)
        if repeated is not None:
            return repeated
    draft = TaskDraft(record, command, facts)
    catch_up(draft)
    denial = _denial(draft, command)
    if denial is not None:
        return draft.decided(denial)
    claim = draft.task.claim
    already_held = claim is not None and claim.state is ClaimState.ACTIVE
    if already_held:
        expiry = _expiry(facts, command.lease_seconds)
        draft.emit(e.LeaseRenewed, expires_at=expiry, lease_duration_seconds=command.lease_seconds)
    else:
        if _generations_used_up(draft):
            return draft.decided(
                _denied(
                    draft,
                    ClaimReason.DENIED_HELD,
                    detail=draft.task.hold.reason if draft.task.hold else "",
                )
            )
        draft.add(_acquired(draft.task, command, facts, draft.at))
    draft.followups += _registration(command, facts)
    overlaps = () if already_held else facts.overlaps
    return draft.decided(
        _granted(command.key, draft.task, already_held=already_held, overlaps=overlaps)
    )


def _repeated_claim(record: TaskRecord, command: c.ClaimTask, facts: Facts) -> Decision | None:
    """Returns the first answer to a claim whose answer was lost, if it is still the live claim.

    The repeat is recorded because it may have come through another service. The service that
    granted the claim releases it if its own caller has disconnected, and must see that another
    caller got the answer.
    """
    claim = record.claim
    if claim is None or claim.operation != command.operation or claim.session != command.by.session:
        return None
    asked = (command.by.agent, command.role, command.metadata)
    # A renewal may have asked for another length since. A repeat does not change the lease.
    as_granted = (
        not claim.renewals
        if claim.expires_at is None
        else claim.expires_at == claim.claimed_at + _length(claim.lease_seconds)
    )
    if (claim.agent, claim.role, claim.metadata) != asked or (
        as_granted and claim.lease_seconds != command.lease_seconds
    ):
        raise OperationMismatch(
            f"operation {command.operation!r} claimed {record.task.id!r} with another agent, role, "
            "lease or metadata; use a new id"
        )
    if overdue(claim, facts.now, outage_grace=facts.outage_grace) is not None:
        return None
    answer = ClaimResult(
        True,
        ClaimReason.GRANTED,
        record.task.id,
        task_claim(command.key, record, claim),
        record.task,
        attempt=record.grants,
        feedback=record.feedback,
    )
    draft = TaskDraft(record, command, facts)
    draft.emit(
        e.LeaseRenewed,
        expires_at=claim.expires_at,
        lease_duration_seconds=claim.lease_seconds,
    )
    # A restarted process may repeat the request of its predecessor: the claim must not be
    # attributed to the dead process.
    draft.followups += _registration(command, facts)
    return draft.decided(answer)


def _denial(draft: TaskDraft, command: c.ClaimTask) -> ClaimResult | None:
    record, by = draft.task, command.by
    claim = record.claim
    live = claim is not None and claim.state is ClaimState.ACTIVE
    if record.state is Status.COMPLETED or record.state is Status.CANCELLED:
        return _denied(
            draft, ClaimReason.DENIED_COMPLETED, detail=f"the task is {record.state.value.lower()}"
        )
    if record.state is Status.HELD or record.state is Status.IN_REVIEW:
        held = record.state is Status.HELD and record.hold is not None
        return _denied(
            draft,
            ClaimReason.DENIED_HELD,
            detail=record.hold.reason if held and record.hold else "in review",
        )
    assigned, until = record.task.assigned_to, record.assigned_until
    # The end of a reservation is recorded once no agent works under it. A lapsed reservation has no
    # effect before that either.
    if assigned is not None and assigned != by.agent and (until is None or draft.facts.now < until):
        return _denied(draft, ClaimReason.DENIED_ASSIGNED, detail=f"reserved for {assigned}")
    own = live and claim is not None and (claim.session, claim.agent) == (by.session, by.agent)
    if (
        record.task.roles
        and not own
        and not draft.facts.roles_in_force.may_take(command.role, record.task.roles)
    ):
        return _denied(draft, ClaimReason.DENIED_ROLE, detail=command.role)
    if (
        claim is not None
        and live
        and (command.next or claim.session != by.session or claim.agent != by.agent)
    ):
        detail = _outage_grace_shown(claim, draft.facts)
        return _denied(draft, ClaimReason.DENIED_ACTIVE_CLAIM, claim, detail=detail)
    if not live and not claimable(record):
        return _denied(draft, ClaimReason.DENIED_BLOCKED)
    if not live and draft.facts.earlier_in_track:
        return _denied(
            draft,
            ClaimReason.DENIED_BLOCKED,
            waits=draft.facts.earlier_in_track,
            detail="track_order is enforce: tasks with lower numbers in its track come first",
        )
    if not live and _is_track_full(draft):
        return _denied(draft, ClaimReason.DENIED_LIMIT, limit=_TRACK_LIMIT)
    if not live and draft.facts.overlaps and draft.facts.policy.overlap is Overlapping.FORBID:
        return _denied(draft, ClaimReason.DENIED_LIMIT, limit=_OVERLAP_LIMIT)
    # A claim of this task that was just found overdue is still counted, unless time has ended it.
    ended = sum(
        isinstance(event, e.Lapsed) and event.cause is not Cause.LEASE_OVER
        for event in draft.events
    )
    limit = _limit(command, draft.facts, live=live, ended=ended)
    return None if limit is None else _denied(draft, ClaimReason.DENIED_LIMIT, limit=limit)


_TRACK_LIMIT = "agents_per_track"
_OVERLAP_LIMIT = "overlap"
_MOST_NAMED = 5


def _is_track_full(draft: TaskDraft) -> bool:
    policy, track = draft.facts.policy, draft.task.task.track
    return (
        policy.tracks is Tracks.STRICT
        and track is not None
        and len(draft.facts.on_track) >= policy.most_agents_on(track)
    )


def _outage_grace_shown(claim: Claim, facts: Facts) -> str:
    """Explains why a claim counts as live although its lease is over; "" if it does not."""
    if facts.outage_grace is None or overdue(claim, facts.now) is None:
        return ""
    until = spared_until(claim, facts.outage_grace)
    return (
        (
            "its lease ran out while the coordinator was away; its holder has until "
            f"{shown(until)} to come back"
        )
        if until
        else ""
    )


def _limit(command: c.ClaimTask, facts: Facts, *, live: bool = False, ended: int = 0) -> str | None:
    """Returns the name of the limit that a grant would exceed."""
    limits = facts.limits
    if command.lease_seconds < limits.min_lease_duration_seconds:
        return "min_lease_duration_seconds"
    if (
        limits.max_lease_duration_seconds is not None
        and command.lease_seconds > limits.max_lease_duration_seconds
    ):
        return "max_lease_duration_seconds"
    if live:
        return None
    if (
        limits.max_concurrent_claims is not None
        and facts.claims is not None
        and facts.claims - ended >= limits.max_concurrent_claims
    ):
        return "max_concurrent_claims"
    full = (
        limits.max_active_sessions is not None
        and facts.sessions is not None
        and facts.sessions >= limits.max_active_sessions
    )
    return "max_active_sessions" if full and facts.session is None else None


def _denied(
    draft: TaskDraft,
    reason: ClaimReason,
    claim: Claim | None = None,
    *,
    limit: str | None = None,
    waits: tuple[str, ...] = (),
    detail: str = "",
) -> ClaimResult:
    record = draft.task
    if limit == _TRACK_LIMIT:
        track, others = record.task.track or "", draft.facts.on_track
        most = draft.facts.policy.most_agents_on(track)
        detail = (
            f"over the limit {limit} = {most} of track {track}: "
            f"{', '.join(others)} {'works' if len(others) == 1 else 'work'} on it"
        )
    elif limit == _OVERLAP_LIMIT:
        detail = f"over the limit {limit} = forbid: {shared_modules(draft.facts.overlaps)}"
    elif limit is not None:
        limits = draft.facts.limits
        side = "under" if limit.startswith("min_") else "over"
        detail = f"{side} the limit {limit} = {getattr(limits, limit):g}"
        if isinstance(draft.command, c.ClaimTask) and limit.endswith("_lease_duration_seconds"):
            bounds = limits.min_lease_duration_seconds, limits.max_lease_duration_seconds
            detail += f": {lease_bounds(draft.command.lease_seconds, *bounds)}"
    return ClaimResult(
        success=False,
        reason=reason,
        task_id=record.task.id,
        current_holder=claim.agent if claim else None,
        holder=holder_of(claim, alive=True) if claim else None,
        waits_for=waits or (waits_for(record) if reason is ClaimReason.DENIED_BLOCKED else ()),
        limit=limit,
        detail=detail,
        roles=record.task.roles if reason is ClaimReason.DENIED_ROLE else (),
        overlaps=draft.facts.overlaps if limit == _OVERLAP_LIMIT else (),
    )


def shared_modules(overlaps: tuple[Overlap, ...]) -> str:
    """Describes in a phrase which work shares which modules."""
    named = [f"{each.task_id} ({', '.join(each.modules)})" for each in overlaps[:_MOST_NAMED]]
    more = len(overlaps) - len(named)
    return f"its modules are in use by {', '.join(named)}{f' and {more} more' if more else ''}"


def _generations_used_up(draft: TaskDraft) -> bool:
    """Puts a task that was granted too often on hold: rule 8 of the design."""
    most = draft.facts.limits.max_generations_per_task
    if most is None or draft.task.grants < most:
        return False
    return hold(draft, f"granted {draft.task.grants} times (max_generations_per_task = {most})")


def _acquired(
    record: TaskRecord, command: c.ClaimTask, facts: Facts, at: datetime
) -> e.ClaimAcquired:
    """Returns the grant as an event, at the lowest generation never granted."""
    key, by, policy = command.key, command.by, facts.policy
    last = record.claim or record.released
    return e.ClaimAcquired(
        timestamp=at,
        tenant_id=key.tenant,
        project_id=key.project,
        task_id=key.id,
        generation=next_generation(record, facts.epoch),
        session_id=by.session,
        agent_id=by.agent,
        actor=for_user(by.actor, facts.session.user) if facts.session is not None else by.actor,
        metadata=command.metadata,
        claim_id="claim-" + facts.fresh,
        previous_generation=last.generation if last else 0,
        previous_state=previous_state(record),
        lease_duration_seconds=command.lease_seconds,
        expires_at=_expiry(facts, command.lease_seconds),
        grace_seconds=policy.grace_seconds if policy.expired is Expired.GRACE else 0.0,
        agent_role=command.role,
        operation=command.operation,
    )


def _registration(command: c.ClaimTask, facts: Facts) -> tuple[c.Command, ...]:
    """Returns the command by which a granted claim registers its session, or reports its new
    process."""
    if facts.session is not None and not moved(facts.session, command.by):
        return ()
    return (_registered(command),)


def _registered(command: c.ClaimTask | c.RenewLease) -> c.RegisterSession:
    return c.RegisterSession(
        command.key.beside(SESSION, command.by.session), command.by, implied=True
    )


def _granted(
    key: Key, record: TaskRecord, *, already_held: bool, overlaps: tuple[Overlap, ...] = ()
) -> ClaimResult:
    claim = record.claim
    assert claim is not None
    task = record.task
    return ClaimResult(
        success=True,
        reason=ClaimReason.GRANTED,
        task_id=task.id,
        claim=task_claim(key, record, claim),
        task=task,
        inputs_changed=record.inputs_changed,
        already_held=already_held,
        attempt=record.grants,
        feedback=record.feedback,
        overlaps=overlaps,
    )


def decide_renew(record: TaskRecord | None, command: c.RenewLease, facts: Facts) -> Decision:
    """Renews a claim. Rule 5. A requested lease outside the tenant's bounds is brought within them;
    the answer has the granted length."""
    record = require(record, unknown(command)) if record is None else record
    generation = record.generation

    def refused(reason: RenewReason) -> Decision:
        return Decision(RenewalResult(False, reason, generation))

    claim = record.claim
    if generation != command.generation:
        return refused(RenewReason.GENERATION_MISMATCH)
    if claim is None:
        return refused(RenewReason.NO_CLAIM)
    if claim.session != command.by.session:
        return refused(RenewReason.SESSION_MISMATCH)
    if overdue(claim, facts.now, facts.session, outage_grace=facts.outage_grace) is not None:
        return refused(RenewReason.ALREADY_EXPIRED)
    seconds = command.lease_seconds if command.lease_seconds is not None else claim.lease_seconds
    seconds = max(seconds, facts.limits.min_lease_duration_seconds)
    seconds = min(seconds, facts.limits.max_lease_duration_seconds or seconds)
    draft = TaskDraft(record, command, facts)
    expiry = _expiry(facts, seconds)
    draft.emit(
        e.LeaseRenewed,
        agent_id=command.by.agent or claim.agent,
        expires_at=expiry,
        lease_duration_seconds=seconds,
    )
    if facts.session is not None and moved(facts.session, command.by):
        # This process works under the claim too: it must not be lost because the process that
        # claimed ends.
        draft.followups.append(_registered(command))
    return draft.decided(
        RenewalResult(True, RenewReason.RENEWED, generation, expiry, record.inputs_changed, seconds)
    )


def decide_release(record: TaskRecord | None, command: c.ReleaseClaim, facts: Facts) -> Decision:
    """Releases a claim. Rule 5."""
    record = require(record, unknown(command)) if record is None else record
    generation = record.generation
    claim = record.claim
    if _is_repeated_release(record, command):
        return Decision(ReleaseResult(True, ReleaseAnswer.RELEASED, command.generation))
    if generation != command.generation:
        return Decision(ReleaseResult(False, ReleaseAnswer.GENERATION_MISMATCH, generation))
    if claim is None:
        return Decision(ReleaseResult(False, ReleaseAnswer.NO_CLAIM, generation))
    if claim.session != command.by.session:
        return Decision(ReleaseResult(False, ReleaseAnswer.SESSION_MISMATCH, generation))
    if command.renewals is not None and claim.renewals != command.renewals:
        # Another caller has got the claim since, and may be at work.
        return Decision(ReleaseResult(False, ReleaseAnswer.NO_CLAIM, generation))
    draft = TaskDraft(record, command, facts)
    agent = command.by.agent or claim.agent
    if command.note:
        draft.emit(e.ProgressReported, agent_id=agent, note=command.note)
    draft.emit(
        e.ClaimReleased,
        agent_id=agent,
        release_reason=command.reason,
        operation=command.operation,
        stated_reason=command.stated,
    )
    if command.reason is not ReleaseReason.VOLUNTARY:
        trip_breaker(draft)
    return draft.decided(ReleaseResult(True, ReleaseAnswer.RELEASED, generation))


def _is_repeated_release(record: TaskRecord, command: c.ReleaseClaim) -> bool:
    """Was this claim already released this way, and only the answer lost? Another session may hold
    the task by now."""
    last = record.released
    if last is None or not command.operation or last.operation != command.operation:
        return False
    if (last.session, last.generation) != (command.by.session, command.generation):
        return False
    if last.reason is not command.reason:
        raise OperationMismatch(
            f"operation {command.operation!r} released {record.task.id!r} as {last.reason}; use a "
            "new id"
        )
    return True


def fence(record: TaskRecord, session: str, generation: int) -> SubmitReason | None:
    """The part of rule 4 that all fenced writes share. Returns None if this session may write at
    this generation."""
    if generation < record.generation:
        return SubmitReason.STALE_GENERATION
    if generation > record.generation:
        return SubmitReason.FUTURE_GENERATION
    if record.state in (Status.COMPLETED, Status.IN_REVIEW, Status.CANCELLED):
        return SubmitReason.TASK_ALREADY_COMPLETED
    if record.claim is None:
        return SubmitReason.NO_CLAIM
    return SubmitReason.SESSION_MISMATCH if record.claim.session != session else None


def unfinished_children(record: TaskRecord) -> tuple[str, ...]:
    """Returns the children that must finish before a submission."""
    return tuple(other for other, heard in record.children.items() if not heard.finished)


def look_at_children(draft: TaskDraft) -> tuple[str, ...]:
    """Checks every child and returns those that are unfinished.

    A child may be finished, or open again, without news to the parent: the process that wrote it
    was killed before its reactions. So a submission checks for itself, like a claim. Only a version
    of a child that is later than the last known one is news, so a reaction that comes after this
    finds nothing new."""
    hear(draft, dict.fromkeys(draft.task.children, 0))
    return unfinished_children(draft.task)


def decide_submit(record: TaskRecord | None, command: c.SubmitResult, facts: Facts) -> Decision:
    """Accepts or refuses a submission. Rules 4 and 6."""
    record = require(record, unknown(command)) if record is None else record
    content, session = command.content, command.by.session
    if content.size > facts.limits.max_result_size_bytes:
        check_result_size(content.size, facts.limits)
    waiting_review = submitted_before(record, command.generation, session, content.digest)
    if waiting_review is not None:
        return Decision(waiting_review)
    result = record.review.result if record.review is not None else record.result
    if (
        result is not None
        and result.generation == command.generation == record.generation
        and result.session == session
    ):
        if result.digest == content.digest and record.state is Status.COMPLETED:
            return Decision(accepted(record.generation, result.work_product_ref))
        if command.operation and result.operation == command.operation:
            raise OperationMismatch(
                f"operation {command.operation!r} submitted another result of {record.task.id!r}; "
                "use a new id"
            )
    reason = fence(record, command.by.session, command.generation)
    draft = TaskDraft(record, command, facts)
    waiting: tuple[str, ...] = ()
    if reason is None and record.children:
        waiting = look_at_children(draft)
        # The news may have completed the task: the last child of a fan-out does.
        reason = fence(draft.task, command.by.session, command.generation)
    if waiting and reason is None:
        reason = SubmitReason.CHILDREN_UNFINISHED
    reference = work_product_ref(command.key, command.generation, facts)
    if reason is not None:
        return draft.decided(_refuse(draft, command, reason, reference, waiting))
    claim = record.claim
    assert claim is not None
    submission = Submission(
        content=content,
        reference=reference,
        by=command.by,
        agent=command.by.agent or claim.agent,
        role=claim.role,
        operation=command.operation,
        evaluations=command.evaluations,
    )
    return draft.decided(complete_or_escalate(draft, submission))


def check_result_size(size: int, limits: TenantLimits) -> None:
    """Raises ResultTooLarge if the size exceeds the tenant's limit."""
    if size > limits.max_result_size_bytes:
        raise ResultTooLarge(
            f"the result has {size:,} bytes, the limit max_result_size_bytes is "
            f"{limits.max_result_size_bytes:,}; "
            "store it elsewhere and submit a reference to it. The claim is untouched"
        )


def adopted_key(key: Key, result: Result | e.ResultAccepted) -> Key:
    """Returns the key of the refused result that was adopted as this one."""
    return key.beside(
        REFUSED,
        refused_id(
            key.id, result.adopted_generation or 0, result.adopted_session or "", result.digest
        ),
    )


def _refuse(
    draft: TaskDraft,
    command: c.SubmitResult,
    reason: SubmitReason,
    reference: str,
    waiting: tuple[str, ...],
) -> SubmissionResult:
    content, generation = command.content, draft.task.generation
    if content.empty:
        return SubmissionResult(False, reason, generation, waits_for=waiting)
    name = refused_id(command.key.id, command.generation, command.by.session, content.digest)
    draft.followups.append(
        c.KeepRefused(
            command.key.beside(REFUSED, name),
            command.by,
            task=command.key.id,
            generation=command.generation,
            current_generation=generation,
            reason=reason,
            content=content,
            work_product_ref=reference,
        )
    )
    return SubmissionResult(False, reason, generation, True, True, reference, name, waiting)
