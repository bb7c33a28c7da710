"""What planners do: add and edit tasks, import plans, take ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from genlock.coordinator.arguments import check_flag, check_items, check_whole
from genlock.coordinator.base import Base, task_of
from genlock.coordinator.scripts import Ask, Read, Script
from genlock.core import commands as c
from genlock.core.counters import child_id
from genlock.core.keys import COUNTER, TASK, Key, project_key
from genlock.core.model import Task, TaskRecord
from genlock.core.plan import Definition, check_graph, define_task
from genlock.core.policy import Ids
from genlock.core.reasons import Status
from genlock.core.results import AddResult, PlanResult
from genlock.core.task.operate import FIXED_FIELDS, without_reservation
from genlock.errors import BadArgument, GenlockError, NotAllowed, PlanInvalid
from genlock.store import Query

_AT_ONCE = 500
_GLOBAL = "global"


class Planning(Base):
    """Operations on definitions. Everything is checked before anything is written."""

    def add_tasks(
        self, *, tasks: Iterable[Mapping[str, Any] | str], tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[tuple[AddResult, ...]]:
        """Add tasks, given as mappings of their fields (or just ids). The same task again is no error and changes nothing."""
        place = self.place(tenant_id, project_id)
        tasks = check_items("tasks", tasks)
        yield from self.ensure_place(place)
        hierarchical = (yield Read(lambda: self.read_settings(place)))[0].ids is Ids.HIERARCHICAL
        definitions = [define_task({"id": task} if isinstance(task, str) else task, hierarchical=hierarchical) for task in tasks]
        faults, depths = yield Read(lambda: self._check_new(place, definitions))
        if faults:
            raise PlanInvalid(faults)
        return (yield from self._add(place, definitions, depths))

    def edit_task(
        self, *, task_id: str, changes: Mapping[str, Any], tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[AddResult]:
        """Change fields of a definition. Claims stay; new dependencies block the task as soon as it is free."""
        key = self.task_key(tenant_id, project_id, task_id)
        fields = _edited_fields(key.id, changes)
        if fields.get("depends_on"):
            yield Read(lambda: self._check_edit(key, fields["depends_on"]))
        result: AddResult = yield from self.ask_one(c.EditTask(key, self.operator(), fields))
        return result

    def import_plan(
        self, *, source: Mapping[str, Any] | str, prune: bool = False, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[PlanResult]:
        """Import a plan (GC 3.7's form, as a mapping or YAML text). Importing again is a diff; no generation is touched."""
        place = self.place(tenant_id, project_id)
        check_flag("prune", prune)
        hierarchical = (yield Read(lambda: self.read_settings(place)))[0].ids is Ids.HIERARCHICAL
        # Imported when it is used: the YAML reader is a fifth of what importing genlock would cost every worker.
        from genlock.plan_text import read_plan_source

        plan = read_plan_source(source, hierarchical=hierarchical)
        definitions = list(plan.tasks)
        existing: dict[str, TaskRecord] = yield Read(lambda: self._existing(place))
        faults, depths = yield Read(lambda: self._check_new(place, definitions))
        if faults:
            raise PlanInvalid(faults)
        yield from self.ensure_place(place)
        if plan.tracks is not None:
            yield from self.ask_one(c.ChangeProject(project_key(*place), self.operator(), None, plan.tracks))
        new = [definition for definition in definitions if definition.task.id not in existing]
        changed = yield from self._edit_changed(place, definitions, existing)
        yield from self._add(place, new, depths)
        planned = {definition.task.id for definition in definitions}
        gone = tuple(
            name
            for name, record in existing.items()
            if name not in planned and record.task.spawned_from is None and record.state is not Status.CANCELLED
        )
        cancelled: tuple[str, ...] = ()
        if prune:
            cancelled = yield from self._cancel(place, [name for name in gone if existing[name].state is not Status.COMPLETED])
        added = tuple(definition.task.id for definition in new)
        untouched = tuple(d.task.id for d in definitions if d.task.id not in changed and d.task.id in existing)
        return PlanResult(added, changed, untouched, gone, cancelled)

    def next_id(
        self, *, parent: str | None = None, count: int = 1, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[str | tuple[str, ...]]:
        """The next free id: 0001 and so on, or below `parent`. With `count` more than 1, a tuple of so many."""
        place = self.place(tenant_id, project_id)
        count = check_whole("count", count, 1, 1000)
        prefix = _GLOBAL if parent is None else self.task_key(tenant_id, project_id, parent).id
        yield from self.ensure_place(place)
        hierarchical = (yield Read(lambda: self.read_settings(place)))[0].ids is Ids.HIERARCHICAL
        free: list[str] = []
        while len(free) < count:
            short = count - len(free)
            command = c.TakeIds(Key(*place, COUNTER, prefix), self.operator(), prefix, short)
            last: int = yield from self.ask_one(command)
            ids = [child_id(parent, n, hierarchical=hierarchical) for n in range(last - short + 1, last + 1)]
            # An id may be in use already: a plan can name its tasks as it likes.
            taken = yield Read(lambda ids=ids: self.store.load([Key(*place, TASK, name) for name in ids]).records)  # type: ignore[misc]
            free += [name for name in ids if Key(*place, TASK, name) not in taken]
        return free[0] if count == 1 else tuple(free)

    # How it is done

    def _check_new(self, place: tuple[str, str], definitions: list[Definition]) -> tuple[list[str], dict[str, int]]:
        """Faults of tasks to be added, and the depth of those whose parent is named."""
        tasks = [definition.task for definition in definitions]
        ids = {task.id for task in tasks}
        faults = [f"{name}: there are two tasks of this id" for name in _doubled(tasks)]
        named = {other for task in tasks for other in (*task.depends_on, *([task.parent] if task.parent else []))} - ids
        known: dict[str, TaskRecord] = {}
        wanted = sorted(named)
        for start in range(0, len(wanted), _AT_ONCE):
            for key, record in self.read_records([Key(*place, TASK, name) for name in wanted[start : start + _AT_ONCE]]).items():
                if isinstance(record, TaskRecord):
                    known[key.id] = record
        faults += check_graph(tasks, known.keys())
        by_id = {task.id: task for task in tasks}
        return faults, {task.id: _depth(task, by_id, known) for task in tasks if task.parent is not None}

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
        """A way from one of these dependencies back to the task, through what each waits for."""
        came_from: dict[str, str] = dict.fromkeys(depends_on, key.id)
        todo = list(depends_on)
        while todo:
            records = self.read_records([key.beside(TASK, name) for name in todo[:_AT_ONCE]])
            todo = todo[_AT_ONCE:]
            for at, record in records.items():
                others = [*record.task.depends_on, *record.children] if isinstance(record, TaskRecord) else []
                for other in others:
                    if other == key.id:
                        return _trace(came_from, at.id, key.id)
                    if other not in came_from:
                        came_from[other] = at.id
                        todo.append(other)
        return ()

    def _existing(self, place: tuple[str, str]) -> dict[str, TaskRecord]:
        found: dict[str, TaskRecord] = {}
        after: str | None = None
        while True:
            page = self.store.find(Query(*place, after=after, limit=_AT_ONCE))
            found |= {stored.key.id: task_of(stored) for stored in page.records}
            if page.next is None:
                return found
            after = page.next

    def _add(self, place: tuple[str, str], definitions: list[Definition], depths: Mapping[str, int]) -> Script[tuple[AddResult, ...]]:
        results: list[AddResult] = []
        # Parents first, so that a child finds the one that is to wait for it.
        ordered = sorted(definitions, key=lambda definition: depths.get(definition.task.id, 0))
        for start in range(0, len(ordered), _AT_ONCE):
            commands = []
            for task, backlog in ordered[start : start + _AT_ONCE]:
                placed = replace(task, depth=depths[task.id]) if depths.get(task.id, task.depth) != task.depth else task
                commands.append(c.AddTask(Key(*place, TASK, task.id), self.operator(), placed, backlog))
            job = yield Ask(commands, patience=30)
            for outcome in job.results:
                if isinstance(outcome, GenlockError):
                    raise outcome
                results.append(outcome)
        at = {result.task_id: result for result in results}
        return tuple(at[definition.task.id] for definition in definitions)

    def _edit_changed(
        self, place: tuple[str, str], definitions: list[Definition], existing: dict[str, TaskRecord]
    ) -> Script[tuple[str, ...]]:
        commands: list[c.Command] = []
        for definition in definitions:
            record = existing.get(definition.task.id)
            if record is None:
                continue
            old, new = without_reservation(record.task), without_reservation(definition.task)
            names = [name for name in old.__struct_fields__ if name != "depth" and getattr(old, name) != getattr(new, name)]
            if names:
                fields = {name: getattr(new, name) for name in names if name != "spawned_from"}
                if fields:
                    commands.append(c.EditTask(Key(*place, TASK, definition.task.id), self.operator(), fields))
        for start in range(0, len(commands), _AT_ONCE):
            job = yield Ask(commands[start : start + _AT_ONCE], patience=30)
            for outcome in job.results:
                if isinstance(outcome, GenlockError):
                    raise outcome
        return tuple(command.key.id for command in commands)

    def _cancel(self, place: tuple[str, str], names: list[str]) -> Script[tuple[str, ...]]:
        cancelled: list[str] = []
        for start in range(0, len(names), _AT_ONCE):
            chunk = names[start : start + _AT_ONCE]
            reason = "gone from the plan"
            job = yield Ask([c.CancelTask(Key(*place, TASK, name), self.operator(), reason) for name in chunk], patience=30)
            for name, outcome in zip(chunk, job.results, strict=True):
                if isinstance(outcome, NotAllowed):
                    continue
                if isinstance(outcome, GenlockError):
                    raise outcome
                cancelled.append(name)
        return tuple(cancelled)


def _edited_fields(task_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes as values of a definition's fields, checked like a definition's."""
    if not isinstance(changes, Mapping):
        raise BadArgument("changes is a mapping of the fields to change")
    unknown = sorted(map(repr, set(changes) - set(Task.__struct_fields__)))
    if unknown:
        raise BadArgument(f"a task has no field {unknown[0]}; what is yours alone belongs into metadata")
    fixed = sorted(FIXED_FIELDS & set(changes))
    if fixed:
        raise BadArgument(f"{fixed[0]} of a task cannot be edited")
    defined = define_task({"id": task_id, **changes}).task
    return {name: getattr(defined, name) for name in changes}


def _doubled(tasks: list[Task]) -> list[str]:
    seen: set[str] = set()
    return [task.id for task in tasks if task.id in seen or seen.add(task.id)]  # type: ignore[func-returns-value]


def _depth(task: Task, by_id: Mapping[str, Task], known: Mapping[str, TaskRecord]) -> int:
    """How deep a task lies below the first task without a parent."""
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
