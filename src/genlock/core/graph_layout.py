"""The layout of a graph: boxes in layers from left to right, each behind the boxes it waits for.

1. Layers: a node stands one layer behind the last of those that it waits for. In a cycle, one edge
   runs backwards.
2. Order: an edge over several layers gets a bend in each of them, so that it runs under no box. Six
   sweeps put every node near the middle of its neighbours; the order with the fewest crossings is
   used.
3. Heights: eight passes move every node towards the mean of its neighbours. Nodes that would
   overlap form a block that moves as one.

Nodes without edges stand below, in rows. Ties are broken by the order of the input, so the same
graph always looks the same. Units are boxes: x is a layer, y a row.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import ceil, sqrt
from typing import Final, NamedTuple

Edge = tuple[str, str]
"""From a node to one that waits for it."""
Point = tuple[float, float]

_SWEEPS: Final = 6
_PASSES: Final = 8
_MOST_BENDS: Final = 4_000
"""Further edges run straight."""
_BEND_HEIGHT: Final = 0.4
_FEWEST_COLUMNS: Final = 6


class Layout(NamedTuple):
    """The positions of all nodes and bends."""

    places: dict[str, Point]
    bends: dict[Edge, tuple[Point, ...]]
    """Only edges that have bends."""
    width: int
    height: float


def lay_out_layers(names: Sequence[str], edges: Sequence[Edge]) -> Layout:
    """Returns the layout of these nodes. Edges of other nodes are left out."""
    known = set(names)
    edges = list(dict.fromkeys((a, b) for a, b in edges if a != b and a in known and b in known))
    joined = {name for edge in edges for name in edge}
    drawing = _Drawing([name for name in names if name in joined], edges)
    places, bends = drawing.places()
    width = drawing.width
    height = max((y for _, y in places.values()), default=-1.0) + 1
    alone = [name for name in names if name not in joined]
    if alone:
        columns = max(width, min(len(alone), max(_FEWEST_COLUMNS, ceil(sqrt(len(alone))))))
        for at, name in enumerate(alone):
            places[name] = (at % columns, height + at // columns)
        width, height = max(width, columns), height + ceil(len(alone) / columns)
    return Layout(places, bends, width, height)


class _Drawing:
    """Nodes with edges. A node is a number; numbers beyond the names are bends."""

    def __init__(self, names: Sequence[str], edges: Sequence[Edge]) -> None:
        self._names = names
        number = {name: at for at, name in enumerate(names)}
        self._edges = [(number[a], number[b]) for a, b in edges]
        self._layer = _layers(len(names), self._edges)
        self._above: list[list[int]] = [[] for _ in names]
        """For each node: its neighbours in the layer before."""
        self._below: list[list[int]] = [[] for _ in names]
        self._bends: dict[tuple[int, int], list[int]] = {}
        for edge in self._edges:
            self._add_edge(*edge)
        self.width = max(self._layer, default=-1) + 1
        self._rows: list[list[int]] = [[] for _ in range(self.width)]
        for node, layer in enumerate(self._layer):
            self._rows[layer].append(node)

    def places(self) -> tuple[dict[str, Point], dict[Edge, tuple[Point, ...]]]:
        """Returns the positions of the nodes, and the bends of the edges."""
        self._order()
        height = self._heights()
        places = {name: (float(self._layer[at]), height[at]) for at, name in enumerate(self._names)}
        bends = {
            (self._names[a], self._names[b]): tuple(
                (float(self._layer[bend]), height[bend]) for bend in between
            )
            for (a, b), between in self._bends.items()
        }
        return places, bends

    def _add_edge(self, start: int, end: int) -> None:
        first, last = self._layer[start], self._layer[end]
        if first >= last:
            return  # an edge of a cycle: drawn, but ignored by the layout
        before = start
        if last - first > 1 and len(self._layer) + last - first < _MOST_BENDS:
            for layer in range(first + 1, last):
                bend = len(self._layer)
                self._layer.append(layer)
                self._above.append([])
                self._below.append([])
                self._join(before, bend)
                self._bends.setdefault((start, end), []).append(bend)
                before = bend
        if self._layer[before] == last - 1:
            self._join(before, end)

    def _join(self, a: int, b: int) -> None:
        self._below[a].append(b)
        self._above[b].append(a)

    # Order

    def _order(self) -> None:
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(_SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            rows = self._rows if down else self._rows[::-1]
            for row in rows[1:]:
                self._sort(row, self._above if down else self._below)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        self._rows = best

    def _sort(self, row: list[int], neighbours: Sequence[Sequence[int]]) -> None:
        near = {other for node in row for other in neighbours[node]}
        if not near:
            return
        beside = self._rows[self._layer[next(iter(near))]]
        place = {node: at for at, node in enumerate(beside)}
        middle = {
            node: sum(place[other] for other in neighbours[node]) / len(neighbours[node])
            if neighbours[node]
            else float(at)
            for at, node in enumerate(row)
        }
        row.sort(key=middle.__getitem__)

    def _crossings(self) -> int:
        crossings = 0
        for row, following in zip(self._rows, self._rows[1:], strict=False):
            place = {node: at for at, node in enumerate(following)}
            ends: list[int] = []
            for node in row:
                targets = sorted(place[other] for other in self._below[node])
                crossings += sum(len(ends) - bisect_right(ends, end) for end in targets)
                for end in targets:
                    insort(ends, end)
        return crossings

    # Heights

    def _heights(self) -> list[float]:
        height = [0.0] * len(self._layer)
        for row in self._rows:
            for node, at in zip(row, self._offsets(row), strict=True):
                height[node] = at
        for step in range(_PASSES):
            last = step >= _PASSES - 2
            down = step % 2 == 0
            for row in self._rows if down else self._rows[::-1]:
                wanted = [self._wanted(node, height, down=down, both=last) for node in row]
                for node, at in zip(row, _apart(wanted, self._offsets(row)), strict=True):
                    height[node] = at
        top = min(height, default=0.0)
        return [round(at - top, 2) for at in height]

    def _wanted(self, node: int, height: Sequence[float], *, down: bool, both: bool) -> float:
        near = self._above[node] if down else self._below[node]
        if both:
            near = self._above[node] + self._below[node]
        return sum(height[other] for other in near) / len(near) if near else height[node]

    def _offsets(self, row: Sequence[int]) -> list[float]:
        """Returns the heights of the nodes in the tightest possible row."""
        offsets: list[float] = []
        at = 0.0
        for node in row:
            size = 1.0 if node < len(self._names) else _BEND_HEIGHT
            offsets.append(at + size / 2)
            at += size
        return offsets


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Assigns layers by longest path. If only cycles are left, the first node goes first."""
    below: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for a, b in edges:
        below[a].append(b)
        waiting[b] += 1
    layer = [0] * count
    ready = [node for node in range(count) if not waiting[node]]
    heapify(ready)
    done = [False] * count
    left = 0
    for _ in range(count):
        if not ready:
            while done[left]:
                left += 1
            ready = [left]
        node = heappop(ready)
        done[node] = True
        for other in below[node]:
            if not done[other]:
                layer[other] = max(layer[other], layer[node] + 1)
                waiting[other] -= 1
                if not waiting[other]:
                    heappush(ready, other)
    return layer


def _apart(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Returns the heights nearest to the wanted ones at which no two nodes overlap. Nodes that
    would overlap are pooled around their mean."""
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        total, size = want - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            before = pools.pop()
            total, size = total + before[0], size + before[1]
        pools.append((total, size))
    means = [total / size for total, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def fold(names: Mapping[str, str], edges: Sequence[Edge]) -> dict[Edge, int]:
    """Returns the edges between groups, and the number of node edges that each stands for. `names`
    has the group of each node."""
    found: dict[Edge, int] = {}
    for a, b in edges:
        if a in names and b in names and names[a] != names[b]:
            edge = names[a], names[b]
            found[edge] = found.get(edge, 0) + 1
    return found
