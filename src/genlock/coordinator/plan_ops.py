"""Plans: compare one with the existing tasks, import it, export it.

Everything is checked before anything is written. To finish an interrupted import, import again: the
tasks that were written already count as unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from genlock.coordinator.arguments import check_flag, pack
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Ask, Read, Script
from genlock.core import commands as c
from genlock.core.codec import FORMAT, encode_json
from genlock.core.keys import TASK, Key, project_key
from genlock.core.model import Task, TaskRecord
from genlock.core.plan import Definition, Plan, check_families, check_graph
from genlock.core.plan_faults import Fault
from genlock.core.policy import MAX_SPAWN_BYTES, Ids
from genlock.core.reasons import FINISHED, Status, Verdict
from genlock.core.results import AddResult, PlanResult
from genlock.core.task.operate import (
    FIXED_FIELDS,
    is_finished_elsewhere,
    moves_in_backlog,
    without_reservation,
)
from genlock.engine.jobs import Recover
from genlock.errors import BadArgument, GenlockError, NotAllowed
from genlock.reads.reader import task_of
from genlock.store import Query, Stored

if TYPE_CHECKING:
    from genlock.plans import Draft, Source

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of tasks written so far and the total."""

AT_ONCE = 500
ANNOUNCED_AT_ONCE = 128
"""The most children in one batch of announcements: all of them, with their consequences, fit into
the reactions to the batch."""
_PAGE = 1000
_RECORD_START = FORMAT + b'{"task":'
_CANCELLED = b',"state":"CANCELLED"'
_COMPLETED = b',"state":"COMPLETED"'
_BACKLOG = b'"backlog":true'
"""A record without these bytes is not in the backlog. A record with them may have them
elsewhere."""
_NOT_COMPARED = frozenset({"depth", "spawned_from"})
"""`depth` follows from the parents, and a plan does not contain who spawned a task."""


class Plans(Base):
    """Operations on whole plans."""

    def import_plan(
        self,
        *,
        source: Source,
        prune: bool = False,
        progress: Progress | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[PlanResult]:
        """Import a plan (GC 3.7's form: a mapping, YAML text, or files). Importing again is a diff;
        no generation is touched.

        A plan that names a project cannot be imported into another one. `prune` cancels the tasks
        that are gone from the plan. `progress` is called with the number of tasks written and the
        total.
        """
        place = self.place(tenant_id, project_id)
        check_flag("prune", prune)
        if progress is not None and not callable(progress):
            raise BadArgument(
                "progress is a function of two numbers: how many of how many tasks are written"
            )
        plan, difference = yield from self._compared(place, source)
        yield from self.ensure_place(place)
        if plan.tracks is not None or plan.agent_roles is not None:
            command = c.ChangeProject(
                project_key(*place), self.operator(), None, plan.tracks, plan.agent_roles
            )
            yield from self.ask_one(command)
        by = self.operator()
        pruned = difference.prunable if prune else ()
        commands: Iterator[c.Command] = chain(
            adding(place, by, difference.added, difference.depths),
            difference.edits(place, by),
            adding(place, by, difference.finished, difference.depths),
            (c.CancelTask(Key(*place, TASK, name), by, "gone from the plan") for name in pruned),
        )
        total = sum(map(len, (difference.added, difference.changed, difference.finished, pruned)))
        outcomes = yield from in_turn(commands, total, progress, optional=len(pruned))
        # Completes an earlier, interrupted import: its tasks exist, but their parents may not know
        # of them yet.
        yield Ask([Recover(project_key(*place))], patience=30)
        kept = {
            name
            for name, outcome in zip(pruned, outcomes[total - len(pruned) :], strict=True)
            if isinstance(outcome, NotAllowed)
        }
        return difference.result(tuple(name for name in pruned if name not in kept), plan.notes)

    def diff_plan(
        self,
        *,
        source: Source,
        prune: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[PlanResult]:
        """The changes that importing a plan would make; with `prune` also the tasks it would
        cancel. Nothing is written. The faults are those of an import."""
        place = self.place(tenant_id, project_id)
        check_flag("prune", prune)
        plan, difference = yield from self._compared(place, source)
        return difference.result(difference.prunable if prune else (), plan.notes)

    def check_plan(
        self, *, source: Source, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[Plan]:
        """The plan as it would be imported, or PlanInvalid with every fault; nothing is written."""
        plan, _ = yield from self._compared(self.place(tenant_id, project_id), source)
        return plan

    def get_plan(
        self, *, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[Plan]:
        """The definitions as a plan that can be imported elsewhere. Cancelled tasks and
        dependencies on them are left out."""
        place = self.place(tenant_id, project_id)

        def read() -> Plan:
            project = self.reader.settings(place).project
            records = {record.task.id: record for record in self.reader.find_tasks(Query(*place))}
            return Plan(
                place[1],
                dict(project.tracks) if project and project.tracks is not None else None,
                tuple(_planned(records)),
                agent_roles=project.agent_roles if project else None,
            )

        plan: Plan = yield Read(read)
        return plan

    # Implementation

    def _compared(self, place: tuple[str, str], source: Source) -> Script[tuple[Plan, _Difference]]:
        """Returns the plan and its changes, or raises PlanInvalid with every fault."""
        hierarchical = (
            yield Read(lambda: self.reader.settings(place))
        ).policy.ids is Ids.HIERARCHICAL

        # Parsing is a `Read` although it reads nothing from the store: in an event loop it then
        # runs in a thread. A text of a megabyte, or locating its faults, may take seconds.
        def read() -> Draft:
            # Imported late: the YAML reader would be a fifth of the import time of genlock in every
            # worker.
            from genlock.plans import Draft

            return Draft(source, hierarchical=hierarchical, project=place[1])

        draft: Draft = yield Read(read)
        difference: _Difference = yield Read(
            lambda: _Difference(draft, self.reader.find(Query(*place)))
        )
        yield Read(draft.check)
        return draft.plan, difference


class _Difference:
    """The difference between a plan and the existing tasks, which are read one by one and not
    kept."""

    def __init__(self, draft: Draft, existing: Iterator[Stored]) -> None:
        self._definitions = {definition.task.id: definition for definition in draft.plan.tasks}
        self._old: set[str] = set()
        self._still_cancelled: list[str] = []
        self._gone: list[str] = []
        self._foreign: dict[str, Task] = {}
        """Existing tasks that are not in the plan, because they are part of the graph that is
        checked."""
        self._finished: set[str] = set()
        self.changed: dict[str, dict[str, Any]] = {}
        self._moved: set[str] = set()
        """The changed tasks that move into or out of the backlog."""
        self.finished: list[Definition] = []
        """Unfinished tasks that the plan marks as finished."""
        for stored in existing:
            self._look_at(draft, stored)
        self._forget_met_waiting()
        self._check(draft)
        self.added = [
            definition for name, definition in self._definitions.items() if name not in self._old
        ]
        self.depths = {
            definition.task.id: _depth(definition.task, self._definitions, self._foreign)
            for definition in self._definitions.values()
            if definition.task.parent is not None
        }
        self.prunable = tuple(name for name in self._gone if name not in self._finished)

    def edits(self, place: tuple[str, str], by: c.Caller) -> Iterator[c.EditTask]:
        """Yields the commands that change existing tasks to match the plan."""
        for name, fields in self.changed.items():
            yield c.EditTask(
                Key(*place, TASK, name), by, fields, backlog=self._definitions[name].backlog
            )

    def result(self, cancelled: tuple[str, ...], notes: tuple[Fault, ...]) -> PlanResult:
        """Returns the result of the import or comparison."""
        finished = {definition.task.id for definition in self.finished}
        changed, moved = self.changed.keys() | finished, self._moved | finished
        return PlanResult(
            added=tuple(definition.task.id for definition in self.added),
            changed=tuple(name for name in self._definitions if name in changed),
            unchanged=tuple(
                name for name in self._definitions if name in self._old and name not in changed
            ),
            gone=tuple(self._gone),
            cancelled=cancelled,
            fields={
                name: tuple(
                    sorted([*self.changed.get(name, ()), *(["state"] if name in moved else ())])
                )
                for name in changed
            },
            still_cancelled=tuple(self._still_cancelled),
            notes=notes,
            prunable=self.prunable,
        )

    def _forget_met_waiting(self) -> None:
        """Ignores `waiting_for` if it names a finished task: the stored one was cleared when that
        task finished."""
        for name, fields in list(self.changed.items()):
            if fields.get("waiting_for") in self._finished:
                del fields["waiting_for"]
                if not fields and name not in self._moved:
                    del self.changed[name]

    def _look_at(self, draft: Draft, stored: Stored) -> None:
        name = stored.key.id
        definition = self._definitions.get(name)
        if definition is None:
            self._look_at_foreign(draft, name, task_of(stored))
            return
        self._old.add(name)
        # A record begins with its definition: if these bytes are the same, the rest need not be
        # read.
        same = _RECORD_START + encode_json(definition.task)
        if stored.body.startswith(same) and definition.backlog == (
            stored.body.find(_BACKLOG, len(same)) >= 0
        ):
            if stored.body.startswith(_CANCELLED, len(same)):
                self._still_cancelled.append(name)
                self._finished.add(name)
            elif stored.body.startswith(_COMPLETED, len(same)):
                self._finished.add(name)
            elif definition.finished is not None and is_finished_elsewhere(
                task_of(stored), definition.finished
            ):
                self.finished.append(definition)
            return
        record = task_of(stored)
        if record.state is Status.CANCELLED:
            self._still_cancelled.append(name)
        if record.state in FINISHED:
            self._finished.add(name)
        if is_finished_elsewhere(record, definition.finished):
            self.finished.append(definition)
        fields = _changed_fields(record.task, definition.task)
        for field in sorted(FIXED_FIELDS & fields.keys()):
            was, said = getattr(record.task, field), fields[field]
            draft.complain(
                name,
                f"{field} is {was!r} in the store and {said!r} here, which no edit can change; use "
                "another id",
                (field,),
            )
        if moves_in_backlog(record, definition.backlog):
            self._moved.add(name)
        if fields or name in self._moved:
            self.changed[name] = fields

    def _look_at_foreign(self, draft: Draft, name: str, record: TaskRecord) -> None:
        self._foreign[name] = record.task
        if record.state in FINISHED:
            self._finished.add(name)
        if (
            record.task.spawned_from is None
            and record.state is not Status.CANCELLED
            and name not in draft.names
        ):
            self._gone.append(name)

    def _check(self, draft: Draft) -> None:
        waiting = {name: task for name, task in self._foreign.items() if name not in self._finished}
        children: dict[str, list[str]] = {}
        for name, task in waiting.items():
            if task.parent is not None:
                children.setdefault(task.parent, []).append(name)
        families: dict[str, list[str]] = {}
        for name, task in self._foreign.items():
            if task.parent is not None:
                families.setdefault(task.parent, []).append(name)
        draft.misplaced(check_families(draft.graph(), families))
        draft.misplaced(
            check_graph(
                draft.graph(),
                self._foreign.keys() | draft.names,
                {name: task.depends_on for name, task in waiting.items()},
                children,
            )
        )


def adding(
    place: tuple[str, str],
    by: c.Caller,
    definitions: Sequence[Definition],
    depths: Mapping[str, int],
) -> Iterator[c.AddTask | c.AnnounceChildren]:
    """Yields the commands that add these tasks, level by level. A parent announces its children
    before they are created (ADR 41)."""
    levels: dict[int, list[c.AddTask]] = {}
    for task, backlog, finished in definitions:
        depth = depths.get(task.id, 0)
        placed = replace(task, depth=depth) if task.id in depths and depth != task.depth else task
        levels.setdefault(depth, []).append(
            c.AddTask(
                Key(*place, TASK, task.id),
                by,
                placed,
                backlog,
                finished=finished,
                content=_finished_elsewhere() if finished is Status.COMPLETED else c.Content("", 0),
            )
        )
    for depth in sorted(levels):
        yield from (command for command in levels[depth] if command.task.parent is None)
        for group in _groups(_families(levels[depth])):
            yield from map(_announcement, group)
            yield from chain.from_iterable(group)


Family: TypeAlias = Sequence[c.AddTask]
"""Children of one parent, few enough that its record can hold their definitions."""


def _families(level: Sequence[c.AddTask]) -> Iterator[Family]:
    """Groups the children among these by parent, with at most as many as a parent can announce at
    once."""
    by_parent: dict[str, list[c.AddTask]] = {}
    for command in level:
        if command.task.parent is not None:
            by_parent.setdefault(command.task.parent, []).append(command)
    for children in by_parent.values():
        part, size = list[c.AddTask](), 0
        for child in children:
            length = len(encode_json(child.task))
            if part and (size + length > MAX_SPAWN_BYTES or len(part) == ANNOUNCED_AT_ONCE):
                yield part
                part, size = [], 0
            part.append(child)
            size += length
        yield part


def _groups(families: Iterator[Family]) -> Iterator[list[Family]]:
    """Yields groups of families whose children can all be created as reactions to one batch of
    announcements."""
    group, many = list[Family](), 0
    for family in families:
        if group and many + len(family) > ANNOUNCED_AT_ONCE:
            yield group
            group, many = [], 0
        group.append(family)
        many += len(family)
    if group:
        yield group


def _announcement(family: Family) -> c.AnnounceChildren:
    first = family[0]
    assert first.task.parent is not None
    backlog = tuple(child.task.id for child in family if child.backlog)
    return c.AnnounceChildren(
        first.key.beside(TASK, first.task.parent),
        first.by,
        tuple(child.task for child in family),
        backlog,
    )


def in_turn(
    commands: Iterator[c.Command],
    total: int,
    progress: Progress | None = None,
    *,
    optional: int = 0,
) -> Script[list[Any]]:
    """Carries out many commands, some hundreds at a time, and returns their outcomes. An error
    stops it, except NotAllowed for one of the last `optional` commands.

    Announcements have no outcome of their own. A child that was just created by its announcement
    counts as created by its own command, which follows.
    """
    outcomes: list[Any] = []
    announced: set[str] = set()
    if progress is not None:
        progress(0, total)
    for chunk in _chunks(commands):
        job = yield Ask(chunk, patience=30)
        for command, outcome in zip(chunk, job.results, strict=True):
            if isinstance(outcome, GenlockError) and not (
                isinstance(outcome, NotAllowed) and len(outcomes) >= total - optional
            ):
                raise outcome
            if isinstance(command, c.AnnounceChildren):
                announced.update(outcome)
            elif isinstance(outcome, AddResult) and outcome.task_id in announced:
                outcomes.append(replace(outcome, verdict=Verdict.DONE))
            else:
                outcomes.append(outcome)
        if progress is not None:
            progress(len(outcomes), total)
    return outcomes


def _chunks(commands: Iterator[c.Command]) -> Iterator[list[c.Command]]:
    """Yields commands that are sent together. A child is created after the answer to its
    announcement, because the changes of a batch are independent."""
    chunk: list[c.Command] = []
    announced: set[str] = set()
    for command in commands:
        if len(chunk) == AT_ONCE or (
            chunk and isinstance(command, c.AddTask) and command.task.id in announced
        ):
            yield chunk
            chunk, announced = [], set()
        chunk.append(command)
        if isinstance(command, c.AnnounceChildren):
            announced.update(child.id for child in command.children)
    if chunk:
        yield chunk


def _changed_fields(old: Task, new: Task) -> dict[str, Any]:
    """Returns the fields in which a plan differs from the stored task, except reservations."""
    old, new = without_reservation(old), without_reservation(new)
    return {
        name: getattr(new, name)
        for name in old.__struct_fields__
        if name not in _NOT_COMPARED
        and getattr(old, name) != getattr(new, name)
        # The mode that a spawn has written stays if the plan sets none.
        and not (name == "coordination_mode" and new.coordination_mode is None)
    }


def _depth(task: Task, planned: Mapping[str, Definition], foreign: Mapping[str, Task]) -> int:
    """Returns a task's depth below its topmost ancestor."""
    depth, at = 0, task
    while (parent := at.parent) is not None and depth < len(planned) + 1:
        depth += 1
        if parent not in planned:
            return depth + (foreign[parent].depth if parent in foreign else 0)
        at = planned[parent].task
    return depth


def _planned(records: Mapping[str, TaskRecord]) -> Iterator[Definition]:
    """Yields the definitions of these tasks for a plan: without spawner, reservations and cancelled
    tasks."""
    kept = {name for name, record in records.items() if record.state is not Status.CANCELLED}
    # Cancelled parents of kept tasks are kept too: if an id names the parent, the parent must
    # exist.
    for name in list(kept):
        parent = records[name].task.parent
        while parent is not None and parent in records and parent not in kept:
            kept.add(parent)
            parent = records[parent].task.parent
    for name, record in records.items():
        if name in kept:
            task = record.task
            depends_on = tuple(other for other in task.depends_on if other in kept)
            yield Definition(
                replace(task, depends_on=depends_on, assigned_at=None, spawned_from=None),
                record.backlog,
            )


@cache
def _finished_elsewhere() -> c.Content:
    """Returns the result of a task that was completed before its import. Packed on demand: `json`
    and `hashlib` are slow to import, and most commands need neither."""
    return pack({"finished": "before the task was added"})[0]
