"""The promoter: brings the products of accepted results to the assets, and collects dead drafts.

It is no part of an engine's lanes, and nobody waits for it. It calls operations by name, so it runs
as well in a process of its own, with the client of a service. One promotion goes

1. all contents: each draft is copied to its digest's place, and the copy is read back;
2. all pointers: each path's pointer moves by compare-and-swap, never below a later acceptance;
3. the record: `settle_promotion` says that it is done.

Every step may be repeated, and finds done what is done. So a promoter that was killed leaves
nothing to clean up, two at once do no harm, and the next one finishes. Nothing moves before all
contents are there: a promotion fails as a whole, if it fails.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from genlock.core.ids import check_task_id
from genlock.core.manifest import digest_of
from genlock.core.model import Manifest
from genlock.core.reasons import PromotionState, RefusedState
from genlock.core.records.promotion import LONGEST_FAILURE
from genlock.core.results import PromotionInfo, TaskState
from genlock.errors import BadArgument, GenlockError, StoreForeign, StoreReadOnly
from genlock.failpoints import hit
from genlock.products.area import Area, Asset, Draft, DraftMismatch

_PAGE: Final = 100
_MOST_ERRORS: Final = 3
"""In a row: then the area or the coordinator is away."""
_MOST_TOLD: Final = 20
_OF_ONE_DRAFT: Final = (StoreForeign, StoreReadOnly, BadArgument)
"""An agent may have put a link in the place of its draft, or taken away the right to read it. The
others are not to wait for that."""


class Promoted(Struct, frozen=True):
    """What a promoter has done."""

    promoted: tuple[PromotionInfo, ...] = ()
    failed: tuple[PromotionInfo, ...] = ()
    errors: tuple[str, ...] = ()
    """Of the first of those that are still pending: what kept them from being promoted now."""
    dropped: int = 0
    """Drafts of dead generations that were removed."""


class Promoter:
    """The promoter of one project."""

    def __init__(self, fleet: Any, area: Area, place: tuple[str, str]) -> None:
        """`fleet` is a coordinator or the client of one, `place` the tenant and project."""
        self._fleet = fleet
        self._area = area
        self._place = {"tenant_id": place[0], "project_id": place[1]}

    def run(self, *, task_id: str | None = None, retry: bool = False) -> Promoted:
        """Promotes what is pending; of one task only, if one is named. `retry` also tries those
        again that have failed."""
        states = (PromotionState.PENDING, *((PromotionState.FAILED,) if retry else ()))
        done: list[PromotionInfo] = []
        errors: list[str] = []
        in_a_row = 0
        for state in states:
            # All before any: one that fails now is not to be tried twice.
            for waiting in list(self._waiting(task_id, state)):
                try:
                    done.append(self.promote(waiting))
                    in_a_row = 0
                except GenlockError as error:
                    errors.append(f"{waiting.task_id}: {error}")
                    in_a_row += not isinstance(error, _OF_ONE_DRAFT)
                    if in_a_row == _MOST_ERRORS:
                        break
        failed = tuple(each for each in done if each.state is PromotionState.FAILED)
        return Promoted(
            tuple(each for each in done if each.state is PromotionState.PROMOTED),
            failed,
            tuple(errors[:_MOST_TOLD]),
        )

    def promote(self, waiting: PromotionInfo) -> PromotionInfo:
        """Promotes the products of one accepted result; the promotion after it."""
        manifest = waiting.manifest
        failure = ""
        superseded: tuple[str, ...] = ()
        try:
            for product in manifest.files:
                self._area.store_content(
                    manifest.agent, waiting.task_id, manifest.generation, product
                )
        except DraftMismatch as error:
            failure = str(error)[:LONGEST_FAILURE]
        else:
            hit("products.stored")
            superseded = tuple(
                asset.path for asset in _assets(waiting) if not self._area.point(asset)
            )
            hit("products.moved")
        settled: PromotionInfo = self._fleet.settle_promotion(
            task_id=waiting.task_id,
            generation=waiting.generation,
            digest=waiting.digest,
            failure=failure,
            superseded=superseded,
            **self._place,
        )
        hit("products.settled")
        return settled

    def _waiting(self, task_id: str | None, state: PromotionState) -> Iterator[PromotionInfo]:
        after = None
        while True:
            page: tuple[PromotionInfo, ...] = self._fleet.list_promotions(
                task_id=task_id, state=str(state), limit=_PAGE, after=after, **self._place
            )
            yield from page
            if len(page) < _PAGE:
                return
            after = f"{page[-1].task_id}/{page[-1].generation}"

    # Collecting

    def collect(self, now: datetime, retention: timedelta) -> int:
        """Removes drafts of dead generations that are older than that; how many. Those that a
        result still needs stay."""
        drafts = sorted(self._area.drafts(), key=lambda draft: draft.task_id)
        dropped = 0
        for task_id, found in groupby(drafts, key=lambda draft: draft.task_id):
            groups: dict[tuple[str, int], list[Draft]] = {}
            for draft in found:
                groups.setdefault((draft.agent, draft.generation), []).append(draft)
            old = {
                whose: group
                for whose, group in groups.items()
                if max(draft.modified for draft in group) < now - retention
            }
            for whose in self._dead(task_id, old):
                for draft in old[whose]:
                    self._area.drop_draft(draft)
                    dropped += 1
        return dropped

    def _dead(self, task_id: str, drafted: Collection[tuple[str, int]]) -> list[tuple[str, int]]:
        """Which of these, agent and generation, nobody needs any more.

        What moves, moves from the refused results to the task and from there to the promotions. It
        is looked for in this order, so nothing is missed that moves meanwhile."""
        if not drafted:
            return []
        try:
            check_task_id(task_id)
        except BadArgument:
            return []  # no task of anybody has such a name
        refused = self._fleet.list_refused_results(
            task_id=task_id, include_settled=True, limit=1000, **self._place
        )
        needed: list[Manifest | None] = [
            each.manifest for each in refused if each.state is not RefusedState.DISCARDED
        ]
        state = self._state(task_id)
        if state is None:
            return []  # not of this project: others may use the same area
        needed += [each.manifest for each in (state.result, state.review) if each is not None]
        done = set()
        for promotion in self._fleet.list_promotions(task_id=task_id, limit=1000, **self._place):
            if promotion.state is PromotionState.PROMOTED:
                done.add(_name(promotion.manifest))
            else:
                needed.append(promotion.manifest)
        kept = {
            (each.agent, each.generation)
            for each in needed
            if each is not None and _name(each) not in done
        }
        return [whose for whose in drafted if whose[1] < state.generation and whose not in kept]

    def _state(self, task_id: str) -> TaskState | None:
        found = self._fleet.batch_get_states(task_ids=[task_id], **self._place)
        state: Any = found.get(task_id)
        return state if isinstance(state, TaskState) else None


def _assets(waiting: PromotionInfo) -> Iterator[Asset]:
    for product in waiting.manifest.files:
        yield Asset(
            product.path,
            product.sha256,
            product.size,
            waiting.task_id,
            waiting.generation,
            waiting.accepted_at,
        )


def _name(manifest: Manifest) -> tuple[str, int, str]:
    return manifest.agent, manifest.generation, digest_of(manifest)
