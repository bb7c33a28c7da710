"""Changes that may have been done although their items are decided again (ADR 18)."""

from __future__ import annotations

from collections.abc import Iterable

from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.core.model import TaskRecord
from genlock.core.task.view import overdue
from genlock.engine.batch import Round
from genlock.engine.jobs import Doubt, Item
from genlock.engine.patience import patiently
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
    return (Doubt(cell.key, cell.sealed[0].version, cell.sealed[0].digest, item.decision),)


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
    """Those of them who are in doubt are told what was done after all, or that nobody knows. The projects in which something was done."""
    places = []
    for item in items:
        doubt = _dispelled(item, round, until) if item.doubts else None
        if isinstance(doubt, Doubt):
            item.decision = doubt.decision
            places.append(doubt.key.place)
        elif doubt is not None:
            item.decision = doubt
    return places


def _dispelled(item: Item, round: Round, until: float) -> Doubt | OutcomeUnknown | None:
    """Of one who is in doubt, and was now answered without a write of his own that would settle it: the change that was done after all.

    What others write to the same record in the same round settles nothing. Or the error to say so, if nobody can look: to be told that
    nothing was done is worse than to be told nothing. Claims are decided anew, so that only what was done since they were is in doubt.
    """
    if _has_written(item):
        return None
    is_claim = type(item.command) is ClaimTask
    if is_claim and type(item.decision) is Decision and item.decision.outcome.success:
        return None
    doubts = [doubt for doubt in item.doubts if not is_claim or _is_open(doubt, round)]
    unclear = False
    for doubt in doubts:
        found = _patiently_found(round.store, doubt, until)
        if found and not is_claim:
            # The first of them that was done: whatever was decided later was decided because of it.
            return doubt
        unclear = unclear or found is not False
    return OutcomeUnknown("an attempt at this broke off, and may have been done: look, or ask again") if unclear else None


def undecided(item: Item, error: GenlockError) -> GenlockError:
    """What an item is told that cannot be decided again: to one who is in doubt nobody may say that nothing was done."""
    return OutcomeUnknown(f"{error}. An earlier attempt may have been done: look, or ask again") if item.doubts else error


def serve_in_doubt(round: Round, item: Item) -> bool:
    """Claims the same task as before, if that can be had: another one would be a second, should the first claim still be done."""
    round.prepare([item])
    if was_done(item, round):
        return True
    decision = round.decide(item)
    return type(decision) is Decision and decision.outcome.success is True


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


def _found(store: Store, doubt: Doubt) -> bool:
    """Is the change there now?"""
    query = EventQuery(*doubt.key.place, record=doubt.key, after_version=doubt.version - 1, limit=1)
    events = store.read_events(query).events
    return bool(events) and events[0].digest == doubt.digest


def _patiently_found(store: Store, doubt: Doubt, until: float) -> bool | None:
    """The same. None if that cannot be found out before the deadline."""
    try:
        return patiently(lambda: _found(store, doubt), until)
    except (StoreError, Closed):
        return None
