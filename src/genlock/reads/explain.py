"""Explains why a task is not ready. The core decides the answer to a claim; this module puts that
decision into sentences."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise

from msgspec.structs import replace

from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.core.facts import OutageGrace
from genlock.core.keys import TASK, Key
from genlock.core.model import Claim, TaskRecord
from genlock.core.plan import find_cycle
from genlock.core.reasons import ClaimReason, Status
from genlock.core.results import ClaimResult, Explanation, Root
from genlock.core.task.view import is_claimed, lease_shown, overdue, shown, waits_for
from genlock.engine.batch import BatchRound
from genlock.engine.jobs import plain_item
from genlock.errors import GenlockError
from genlock.messages import changes, review_causes
from genlock.reads.reader import Reader

_MOST_LOOKED_AT = 5000
_MOST_ROOTS = 20
_NOT_BEFORE = "not before "
"""The prefix of an entry in what a task waits for if it is a time and not another task."""


def explanation(reader: Reader, claim: ClaimTask) -> Explanation:
    """Returns the answer that a claim would get, and why. Nothing is committed."""
    reader.task(claim.key)
    round, item = reader.trial(), plain_item(claim)
    round.prepare([item])
    before = round.loaded_records[claim.key].record
    assert isinstance(before, TaskRecord)
    decided = round.decide(item)
    if isinstance(decided, GenlockError):
        raise decided
    assert isinstance(decided, Decision)
    outcome: ClaimResult = decided.outcome
    record: TaskRecord = decided.record or before
    because = _because(outcome, record)
    cycle: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    roots: tuple[Root, ...] = ()
    if outcome.reason is ClaimReason.DENIED_BLOCKED:
        below = _below(round, claim.key, record)
        cycle, depends_on = _cycle(below)
        del below[claim.key.id]
        outage_grace = round.outage_grace(claim.key.place)
        roots = tuple(
            _root(name, found, round.now, outage_grace)
            for name, found in below.items()
            if _is_root(found)
        )[:_MOST_ROOTS]
    elif (
        outcome.success and before.backlog and not round.settings(claim.key.place)[0].offer_backlog
    ):
        because = (*because, "it is in the backlog: only a claim by name is granted")
    own = _own(before, record, outcome, claim)
    if own is not None:
        said = _because_of_holder(own, claim)
        # The holder of a task that was held meanwhile may still finish it.
        because = (*because[:1], *said) if outcome.reason is ClaimReason.DENIED_HELD else said
    if cycle:
        because = (f"it waits for itself: {' → '.join(cycle)}", *because)
    found = Explanation(
        task_id=claim.key.id,
        state=before.state,
        ready=outcome.success,
        reason=outcome.reason,
        because=because,
        waits_for=outcome.waits_for,
        cycle=cycle,
        holder=outcome.holder,
        roots=roots,
        own_generation=own.generation if own else None,
    )
    return replace(found, try_next=changes(found, depends_on))


def _cycle(below: dict[str, TaskRecord | None]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the cycle among these tasks, starting at a task that depends on the next one, and
    that task's dependencies. It starts there because a dependency can be removed; a subtask
    cannot."""
    found = find_cycle({name: _unmet(record) for name, record in below.items() if record})
    for at, (waiting, other) in enumerate(pairwise(found or ())):
        record = below[waiting]
        assert found is not None
        if record is not None and other in record.task.depends_on:
            return (*found[at:-1], *found[: at + 1]), record.task.depends_on
    return tuple(found or ()), ()


def _own(
    before: TaskRecord, record: TaskRecord, outcome: ClaimResult, command: ClaimTask
) -> Claim | None:
    """Returns the claim that the caller's own session already holds, if it is still active."""
    claim = before.claim
    if claim is None or claim.session != command.by.session:
        return None
    if outcome.reason is ClaimReason.DENIED_HELD:
        return claim if is_claimed(record) else None
    extended = (
        outcome.success
        and outcome.claim is not None
        and outcome.claim.generation == claim.generation
    )
    return claim if extended or outcome.reason is ClaimReason.DENIED_ACTIVE_CLAIM else None


def _because_of_holder(claim: Claim, command: ClaimTask) -> tuple[str, ...]:
    own = (
        f"your session holds it at generation {claim.generation}, as {claim.agent}, "
        f"{lease_shown(claim.expires_at)}"
    )
    other = f"a claim as {command.by.agent} would be denied; say that you are {claim.agent}"
    return (own,) if claim.agent == command.by.agent else (own, other)


def _because(outcome: ClaimResult, record: TaskRecord) -> tuple[str, ...]:
    """Returns the reasons for the answer to a claim."""
    match outcome.reason:
        case ClaimReason.GRANTED:
            return ("a claim would be granted now",)
        case ClaimReason.DENIED_COMPLETED:
            return (f"it is {record.state.value.lower()}",)
        case ClaimReason.DENIED_HELD:
            held = f"it is held: {record.hold.reason if record.hold else ''}"
            if record.review is not None:
                held = f"its result waits for a review: {review_causes(record.review.causes)}"
            claim = record.claim if is_claimed(record) else None
            at_work = (
                (
                    (
                        f"{claim.agent} (session {claim.session}) is at work on it, "
                        f"{lease_shown(claim.expires_at)}"
                    ),
                )
                if claim
                else ()
            )
            return (held, *at_work)
        case ClaimReason.DENIED_ASSIGNED:
            until = f" until {record.assigned_until.isoformat()}" if record.assigned_until else ""
            return (f"it is reserved for {record.task.assigned_to}{until}",)
        case ClaimReason.DENIED_ROLE:
            mine = f"role {outcome.detail}" if outcome.detail else "a caller without a role"
            return (f"it is for the roles {', '.join(outcome.roles)}, not for {mine}",)
        case ClaimReason.DENIED_ACTIVE_CLAIM:
            holder = outcome.holder
            assert holder is not None
            who = (
                f"{holder.agent} (session {holder.session}) holds it since "
                f"{shown(holder.claimed_at)}, {lease_shown(holder.expires_at)}"
            )
            return (who, outcome.detail) if outcome.detail else (who,)
        case ClaimReason.DENIED_BLOCKED:
            waiting = tuple(
                f"opens {other}" if other.startswith(_NOT_BEFORE) else f"waits for {other}"
                for other in sorted(outcome.waits_for, key=lambda it: it.startswith(_NOT_BEFORE))
            )
            return waiting or ("it is blocked",)
        case ClaimReason.DENIED_LIMIT:
            return (outcome.detail,)
        case ClaimReason.NOTHING_READY:
            return ()


def _below(round: BatchRound, key: Key, record: TaskRecord) -> dict[str, TaskRecord | None]:
    """Returns the task and everything it waits for, directly or through others, nearest first; None
    for a task that does not exist."""
    seen: dict[str, TaskRecord | None] = {key.id: record}
    todo = [record]
    while todo and len(seen) < _MOST_LOOKED_AT:
        missing = {
            key.beside(TASK, other): None
            for found in todo
            for other in _unmet(found)
            if other not in seen
        }
        round.load(missing)
        todo = []
        for wanted in missing:
            found = round.loaded_records[wanted].record
            seen[wanted.id] = found if isinstance(found, TaskRecord) else None
            if isinstance(found, TaskRecord):
                todo.append(found)
    return seen


def _unmet(record: TaskRecord) -> tuple[str, ...]:
    """The dependencies and children that a task waits for."""
    return tuple(
        other
        for heard in (record.dependencies, record.children)
        for other, news in heard.items()
        if not news.finished
    )


def _is_root(record: TaskRecord | None) -> bool:
    return record is None or record.state is not Status.BLOCKED or not _unmet(record)


def _root(
    name: str, record: TaskRecord | None, now: datetime, outage_grace: OutageGrace | None
) -> Root:
    return (
        Root(name, None, "there is no such task")
        if record is None
        else Root(name, record.state, _standing(record, now, outage_grace))
    )


def _standing(record: TaskRecord, now: datetime, outage_grace: OutageGrace | None) -> str:
    """Describes a task's state in a phrase."""
    match record.state:
        case Status.PENDING:
            reserved = (
                f", reserved for {record.task.assigned_to}" if record.task.assigned_to else ""
            )
            return f"ready, nobody has claimed it{reserved}"
        case Status.BACKLOG:
            return "in the backlog"
        case Status.IN_PROGRESS if record.claim is not None:
            claim = record.claim
            if overdue(claim, now, outage_grace=outage_grace) is not None:
                return f"the lease of {claim.agent} is over: the next claim takes it over"
            return (
                f"{claim.agent} (session {claim.session}) is at work, "
                f"{lease_shown(claim.expires_at)}"
            )
        case Status.HELD:
            return f"held: {record.hold.reason}" if record.hold else "held"
        case Status.BLOCKED:
            return (
                ", ".join(waits_for(record))
                or "nothing keeps it blocked any more: the next look opens it"
            )
        case Status.COMPLETED | Status.CANCELLED:
            return (
                f"{record.state.value.lower()}, which has not been heard of yet: the next "
                "claim opens what waits"
            )
        case _:
            return record.state.value.lower().replace("_", " ")
