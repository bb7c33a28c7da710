"""Promotions: the work products of accepted results, on their way to the project's assets.

1. An acceptance with a manifest starts a promotion, by a reaction. Nothing else does. It carries
   that manifest and the time of the acceptance, and neither ever changes.
2. A promoter names the manifest that it worked on by its digest. Any other is refused.
3. PROMOTED is final. FAILED is not: the drafts may be repaired, and the promotion tried again.
4. Of two acceptances that promote the same path the later one counts: by time, then by generation,
   then by the task's id. The promoter compares them where the asset is; see `order_of`.
5. The same report again changes nothing.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Decision, RecordKind, decide_one
from genlock.core.facts import Facts
from genlock.core.index import Index, microseconds
from genlock.core.keys import PROMOTION
from genlock.core.manifest import digest_of
from genlock.core.model import PromotionRecord
from genlock.core.reasons import PromotionState
from genlock.errors import NotAllowed, PromotionNotFound

LONGEST_FAILURE = 500


def order_of(accepted_at: datetime, generation: int, task_id: str) -> tuple[int, int, str]:
    """Returns the order of acceptances. Rule 4. No acceptance of a task has the time of an earlier
    one and a lower generation, so a task never loses to its own past."""
    return microseconds(accepted_at), generation, task_id


def decide_request(
    record: PromotionRecord | None, command: c.RequestPromotion, facts: Facts
) -> Decision:
    """Starts a promotion. Rule 1."""
    if record is not None:
        return Decision(record)
    return decide_one(
        record,
        command,
        facts,
        _requested,
        e.PromotionRequested,
        task_id=command.task,
        generation=command.generation,
        manifest=command.manifest,
        accepted_at=command.accepted_at or facts.now,
    )


def decide_settle(
    record: PromotionRecord | None, command: c.SettlePromotion, facts: Facts
) -> Decision:
    """Records the result of a promotion. Rules 2, 3 and 5. The outcome is the record after it."""
    if record is None:
        task, _, generation = command.key.id.rpartition("/")
        raise PromotionNotFound(
            f"task {task!r} has no promotion at generation {generation}: no result with products "
            "was accepted there"
        )
    if command.digest != digest_of(record.manifest):
        raise NotAllowed(
            f"the manifest that was accepted of {record.task!r} at generation {record.generation} "
            "is another one than this; list the promotions again"
        )
    if record.state is PromotionState.PROMOTED:
        return Decision(record)
    if command.failure:
        if (record.state, record.reason) == (PromotionState.FAILED, command.failure):
            return Decision(record)
        return decide_one(
            record,
            command,
            facts,
            _failed,
            e.PromotionFailed,
            task_id=record.task,
            generation=record.generation,
            reason=command.failure,
        )
    return decide_one(
        record,
        command,
        facts,
        _completed,
        e.PromotionCompleted,
        task_id=record.task,
        generation=record.generation,
        superseded=command.superseded,
    )


def _requested(record: PromotionRecord | None, event: e.PromotionRequested) -> PromotionRecord:
    return PromotionRecord(
        task=event.task_id,
        generation=event.generation,
        manifest=event.manifest,
        accepted_at=event.accepted_at,
        updated_at=event.timestamp,
    )


def _failed(record: PromotionRecord, event: e.PromotionFailed) -> PromotionRecord:
    return replace(
        record, updated_at=event.timestamp, state=PromotionState.FAILED, reason=event.reason
    )


def _completed(record: PromotionRecord, event: e.PromotionCompleted) -> PromotionRecord:
    return replace(
        record,
        updated_at=event.timestamp,
        state=PromotionState.PROMOTED,
        reason="",
        superseded=event.superseded,
    )


def _index(record: PromotionRecord) -> Index:
    return Index(state=record.state, parent=record.task)


RECORD = RecordKind(
    kind=PROMOTION,
    record=PromotionRecord,
    commands={c.RequestPromotion: decide_request, c.SettlePromotion: decide_settle},
    begins=e.PromotionRequested,
    folds={
        e.PromotionRequested: _requested,
        e.PromotionFailed: _failed,
        e.PromotionCompleted: _completed,
    },
    index_of=_index,
)
