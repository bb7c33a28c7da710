"""Promotions: the products of accepted results, and their states."""

from __future__ import annotations

from itertools import islice

from genlock.core.codec import decode_record
from genlock.core.keys import PROMOTION, Scope
from genlock.core.manifest import digest_of
from genlock.core.model import PromotionRecord
from genlock.core.reasons import PromotionState
from genlock.core.results import PromotionInfo
from genlock.reads.reader import Reader
from genlock.store import Query


def promotions(
    reader: Reader,
    scope: Scope,
    task_id: str | None,
    state: PromotionState | None,
    limit: int,
    after_id: str,
) -> tuple[PromotionInfo, ...]:
    """Promotions by id, which is `<task>/<generation>`: of one task, if one is named, and in one
    state."""
    query = Query(*scope, kind=PROMOTION, parent=task_id, state=state)
    found = (
        promotion_info(decode_record(PROMOTION, stored.body))
        for stored in reader.find(query, after_id)
    )
    return tuple(islice(found, limit))


def promotion_info(record: object) -> PromotionInfo:
    """Returns a promotion in the form that callers get."""
    assert isinstance(record, PromotionRecord)
    return PromotionInfo(
        task_id=record.task,
        generation=record.generation,
        state=record.state,
        manifest=record.manifest,
        digest=digest_of(record.manifest),
        accepted_at=record.accepted_at,
        updated_at=record.updated_at,
        reason=record.reason,
        superseded=record.superseded,
    )
