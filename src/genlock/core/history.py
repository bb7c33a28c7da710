"""A task's claims, reconstructed from its events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.model import TaskRecord
from genlock.core.reasons import ReleaseReason
from genlock.core.results import ClaimHistory


def claim_history(
    record: TaskRecord, events: Iterable[e.Event], refused: frozenset[tuple[int, str]]
) -> tuple[ClaimHistory, ...]:
    """Returns one entry for each granted generation, in order. `refused` has the generations and
    sessions whose results were refused.

    A submission by another session at this generation says nothing about the session that holds it.
    """
    entries: dict[int, ClaimHistory] = {}
    current = 0
    for event in events:
        if isinstance(event, e.ClaimAcquired):
            current = event.generation
            entries[current] = begun(
                event,
                track=record.task.track,
                sequence=record.task.sequence,
                result_rejected=(current, event.session_id) in refused,
            )
        elif current in entries:
            entry = continued(entries[current], event)
            if entry is not None:
                entries[current] = entry
    return tuple(entries.values())


def begun(
    event: e.ClaimAcquired,
    *,
    track: str | None = None,
    sequence: int | None = None,
    result_rejected: bool = False,
) -> ClaimHistory:
    """Returns the first entry of a claim."""
    return ClaimHistory(
        id=event.claim_id,
        tenant_id=event.tenant_id,
        project_id=event.project_id,
        task_id=event.task_id,
        track=track,
        sequence=sequence,
        generation=event.generation,
        session_id=event.session_id,
        agent_id=event.agent_id,
        user_id=event.actor.user_id,
        acquired_at=event.timestamp,
        result_rejected=result_rejected,
    )


def continued(entry: ClaimHistory, event: e.Event) -> ClaimHistory | None:
    """Returns the entry after an event of its task, or None if the event does not concern it."""
    match event:
        case e.LeaseRenewed():
            return replace(entry, renewals=entry.renewals + 1)
        case e.ProgressReported():
            return replace(
                entry,
                fraction=entry.fraction if event.fraction is None else event.fraction,
                note=event.note or entry.note,
                cost={**entry.cost, **event.cost},
            )
        case e.ResultAccepted() if event.author_session_id:
            return replace(
                entry,
                result_accepted=True,
                work_product_ref=event.work_product_ref,
                reference=event.reference,
            )
        case e.ConvergenceEscalated():
            return _ended(entry, event, ReleaseReason.COMPLETED)
        case e.ResultAccepted():
            return _ended(
                entry,
                event,
                ReleaseReason.COMPLETED,
                result_accepted=True,
                work_product_ref=event.work_product_ref,
                reference=event.reference,
            )
        case e.ClaimReleased():
            if entry.release_reason:
                return entry
            return _ended(entry, event, event.release_reason, stated_reason=event.stated_reason)
        case e.ClaimExpired():
            # Usually noticed later; GC 9.2 wants the time at which it was over.
            return replace(
                entry,
                released_at=min(event.expires_at or event.timestamp, event.timestamp),
                release_reason=ReleaseReason.EXPIRED,
            )
        case e.ClaimOrphaned():
            return _ended(entry, event, ReleaseReason.ORPHANED)
        case e.SubtasksSpawned() if not event.keep:
            return _ended(entry, event, ReleaseReason.SPAWNED)
        case e.ClaimSuperseded() | e.TaskReset() | e.TaskCancelled():
            return entry if entry.release_reason else _ended(entry, event, ReleaseReason.SUPERSEDED)
        case _:
            return None


def _ended(
    entry: ClaimHistory, event: e.Occurrence, reason: ReleaseReason, **more: Any
) -> ClaimHistory:
    return replace(entry, released_at=event.timestamp, release_reason=reason, **more)
