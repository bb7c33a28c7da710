"""Splitting a task: subtasks that have no id get a free one, and everything is checked before
anything is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from genlock.coordinator.arguments import (
    check_flag,
    check_generation,
    check_items,
    check_mapping,
    check_operation,
)
from genlock.coordinator.base import Base
from genlock.coordinator.dependency_reach import finished_ancestors, graph_faults, walk
from genlock.coordinator.drivers import Read, Script
from genlock.core import commands as c
from genlock.core.ids import child_id
from genlock.core.keys import COUNTER, TASK, Key
from genlock.core.model import CounterRecord, Task, TaskRecord
from genlock.core.names import check_agent
from genlock.core.plan import define_task
from genlock.core.policy import Ids
from genlock.core.reasons import SpawnMode
from genlock.core.results import SpawnResult
from genlock.core.task.operate import digest_of
from genlock.core.task.spawn import check_spawn, spawned_before
from genlock.errors import BadArgument, PlanInvalid

Namer = Callable[[int], str]
"""The id of a task's child of this number."""


class Spawning(Base):
    """The operation that splits a task into subtasks."""

    def spawn_subtasks(
        self,
        *,
        task_id: str,
        generation: int | None = None,
        subtasks: Iterable[Mapping[str, Any] | str],
        mode: str = "parallel",
        keep: bool = False,
        session_id: str | None = None,
        agent_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[SpawnResult]:
        """Split a task into subtasks: one that you hold, with its generation, or as a planner one
        that nobody holds, without. The parent is released and opens again (or completes) when they
        are done."""
        key = self.task_key(tenant_id, project_id, task_id)
        if mode not in list(SpawnMode):
            raise BadArgument(f"mode is one of {', '.join(SpawnMode)}, not {mode!r}")
        parent: TaskRecord = yield Read(lambda: self.reader.task(key))
        policy = (yield Read(lambda: self.reader.settings(key.place))).policy
        hierarchical = policy.ids is Ids.HIERARCHICAL
        keep, operation = check_flag("keep", keep), check_operation(operation_id)
        if generation is None and keep:
            raise BadArgument("keep is for the holder, who gives the generation of its claim")
        if generation is None:
            if agent_id is not None:
                check_agent(agent_id)
            caller = self.operator(session_id=session_id)
        else:
            generation, caller = check_generation(generation), self.caller(session_id, agent_id)
        given = [_subtask(subtask) for subtask in check_items("subtasks", subtasks)]

        def command(names: Iterable[str]) -> c.SpawnSubtasks:
            unused = iter(names)
            named = [
                fields if "id" in fields else fields | {"id": next(unused)} for fields in given
            ]
            tasks = [define_task(fields, hierarchical=hierarchical).task for fields in named]
            children = _children(parent.task, tasks, SpawnMode(mode))
            arguments = _arguments(given, tasks, generation, mode, keep) if operation else ""
            return c.SpawnSubtasks(
                key, caller, generation, children, SpawnMode(mode), keep, operation, arguments
            )

        def name(number: int) -> str:
            return child_id(key.id, number, hierarchical=hierarchical)

        nameless = sum("id" not in fields for fields in given)
        taken = {
            *parent.children,
            *(fields["id"] for fields in given if isinstance(fields.get("id"), str)),
        }
        # Everything is checked with the ids that are free now, before numbers are reserved.
        last, numbers = (
            (yield Read(lambda: self._next_numbers(key, name, nameless, taken)))
            if nameless
            else (0, [])
        )
        planned = command(map(name, numbers))
        repeated = spawned_before(parent, planned)
        if repeated is not None:
            return repeated
        check_spawn(parent, planned.children, SpawnMode(mode), keep, policy)
        faults = yield Read(lambda: self._graph_faults(key, parent, planned.children))
        if faults:
            raise PlanInvalid(faults)
        if nameless:
            names = yield from self._take_names(key, caller, name, last, numbers, taken)
            planned = command(names)
        result: SpawnResult = yield from self.ask_one(planned)
        return result

    # Implementation

    def _next_numbers(
        self, key: Key, name: Namer, wanted: int, taken: Collection[str]
    ) -> tuple[int, list[int]]:
        """Returns the last number given out, and the next numbers whose ids are free."""
        counter = key.beside(COUNTER, key.id)
        record = self.reader.records([counter]).get(counter)
        last = record.value if isinstance(record, CounterRecord) else 0
        numbers: list[int] = []
        first, many = last + 1, wanted
        while len(numbers) < wanted:
            numbers += self._free(key, name, range(first, first + many), taken)
            # If a plan uses many of these ids, it probably uses more.
            first, many = first + many, 2 * many
        return last, numbers[:wanted]

    def _free(
        self, key: Key, name: Namer, numbers: Iterable[int], taken: Collection[str]
    ) -> list[int]:
        """Returns the numbers whose ids are unused: a plan can give its tasks any ids."""
        keys = {number: key.beside(TASK, name(number)) for number in numbers}
        found = self.store.load([each for each in keys.values() if each.id not in taken]).records
        return [
            number for number, each in keys.items() if each.id not in taken and each not in found
        ]

    def _take_names(
        self,
        key: Key,
        caller: c.Caller,
        name: Namer,
        last: int,
        numbers: list[int],
        taken: Collection[str],
    ) -> Script[list[str]]:
        """Reserves as many free ids as there are numbers: those of these numbers, unless another
        caller has reserved some meanwhile."""
        reach = numbers[-1] - last
        ended = yield from self.take_numbers(key.beside(COUNTER, key.id), caller, reach)
        if ended == numbers[-1]:
            return list(map(name, numbers))
        free: list[int] = yield Read(
            lambda: self._free(key, name, range(ended - reach + 1, ended + 1), taken)
        )
        while len(free) < len(numbers):
            short = len(numbers) - len(free)
            ended = yield from self.take_numbers(key.beside(COUNTER, key.id), caller, short)
            tail = range(ended - short + 1, ended + 1)
            # Read at once
            free += yield Read(lambda: self._free(key, name, tail, taken))  # noqa: B023
        return list(map(name, free[: len(numbers)]))

    def _graph_faults(self, key: Key, parent: TaskRecord, children: Collection[Task]) -> list[str]:
        new = {child.id for child in children} - parent.children.keys()
        known = {key.id: parent}
        walk(
            self.reader.records,
            key.place,
            {other for child in children for other in child.depends_on} - new,
            known,
        )
        finished = finished_ancestors(self.reader.records, key.place, {key.id}, known)
        return graph_faults(children, known, parent.children, finished)


def _subtask(subtask: Any) -> dict[str, Any]:
    return (
        {"title": subtask}
        if isinstance(subtask, str)
        else dict(check_mapping("a subtask", subtask))
    )


def _arguments(
    given: list[dict[str, Any]], tasks: list[Task], generation: int | None, mode: str, keep: bool
) -> str:
    """Returns the request without the generated ids."""
    named = [
        task if "id" in fields else replace(task, id="")
        for fields, task in zip(given, tasks, strict=True)
    ]
    return digest_of((named, generation, mode, keep))


def _children(parent: Task, tasks: list[Task], mode: SpawnMode) -> tuple[Task, ...]:
    """Returns the children as the parent's record holds them: linked to it, and in sequential mode
    to each other."""
    children: list[Task] = []
    for task in tasks:
        depends_on = task.depends_on
        if mode is SpawnMode.SEQUENTIAL and children:
            depends_on = tuple(dict.fromkeys([*depends_on, children[-1].id]))
        if task.parent not in (None, parent.id):
            raise BadArgument(
                f"the id of subtask {task.id!r} says that its parent is {task.parent!r}, not "
                f"{parent.id!r}"
            )
        if task.id == parent.id:
            raise BadArgument(
                f"subtask {task.id!r} has the id of the task that is to be split; give it another "
                "id"
            )
        children.append(
            replace(
                task,
                parent=parent.id,
                depth=parent.depth + 1,
                spawned_from=parent.id,
                depends_on=depends_on,
            )
        )
    if len({child.id for child in children}) != len(children):
        raise BadArgument("two subtasks have the same id")
    return tuple(children)
