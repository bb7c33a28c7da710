"""Plans: compare one with what is there, import it, give it back.

Everything is checked before anything is written. An import that was cut off is finished by importing again: what is there
already is found unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from genlock.coordinator.arguments import check_flag
from genlock.coordinator.base import Base, task_of
from genlock.coordinator.scripts import Ask, Read, Script
from genlock.core import commands as c
from genlock.core.codec import FORMAT, encode_json
from genlock.core.faults import Fault
from genlock.core.keys import TASK, Key, project_key
from genlock.core.model import Task, TaskRecord
from genlock.core.plan import Definition, Plan, check_families, check_graph
from genlock.core.policy import Ids
from genlock.core.reasons import FINISHED, Status
from genlock.core.results import PlanResult
from genlock.core.task.operate import FIXED_FIELDS, moves_in_backlog, without_reservation
from genlock.engine.jobs import Settle
from genlock.errors import BadArgument, GenlockError, NotAllowed
from genlock.store import Query, Store, Stored

if TYPE_CHECKING:
    from genlock.plans import Draft, Source

Progress: TypeAlias = Callable[[int, int], None]
"""Told how many of how many tasks are written."""

AT_ONCE = 500
_PAGE = 1000
_RECORD_START = FORMAT + b'{"task":'
_CANCELLED = b',"state":"CANCELLED"'
_BACKLOG = b'"backlog":true'
"""Where this is not, the task is not in the backlog; where it is, it may be another's word."""
_NOT_COMPARED = frozenset({"depth", "spawned_from"})
"""`depth` follows from the parents, and no plan says who spawned a task."""


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
        """Import a plan (GC 3.7's form: a mapping, YAML text, or files). Importing again is a diff; no generation is touched.

        A plan that names a project is imported into no other that was asked for.
        `prune` cancels the tasks that are gone from the plan. `progress` is called with how many of how many are written.
        """
        place = self.place(tenant_id, project_id)
        check_flag("prune", prune)
        if progress is not None and not callable(progress):
            raise BadArgument("progress is a function of two numbers: how many of how many tasks are written")
        plan, difference = yield from self._compared(place, source)
        yield from self.ensure_place(place)
        if plan.tracks is not None:
            yield from self.ask_one(c.ChangeProject(project_key(*place), self.operator(), None, plan.tracks))
        by = self.operator()
        pruned = difference.prunable if prune else ()
        commands: Iterator[c.Command] = chain(
            adding(place, by, difference.added, difference.depths),
            difference.edits(place, by),
            (c.CancelTask(Key(*place, TASK, name), by, "gone from the plan") for name in pruned),
        )
        total = len(difference.added) + len(difference.changed) + len(pruned)
        outcomes = yield from in_turn(commands, total, progress, optional=len(pruned))
        # What an import that was cut off left undone: its tasks are there, but their parents may not have heard of them.
        yield Ask([Settle(project_key(*place))], patience=30)
        kept = {name for name, outcome in zip(pruned, outcomes[total - len(pruned) :], strict=True) if isinstance(outcome, NotAllowed)}
        return difference.result(tuple(name for name in pruned if name not in kept), plan.notes)

    def diff_plan(
        self, *, source: Source, prune: bool = False, tenant_id: str | None = None, project_id: str | None = None
    ) -> Script[PlanResult]:
        """What importing a plan would change, with `prune` also what it would cancel; nothing is written. Faults are those of an import."""
        place = self.place(tenant_id, project_id)
        check_flag("prune", prune)
        plan, difference = yield from self._compared(place, source)
        return difference.result(difference.prunable if prune else (), plan.notes)

    def check_plan(self, *, source: Source, tenant_id: str | None = None, project_id: str | None = None) -> Script[Plan]:
        """The plan as it would be imported, or PlanInvalid with every fault; nothing is written."""
        plan, _ = yield from self._compared(self.place(tenant_id, project_id), source)
        return plan

    def get_plan(self, *, tenant_id: str | None = None, project_id: str | None = None) -> Script[Plan]:
        """The definitions as a plan that can be imported elsewhere. Cancelled tasks and dependencies on them are left out."""
        place = self.place(tenant_id, project_id)

        def read() -> Plan:
            project = self.read_settings(place)[2]
            records = {stored.key.id: task_of(stored) for stored in all_tasks(self.store, place)}
            return Plan(place[1], dict(project.tracks) if project and project.tracks is not None else None, tuple(_planned(records)))

        plan: Plan = yield Read(read)
        return plan

    # How it is done

    def _compared(self, place: tuple[str, str], source: Source) -> Script[tuple[Plan, _Difference]]:
        """The plan and what it changes, or PlanInvalid with all that is wrong."""
        hierarchical = (yield Read(lambda: self.read_settings(place)))[0].ids is Ids.HIERARCHICAL

        # Steps of their own, although nothing of them is in the store: where an event loop runs this, they take a thread, and a text of
        # a megabyte, or the places of its faults, may take seconds.
        def read() -> Draft:
            # Imported when it is used: the YAML reader is a fifth of what importing genlock would cost every worker.
            from genlock.plans import Draft

            return Draft(source, hierarchical=hierarchical, project=place[1])

        draft: Draft = yield Read(read)
        difference: _Difference = yield Read(lambda: _Difference(draft, all_tasks(self.store, place)))
        yield Read(draft.check)
        return draft.plan, difference


def all_tasks(store: Store, place: tuple[str, str]) -> Iterator[Stored]:
    """Every task of a project, by id."""
    after: str | None = None
    while True:
        page = store.find(Query(*place, after=after, limit=_PAGE))
        yield from page.records
        if page.next is None:
            return
        after = page.next


class _Difference:
    """A plan beside the tasks that exist, which are looked at one by one and not kept."""

    def __init__(self, draft: Draft, existing: Iterator[Stored]) -> None:
        self._definitions = {definition.task.id: definition for definition in draft.plan.tasks}
        self._old: set[str] = set()
        self._still_cancelled: list[str] = []
        self._gone: list[str] = []
        self._foreign: dict[str, Task] = {}
        """Existing tasks that are not in the plan, as their graph must be looked at too."""
        self._finished: set[str] = set()
        self.changed: dict[str, dict[str, Any]] = {}
        self._moved: set[str] = set()
        """Of these, those that are taken out of the backlog or put there."""
        for stored in existing:
            self._look_at(draft, stored)
        self._check(draft)
        self.added = [definition for name, definition in self._definitions.items() if name not in self._old]
        self.depths = {
            definition.task.id: _depth(definition.task, self._definitions, self._foreign)
            for definition in self._definitions.values()
            if definition.task.parent is not None
        }
        self.prunable = tuple(name for name in self._gone if name not in self._finished)

    def edits(self, place: tuple[str, str], by: c.Caller) -> Iterator[c.EditTask]:
        """The commands that bring what has changed in line with the plan."""
        for name, fields in self.changed.items():
            yield c.EditTask(Key(*place, TASK, name), by, fields, backlog=self._definitions[name].backlog)

    def result(self, cancelled: tuple[str, ...], notes: tuple[Fault, ...]) -> PlanResult:
        """What is said of it."""
        return PlanResult(
            added=tuple(definition.task.id for definition in self.added),
            changed=tuple(name for name in self._definitions if name in self.changed),
            unchanged=tuple(name for name in self._definitions if name in self._old and name not in self.changed),
            gone=tuple(self._gone),
            cancelled=cancelled,
            fields={name: tuple(sorted([*fields, "state"] if name in self._moved else fields)) for name, fields in self.changed.items()},
            still_cancelled=tuple(self._still_cancelled),
            notes=notes,
            prunable=self.prunable,
        )

    def _look_at(self, draft: Draft, stored: Stored) -> None:
        name = stored.key.id
        definition = self._definitions.get(name)
        if definition is None:
            self._look_at_foreign(draft, name, task_of(stored))
            return
        self._old.add(name)
        # A record begins with its definition: if these bytes are the same, the rest need not be read.
        same = _RECORD_START + encode_json(definition.task)
        if stored.body.startswith(same) and definition.backlog == (stored.body.find(_BACKLOG, len(same)) >= 0):
            if stored.body.startswith(_CANCELLED, len(same)):
                self._still_cancelled.append(name)
            return
        record = task_of(stored)
        if record.state is Status.CANCELLED:
            self._still_cancelled.append(name)
        fields = _changed_fields(record.task, definition.task)
        for field in sorted(FIXED_FIELDS & fields.keys()):
            was, said = getattr(record.task, field), fields[field]
            draft.complain(name, f"{field} is {was!r} in the store and {said!r} here, which no edit can change; use another id", (field,))
        if moves_in_backlog(record, definition.backlog):
            self._moved.add(name)
        if fields or name in self._moved:
            self.changed[name] = fields

    def _look_at_foreign(self, draft: Draft, name: str, record: TaskRecord) -> None:
        self._foreign[name] = record.task
        if record.state in FINISHED:
            self._finished.add(name)
        if record.task.spawned_from is None and record.state is not Status.CANCELLED and name not in draft.names:
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


def adding(place: tuple[str, str], by: c.Caller, definitions: Sequence[Definition], depths: Mapping[str, int]) -> Iterator[c.AddTask]:
    """The commands that add these, parents first, so that a child finds the one that is to wait for it."""
    for task, backlog in sorted(definitions, key=lambda definition: depths.get(definition.task.id, 0)) if depths else definitions:
        placed = replace(task, depth=depths[task.id]) if depths.get(task.id, task.depth) != task.depth else task
        yield c.AddTask(Key(*place, TASK, task.id), by, placed, backlog)


def in_turn(commands: Iterator[c.Command], total: int, progress: Progress | None = None, *, optional: int = 0) -> Script[list[Any]]:
    """The outcomes of many commands, some hundreds at a time. An error ends it, but that a state does not admit one of the last."""
    outcomes: list[Any] = []
    if progress is not None:
        progress(0, total)
    while chunk := list(islice(commands, AT_ONCE)):
        job = yield Ask(chunk, patience=30)
        for outcome in job.results:
            if isinstance(outcome, GenlockError) and not (isinstance(outcome, NotAllowed) and len(outcomes) >= total - optional):
                raise outcome
            outcomes.append(outcome)
        if progress is not None:
            progress(len(outcomes), total)
    return outcomes


def _changed_fields(old: Task, new: Task) -> dict[str, Any]:
    """The fields in which a plan differs from what is stored; reservations are none of its business."""
    old, new = without_reservation(old), without_reservation(new)
    return {
        name: getattr(new, name) for name in old.__struct_fields__ if name not in _NOT_COMPARED and getattr(old, name) != getattr(new, name)
    }


def _depth(task: Task, planned: Mapping[str, Definition], foreign: Mapping[str, Task]) -> int:
    """How deep a task lies below the first task without a parent."""
    depth, at = 0, task
    while (parent := at.parent) is not None and depth < len(planned) + 1:
        depth += 1
        if parent not in planned:
            return depth + (foreign[parent].depth if parent in foreign else 0)
        at = planned[parent].task
    return depth


def _planned(records: Mapping[str, TaskRecord]) -> Iterator[Definition]:
    """What a plan says of these: not who spawned or reserved them, and nothing of what was cancelled."""
    kept = {name for name, record in records.items() if record.state is not Status.CANCELLED}
    # But for the parents of what is kept: where the id names the parent, there must be one.
    for name in list(kept):
        parent = records[name].task.parent
        while parent is not None and parent in records and parent not in kept:
            kept.add(parent)
            parent = records[parent].task.parent
    for name, record in records.items():
        if name in kept:
            task = record.task
            depends_on = tuple(other for other in task.depends_on if other in kept)
            yield Definition(replace(task, depends_on=depends_on, assigned_at=None, spawned_from=None), record.backlog)
