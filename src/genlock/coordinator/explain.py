"""Why a task is not ready, in words: the rules are asked what a claim would be answered, and the answer is spelled out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.core.keys import TASK, Key
from genlock.core.model import TaskRecord
from genlock.core.plan import find_cycle
from genlock.core.reasons import ClaimReason
from genlock.core.results import ClaimResult, Explanation
from genlock.core.routing import Pool, order_of, parse_pool, pool_of
from genlock.core.task.view import claimable
from genlock.engine.batch import Round
from genlock.engine.jobs import Item
from genlock.errors import GenlockError

_MOST_LOOKED_AT = 5000


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
    cycle = _cycle(round, claim.key, record) if outcome.reason is ClaimReason.DENIED_BLOCKED else ()
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
    )


def _words(outcome: ClaimResult, record: TaskRecord, task: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is so, and what would change it."""
    match outcome.reason:
        case ClaimReason.GRANTED:
            return ("a claim would be granted now",), (f"claim {task}",)
        case ClaimReason.DENIED_COMPLETED:
            return (f"it is {record.state.value.lower()}",), (f"reset {task} to have it done again",)
        case ClaimReason.DENIED_HELD:
            reason = record.hold.reason if record.hold else "it is in review"
            return (f"it is held: {reason}",), (f"reopen {task} once that is settled",)
        case ClaimReason.DENIED_ASSIGNED:
            until = f" until {record.assigned_until.isoformat()}" if record.assigned_until else ""
            return (f"it is reserved for {record.task.assigned_to}{until}",), (f"assign {task} to another agent, or wait",)
        case ClaimReason.DENIED_ACTIVE_CLAIM:
            holder = outcome.holder
            assert holder is not None
            since, until = holder.claimed_at.isoformat(), holder.expires_at.isoformat()
            who = f"{holder.agent} (session {holder.session}) holds it since {since}, lease until {until}"
            return (who,), ("wait for its result, its release or the end of its lease", f"force a release of {task} if the holder is lost")
        case ClaimReason.DENIED_BLOCKED:
            waiting = tuple(f"waits for {other}" for other in outcome.waits_for)
            return waiting or ("it is blocked",), tuple(f"complete or cancel {other}" for other in outcome.waits_for[:3])
        case ClaimReason.DENIED_LIMIT:
            return (outcome.detail,), (f"raise the limit {outcome.limit}, or ask for less",)
        case ClaimReason.NOTHING_READY:
            return (), ()


def _cycle(round: Round, key: Key, record: TaskRecord) -> tuple[str, ...]:
    """The circle of unmet dependencies and children that this task waits in, if there is one."""
    edges: dict[str, tuple[str, ...]] = {}
    todo = [(key.id, record)]
    while todo and len(edges) < _MOST_LOOKED_AT:
        missing: list[Key] = []
        for name, found in todo:
            edges[name] = tuple(
                other for heard in (found.dependencies, found.children) for other, news in heard.items() if not news.finished
            )
            missing += [key.beside(TASK, other) for other in edges[name] if other not in edges]
        round.load(dict.fromkeys(missing))
        records = {wanted.id: round.cells[wanted].record for wanted in missing}
        todo = [(name, found) for name, found in records.items() if isinstance(found, TaskRecord) and name not in edges]
    return find_cycle(edges) or ()


def opened_by_time(round: Round, checks: Iterable[Item]) -> Iterator[tuple[Key, Pool, str, TaskRecord]]:
    """The tasks among these that time has opened, each with its pool and order; decided, not written."""
    for check in checks:
        round.decide(check)
        record = round.cells[check.command.key].record
        if isinstance(record, TaskRecord) and claimable(record):
            yield check.command.key, parse_pool(pool_of(record)), order_of(record), record
