"""Overlap: the work in flight that shares modules with a task.

Work in flight is a task that is held or waits for a review. The modules of a project's work in
flight are read once, updated with the decisions of this lane, and read again after at most a second
for the decisions of others. Like every rule over several records it is exact within one lane: a
round on a project with such a rule begins when the one before it is committed.

The weight of an overlap is DDB's inner product: for each task in flight the number of modules that
it shares, added up.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.commands import Caller
from genlock.core.keys import Scope
from genlock.core.model import Overlap, Record, Task, TaskRecord
from genlock.core.reasons import Status
from genlock.core.task.view import is_claimed
from genlock.store import Query, Store

_PAGE = 1000
_IN_FLIGHT = (Status.IN_PROGRESS, Status.HELD, Status.IN_REVIEW)


class _Work(NamedTuple):
    """A task in flight; session and agent are empty if it has no holder."""

    modules: frozenset[str]
    session: str = ""
    agent: str = ""


class ModulesInFlight:
    """The modules of the work in flight of one project."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._work: dict[str, _Work] = {}
        self._by_module: dict[str, set[str]] = {}
        for state in _IN_FLIGHT:
            query = Query(*scope, state=state, limit=_PAGE)
            while True:
                page = store.find(query)
                for stored in page.records:
                    self.note(decode_record(stored.key.kind, stored.body))
                if page.next is None:
                    break
                query = replace(query, after=page.next)

    def note(self, record: Record | None) -> None:
        """Takes over the state of a task from its record."""
        if not isinstance(record, TaskRecord):
            return
        name = record.task.id
        before = self._work.pop(name, None)
        if before is not None:
            for module in before.modules:
                self._by_module[module].discard(name)
        claim = record.claim if is_claimed(record) else None
        if record.task.modules and (claim is not None or record.state is Status.IN_REVIEW):
            holder = (claim.session, claim.agent) if claim is not None else ("", "")
            self._work[name] = _Work(frozenset(record.task.modules), *holder)
            for module in record.task.modules:
                self._by_module.setdefault(module, set()).add(name)

    def overlaps(self, task: Task, by: Caller) -> tuple[Overlap, ...]:
        """Returns the tasks in flight that share modules with this one, the most shared first. The
        caller's own tasks do not count."""
        shared: dict[str, list[str]] = {}
        for module in task.modules:
            for name in self._by_module.get(module, ()):
                work = self._work[name]
                if name != task.id and (work.session, work.agent) != (by.session, by.agent):
                    shared.setdefault(name, []).append(module)
        found = [Overlap(name, tuple(modules)) for name, modules in shared.items()]
        found.sort(key=lambda overlap: (-len(overlap.modules), overlap.task_id))
        return tuple(found)


def weight_of(overlaps: tuple[Overlap, ...]) -> int:
    """Returns DDB's inner product."""
    return sum(len(overlap.modules) for overlap in overlaps)
