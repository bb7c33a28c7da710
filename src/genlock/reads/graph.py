"""The graph: all tasks and their dependencies, those of some tracks, or those around one task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genlock.core.index import MET
from genlock.core.keys import Key, Scope
from genlock.core.model import TaskRecord
from genlock.reads.reader import Reader
from genlock.store import MOST_WAITED_ON, Query

if TYPE_CHECKING:
    from genlock.core.graph import Graph


def graph(
    reader: Reader,
    scope: Scope,
    *,
    tracks: frozenset[str] | None = None,
    around: Key | None = None,
    depth: int = 0,
) -> Graph:
    """The tasks of a project and what each waits for: all of them, those of some tracks, or those
    up to `depth` steps before and after the task `around`."""
    # Only this read needs it, and every start pays for an import.
    from genlock.core.graph import graph_of, node_of

    if around is None:
        nodes = [node_of(record.task.id, record) for record in reader.find_tasks(Query(*scope))]
    else:
        nodes = [
            node_of(name, record, distance)
            for name, (record, distance) in _around(reader, around, depth).items()
        ]
    return graph_of(
        (node for node in nodes if tracks is None or node.track in tracks),
        around.id if around else None,
    )


def _around(reader: Reader, key: Key, depth: int) -> dict[str, tuple[TaskRecord, int]]:
    """Returns the task, its dependencies and its dependents, each with its distance."""
    found = {key.id: (reader.task(key), 0)}
    for direction, step in ((-1, _before), (1, _behind)):
        edge = {key.id: found[key.id][0]}
        for distance in range(1, depth + 1):
            edge = {
                name: record
                for name, record in step(reader, key, edge).items()
                if name not in found
            }
            if not edge:
                break
            found |= {name: (record, direction * distance) for name, record in edge.items()}
    return found


def _before(reader: Reader, key: Key, edge: dict[str, TaskRecord]) -> dict[str, TaskRecord]:
    """Loads the tasks that these wait for: dependencies and children."""
    names = list(
        dict.fromkeys(
            other
            for record in edge.values()
            for other in (*record.task.depends_on, *record.children)
        )
    )
    return reader.tasks(key.place, names)


def _behind(reader: Reader, key: Key, edge: dict[str, TaskRecord]) -> dict[str, TaskRecord]:
    """Loads the tasks that wait, or have waited, for these: dependents and parents."""
    found: dict[str, TaskRecord] = {}
    names = [waits_on for name in edge for waits_on in (name, MET + name)]
    for start in range(0, len(names), MOST_WAITED_ON):
        query = Query(*key.place, waits_on=tuple(names[start : start + MOST_WAITED_ON]))
        found |= {record.task.id: record for record in reader.find_tasks(query)}
    parents = {record.task.parent for record in edge.values() if record.task.parent is not None}
    return found | reader.tasks(key.place, parents)
