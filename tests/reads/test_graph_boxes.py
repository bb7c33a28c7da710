"""The graph with positions: folded by track, around a task, and never too large to draw."""

from __future__ import annotations

from typing import Any

import pytest

import genlock
from genlock.core.dashboard import GraphLayout
from genlock.errors import TaskNotFound
from genlock.reads import graph_boxes
from tests.engine.gated_store import complete, granted
from tests.hostile_text import HOSTILE

PLAN: list[dict[str, Any]] = [
    {"id": "A-001-a", "track": "A", "title": HOSTILE},
    {"id": "A-002-b", "track": "A", "depends_on": ["A-001-a"]},
    {"id": "B-001-c", "track": "B", "depends_on": ["A-002-b"]},
    {"id": "B-002-d", "track": "B", "depends_on": ["B-001-c", "A-001-a"]},
    {"id": "free"},
]


def boxes(found: GraphLayout) -> dict[str, tuple[float, str | None]]:
    return {node.id: (node.x, node.state) for node in found.nodes}


def test_a_small_plan_is_drawn_task_by_task(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=PLAN)
    complete(fleet, "A-001-a")
    granted(fleet, "A-002-b", "alice")

    found = fleet.get_graph_layout()
    assert boxes(found) == {
        "A-001-a": (0, "COMPLETED"),
        "A-002-b": (1, "IN_PROGRESS"),
        "B-001-c": (2, "BLOCKED"),
        "B-002-d": (3, "BLOCKED"),
        "free": (0, "PENDING"),
    }
    assert (found.folded, found.total, found.left_out, found.width) == (False, 5, {}, 4)
    edges = {(edge.source, edge.target): (edge.met, len(edge.bends)) for edge in found.edges}
    assert edges == {
        ("A-001-a", "A-002-b"): (True, 0),
        ("A-002-b", "B-001-c"): (False, 0),
        ("B-001-c", "B-002-d"): (False, 0),
        ("A-001-a", "B-002-d"): (True, 2),
    }
    first, second = found.nodes[0], found.nodes[1]
    assert (first.title, second.agent_id, second.generation) == (HOSTILE, "alice", 1)


def test_folded_tracks_are_boxes_with_counts(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=PLAN)
    found = fleet.get_graph_layout(folded=True)
    assert [(node.id, node.kind, node.x, node.total, node.states) for node in found.nodes] == [
        ("A", "track", 0, 2, {"PENDING": 1, "BLOCKED": 1}),
        ("B", "track", 1, 2, {"BLOCKED": 2}),
        ("", "track", 0, 1, {"PENDING": 1}),
    ]
    (edge,) = found.edges
    assert (edge.source, edge.target, edge.count, edge.met) == ("A", "B", 2, False)


def test_a_large_plan_is_folded_and_a_large_track_is_bounded(
    fleet: genlock.Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_boxes, "_FOLDED_ABOVE", 4)
    monkeypatch.setattr(graph_boxes, "MOST_NODES", 1)
    fleet.add_tasks(tasks=PLAN)
    complete(fleet, "A-001-a")
    assert fleet.get_graph_layout().folded
    found = fleet.get_graph_layout(tracks="A")
    # What is not finished goes first.
    assert (list(boxes(found)), found.left_out) == (["A-002-b"], {"COMPLETED": 1})
    assert (found.total, found.folded) == (2, False)


def test_around_a_task_is_what_it_waits_for_and_what_waits_for_it(
    fleet: genlock.Coordinator,
) -> None:
    fleet.add_tasks(tasks=PLAN)
    found = fleet.get_graph_layout(around="A-002-b", depth=1)
    assert {node.id: node.distance for node in found.nodes} == {
        "A-001-a": -1,
        "A-002-b": 0,
        "B-001-c": 1,
    }
    assert found.around == "A-002-b"
    assert len(fleet.get_graph_layout(around="A-002-b", depth=9).nodes) == 4
    with pytest.raises(TaskNotFound):
        fleet.get_graph_layout(around="nowhere")


def test_children_stand_in_front_of_their_parent(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=["a"])
    fleet.spawn_subtasks(task_id="a", subtasks=["one", "two"])
    found = fleet.get_graph_layout()
    assert [(edge.source, edge.target) for edge in found.edges] == [
        ("a::1", "a"),
        ("a::2", "a"),
    ]


def test_finished_tasks_can_be_left_out(fleet: genlock.Coordinator) -> None:
    fleet.add_tasks(tasks=PLAN)
    complete(fleet, "A-001-a")
    assert "A-001-a" not in boxes(fleet.get_graph_layout(hide_finished=True))
    assert "A-001-a" in boxes(fleet.get_graph_layout(around="A-001-a", hide_finished=True))
