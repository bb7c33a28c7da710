"""Operations of promoters: list the promotions that wait, and report the outcome of one."""

from __future__ import annotations

from collections.abc import Sequence

from genlock.coordinator.arguments import (
    check_after,
    check_digest,
    check_generation,
    check_items,
    check_limit,
    check_text,
)
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Read, Script
from genlock.core import commands as c
from genlock.core.ids import check_task_id
from genlock.core.keys import PROMOTION, promotion_id
from genlock.core.manifest import MOST_PRODUCTS, check_product_path
from genlock.core.model import PromotionRecord
from genlock.core.reasons import PromotionState
from genlock.core.records.promotion import LONGEST_FAILURE
from genlock.core.results import PromotionInfo
from genlock.errors import BadArgument
from genlock.reads import promotions


class Promoting(Base):
    """Operations on promotions."""

    def list_promotions(
        self,
        *,
        task_id: str | None = None,
        state: str | None = None,
        limit: int = 100,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[PromotionInfo, ...]]:
        """The products of accepted results: of one task or of all, in one state or in any. `after`
        is the last `<task>/<generation>` of the previous page."""
        scope = self.place(tenant_id, project_id)
        task = None if task_id is None else check_task_id(task_id)
        wanted = None if state is None else _state(state)
        limit, after_id = check_limit(limit), check_after(after)
        found: tuple[PromotionInfo, ...] = yield Read(
            lambda: promotions.promotions(self.reader, scope, task, wanted, limit, after_id)
        )
        return found

    def settle_promotion(
        self,
        *,
        task_id: str,
        generation: int,
        digest: str,
        failure: str = "",
        superseded: Sequence[str] = (),
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[PromotionInfo]:
        """Say that the products of an accepted result were promoted, or why they cannot be.

        This is for promoters, which have copied the drafts and checked the copies; it moves
        nothing. `digest` is the manifest's, as `list_promotions` has it. `superseded` names the
        paths whose asset is from a later acceptance."""
        key = self.task_key(tenant_id, project_id, task_id)
        paths = check_items("superseded", superseded)
        if len(paths) > MOST_PRODUCTS:
            raise BadArgument(f"superseded has {len(paths)} paths, at most {MOST_PRODUCTS}")
        generation = check_generation(generation)
        command = c.SettlePromotion(
            key.beside(PROMOTION, promotion_id(key.id, generation)),
            self.operator(),
            check_digest(digest),
            check_text("failure", failure, LONGEST_FAILURE),
            tuple(check_product_path(path) for path in paths),
        )
        record: PromotionRecord = yield from self.ask_one(command)
        return promotions.promotion_info(record)


def _state(state: object) -> PromotionState:
    try:
        return PromotionState(str(state))
    except ValueError:
        raise BadArgument(
            f"state is one of {', '.join(PromotionState)}, not {state!r:.40}"
        ) from None
