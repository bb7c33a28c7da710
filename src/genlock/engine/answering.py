"""Handing outcomes over to whoever waits for them: threads one by one, each event loop once a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from genlock.core.commands import ClaimTask, ReleaseClaim
from genlock.core.decision import Decision
from genlock.core.events import ClaimAcquired
from genlock.core.keys import TASK
from genlock.core.results import ClaimResult
from genlock.engine.denials import Denials
from genlock.engine.jobs import Item, Job, NextTask, resolve_all


def answer(items: Sequence[Item], now: datetime | None, denials: Denials, give_back: Callable[[Job], None]) -> None:
    """Answers every item. Denials are noted, if it is known when that was; what a job was granted that nobody waits for is given back."""
    loops: dict[Any, list[Job]] = {}
    for item in items:
        job, decision = item.job, item.decision
        outcome = decision.outcome if type(decision) is Decision else decision
        if type(outcome) is ClaimResult and not outcome.success and type(item.request) is ClaimTask and now is not None:
            by = item.request.by
            denials.note(item.request.key, by.session, by.agent, outcome, now)
        if job is None:
            continue
        if _is_grant(decision) or (item.doubts and _was_granted(item, outcome)):
            job.granted.append(item.at)
        job.results[item.at] = outcome
        job.left -= 1
        if job.left:
            continue
        if job.cancelled:
            _hand_on(job, items)
            give_back(job)
        elif job.loop is None:
            job.finish()
        else:
            loops.setdefault(job.loop, []).append(job)
    for loop, jobs in loops.items():
        try:
            loop.call_soon_threadsafe(resolve_all, jobs)
        except RuntimeError:  # the loop was closed; nobody waits any more
            for job in jobs:
                give_back(job)


def _hand_on(job: Job, items: Sequence[Item]) -> None:
    """What was granted to a job that nobody waits for is another's who was told of the same claim: the same call, made twice."""
    for at in list(job.granted):
        claim = _claim_in(job.results[at])
        heirs = (item for item in items if item.job is not None and item.job is not job and not item.job.cancelled)
        heir = next((item for item in heirs if claim is not None and _claim_in(getattr(item.decision, "outcome", None)) == claim), None)
        if heir is not None and heir.job is not None:
            job.granted.remove(at)
            heir.job.granted.append(heir.at)


def _claim_in(outcome: Any) -> str | None:
    """Which claim this answer is about, if it is a grant."""
    return outcome.claim.id if type(outcome) is ClaimResult and outcome.claim is not None else None


def _is_grant(decision: Any) -> bool:
    return type(decision) is Decision and bool(decision.events) and type(decision.events[-1]) is ClaimAcquired


def _was_granted(item: Item, outcome: Any) -> bool:
    """Is this claim, which was there when the item was decided again, the item's own from before?"""
    if type(outcome) is not ClaimResult or outcome.claim is None:
        return False
    return any(_is_grant(doubt.decision) and doubt.decision.outcome.claim.id == outcome.claim.id for doubt in item.doubts)


def releases_of(job: Job) -> list[ReleaseClaim]:
    """The releases of all that a job was granted anew; a claim that its session had before is not given up."""
    releases = []
    for at in job.granted:
        request, outcome = job.requests[at], job.results[at]
        if isinstance(outcome, ClaimResult) and outcome.claim is not None and isinstance(request, (ClaimTask, NextTask)):
            key = request.key.beside(TASK, outcome.claim.task_id)
            releases.append(ReleaseClaim(key, request.by, generation=outcome.claim.generation))
    return releases
