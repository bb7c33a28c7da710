"""Why a task is not ready, in words: the rules are asked what a claim would be answered, and the answer is spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.core.facts import Mercy
from genlock.core.keys import TASK, Key
from genlock.core.model import Claim, TaskRecord
from genlock.core.plan import find_cycle
from genlock.core.reasons import ClaimReason, Status
from genlock.core.results import ClaimResult, Explanation, Root
from genlock.core.routing import Pool, order_of, parse_pool, pool_of
from genlock.core.task.view import claimable, is_claimed, overdue, shown, waits_for
from genlock.engine.batch import Round
from genlock.engine.jobs import Item
from genlock.errors import GenlockError

_MOST_LOOKED_AT = 5000
_MOST_ROOTS = 20
_NOT_BEFORE = "not before "
"""What a task waits for that is no other task begins so."""


def explanation(round: Round, item: Item) -> Explanation:
    """Asks the rules; nothing is committed."""
    claim: ClaimTask = item.command
    before = round.cells[claim.key].record
    assert isinstance(before, TaskRecord)
    decided = round.decide(item)
    if isinstance(decided, GenlockError):
        raise decided
    assert isinstance(decided, Decision)
    outcome: ClaimResult = decided.outcome
    record: TaskRecord = decided.record or before
    because, hints = _words(outcome, record, claim.key.id)
    cycle: tuple[str, ...] = ()
    roots: tuple[Root, ...] = ()
    if outcome.reason is ClaimReason.DENIED_BLOCKED:
        below = _below(round, claim.key, record)
        cycle = find_cycle({name: _unmet(found) for name, found in below.items() if found is not None}) or ()
        del below[claim.key.id]
        mercy = round.mercy(claim.key.place)
        roots = tuple(_root(name, found, round.now, mercy) for name, found in below.items() if _is_root(found))[:_MOST_ROOTS]
    elif outcome.success and before.backlog and not round.settings(claim.key.place)[0].offer_backlog:
        because = (*because, "it is in the backlog: only a claim by name is granted")
        hints = (*hints, f"reopen {claim.key.id} to have it offered")
    own = _own(before, record, outcome, claim)
    if own is not None:
        said, hints = _words_for_holder(own, claim)
        # What was held while it is at work may still be finished.
        because = (*because[:1], *said) if outcome.reason is ClaimReason.DENIED_HELD else said
    if cycle:
        because = (f"it waits for itself: {' → '.join(cycle)}", *because)
        hints = (f"remove one of these dependencies, for example {cycle[0]} → {cycle[1]}", *hints)
    return Explanation(
        task_id=claim.key.id,
        state=before.state,
        ready=outcome.success,
        reason=outcome.reason,
        because=because,
        try_next=hints,
        waits_for=outcome.waits_for,
        cycle=cycle,
        holder=outcome.holder,
        roots=roots,
        own_generation=own.generation if own else None,
    )


def _own(before: TaskRecord, record: TaskRecord, outcome: ClaimResult, command: ClaimTask) -> Claim | None:
    """The claim that the caller's own session has already, if it still stands."""
    claim = before.claim
    if claim is None or claim.session != command.by.session:
        return None
    if outcome.reason is ClaimReason.DENIED_HELD:
        return claim if is_claimed(record) else None
    extended = outcome.success and outcome.claim is not None and outcome.claim.generation == claim.generation
    return claim if extended or outcome.reason is ClaimReason.DENIED_ACTIVE_CLAIM else None


def _words_for_holder(claim: Claim, command: ClaimTask) -> tuple[tuple[str, ...], tuple[str, ...]]:
    task = command.key.id
    own = f"your session holds it at generation {claim.generation}, as {claim.agent}, until {shown(claim.expires_at)}"
    other = f"a claim as {command.by.agent} would be denied; say that you are {claim.agent}"
    because = (own,) if claim.agent == command.by.agent else (own, other)
    return because, (f"renew, submit or release {task} at generation {claim.generation}",)


def _words(outcome: ClaimResult, record: TaskRecord, task: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is so, and what would change it."""
    match outcome.reason:
        case ClaimReason.GRANTED:
            return ("a claim would be granted now",), (f"claim {task}",)
        case ClaimReason.DENIED_COMPLETED:
            return (f"it is {record.state.value.lower()}",), (f"reset {task} to have it done again",)
        case ClaimReason.DENIED_HELD:
            held = f"it is held: {record.hold.reason if record.hold else 'it is in review'}"
            claim = record.claim if is_claimed(record) else None
            at_work = (f"{claim.agent} (session {claim.session}) is at work on it, lease until {shown(claim.expires_at)}",) if claim else ()
            return (held, *at_work), (f"reopen {task} once that is settled",)
        case ClaimReason.DENIED_ASSIGNED:
            until = f" until {record.assigned_until.isoformat()}" if record.assigned_until else ""
            return (f"it is reserved for {record.task.assigned_to}{until}",), (f"assign {task} to another agent, or wait",)
        case ClaimReason.DENIED_ACTIVE_CLAIM:
            holder = outcome.holder
            assert holder is not None
            since, until = holder.claimed_at.isoformat(), holder.expires_at.isoformat()
            who = f"{holder.agent} (session {holder.session}) holds it since {since}, lease until {until}"
            because = (who, outcome.detail) if outcome.detail else (who,)
            return because, ("wait for its result, its release or the end of its lease", f"force a release of {task} if the holder is lost")
        case ClaimReason.DENIED_BLOCKED:
            early = tuple(other for other in outcome.waits_for if other.startswith(_NOT_BEFORE))
            others = tuple(other for other in outcome.waits_for if other not in early)
            waiting = (*(f"waits for {other}" for other in others), *(f"opens {time}" for time in early))
            hints = (*(f"complete or cancel {other}" for other in others[:3]), *(f"wait, or edit not_before of {task}" for _ in early))
            return waiting or ("it is blocked",), hints
        case ClaimReason.DENIED_LIMIT:
            return (outcome.detail,), (f"raise the limit {outcome.limit}, or ask for less",)
        case ClaimReason.NOTHING_READY:
            return (), ()


def _below(round: Round, key: Key, record: TaskRecord) -> dict[str, TaskRecord | None]:
    """The task and all that it waits for, directly or through others, nearest first; None for what does not exist."""
    seen: dict[str, TaskRecord | None] = {key.id: record}
    todo = [record]
    while todo and len(seen) < _MOST_LOOKED_AT:
        missing = {key.beside(TASK, other): None for found in todo for other in _unmet(found) if other not in seen}
        round.load(missing)
        todo = []
        for wanted in missing:
            found = round.cells[wanted].record
            seen[wanted.id] = found if isinstance(found, TaskRecord) else None
            if isinstance(found, TaskRecord):
                todo.append(found)
    return seen


def _unmet(record: TaskRecord) -> tuple[str, ...]:
    """The dependencies and children that a task waits for."""
    return tuple(other for heard in (record.dependencies, record.children) for other, news in heard.items() if not news.finished)


def _is_root(record: TaskRecord | None) -> bool:
    return record is None or record.state is not Status.BLOCKED or not _unmet(record)


def _root(name: str, record: TaskRecord | None, now: datetime, mercy: Mercy | None) -> Root:
    return Root(name, None, "there is no such task") if record is None else Root(name, record.state, _standing(record, now, mercy))


def _standing(record: TaskRecord, now: datetime, mercy: Mercy | None) -> str:
    """How a task stands, in a phrase."""
    match record.state:
        case Status.PENDING:
            reserved = f", reserved for {record.task.assigned_to}" if record.task.assigned_to else ""
            return f"ready, nobody has claimed it{reserved}"
        case Status.BACKLOG:
            return "in the backlog"
        case Status.IN_PROGRESS if record.claim is not None:
            claim = record.claim
            if overdue(claim, now, mercy=mercy) is not None:
                return f"the lease of {claim.agent} is over: the next claim takes it over"
            return f"{claim.agent} (session {claim.session}) is at work, lease until {shown(claim.expires_at)}"
        case Status.HELD:
            return f"held: {record.hold.reason}" if record.hold else "held"
        case Status.BLOCKED:
            return ", ".join(waits_for(record)) or "nothing keeps it blocked any more: the next look opens it"
        case Status.COMPLETED | Status.CANCELLED:
            return f"{record.state.value.lower()}, which has not been heard of yet: the next claim opens what waits"
        case _:
            return record.state.value.lower().replace("_", " ")


def opened_by_time(round: Round, checks: Iterable[Item]) -> Iterator[tuple[Key, Pool, str, TaskRecord]]:
    """The tasks among these that time has opened, each with its pool and order; decided, not written."""
    for check in checks:
        round.decide(check)
        record = round.cells[check.command.key].record
        if isinstance(record, TaskRecord) and claimable(record):
            yield check.command.key, parse_pool(pool_of(record)), order_of(record), record
