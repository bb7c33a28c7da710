"""The graph with positions: some tracks, the surroundings of a task, or the tracks as boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from genlock.core.dashboard import GraphEdge, GraphLayout, GraphNode
from genlock.core.graph_layout import Edge, Layout, fold, lay_out_layers
from genlock.core.reasons import FINISHED, Status
from genlock.errors import TaskNotFound
from genlock.reads.project_view import ProjectView
from genlock.reads.reader import Reader

MOST_NODES: Final = 500
_FOLDED_ABOVE: Final = 300
"""For a plan with more tasks, the drawing shows tracks unless the caller asks for tasks."""


def graph_layout(
    reader: Reader,
    view: ProjectView,
    *,
    tracks: frozenset[str] | None,
    around: str | None,
    depth: int,
    folded: bool | None,
    hide_finished: bool,
) -> GraphLayout:
    """Returns the drawing. `view` must be current and from the same reader."""
    wanted = _wanted(view, tracks, around, depth)
    if hide_finished:
        wanted = {
            name: distance
            for name, distance in wanted.items()
            if view.tasks[name].state not in FINISHED or name == around
        }
    if folded is None:
        folded = around is None and tracks is None and len(wanted) > _FOLDED_ABOVE
    shown, left_out = (wanted, Counter[str]()) if folded else _bounded(view, wanted)
    nodes, edges, layout = _track_boxes(view, shown) if folded else _task_boxes(view, shown)
    assert view.cursor is not None
    return GraphLayout(
        nodes=tuple(nodes),
        edges=tuple(edges),
        width=layout.width,
        height=layout.height,
        folded=folded,
        total=len(wanted),
        left_out=dict(left_out),
        around=around,
        cursor=view.cursor,
        now=reader.now(),
    )


def _wanted(
    view: ProjectView, tracks: frozenset[str] | None, around: str | None, depth: int
) -> dict[str, int]:
    """Returns the requested tasks, each with its distance."""
    found = dict.fromkeys(view.tasks, 0) if around is None else _around(view, around, depth)
    return {
        name: distance
        for name, distance in found.items()
        if tracks is None or view.tasks[name].track in tracks
    }


def _around(view: ProjectView, name: str, depth: int) -> dict[str, int]:
    if name not in view.tasks:
        tenant, project = view.scope
        raise TaskNotFound(f"there is no task {name!r} in project {project!r} of tenant {tenant!r}")
    before = {entry.id: entry.awaited for entry in view.tasks.values()}
    behind: dict[str, list[str]] = {}
    for task, others in before.items():
        for other in others:
            behind.setdefault(other, []).append(task)
    found = {name: 0}
    for direction, neighbours in ((-1, before), (1, behind)):
        edge: Iterable[str] = [name]
        for distance in range(1, depth + 1):
            edge = [
                other
                for task in edge
                for other in dict.fromkeys(neighbours.get(task, ()))
                if other in view.tasks and other not in found
            ]
            found |= dict.fromkeys(edge, direction * distance)
            if not edge:
                break
    return found


def _bounded(view: ProjectView, wanted: dict[str, int]) -> tuple[dict[str, int], Counter[str]]:
    """Returns as many tasks as can be drawn: the nearest first, unfinished ones before finished
    ones at the same distance."""
    if len(wanted) <= MOST_NODES:
        return wanted, Counter()

    def rank(name: str) -> tuple[int, bool, str]:
        entry = view.tasks[name]
        return abs(wanted[name]), entry.state in FINISHED, entry.order

    names = sorted(wanted, key=rank)
    left_out = Counter(view.tasks[name].state.value for name in names[MOST_NODES:])
    return {name: wanted[name] for name in names[:MOST_NODES]}, left_out


def _task_boxes(
    view: ProjectView, shown: Mapping[str, int]
) -> tuple[list[GraphNode], list[GraphEdge], Layout]:
    entries = sorted((view.tasks[name] for name in shown), key=lambda entry: entry.order)
    entries.sort(key=lambda entry: (entry.track is None, entry.track or ""))
    edges = [(other, entry.id) for entry in entries for other in entry.awaited if other in shown]
    layout = lay_out_layers([entry.id for entry in entries], edges)
    nodes = [
        GraphNode(
            id=entry.id,
            kind="task",
            title=entry.title,
            track=entry.track,
            x=layout.places[entry.id][0],
            y=layout.places[entry.id][1],
            state=entry.state,
            generation=entry.generation,
            agent_id=entry.claim.agent if entry.claim is not None else None,
            distance=shown[entry.id],
        )
        for entry in entries
    ]
    drawn = [
        GraphEdge(
            source=source,
            target=target,
            met=view.tasks[source].state in FINISHED,
            bends=layout.bends.get((source, target), ()),
        )
        for source, target in dict.fromkeys(edges)
    ]
    return nodes, drawn, layout


def _track_boxes(
    view: ProjectView, shown: Mapping[str, int]
) -> tuple[list[GraphNode], list[GraphEdge], Layout]:
    entries = [view.tasks[name] for name in shown]
    track_of = {entry.id: entry.track or "" for entry in entries}
    states: dict[str, Counter[Status]] = {}
    for entry in entries:
        states.setdefault(entry.track or "", Counter())[entry.state] += 1
    edges = [(other, entry.id) for entry in entries for other in entry.awaited]
    counts = fold(track_of, edges)
    unmet = fold(track_of, [edge for edge in edges if _is_unmet(view, edge)])
    names = sorted(states, key=lambda name: (not name, name))
    layout = lay_out_layers(names, list(counts))
    nodes = [
        GraphNode(
            id=name,
            kind="track",
            title=name,
            track=name or None,
            x=layout.places[name][0],
            y=layout.places[name][1],
            total=states[name].total(),
            states={state.value: states[name][state] for state in Status if states[name][state]},
        )
        for name in names
    ]
    drawn = [
        GraphEdge(
            source=source,
            target=target,
            met=(source, target) not in unmet,
            count=count,
            bends=layout.bends.get((source, target), ()),
        )
        for (source, target), count in counts.items()
    ]
    return nodes, drawn, layout


def _is_unmet(view: ProjectView, edge: Edge) -> bool:
    return edge[0] in view.tasks and view.tasks[edge[0]].state not in FINISHED
