"""The draft of a decision on a task."""

from __future__ import annotations

from typing import Any

from genlock.core.commands import Caller
from genlock.core.decision import Draft
from genlock.core.epochs import GENERATIONS_PER_EPOCH
from genlock.core.events import TaskEvent
from genlock.core.facts import Facts
from genlock.core.keys import Key
from genlock.core.model import Actor, TaskRecord, for_user
from genlock.core.task.fold import evolve_task


class TaskDraft(Draft[TaskRecord]):
    """Adds the task's id and generation to every event, and folds it in at once."""

    __slots__ = ()

    @property
    def task(self) -> TaskRecord:
        """Returns the present record. Every draft has one, except for the addition of a task."""
        return self.record  # type: ignore[return-value]

    def emit(
        self,
        kind: type[TaskEvent],
        *,
        generation: int | None = None,
        by: Caller | None = None,
        **fields: Any,
    ) -> None:
        """Appends an event of this kind."""
        key, record = self.command.key, self.record
        who = by or self.command.by
        if generation is None:
            generation = record.generation if record is not None else 0
        event = kind(
            timestamp=self.at,
            tenant_id=key.tenant,
            project_id=key.project,
            task_id=key.id,
            generation=generation,
            session_id=who.session,
            agent_id=fields.pop("agent_id", who.agent),
            actor=actor_of(who, record),
            **fields,
        )
        self.add(event)

    def add(self, event: TaskEvent) -> None:
        """Appends an event, and folds it in."""
        self.events.append(event)
        self.record = evolve_task(self.record, event)

    def next_generation(self) -> int:
        """Returns the lowest generation never granted, in this epoch."""
        return next_generation(self.task, self.facts.epoch)


def actor_of(who: Caller, record: TaskRecord | None) -> Actor:
    """Returns the actor behind a command. A session acts under its claim for the user it is
    registered for, whose name is in the claim."""
    claim = record.claim if record is not None else None
    if claim is None or claim.session != who.session:
        return who.actor
    return for_user(who.actor, claim.user)


def next_generation(record: TaskRecord, epoch: int) -> int:
    """Returns the lowest generation never granted, in this epoch: rule 1 of the clock."""
    lowest = record.generation + 1 if record.granted else record.generation
    return max(lowest, epoch * GENERATIONS_PER_EPOCH + 1)


def work_product_ref(key: Key, generation: int, facts: Facts) -> str:
    """Returns the reference to a work product in the form of GC 3.6."""
    return f"wp-{key.id}-gen{generation}-{facts.fresh[:6]}"
