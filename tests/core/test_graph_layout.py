"""Where the boxes of a graph stand."""

from __future__ import annotations

import random
import time
from itertools import combinations

import pytest

from genlock.core.graph_layout import Edge, Layout, fold, lay_out_layers


def test_every_node_stands_behind_all_that_it_waits_for() -> None:
    found = lay_out_layers("abcd", [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")])
    assert {name: x for name, (x, _) in found.places.items()} == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert (found.width, found.height) == (4, 1.35)
    # The edge over a layer bends there, and runs under no box.
    assert found.bends == {("a", "c"): ((1.0, 0.7),)}


def test_edges_that_need_not_cross_do_not_cross() -> None:
    found = lay_out_layers("abcxyz", [("a", "z"), ("b", "y"), ("c", "x")])
    heights = {name: y for name, (_, y) in found.places.items()}
    assert heights["a"] < heights["b"] < heights["c"]
    assert heights["z"] < heights["y"] < heights["x"]


def test_nodes_without_edges_stand_below_in_rows() -> None:
    found = lay_out_layers(["a", "b", *"123456789"], [("a", "b")])
    places = [found.places[name] for name in "ab167"]
    assert places == [(0, 0), (1, 0), (0, 1), (5, 1), (0, 2)]
    assert (found.width, found.height) == (6, 3)


def test_a_circle_is_drawn_and_does_not_hang() -> None:
    found = lay_out_layers("abc", [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")])
    assert [found.places[name][0] for name in "abc"] == [0, 1, 2]


def test_edges_of_unknown_nodes_are_left_out_and_nothing_is_nothing() -> None:
    assert lay_out_layers([], []) == Layout({}, {}, 0, 0)
    assert lay_out_layers(["a"], [("b", "a")]).places == {"a": (0, 0)}


def plan(size: int, seed: int = 1) -> tuple[list[str], list[Edge]]:
    chance = random.Random(seed)
    names = [f"t{number:03}" for number in range(size)]
    edges = [
        (names[chance.randrange(max(0, at - 40), at)], names[at])
        for at in range(1, size)
        for _ in range(chance.choice((0, 1, 1, 2, 3)))
    ]
    return names, edges


@pytest.mark.parametrize("seed", range(5))
def test_no_two_boxes_overlap_and_no_edge_bends_inside_a_box(seed: int) -> None:
    names, edges = plan(200, seed)
    found = lay_out_layers(names, edges)
    layers: dict[float, list[float]] = {}
    for x, y in found.places.values():
        layers.setdefault(x, []).append(y)
    for heights in layers.values():
        assert all(abs(one - other) >= 0.98 for one, other in combinations(heights, 2))
    for bends in found.bends.values():
        for x, y in bends:
            assert all(abs(y - height) >= 0.68 for height in layers[x])
    assert all(found.places[a][0] < found.places[b][0] for a, b in edges)


def test_the_same_graph_always_looks_the_same_and_500_boxes_take_no_time() -> None:
    names, edges = plan(500)
    start = time.process_time()
    found = lay_out_layers(names, edges)
    assert time.process_time() - start < 2
    assert lay_out_layers(names, edges) == found


def test_folded_edges_count_what_they_stand_for() -> None:
    groups = {"a": "A", "b": "A", "c": "B", "d": "B"}
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("d", "a"), ("x", "a")]
    assert fold(groups, edges) == {("A", "B"): 2, ("B", "A"): 1}
