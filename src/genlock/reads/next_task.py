"""Previews the answer to a request for a next task, with reasons; nothing is claimed."""

from __future__ import annotations

from collections.abc import Iterator

from genlock.core.commands import Caller
from genlock.core.decision import Decision
from genlock.core.facts import keys_from_command
from genlock.core.keys import SESSION, Scope, project_key
from genlock.core.model import Overlap, Task
from genlock.core.reasons import ClaimReason
from genlock.core.results import NextPreview
from genlock.engine.jobs import NextTask, plain_item
from genlock.engine.offers import Offer, as_claim, nothing_apart
from genlock.messages import describe_feature, describe_overlaps
from genlock.reads.reader import Reader, settings_keys


def preview_next(reader: Reader, request: NextTask) -> NextPreview:
    """Returns the task that would be granted, or why none would be. Decided like a claim, but not
    committed."""
    scope, round = request.key.place, reader.trial()
    round.load([*settings_keys(scope), request.key.beside(SESSION, request.by.session)])
    offer = Offer(round, scope, 1, 0)
    last = None
    for loaded in offer.choose(request):
        item = plain_item(as_claim(request, loaded, round))
        item.wanted = keys_from_command(item.command)
        round.load_related([item])
        decision = round.decide(item)
        if not isinstance(decision, Decision):
            continue
        last = decision.outcome
        if last.success:
            because = tuple(_because(last.task, request, offer, last.overlaps))
            return NextPreview(ClaimReason.GRANTED, last.task, because, last.overlaps)
    if offer.overlapping:
        nothing = nothing_apart(offer.overlapping)
        return NextPreview(nothing.reason, None, (nothing.detail,))
    if last is not None and last.limit is not None:
        return NextPreview(last.reason, None, (last.detail,))
    return NextPreview(ClaimReason.NOTHING_READY, None, ("no task is ready that suits this agent",))


def _because(
    task: Task, request: NextTask, offer: Offer, overlaps: tuple[Overlap, ...]
) -> Iterator[str]:
    yield f"it is ready, and comes first in the order {offer.policy.order}"
    if task.feature is not None and (count := offer.feature_count(task.feature)) is not None:
        yield describe_feature(count.name, count.unfinished, count.finished)
    if task.assigned_to is not None:
        yield f"it is reserved for {task.assigned_to}"
    role = offer.policy.role_of(request.role)
    if task.roles:
        yield f"it is for the roles {', '.join(task.roles)}, and you state {role}"
    if overlaps:
        yield describe_overlaps(task.id, overlaps)


def overlaps_of(reader: Reader, scope: Scope, task: Task, by: Caller) -> tuple[Overlap, ...]:
    """Returns the work in progress that shares modules with a task, if the policy considers
    that."""
    round = reader.trial()
    round.load([project_key(*scope), *settings_keys(scope)])
    view = round.modules_in_flight(scope)
    return () if view is None else view.overlaps(task, by)
