"""Changes that may have been done although their items are decided again (ADR 18)."""

from __future__ import annotations

from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.engine.batch import Round
from genlock.engine.jobs import Doubt, Item
from genlock.engine.patience import patiently
from genlock.errors import GenlockError, OutcomeUnknown, StoreError
from genlock.store import EventQuery, Store


def doubts_of(item: Item, round: Round) -> tuple[Doubt, ...]:
    """The change of this item's own record, if it was done although another was not, or if nobody knows whether it will be.

    What others write to that record is no doubt of this item's.
    """
    cell = round.cells[item.command.key]
    failed = cell.error is not None and not isinstance(cell.error, OutcomeUnknown)
    if not _has_written(item) or not cell.sealed or failed or (cell.conflicted and not cell.unsure):
        return ()
    return (Doubt(cell.key, cell.sealed[0].version, cell.sealed[0].digest, item.decision),)


def dispelled(item: Item, store: Store, until: float) -> Doubt | None:
    """Of one who is in doubt, and was now answered without a write of his own that would settle it: the change that was done after all.

    What others write to the same record in the same round settles nothing. Claims are decided anew: what counts is who holds the task now.
    """
    if type(item.command) is ClaimTask or _has_written(item):
        return None
    # The first of them that was done: whatever was decided later was decided because of it.
    return next((doubt for doubt in item.doubts if _came_true(store, doubt, until)), None)


def undecided(item: Item, error: GenlockError) -> GenlockError:
    """What an item is told that cannot be decided again: to one who is in doubt nobody may say that nothing was done."""
    return OutcomeUnknown(f"{error}. An earlier attempt may have been done: look, or ask again") if item.doubts else error


def serve_in_doubt(round: Round, item: Item) -> bool:
    """Claims the same task as before, if that can be had: another one would be a second, should the first claim still be done."""
    round.prepare([item])
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


def _came_true(store: Store, doubt: Doubt, until: float) -> bool:
    """Is the change there now? What cannot be found out before the deadline is left as it was decided."""
    query = EventQuery(*doubt.key.place, record=doubt.key, after_version=doubt.version - 1, limit=1)
    try:
        events = patiently(lambda: store.read_events(query).events, until)
    except StoreError:
        return False
    return bool(events) and events[0].digest == doubt.digest
