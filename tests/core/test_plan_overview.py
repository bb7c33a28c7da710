"""What does not move by itself, and why."""

from __future__ import annotations

from typing import Any

import pytest

from genlock.core.graph import Graph, GraphTask, graph_of
from genlock.core.overview import (
    Progress,
    ProjectProgress,
    Stuck,
    count_states,
    find_outlook,
    find_stuck,
)
from genlock.core.reasons import Status


def node(name: str, state: Status, *waits_for: str, **more: Any) -> GraphTask:
    depends_on = tuple(other for other in waits_for if " " not in other)
    more = {"track": None} | more
    return GraphTask(
        id=name,
        title="",
        state=state,
        generation=0,
        depends_on=depends_on,
        waits_for=waits_for,
        **more,
    )


def graph(*tasks: GraphTask) -> Graph:
    return graph_of(tasks)


def test_states_without_a_task_are_not_counted() -> None:
    found = count_states(
        [node("a", Status.HELD), node("b", Status.PENDING), node("c", Status.PENDING)]
    )
    assert list(found.items()) == [("PENDING", 2), ("HELD", 1)]


@pytest.mark.parametrize(
    "state",
    [Status.PENDING, Status.COMPLETED, Status.CANCELLED, Status.BACKLOG, Status.IN_PROGRESS],
)
def test_what_goes_on_by_itself_or_is_wanted_by_nobody_is_not_stuck(state: Status) -> None:
    assert find_stuck(graph(node("a", state)), {}) == ()


def test_who_waits_for_something_that_goes_on_or_for_a_time_is_not_stuck() -> None:
    tasks = graph(
        node("a", Status.PENDING),
        node("b", Status.BLOCKED, "a"),
        node("c", Status.BLOCKED, "not before 2099-01-01T00:00:00Z"),
    )
    assert find_stuck(tasks, {}) == ()


def test_what_most_wait_for_comes_first() -> None:
    tasks = graph(
        node("a", Status.HELD),
        node("b", Status.HELD),
        node("c", Status.BLOCKED, "b"),
        node("d", Status.BLOCKED, "c", "b"),
    )
    assert find_stuck(tasks, {}) == (
        Stuck("b", Status.HELD, "held", 2),
        Stuck("a", Status.HELD, "held", 0),
    )


def test_what_is_finished_waits_for_nothing_whatever_it_depended_on() -> None:
    tasks = graph(
        node("a", Status.BACKLOG),
        node("b", Status.CANCELLED, "a"),
        node("c", Status.COMPLETED, "a"),
    )
    assert find_stuck(tasks, {}) == ()


def test_a_circle_is_said_once_and_a_task_that_does_not_exist_by_its_name() -> None:
    tasks = graph(
        node("a", Status.BLOCKED, "b"),
        node("b", Status.BLOCKED, "a"),
        node("c", Status.BLOCKED, "nowhere", "a"),
    )
    assert find_stuck(tasks, {}) == (
        Stuck("a", Status.BLOCKED, "these wait for each other: a → b → a", 2),
        Stuck("c", Status.BLOCKED, "waits for nowhere, which does not exist", 0),
    )


LATER = "not before 2099-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("tasks", "outlook"),
    [
        ([], ProjectProgress(Progress.EMPTY, {})),
        (
            [node("a", Status.COMPLETED), node("b", Status.CANCELLED, "a")],
            ProjectProgress(Progress.FINISHED, {}),
        ),
        (
            [node("a", Status.PENDING), node("b", Status.IN_PROGRESS, agent="ada")],
            ProjectProgress(Progress.RESERVED, {"PENDING": 1, "IN_PROGRESS": 1}, "a"),
        ),
        (
            [
                node("h", Status.HELD),
                node("a", Status.IN_PROGRESS, agent="ada"),
                node("b", Status.BLOCKED, "a"),
            ],
            ProjectProgress(Progress.AT_WORK, {"BLOCKED": 1, "IN_PROGRESS": 1, "HELD": 1}, "a", 1),
        ),
        (
            [node("a", Status.HELD, agent="ada")],
            ProjectProgress(Progress.AT_WORK, {"HELD": 1}, "a", 1),
        ),
        (
            [node("a", Status.COMPLETED), node("b", Status.BLOCKED, LATER)],
            ProjectProgress(Progress.WAITING, {"BLOCKED": 1}, "b"),
        ),
        (
            [node("h", Status.HELD), node("x", Status.HELD), node("b", Status.BLOCKED, "x")],
            ProjectProgress(Progress.STUCK, {"BLOCKED": 1, "HELD": 2}, "x"),
        ),
        (
            [node("a", Status.BLOCKED, "b"), node("b", Status.BLOCKED, "a")],
            ProjectProgress(Progress.STUCK, {"BLOCKED": 2}, "a"),
        ),
        ([node("a", Status.BACKLOG)], ProjectProgress(Progress.STUCK, {"BACKLOG": 1}, "a")),
        ([node("a", Status.IN_REVIEW)], ProjectProgress(Progress.STUCK, {"IN_REVIEW": 1}, "a")),
    ],
)
def test_where_nothing_can_be_claimed_it_is_said_why_and_where_to_look(
    tasks: list[GraphTask], outlook: ProjectProgress
) -> None:
    assert find_outlook(graph(*tasks)) == outlook


def test_of_some_tracks_it_is_said_how_they_stand_whatever_the_others_do() -> None:
    tasks = graph(
        node("a", Status.IN_PROGRESS, track="A", agent="ada"),
        node("b", Status.COMPLETED, track="B"),
        node("c", Status.BLOCKED, "a", track="C"),
    )
    assert find_outlook(tasks, ["B"]) == ProjectProgress(Progress.FINISHED, {})
    assert find_outlook(tasks, ["C"]) == ProjectProgress(Progress.WAITING, {"BLOCKED": 1}, "c"), (
        "what it waits for is at work elsewhere"
    )
    assert find_outlook(tasks, ["D"]) == ProjectProgress(Progress.EMPTY, {})
