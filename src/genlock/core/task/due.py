"""Changes that time or lost holders have made true before they are recorded: expired claims, holds
that end, reservations that lapse.

The first operation that reads such a task records the change: a claim before its decision, a sweep,
a claim_next that scans the task. No answer depends on which one it is.
"""

from __future__ import annotations

from datetime import timedelta

from genlock.core import events as e
from genlock.core.commands import AddTask, CheckDue
from genlock.core.decision import Decision
from genlock.core.facts import Facts
from genlock.core.keys import TASK
from genlock.core.model import Claim, TaskRecord
from genlock.core.policy import Expired
from genlock.core.reasons import FINISHED, Cause, ClaimState, Status, Verdict
from genlock.core.task.draft import TaskDraft
from genlock.core.task.hold import hold
from genlock.core.task.relate import hear, late_fan_in
from genlock.core.task.view import last_heard, overdue


def decide_check_due(record: TaskRecord | None, command: CheckDue, facts: Facts) -> Decision:
    """Records what is due, and the stale mark of a holder that has been silent for long."""
    if record is None:
        return Decision(Verdict.UNCHANGED)
    draft = TaskDraft(record, command, facts)
    catch_up(draft)
    claim = draft.task.claim
    if (
        claim is not None
        and claim.state is ClaimState.ACTIVE
        and claim.stale_at is None
        and claim.expires_at is not None  # without a lease, silence is no concern
    ):
        silent = (facts.now - claim.renewed_at).total_seconds()
        if silent > facts.policy.stale_threshold_seconds:
            draft.emit(
                e.ClaimStale,
                last_renewal=claim.renewed_at,
                holder_session_id=claim.session,
                holder_agent_id=claim.agent,
            )
    return draft.decided(Verdict.DONE if draft.events else Verdict.UNCHANGED)


def catch_up(draft: TaskDraft) -> None:
    """Brings the record up to date."""
    record, now = draft.task, draft.facts.now
    if record.state in FINISHED:
        return
    if record.early and record.task.not_before is not None and now >= record.task.not_before:
        draft.emit(e.TaskDue)
    claim = record.claim
    if claim is not None and claim.state is ClaimState.ACTIVE:
        facts = draft.facts
        cause = overdue(
            claim, now, facts.holder, facts.holder_gone, facts.outage_grace, facts.holder_heard
        )
        if cause is not None:
            _lapse(draft, claim, cause)
    claim, until = draft.task.claim, record.assigned_until
    free = claim is None or claim.state is not ClaimState.ACTIVE
    if free and record.task.assigned_to is not None and until is not None and now >= until:
        draft.emit(e.AssignmentLapsed, assigned_to=record.task.assigned_to)
    held = draft.task.hold
    if (
        draft.task.state is Status.HELD
        and held is not None
        and held.until is not None
        and now >= held.until
    ):
        draft.emit(e.TaskReopened, by_time=True, backlog=draft.task.backlog)
    if draft.task.state in _AT_REST:
        if draft.facts.others:
            # Tasks that were finished at the last news may have been reset since, and the others
            # may be finished by now.
            hear(draft, dict.fromkeys(draft.facts.others, 0))
        if draft.task.spawning:
            _create_children(draft)
    if record.state in (Status.BLOCKED, Status.HELD):
        late_fan_in(draft)


_AT_REST = frozenset({Status.PENDING, Status.BACKLOG, Status.BLOCKED})


def _create_children(draft: TaskDraft) -> None:
    """Creates announced children that do not exist: the process that announced them was killed
    before it created them."""
    record, command = draft.task, draft.command
    draft.followups += [
        AddTask(
            command.key.beside(TASK, child.id),
            command.by,
            child,
            child.id in record.spawning_backlog,
            announced=True,
        )
        for child in record.spawning
        if child.id not in draft.facts.others
    ]


def _lapse(draft: TaskDraft, claim: Claim, cause: Cause) -> None:
    policy, now = draft.facts.policy, draft.facts.now
    silent = (now - claim.renewed_at).total_seconds()
    holder = draft.facts.holder
    draft.emit(
        e.ClaimOrphaned if cause.orphans else e.ClaimExpired,
        holder_session_id=claim.session,
        holder_agent_id=claim.agent,
        cause=cause,
        expires_at=claim.expires_at,
        last_renewal=claim.renewed_at,
        # A holder renews at 40 % of its lease (GC 10.2.4). Missed renewals are evidence, not a
        # verdict.
        missed_renewals=max(0, int(silent / (claim.lease_seconds * 0.4)))
        if claim.lease_seconds and claim.expires_at is not None
        else 0,
        process_gone=draft.facts.holder_gone,
        last_heard=last_heard(holder, claim, draft.facts.holder_heard)
        if holder is not None and cause is Cause.SESSION_SILENT
        else None,
    )
    if trip_breaker(draft):
        return
    if policy.expired is Expired.HUMAN:
        # The expiry may be found long after the lease ran out.
        lapsed_at = now if claim.expires_at is None else min(now, claim.expires_at)
        until = (
            lapsed_at + timedelta(seconds=policy.claim_ttl_seconds)
            if policy.claim_ttl_seconds is not None
            else None
        )
        if until is None or now < until:
            hold(
                draft, f"the claim of {claim.agent} lapsed ({cause}); a person decides", until=until
            )


def trip_breaker(draft: TaskDraft) -> bool:
    """Puts the task on hold if too many claims in a row failed. If it is on hold by then, this
    becomes a further reason."""
    threshold, failures = draft.facts.policy.breaker_threshold, draft.task.failures
    if not threshold or failures < threshold:
        return False
    hold(draft, f"{failures} claims in a row ended without a result")
    return True
