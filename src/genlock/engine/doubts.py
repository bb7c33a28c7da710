"""Changes that may have been done although their items are decided again (ADR 18)."""

from __future__ import annotations

import time
from collections.abc import Iterable

from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.core.model import TaskRecord
from genlock.core.task.view import overdue
from genlock.engine.batch import Round
from genlock.engine.jobs import Doubt, Item
from genlock.engine.patience import patience_of, patiently
from genlock.errors import Closed, GenlockError, OutcomeUnknown, StoreError
from genlock.store import EventQuery, Store


def doubts_of(item: Item, round: Round) -> tuple[Doubt, ...]:
    """The change of this item's own record, if it was done although another was not, or if nobody knows whether it will be.

    What others write to that record is no doubt of this item's.
    """
    if not _has_written(item):
        return ()
    cell = round.cells[item.command.key]
    failed = cell.error is not None and not isinstance(cell.error, OutcomeUnknown)
    if not cell.sealed or failed or (cell.conflicted and not cell.unsure):
        return ()
    return (Doubt(cell.key, cell.sealed[0].version, cell.sealed[0].digest, item.decision, cell.change, round.epoch),)


def was_done(item: Item, round: Round) -> bool:
    """Of one who is about to be decided again: was one of its changes done after all, as the record shows that was just read?

    Then it is not decided: what it did now it would do to whoever came after it. A claim is, unless the task is still held by it: what
    counts is who holds the task now.
    """
    if type(item.command) is ClaimTask:
        done = next((doubt for doubt in item.doubts if _is_held(doubt, round)), None)
    else:
        done = next((doubt for doubt in item.doubts if not _is_open(doubt, round) and _found(round.store, doubt)), None)
    if done is not None:
        item.decision = Decision(done.decision.outcome)
    return done is not None


def doubt_all(items: Iterable[Item], round: Round) -> None:
    """Whatever these have written in the round may have been done."""
    for item in items:
        item.doubts += doubts_of(item, round)


def dispel(items: Iterable[Item], round: Round, until: float) -> list[tuple[str, str]]:
    """Those of them who are in doubt are told what was done after all, or that nobody knows. The projects in which something was done.

    What an item has written itself settles its doubts; what others write to the same record in the same round settles nothing.
    """
    doubts = [_dispelled(item, round, until) for item in items if item.doubts and not _has_written(item)]
    return [doubt.key.place for doubt in doubts if isinstance(doubt, Doubt)]


def _dispelled(item: Item, round: Round, until: float) -> Doubt | OutcomeUnknown | None:
    """Of one who is in doubt, and was now answered without a write: the change that was done after all, which is what he is told.

    Or the error to say so, if nobody can find out: to be told that nothing was done is worse than to be told nothing. Claims are decided
    anew, so that only what was done since they were is in doubt.
    """
    is_claim = type(item.command) is ClaimTask
    if is_claim and type(item.decision) is Decision and item.decision.outcome.success:
        return None
    unclear = None
    for doubt in item.doubts:
        if is_claim and not _is_open(doubt, round):
            continue
        done = _patiently_settled(round.store, doubt, until)
        if done:
            # The first of them that was done: whatever was decided later was decided because of it.
            item.decision = doubt.decision
            round.counts.forget()
            return doubt
        if done is None:
            unclear = item.decision = OutcomeUnknown("an attempt at this broke off, and may have been done: look, or ask again")
    return unclear


def undecided(item: Item, error: GenlockError) -> GenlockError:
    """What an item is told that cannot be decided again: to one who is in doubt nobody may say that nothing was done."""
    return OutcomeUnknown(f"{error}. An earlier attempt may have been done: look, or ask again") if item.doubts else error


def serve_in_doubt(round: Round, item: Item) -> bool:
    """Claims the same task as before, if that can be had: another one would be a second, should the first claim still be done."""
    round.prepare([item])
    if was_done(item, round):
        return True
    decision = round.decide(item)
    if type(decision) is Decision and decision.outcome.success is True:
        return True
    # It cannot: what it was denied for is no change of the task, or else the first claim cannot be done any more either.
    return _dispelled(item, round, patience_of([item], time.monotonic())) is not None


def is_nobodys(item: Item) -> bool:
    """Does nobody wait for it? Then nobody would look what came of it either: it is tried until that is known."""
    return item.job is not None and (item.job.returns or item.job.cancelled)


def is_owed(item: Item) -> bool:
    """Does nobody wait for it, although a claim may depend on it?"""
    return is_nobodys(item) and (bool(item.doubts) or item.job.returns)  # type: ignore[union-attr]


def _has_written(item: Item) -> bool:
    return type(item.decision) is Decision and bool(item.decision.events)


def _is_held(doubt: Doubt, round: Round) -> bool:
    """Does the session hold the task by the very claim that is in doubt?"""
    cell = round.cells.get(doubt.key)
    claim = cell.read.claim if cell is not None and isinstance(cell.read, TaskRecord) else None
    granted = doubt.decision.outcome.claim
    if claim is None or granted is None or claim.id != granted.id:
        return False
    return overdue(claim, round.now, mercy=round.mercy(doubt.key.place)) is None


def _is_open(doubt: Doubt, round: Round) -> bool:
    """Could it still be done when the record was read for this round? Not if something else, or itself, was there already."""
    cell = round.cells.get(doubt.key)
    return cell is None or cell.read_version < doubt.version


def _found(store: Store, doubt: Doubt) -> bool | None:
    """Is the change there now? None: neither it nor another in its place."""
    query = EventQuery(*doubt.key.place, record=doubt.key, after_version=doubt.version - 1, limit=1)
    events = store.read_events(query).events
    return events[0].digest == doubt.digest if events else None


def _settled(store: Store, doubt: Doubt) -> bool | None:
    """Was the change done? If it still could be, it is sent once more: then it is, be it by the first attempt or by this one.

    None if nobody can tell. What was decided in an earlier epoch is not sent again: its generation may have been granted there.
    """
    found = _found(store, doubt)
    if found is None and store.load([doubt.key]).epoch == doubt.epoch:
        store.commit([doubt.change()])
        found = _found(store, doubt)
    return found


def _patiently_settled(store: Store, doubt: Doubt, until: float) -> bool | None:
    """The same. None also if that cannot be found out before the deadline."""
    try:
        return patiently(lambda: _settled(store, doubt), until)
    except (StoreError, Closed):
        return None
