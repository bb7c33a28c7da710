"""Reactions: the commands that a task's events cause on other records. Repeating one is always
safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genlock.core import commands as c
from genlock.core import events as e
from genlock.core.decision import Reaction
from genlock.core.index import MET
from genlock.core.keys import FEATURE, PROMOTION, REFUSED, TASK, Key, promotion_id
from genlock.core.model import Actor, TaskRecord
from genlock.core.policy import Order
from genlock.core.records.refused_result import REVIEW_REJECTED
from genlock.core.task.claims import adopted_key
from genlock.core.task.relate import SYSTEM


def _hear(key: Key, about: str, version: int, *, reset: bool = False) -> c.CheckRelated:
    return c.CheckRelated(key, SYSTEM, others=((about, version),), reset=reset)


def _count(key: Key, record: TaskRecord, version: int) -> list[Reaction]:
    """Lets the task's feature count it again. Only the order closest-to-done needs the remaining
    work of features."""
    feature = record.task.feature
    if feature is None or record.order is not Order.CLOSEST_TO_DONE:
        return []
    of = key.beside(FEATURE, feature)
    return [Reaction(c.CountTasks(of, SYSTEM, others=((key.id, version),)))]


def _added(key: Key, record: TaskRecord, event: e.TaskAdded, version: int) -> list[Reaction]:
    reactions = _count(key, record, version)
    task = event.task
    if task.depends_on:
        # The dependencies are checked only now that the task exists and waits: a completion in
        # between finds it waiting.
        reactions.append(
            Reaction(
                c.CheckRelated(key, SYSTEM, others=tuple((other, 0) for other in task.depends_on))
            )
        )
    if task.parent is not None:
        reactions.append(Reaction(_hear(key.beside(TASK, task.parent), key.id, version)))
    return reactions


def _edited(key: Key, record: TaskRecord, event: e.TaskEdited, version: int) -> list[Reaction]:
    if "depends_on" not in event.changed or not event.task.depends_on:
        return []
    return [
        Reaction(
            c.CheckRelated(key, SYSTEM, others=tuple((other, 0) for other in event.task.depends_on))
        )
    ]


def _finished(
    key: Key, record: TaskRecord, event: e.ResultAccepted | e.TaskCancelled, version: int
) -> list[Reaction]:
    name, parent = key.id, record.task.parent
    reactions = [Reaction(c.CheckRelated(key, SYSTEM, ((name, version),)), name)]
    if parent is not None:
        reactions.append(Reaction(_hear(key.beside(TASK, parent), name, version)))
    return reactions + _count(key, record, version)


def _reordered(
    key: Key, record: TaskRecord, event: e.TaskReordered, version: int
) -> list[Reaction]:
    return _count(key, record, version)


def _accepted(
    key: Key, record: TaskRecord, event: e.ResultAccepted, version: int
) -> list[Reaction]:
    reactions = _finished(key, record, event, version)
    if event.adopted_session is not None:
        by = c.Caller(event.session_id, event.agent_id, event.actor)
        reactions.append(Reaction(c.MarkAdopted(adopted_key(key, event), by)))
    if event.manifest is not None:
        promotion = key.beside(PROMOTION, promotion_id(key.id, event.generation))
        reactions.append(
            Reaction(
                c.RequestPromotion(
                    promotion,
                    SYSTEM,
                    task=key.id,
                    generation=event.generation,
                    manifest=event.manifest,
                    accepted_at=event.timestamp,
                )
            )
        )
    return reactions


def _rejected(
    key: Key, record: TaskRecord, event: e.ReviewRejected, version: int
) -> list[Reaction]:
    """Keeps the refused work together with its payload, under the same name."""
    if not event.refused_id:
        return []
    session = event.adopted_session or event.author_session_id
    generation = event.adopted_generation
    author = Actor(user_id=event.author_user_id)
    keep = c.KeepRefused(
        key.beside(REFUSED, event.refused_id),
        c.Caller(session, event.author_agent_id, author),
        task=key.id,
        generation=event.rejected_generation if generation is None else generation,
        current_generation=event.generation,
        reason=REVIEW_REJECTED,
        content=c.Content(
            event.digest,
            event.size,
            event.result_data,
            event.payload,
            payload_id=event.payload_id,
            reference=event.reference,
            manifest=event.manifest,
        ),
        work_product_ref=event.work_product_ref,
    )
    return [Reaction(keep)]


def _reset(key: Key, record: TaskRecord, event: e.TaskReset, version: int) -> list[Reaction]:
    told = _hear(key, key.id, version, reset=True)
    reactions = [Reaction(told, MET + key.id), Reaction(told, key.id)]
    if record.task.parent is not None:
        reactions.append(
            Reaction(_hear(key.beside(TASK, record.task.parent), key.id, version, reset=True))
        )
    return reactions + _count(key, record, version)


def _heard(key: Key, record: TaskRecord, event: e.RelatedChanged, version: int) -> list[Reaction]:
    """Checks the related tasks once more: a task that was reset before this event was written did
    not know yet that it must notify this task.

    The version is 0 because the version at which each of them changed is unknown; the event has
    only the version at which each was seen.
    """
    return [
        Reaction(c.CheckRelated(key, SYSTEM, others=tuple((other, 0) for other in event.others)))
    ]


def _spawned(
    key: Key, record: TaskRecord, event: e.SubtasksSpawned, version: int
) -> list[Reaction]:
    by = c.Caller(event.session_id, event.agent_id, event.actor)
    return [
        Reaction(c.AddTask(key.beside(TASK, child.id), by, child, announced=True))
        for child in event.children
    ]


def _announced(
    key: Key, record: TaskRecord, event: e.ChildrenAnnounced, version: int
) -> list[Reaction]:
    by, backlog = c.Caller(event.session_id, event.agent_id, event.actor), event.backlog
    return [
        Reaction(
            c.AddTask(key.beside(TASK, child.id), by, child, child.id in backlog, announced=True)
        )
        for child in event.children
    ]


REACTIONS: dict[type[e.Occurrence], Callable[[Key, Any, Any, int], list[Reaction]]] = {
    e.TaskAdded: _added,
    e.TaskEdited: _edited,
    e.TaskReordered: _reordered,
    e.ResultAccepted: _accepted,
    e.ReviewRejected: _rejected,
    e.TaskCancelled: _finished,
    e.TaskReset: _reset,
    e.ChildrenAnnounced: _announced,
    e.SubtasksSpawned: _spawned,
    e.DependencyMet: _heard,
    e.DependencyCancelled: _heard,
    e.DependencyReopened: _heard,
    e.ChildAdded: _heard,
    e.ChildFinished: _heard,
    e.ChildReopened: _heard,
}
