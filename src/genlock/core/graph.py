"""The graph of a plan: which task waits for which, sorted and laid out. Cycles are allowed: tasks
in a cycle come last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from msgspec import Struct

from genlock.core.ids import parse_task_id, sort_path
from genlock.core.model import TaskRecord
from genlock.core.plan import find_cycles
from genlock.core.reasons import ClaimState, Status
from genlock.core.task.view import waits_for


class GraphTask(Struct, frozen=True, gc=False, kw_only=True):
    """A task as a node. `waits_for` has its unfinished dependencies and children."""

    id: str
    title: str
    track: str | None
    state: Status
    generation: int
    agent: str | None = None
    parent: str | None = None
    depends_on: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    distance: int = 0
    """In a graph around a task: the distance from it, negative towards its dependencies."""


class Graph(Struct, frozen=True, gc=False):
    """Tasks in the order of their dependencies, and the cycles among them."""

    tasks: tuple[GraphTask, ...]
    cycles: tuple[tuple[str, ...], ...] = ()
    around: str | None = None


class Row(NamedTuple):
    """A line of a drawing: the lines of its branch, the task, and the other tasks it waits for."""

    branch: str
    task: GraphTask
    others: tuple[str, ...]


def node_of(name: str, record: TaskRecord, distance: int = 0) -> GraphTask:
    """Returns the node of a task."""
    claim, task = record.claim, record.task
    return GraphTask(
        id=name,
        title=task.title or task.description.partition("\n")[0],
        track=task.track,
        state=record.state,
        generation=record.generation,
        agent=claim.agent if claim is not None and claim.state is ClaimState.ACTIVE else None,
        parent=task.parent,
        depends_on=task.depends_on,
        children=tuple(record.children),
        waits_for=waits_for(record),
        distance=distance,
    )


def graph_of(nodes: Iterable[GraphTask], around: str | None = None) -> Graph:
    """Returns the graph of these tasks."""
    nodes = list(nodes)
    cycles = find_cycles({node.id: (*node.depends_on, *node.children) for node in nodes})
    return Graph(tuple(in_order(nodes)), tuple(cycles), around)


def in_order(nodes: Sequence[GraphTask]) -> Iterator[GraphTask]:
    """Yields each node after all that it waits for; among equals by track and number."""
    by_id = {node.id: node for node in nodes}
    left: dict[str, int] = {}
    waiting: dict[str, list[str]] = {}
    for node in nodes:
        others = {other for other in (*node.depends_on, *node.children) if other in by_id}
        left[node.id] = len(others)
        for other in others:
            waiting.setdefault(other, []).append(node.id)
    ready = [(_rank(node), node.id) for node in nodes if not left[node.id]]
    heapify(ready)
    while ready:
        _, name = heappop(ready)
        del left[name]
        yield by_id[name]
        for dependent in waiting.get(name, ()):
            left[dependent] -= 1
            if not left[dependent]:
                heappush(ready, (_rank(by_id[dependent]), dependent))
    yield from sorted((by_id[name] for name in left), key=_rank)


def by_track(nodes: Iterable[GraphTask]) -> dict[str, list[GraphTask]]:
    """Groups tasks by track and keeps their order. Tasks without a track come last, under ""."""
    tracks: dict[str, list[GraphTask]] = {}
    for node in nodes:
        tracks.setdefault(node.track or "", []).append(node)
    return {track: tracks[track] for track in sorted(tracks, key=lambda track: (not track, track))}


def lay_out(nodes: Sequence[GraphTask], deepest: int = 8) -> list[Row]:
    """Lays out the tasks of one track as a forest. Each task hangs below the last task of its track
    that it waits for, and names the others."""
    place = {node.id: at for at, node in enumerate(nodes)}
    below: dict[str | None, list[GraphTask]] = {}
    hangs_on: dict[str, str | None] = {}
    for at, node in enumerate(nodes):
        # Only below a task that comes before it: in a cycle, one task must be first.
        before = [
            other for other in (*node.depends_on, *node.children) if place.get(other, at) < at
        ]
        hangs_on[node.id] = max(before, key=place.__getitem__) if before else None
        below.setdefault(hangs_on[node.id], []).append(node)
    rows: list[Row] = []
    todo: list[tuple[GraphTask, str, str, int]] = [
        (node, "", "", 0) for node in reversed(below.get(None, []))
    ]
    while todo:
        node, lead, branch, depth = todo.pop()
        rows.append(
            Row(
                lead + branch,
                node,
                tuple(
                    other
                    for other in (*node.depends_on, *node.children)
                    if other != hangs_on[node.id]
                ),
            )
        )
        # Too deep for the page: the rest is drawn below, without further indentation.
        further = lead if depth >= deepest else lead + {"": "", _LAST: "  ", _MORE: "│ "}[branch]
        inner = {child.id: child for child in below.get(node.id, [])}
        todo += [
            (inner[name], further, mark, depth + 1) for _, mark, name in _branches("", list(inner))
        ]
    return rows


def short_names(nodes: Iterable[GraphTask]) -> dict[str, str]:
    """Returns short names: `B-003` for `B-003-implement-user-dashboard`, if no other task has that
    name."""
    short: dict[str, list[str]] = {}
    for node in nodes:
        for name in (node.id, *node.depends_on, *node.children):
            parts = name.split("-", 2)
            if len(parts) == 3 and parts[0].isupper() and parts[1].isdigit() and "::" not in name:
                known = short.setdefault(f"{parts[0]}-{parts[1]}", [])
                if name not in known:
                    known.append(name)
    return {names[0]: brief for brief, names in short.items() if len(names) == 1}


def _rank(node: GraphTask) -> tuple[bool, str, tuple[int, ...], str]:
    return (
        not node.track,
        node.track or "",
        sort_path(parse_task_id(node.id, hierarchical=True)),
        node.id,
    )


def tree(start: str, edges: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, bool]]:
    """Yields all tasks reached from a task as lines of a tree: the branch, the id, and whether the
    task was drawn further up."""
    seen = {start}
    todo = list(_branches("", edges.get(start, ())))
    while todo:
        lead, branch, name = todo.pop()
        yield lead + branch, name, name in seen
        if name not in seen:
            seen.add(name)
            todo += _branches(lead + ("  " if branch == _LAST else "│ "), edges.get(name, ()))


_MORE, _LAST = "├ ", "└ "


def _branches(lead: str, names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yields the last branch first, because they are popped from the end."""
    for number, name in enumerate(reversed(names)):
        yield lead, _MORE if number else _LAST, name
