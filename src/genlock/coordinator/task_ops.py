"""Operations of planners on single tasks: add and edit them, reserve ids. Whole plans are in
`plan_ops`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genlock.coordinator.arguments import MOST_IDS, check_items, check_operation, check_whole
from genlock.coordinator.base import Base
from genlock.coordinator.dependency_reach import finished_ancestors, graph_faults, load_tasks, walk
from genlock.coordinator.drivers import Read, Script
from genlock.coordinator.plan_ops import AT_ONCE, adding, in_turn
from genlock.core import commands as c
from genlock.core.definition import in_sequence
from genlock.core.ids import child_id
from genlock.core.keys import COUNTER, TASK, Key
from genlock.core.model import Task, TaskRecord
from genlock.core.plan import Definition, check_families, define_task
from genlock.core.policy import Ids
from genlock.core.results import AddResult
from genlock.core.task.operate import FIXED_FIELDS
from genlock.errors import BadArgument, PlanInvalid

_GLOBAL = "global"


class Planning(Base):
    """Operations on definitions. Everything is checked before anything is written."""

    def add_tasks(
        self,
        *,
        tasks: Iterable[Mapping[str, Any] | str],
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[AddResult, ...]]:
        """Add tasks, given as mappings of their fields (or just ids). Adding the same task again is
        no error and changes nothing."""
        place = self.place(tenant_id, project_id)
        tasks = check_items("tasks", tasks)
        yield from self.ensure_place(place)
        hierarchical = (
            yield Read(lambda: self.reader.settings(place))
        ).policy.ids is Ids.HIERARCHICAL
        definitions = in_sequence(
            [
                define_task(
                    {"id": task} if isinstance(task, str) else task, hierarchical=hierarchical
                )
                for task in tasks
            ]
        )
        faults, depths = yield Read(lambda: self._check_new(place, definitions))
        if faults:
            raise PlanInvalid(faults)
        outcomes = yield from in_turn(
            adding(place, self.operator(), definitions, depths), len(definitions)
        )
        results: dict[str, AddResult] = {outcome.task_id: outcome for outcome in outcomes}
        return tuple(results[definition.task.id] for definition in definitions)

    def edit_task(
        self,
        *,
        task_id: str,
        changes: Mapping[str, Any],
        tenant_id: str | None = None,
        project_id: str | None = None,
        operation_id: str | None = None,
    ) -> Script[AddResult]:
        """Change fields of a definition. Claims stay; new dependencies block the task as soon as it
        is free."""
        key, operation = (
            self.task_key(tenant_id, project_id, task_id),
            check_operation(operation_id),
        )
        fields = _edited_fields(key.id, changes)
        if fields.get("depends_on"):
            yield Read(lambda: self._check_edit(key, fields["depends_on"]))
        result: AddResult = yield from self.ask_one(
            c.EditTask(key, self.operator(), fields, operation)
        )
        return result

    def next_id(
        self,
        *,
        parent: str | None = None,
        count: int = 1,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[str | tuple[str, ...]]:
        """The next free id: 0001 and so on, or below `parent`. With `count` more than 1, a tuple of
        `count` ids."""
        place = self.place(tenant_id, project_id)
        count = check_whole("count", count, 1, MOST_IDS)
        prefix = _GLOBAL if parent is None else self.task_key(tenant_id, project_id, parent).id
        yield from self.ensure_place(place)
        hierarchical = (
            yield Read(lambda: self.reader.settings(place))
        ).policy.ids is Ids.HIERARCHICAL
        free: list[str] = []
        while len(free) < count:
            short = count - len(free)
            counter = Key(*place, COUNTER, prefix)
            last = yield from self.take_numbers(counter, self.operator(), short)
            ids = [
                child_id(parent, n, hierarchical=hierarchical)
                for n in range(last - short + 1, last + 1)
            ]
            # An id may be in use already: a plan can give its tasks any ids.
            yield from self.see_files(place, *(Key(*place, TASK, name) for name in ids))
            taken = yield Read(
                lambda ids=ids: self.store.load([Key(*place, TASK, name) for name in ids]).records  # type: ignore[misc]
            )
            free += [name for name in ids if Key(*place, TASK, name) not in taken]
        return free[0] if count == 1 else tuple(free)

    # Implementation

    def _check_new(
        self, place: tuple[str, str], definitions: Sequence[Definition]
    ) -> tuple[list[str], dict[str, int]]:
        """Returns the faults of tasks to be added, and the depth of those with a parent."""
        tasks = [definition.task for definition in definitions]
        ids = {task.id for task in tasks}
        faults = [f"{name}: there are two tasks of this id" for name in _doubled(tasks)]
        parents = {task.parent for task in tasks if task.parent is not None}
        depended_on = {other for task in tasks for other in task.depends_on}
        known = load_tasks(self.reader.records, place, parents | (depended_on - ids))
        if parents:
            # An existing task waits for a new one only as its parent. Without parents, no cycle is
            # possible.
            walk(self.reader.records, place, depended_on, known)
        finished = finished_ancestors(self.reader.records, place, parents - ids, known)
        faults += graph_faults(tasks, known, finished_parents=finished)
        faults += [
            f"{fault.task}: {fault.text}"
            for fault in check_families(tasks, {name: known[name].children for name in known})
        ]
        by_id = {task.id: task for task in tasks}
        return faults, {
            task.id: _depth(task, by_id, known) for task in tasks if task.parent is not None
        }

    def _check_edit(self, key: Key, depends_on: tuple[str, ...]) -> None:
        if key.id in depends_on:
            raise BadArgument(f"task {key.id!r} cannot depend on itself")
        found = self.store.load([key.beside(TASK, other) for other in depends_on]).records
        for other in depends_on:
            if key.beside(TASK, other) not in found:
                raise BadArgument(f"{key.id}: there is no task {other!r} to depend on")
        path = self._path(key, depends_on)
        if path:
            raise BadArgument(f"{key.id} would wait for itself: {' → '.join(path)}")

    def _path(self, key: Key, depends_on: tuple[str, ...]) -> tuple[str, ...]:
        """Returns a path from one of these dependencies back to the task, through what each waits
        for."""
        came_from: dict[str, str] = dict.fromkeys(depends_on, key.id)
        todo = list(depends_on)
        while todo:
            records = self.reader.records([key.beside(TASK, name) for name in todo[:AT_ONCE]])
            todo = todo[AT_ONCE:]
            for at, record in records.items():
                others = (
                    [*record.task.depends_on, *record.children]
                    if isinstance(record, TaskRecord)
                    else []
                )
                for other in others:
                    if other == key.id:
                        return _trace(came_from, at.id, key.id)
                    if other not in came_from:
                        came_from[other] = at.id
                        todo.append(other)
        return ()


def _edited_fields(task_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the changes as values of a definition's fields, checked like those of a
    definition."""
    if not isinstance(changes, Mapping):
        raise BadArgument("changes is a mapping of the fields to change")
    unknown = sorted(map(repr, set(changes) - set(Task.__struct_fields__)))
    if unknown:
        raise BadArgument(
            f"a task has no field {unknown[0]}; what is yours alone belongs into metadata"
        )
    fixed = sorted(FIXED_FIELDS & set(changes))
    if fixed:
        raise BadArgument(f"{fixed[0]} of a task cannot be edited")
    defined = define_task({"id": task_id, **changes}).task
    return {name: getattr(defined, name) for name in Task.__struct_fields__ if name in changes}


def _doubled(tasks: list[Task]) -> list[str]:
    seen: set[str] = set()
    return [task.id for task in tasks if task.id in seen or seen.add(task.id)]  # type: ignore[func-returns-value]


def _depth(task: Task, by_id: Mapping[str, Task], known: Mapping[str, TaskRecord]) -> int:
    """Returns a task's depth below its topmost ancestor."""
    depth, at = 0, task
    while (parent := at.parent) is not None and depth < len(by_id) + 1:
        depth += 1
        if parent in known:
            return depth + known[parent].task.depth
        if parent not in by_id:
            break
        at = by_id[parent]
    return depth


def _trace(came_from: Mapping[str, str], at: str, start: str) -> tuple[str, ...]:
    path = [start, at]
    while at != start and came_from[at] != start:
        at = came_from[at]
        path.append(at)
    return tuple(reversed([*path, start]))
