"""What does not move by itself, and why."""

from __future__ import annotations

from typing import Any

import pytest

from genlock.core.graph import Graph, GraphTask, graph_of
from genlock.core.overview import Stuck, count_states, find_stuck
from genlock.core.reasons import Status


def node(name: str, state: Status, *waits_for: str, **more: Any) -> GraphTask:
    depends_on = tuple(other for other in waits_for if " " not in other)
    return GraphTask(id=name, title="", track=None, state=state, generation=0, depends_on=depends_on, waits_for=waits_for, **more)


def graph(*tasks: GraphTask) -> Graph:
    return graph_of(tasks)


def test_states_without_a_task_are_not_counted() -> None:
    found = count_states(graph(node("a", Status.HELD), node("b", Status.PENDING), node("c", Status.PENDING)))
    assert list(found.items()) == [("PENDING", 2), ("HELD", 1)]


@pytest.mark.parametrize("state", [Status.PENDING, Status.COMPLETED, Status.CANCELLED, Status.BACKLOG, Status.IN_PROGRESS])
def test_what_goes_on_by_itself_or_is_wanted_by_nobody_is_not_stuck(state: Status) -> None:
    assert find_stuck(graph(node("a", state)), {}) == ()


def test_who_waits_for_something_that_goes_on_or_for_a_time_is_not_stuck() -> None:
    tasks = graph(node("a", Status.PENDING), node("b", Status.BLOCKED, "a"), node("c", Status.BLOCKED, "not before 2099-01-01T00:00:00Z"))
    assert find_stuck(tasks, {}) == ()


def test_what_most_wait_for_comes_first() -> None:
    tasks = graph(node("a", Status.HELD), node("b", Status.HELD), node("c", Status.BLOCKED, "b"), node("d", Status.BLOCKED, "c", "b"))
    assert find_stuck(tasks, {}) == (Stuck("b", Status.HELD, "held", 2), Stuck("a", Status.HELD, "held", 0))


def test_what_is_finished_waits_for_nothing_whatever_it_depended_on() -> None:
    tasks = graph(node("a", Status.BACKLOG), node("b", Status.CANCELLED, "a"), node("c", Status.COMPLETED, "a"))
    assert find_stuck(tasks, {}) == ()


def test_a_circle_is_said_once_and_a_task_that_does_not_exist_by_its_name() -> None:
    tasks = graph(node("a", Status.BLOCKED, "b"), node("b", Status.BLOCKED, "a"), node("c", Status.BLOCKED, "nowhere", "a"))
    assert find_stuck(tasks, {}) == (
        Stuck("a", Status.BLOCKED, "these wait for each other: a → b → a", 2),
        Stuck("c", Status.BLOCKED, "waits for nowhere, which does not exist", 0),
    )
