"""The graph: the whole of it, some tracks, or what lies around one task."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from genlock.coordinator.arguments import MOST_STEPS, check_tracks, check_whole
from genlock.coordinator.base import Base, task_of
from genlock.coordinator.plans import all_tasks
from genlock.coordinator.scripts import Read, Script
from genlock.core.index import MET
from genlock.core.keys import TASK, Key
from genlock.core.model import TaskRecord
from genlock.store import MOST_WAITED_ON, Query

if TYPE_CHECKING:
    from genlock.core.graph import Graph

_AT_ONCE = 500


class Graphs(Base):
    """Operations that look at who waits for whom."""

    def get_graph(
        self,
        *,
        tracks: str | Collection[str] | None = None,
        around: str | None = None,
        depth: int = 2,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Graph]:
        """Who waits for whom: in the whole plan, in some tracks, or up to `depth` steps before and behind the task `around`."""
        place = self.place(tenant_id, project_id)
        wanted = check_tracks(tracks)
        depth = check_whole("depth", depth, 0, MOST_STEPS)
        key = None if around is None else self.task_key(tenant_id, project_id, around)

        def read() -> Graph:
            # Nobody else needs it, and every start pays for what is imported.
            from genlock.core.graph import graph_of, node_of

            if key is None:
                nodes = [node_of(stored.key.id, task_of(stored)) for stored in all_tasks(self.store, place)]
            else:
                found = self._around(key, depth)
                nodes = [node_of(name, record, distance) for name, (record, distance) in found.items()]
            return graph_of((node for node in nodes if wanted is None or node.track in wanted), key.id if key else None)

        graph: Graph = yield Read(read)
        return graph

    def _around(self, key: Key, depth: int) -> dict[str, tuple[TaskRecord, int]]:
        """The task, what it waits for and what waits for it, each with its distance."""
        found = {key.id: (self.read_task(key), 0)}
        for direction, step in ((-1, self._before), (1, self._behind)):
            edge = {key.id: found[key.id][0]}
            for distance in range(1, depth + 1):
                edge = {name: record for name, record in step(key, edge).items() if name not in found}
                if not edge:
                    break
                found |= {name: (record, direction * distance) for name, record in edge.items()}
        return found

    def _before(self, key: Key, edge: dict[str, TaskRecord]) -> dict[str, TaskRecord]:
        """What these wait for: dependencies and children."""
        names = list(dict.fromkeys(other for record in edge.values() for other in (*record.task.depends_on, *record.children)))
        found: dict[str, TaskRecord] = {}
        for start in range(0, len(names), _AT_ONCE):
            records = self.read_records([key.beside(TASK, name) for name in names[start : start + _AT_ONCE]])
            found |= {at.id: record for at, record in records.items() if isinstance(record, TaskRecord)}
        return found

    def _behind(self, key: Key, edge: dict[str, TaskRecord]) -> dict[str, TaskRecord]:
        """What waits for these, or has waited: dependents and parents."""
        found: dict[str, TaskRecord] = {}
        names = [waits_on for name in edge for waits_on in (name, MET + name)]
        for start in range(0, len(names), MOST_WAITED_ON):
            found |= self._waiting(key, tuple(names[start : start + MOST_WAITED_ON]))
        parents = {record.task.parent for record in edge.values() if record.task.parent is not None}
        records = self.read_records([key.beside(TASK, name) for name in parents])
        return found | {at.id: record for at, record in records.items() if isinstance(record, TaskRecord)}

    def _waiting(self, key: Key, waits_on: tuple[str, ...]) -> dict[str, TaskRecord]:
        found: dict[str, TaskRecord] = {}
        after: str | None = None
        while True:
            page = self.store.find(Query(*key.place, waits_on=waits_on, after=after, limit=_AT_ONCE))
            found |= {stored.key.id: task_of(stored) for stored in page.records}
            if page.next is None:
                return found
            after = page.next
