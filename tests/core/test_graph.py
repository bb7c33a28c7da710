"""Graphs in order and laid out: every task once, after what it waits for, whatever the graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.core.graph import GraphTask, by_track, graph_of, in_order, lay_out, short_names, tree
from genlock.core.reasons import Status


def node(
    name: str, *depends_on: str, track: str | None = None, children: tuple[str, ...] = ()
) -> GraphTask:
    return GraphTask(
        id=name,
        title="",
        track=track,
        state=Status.PENDING,
        generation=0,
        depends_on=depends_on,
        children=children,
    )


def drawn(nodes: list[GraphTask], deepest: int = 8) -> list[str]:
    return [
        f"{branch}{task.id}" + (f" < {' '.join(others)}" if others else "")
        for branch, task, others in lay_out(nodes, deepest)
    ]


def test_tasks_come_after_what_they_wait_for_and_otherwise_by_track_and_number() -> None:
    nodes = [
        node("slug"),
        node("B-002-x", track="B"),
        node("B-010-x", track="B"),
        node("A-003-x", track="A"),
        node("A-001-x", "B-002-x", track="A"),
        node("0002", children=("0002_t1",)),
        node("0002_t1", "slug"),
    ]
    assert [task.id for task in in_order(nodes)] == [
        "A-003-x",
        "B-002-x",
        "A-001-x",
        "B-010-x",
        "slug",
        "0002_t1",
        "0002",
    ]
    assert list(by_track(in_order(nodes))) == ["A", "B", ""]


def test_what_is_in_a_circle_comes_last_and_the_circle_is_named() -> None:
    graph = graph_of([node("a", "b"), node("b", "a"), node("c", "a"), node("d")])
    assert [task.id for task in graph.tasks] == ["d", "a", "b", "c"]
    assert graph.cycles == (("a", "b", "a"),)


def test_a_forest_hangs_each_task_on_the_last_it_waits_for() -> None:
    nodes = [
        node("a"),
        node("b", "a"),
        node("c", "b"),
        node("d", "a", "c"),
        node("e", "b", "elsewhere"),
        node("f"),
    ]
    assert drawn(nodes) == ["a", "└ b", "  ├ c", "  │ └ d < a", "  └ e < elsewhere", "f"]


def test_too_deep_for_the_page_it_goes_straight_down() -> None:
    chain = [node("t0"), *(node(f"t{at}", f"t{at - 1}") for at in range(1, 6))]
    assert drawn(chain, deepest=2) == ["t0", "└ t1", "  └ t2", "  └ t3", "  └ t4", "  └ t5"]


def test_a_tree_shows_what_is_reached_twice_once_only_with_its_branches() -> None:
    edges = {"a": ["b", "c"], "b": ["d"], "c": ["d", "a"], "d": ["e"]}
    assert list(tree("a", edges)) == [
        ("├ ", "b", False),
        ("│ └ ", "d", False),
        ("│   └ ", "e", False),
        ("└ ", "c", False),
        ("  ├ ", "d", True),
        ("  └ ", "a", True),
    ]
    assert list(tree("nobody", edges)) == []


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["A-001-x", "A-002-y"], {"A-001-x": "A-001", "A-002-y": "A-002"}),
        (["A-001-x", "A-001-y"], {}),
        (["slug-with-parts", "0001_t1", "A-001-x::1", "AUTH:x"], {}),
    ],
)
def test_a_short_name_is_given_where_it_means_one_task(
    names: list[str], short: dict[str, str]
) -> None:
    assert short_names(map(node, names)) == short


names = st.integers(0, 7).map(lambda number: f"t{number}")
graphs = st.dictionaries(names, st.lists(names | st.just("elsewhere"), max_size=3), max_size=8)


@given(edges=graphs)
def test_whatever_the_graph_every_task_is_drawn_once(edges: dict[str, list[str]]) -> None:
    graph = graph_of(node(name, *others) for name, others in edges.items())
    assert sorted(task.id for task in graph.tasks) == sorted(edges)
    rows = lay_out(graph.tasks)
    assert sorted(row.task.id for row in rows) == sorted(edges)
    for name in edges:
        assert len(list(tree(name, edges))) <= sum(map(len, edges.values()))
    if not graph.cycles:
        place = {task.id: at for at, task in enumerate(graph.tasks)}
        assert all(
            place[other] < place[name]
            for name, others in edges.items()
            for other in others
            if other in place
        )
