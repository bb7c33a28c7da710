"""Whole plans through the library: compared, imported, given back, drawn; on memory and, as the same operations, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import genlock
import genlock.aio
from genlock import Coordinator
from genlock.core.plan import Fault
from genlock.errors import BadArgument, PlanInvalid, TaskExists
from genlock.plans import PlanFile

PLAN: dict[str, Any] = {
    "tracks": {"A": {"purpose": "Base", "tasks": [{"id": "A-001-x"}, {"id": "A-002-y", "depends_on": ["A-001-x"]}]}},
    "tasks": [{"id": "top"}, {"id": "below", "parent": "top"}, {"id": "deeper", "parent": "below"}],
}


@pytest.fixture
def fleet() -> Iterator[Coordinator]:
    with genlock.connect("memory://", session_id="s", agent_id="a") as fleet:
        yield fleet


def test_progress_is_told_from_nothing_to_all(fleet: Coordinator) -> None:
    told: list[tuple[int, int]] = []
    source = {"tasks": [{"id": f"t{at}"} for at in range(1200)]}
    fleet.import_plan(source=source, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 1200), (500, 1200), (1000, 1200), (1200, 1200)]
    told.clear()
    fleet.import_plan(source=source, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 0)]


def test_a_diff_says_what_an_import_then_does(fleet: Coordinator) -> None:
    assert fleet.diff_plan(source=PLAN) == fleet.import_plan(source=PLAN)
    assert fleet.diff_plan(source=PLAN).unchanged == ("A-001-x", "A-002-y", "top", "below", "deeper")
    assert fleet.check_plan(source=PLAN).tracks == {"A": "Base"}
    other = {"tasks": [{"id": "A-002-y", "title": "new", "tags": ["t"]}, {"id": "top"}]}
    said = fleet.diff_plan(source=other)
    assert (said.changed, dict(said.fields)) == (("A-002-y",), {"A-002-y": ("depends_on", "tags", "title")})
    assert said.gone == ("A-001-x", "below", "deeper")
    assert fleet.import_plan(source=other) == said
    assert fleet.get_task_state(task_id="A-002-y").task.depends_on == ()


def test_what_is_done_or_spawned_is_not_cancelled_by_pruning(fleet: Coordinator) -> None:
    fleet.import_plan(source=PLAN)
    granted = fleet.claim_task(task_id="A-001-x")
    assert granted.claim is not None
    fleet.submit_result(task_id="A-001-x", generation=granted.claim.generation)
    granted = fleet.claim_task(task_id="A-002-y")
    assert granted.claim is not None
    assert fleet.spawn_subtasks(task_id="A-002-y", generation=granted.claim.generation, subtasks=["one"]).success
    result = fleet.import_plan(source={"tracks": {"A": [PLAN["tracks"]["A"]["tasks"][1]]}}, prune=True)
    assert result.gone == ("A-001-x", "below", "deeper", "top")
    assert result.cancelled == ("below", "deeper", "top")
    assert fleet.get_task_state(task_id="A-001-x").state == "COMPLETED"
    (child,) = fleet.get_task_state(task_id="A-002-y").unfinished_children
    assert fleet.get_task_state(task_id=child).state == "PENDING"


def test_depths_follow_from_the_parents_in_the_plan_and_in_the_store(fleet: Coordinator) -> None:
    fleet.import_plan(source=PLAN)
    assert fleet.get_task_state(task_id="deeper").task.depth == 2
    fleet.import_plan(source={"tasks": [{"id": "deepest", "parent": "deeper"}]})
    assert fleet.get_task_state(task_id="deepest").task.depth == 3
    assert fleet.diff_plan(source=PLAN).changed == ()


def test_a_plan_may_depend_on_what_is_there_but_not_close_a_circle_with_it(fleet: Coordinator) -> None:
    fleet.import_plan(source=PLAN)
    assert fleet.import_plan(source={"tasks": [{"id": "z", "depends_on": ["A-002-y"]}]}).added == ("z",)
    with pytest.raises(PlanInvalid) as caught:
        fleet.import_plan(source=[PlanFile("p.jsonl", b'{"id": "A-001-x", "depends_on": ["z"]}')])
    assert caught.value.faults == [
        Fault("p.jsonl", 1, 19, None, "these wait for each other: A-001-x → z → A-002-y → A-001-x; remove one of these dependencies")
    ]
    assert fleet.get_task_state(task_id="A-001-x").task.depends_on == ()


def test_a_task_that_comes_in_between_with_another_definition_ends_the_import(fleet: Coordinator) -> None:
    def meanwhile(done: int, total: int) -> None:
        if done == 0:
            fleet.add_tasks(tasks=[{"id": "top", "title": "another"}])

    with pytest.raises(TaskExists, match="'top' exists already"):
        fleet.import_plan(source=PLAN, progress=meanwhile)
    result = fleet.import_plan(source=PLAN)
    assert result.changed == ("top",)
    assert fleet.get_task_state(task_id="top").task.title == ""


def test_a_plan_that_is_given_back_imports_as_it_was(fleet: Coordinator) -> None:
    fleet.import_plan(source=PLAN)
    fleet.assign_task(task_id="top", agent_id="bob")
    plan = fleet.get_plan()
    assert plan.tracks == {"A": "Base"}
    assert [(task.id, task.assigned_to, task.assigned_at) for task, _ in plan.tasks] == [
        ("A-001-x", None, None),
        ("A-002-y", None, None),
        ("below", None, None),
        ("deeper", None, None),
        ("top", "bob", None),
    ]


def test_progress_that_is_no_function_is_refused_before_anything_is_written(fleet: Coordinator) -> None:
    wrong: Any = 5
    with pytest.raises(BadArgument, match=r"^progress is a function of two numbers"):
        fleet.import_plan(source=PLAN, progress=wrong)
    assert fleet.get_plan().tasks == ()


def test_the_same_operations_can_be_awaited() -> None:
    async def walk() -> tuple[int, list[str]]:
        async with genlock.aio.connect("memory://") as fleet:
            added = (await fleet.import_plan(source=PLAN)).added
            graph = await fleet.get_graph(tracks="A")
            assert (await fleet.diff_plan(source=PLAN)).added == ()
            return len(added), [task.id for task in graph.tasks]

    assert asyncio.run(walk()) == (5, ["A-001-x", "A-002-y"])
