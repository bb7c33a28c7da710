"""Finds the existing tasks that new tasks would wait for: follows dependencies and children, some
hundreds of tasks at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from genlock.coordinator.plan_ops import AT_ONCE
from genlock.core.keys import TASK, Key
from genlock.core.model import Record, Task, TaskRecord
from genlock.core.plan import check_graph
from genlock.core.reasons import FINISHED

Read = Callable[[list[Key]], dict[Key, Record]]


def load_tasks(read: Read, place: tuple[str, str], names: Iterable[str]) -> dict[str, TaskRecord]:
    """Loads those of these tasks that exist."""
    wanted, found = sorted(names), dict[str, TaskRecord]()
    for start in range(0, len(wanted), AT_ONCE):
        records = read([Key(*place, TASK, name) for name in wanted[start : start + AT_ONCE]])
        found |= {
            key.id: record for key, record in records.items() if isinstance(record, TaskRecord)
        }
    return found


def walk(
    read: Read, place: tuple[str, str], start: Iterable[str], known: dict[str, TaskRecord]
) -> None:
    """Adds to `known` all tasks reachable from these through the dependencies and children that
    unfinished tasks still wait for."""
    level = set(start)
    seen = set(level)
    while level:
        known |= load_tasks(read, place, level - known.keys())
        level = {other for name in level if name in known for other in _awaited(known[name])} - seen
        seen |= level


def finished_ancestors(
    read: Read, place: tuple[str, str], parents: Iterable[str], known: dict[str, TaskRecord]
) -> set[str]:
    """Returns the finished tasks among these parents and their ancestors, and adds them to
    `known`."""
    level, finished = set(parents), set[str]()
    while level:
        known |= load_tasks(read, place, level - known.keys())
        found = {name: known[name] for name in level if name in known}
        finished |= {name for name, record in found.items() if record.state in FINISHED}
        level = {record.task.parent for record in found.values() if record.task.parent is not None}
    return finished


def graph_faults(
    tasks: Iterable[Task],
    known: Mapping[str, TaskRecord],
    besides: Iterable[str] = (),
    finished_parents: Collection[str] = (),
) -> list[str]:
    """Describes the faults in the dependencies and parents of new tasks. `besides` are names of
    tasks that exist or are about to.

    `finished_parents` of new tasks count as unfinished: if one is reset, it waits for its new
    child, so the child must not wait for any dependent of that parent.
    """
    waiting = {
        name: record
        for name, record in known.items()
        if record.state not in FINISHED or name in finished_parents
    }
    faults = check_graph(
        tasks,
        known.keys() | set(besides),
        {
            name: [
                *_unmet(record),
                *(other for other in record.task.depends_on if other in finished_parents),
            ]
            for name, record in waiting.items()
        },
        {name: _unfinished(record) for name, record in waiting.items() if record.children},
    )
    return [f"{fault.task}: {fault.text}" if fault.alone else fault.text for fault in faults]


def _awaited(record: TaskRecord) -> list[str]:
    return [] if record.state in FINISHED else [*_unmet(record), *_unfinished(record)]


def _unmet(record: TaskRecord) -> list[str]:
    return [name for name, heard in record.dependencies.items() if not heard.finished]


def _unfinished(record: TaskRecord) -> list[str]:
    return [name for name, heard in record.children.items() if not heard.finished]
