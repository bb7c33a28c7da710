"""Unknown outcomes: changes that may have been written although their items are decided again.

A write that may have committed is never reported as not done (ADR 18).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from genlock.core.commands import ClaimTask
from genlock.core.decision import Decision
from genlock.core.model import TaskRecord
from genlock.core.task.view import overdue
from genlock.engine.batch import BatchRound
from genlock.engine.jobs import Item, PossibleWrite, batch_deadline
from genlock.engine.retry import retry_until
from genlock.errors import Closed, GenlockError, OutcomeUnknown, StoreError
from genlock.store import EventQuery, Store


def possible_writes_of(item: Item, round: BatchRound) -> tuple[PossibleWrite, ...]:
    """Returns the change of this item's own record, if it was written although another was not, or
    if its outcome is unknown.

    Changes of other items to that record do not matter.
    """
    if not _has_written(item):
        return ()
    loaded = round.loaded_records[item.command.key]
    failed = loaded.error is not None and not isinstance(loaded.error, OutcomeUnknown)
    if not loaded.sealed or failed or (loaded.conflicted and not loaded.unsure):
        return ()
    return (
        PossibleWrite(
            loaded.key,
            loaded.sealed[0].version,
            loaded.sealed[0].digest,
            item.decision,
            loaded.change,
            round.epoch,
        ),
    )


def was_written(item: Item, round: BatchRound) -> bool:
    """Called before an item is decided again: does the record that was just read show that one of
    its changes was written after all?

    Then it must not be decided again, because the new decision would affect sessions that came
    after it. A claim counts as written only while it holds the task.
    """
    if type(item.command) is ClaimTask:
        done = next(
            (
                possible_write
                for possible_write in item.possible_writes
                if _is_held(possible_write, round)
            ),
            None,
        )
    else:
        done = next(
            (
                possible_write
                for possible_write in item.possible_writes
                if not _is_open(possible_write, round) and _found(round.store, possible_write)
            ),
            None,
        )
    if done is not None:
        item.decision = Decision(done.decision.outcome)
    return done is not None


def mark_all_unknown(items: Iterable[Item], round: BatchRound) -> None:
    """Notes that the changes of these items may have been written."""
    for item in items:
        item.possible_writes += possible_writes_of(item, round)


def resolve_outcomes(
    items: Iterable[Item], round: BatchRound, until: float
) -> list[tuple[str, str]]:
    """Gives items with possible writes the decision that was written after all, or OutcomeUnknown.
    Returns the projects in which something was written.

    An item that has written in this round is certain of its outcome. What other items write to the
    same record proves nothing.
    """
    possible_writes = [
        _resolve(item, round, until)
        for item in items
        if item.possible_writes and not _has_written(item)
    ]
    return [
        possible_write.key.place
        for possible_write in possible_writes
        if isinstance(possible_write, PossibleWrite)
    ]


def _resolve(item: Item, round: BatchRound, until: float) -> PossibleWrite | OutcomeUnknown | None:
    """Returns, for an item that was answered without a write, its change that was written after
    all, or the error if that cannot be found out. "Nothing was done" would be worse than no answer.

    A claim is decided again on the present record, so only a change that could still be written
    since then matters.
    """
    is_claim = type(item.command) is ClaimTask
    if is_claim and type(item.decision) is Decision and item.decision.outcome.success:
        return None
    unclear = None
    for possible_write in item.possible_writes:
        if is_claim and not _is_open(possible_write, round):
            continue
        done = _find_out(round.store, possible_write, until)
        if done:
            # The first change that was written. Later decisions followed from it.
            item.decision = possible_write.decision
            round.counts.forget()
            return possible_write
        if done is None:
            unclear = item.decision = OutcomeUnknown(
                "an attempt at this broke off, and may have been done: look, or ask again"
            )
    return unclear


def undecided(item: Item, error: GenlockError) -> GenlockError:
    """Returns the error for an item that cannot be decided again. With possible writes it must not
    say that nothing was done."""
    return (
        OutcomeUnknown(f"{error}. An earlier attempt may have been done: look, or ask again")
        if item.possible_writes
        else error
    )


def serve_possible_claim(round: BatchRound, item: Item) -> bool:
    """Claims the same task as before if possible. Another task would be a second one if the first
    claim is still written."""
    round.prepare([item])
    if was_written(item, round):
        return True
    decision = round.decide(item)
    if type(decision) is Decision and decision.outcome.success is True:
        return True
    # It was denied. Either the task has not changed, or the first claim cannot be written any more.
    return _resolve(item, round, batch_deadline([item], time.monotonic())) is not None


def is_abandoned(item: Item) -> bool:
    """Has the item no caller any more? Then no caller would look up its outcome either, so the lane
    tries until it is known."""
    return item.job is not None and (item.job.returns or item.job.cancelled)


def must_be_resolved(item: Item) -> bool:
    """Has the item no caller, although it may hold or release a claim?"""
    return is_abandoned(item) and (bool(item.possible_writes) or item.job.returns)  # type: ignore[union-attr]


def _has_written(item: Item) -> bool:
    return type(item.decision) is Decision and bool(item.decision.events)


def _is_held(possible_write: PossibleWrite, round: BatchRound) -> bool:
    """Does the session hold the task by the claim whose outcome is unknown?"""
    loaded = round.loaded_records.get(possible_write.key)
    claim = (
        loaded.read.claim if loaded is not None and isinstance(loaded.read, TaskRecord) else None
    )
    granted = possible_write.decision.outcome.claim
    if claim is None or granted is None or claim.id != granted.id:
        return False
    return (
        overdue(claim, round.now, outage_grace=round.outage_grace(possible_write.key.place)) is None
    )


def _is_open(possible_write: PossibleWrite, round: BatchRound) -> bool:
    """Could the change still be written when this round read the record? Not if its version was
    taken."""
    loaded = round.loaded_records.get(possible_write.key)
    return loaded is None or loaded.read_version < possible_write.version


def _found(store: Store, possible_write: PossibleWrite) -> bool | None:
    """Is the change in the store now? None if neither it nor another is in its place."""
    query = EventQuery(
        *possible_write.key.place,
        record=possible_write.key,
        after_version=possible_write.version - 1,
        limit=1,
    )
    events = store.read_events(query).events
    return events[0].digest == possible_write.digest if events else None


def _write_was_done(store: Store, possible_write: PossibleWrite) -> bool | None:
    """Was the change written? If it still could be, it is sent once more, so that afterwards one of
    the two attempts has written it.

    None if that cannot be found out. A change of an earlier epoch is not sent again: its generation
    may have been granted there.
    """
    found = _found(store, possible_write)
    if found is None and store.load([possible_write.key]).epoch == possible_write.epoch:
        store.commit([possible_write.change()], epoch=possible_write.epoch)
        found = _found(store, possible_write)
    return found


def _find_out(store: Store, possible_write: PossibleWrite, until: float) -> bool | None:
    """Calls `_write_was_done` and retries it until a deadline. None also if the deadline passes."""
    try:
        return retry_until(lambda: _write_was_done(store, possible_write), until)
    except (StoreError, Closed):
        return None
