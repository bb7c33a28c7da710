"""What the TD document's fields and verbs mean here: states of imported tasks, `waiting_for`,
`coordination_mode`, and a planner's spawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from genlock.errors import BadArgument, NotAllowed


@pytest.fixture
def fleet() -> Iterator[Coordinator]:
    with genlock.connect("memory://", session_id="s", agent_id="a") as fleet:
        yield fleet


def state(fleet: Coordinator, task: str) -> str:
    return str(fleet.get_task_state(task_id=task).state)


def complete(fleet: Coordinator, task: str) -> None:
    claim = fleet.claim_task(task_id=task)
    assert claim.claim is not None
    assert fleet.submit_result(
        task_id=task, generation=claim.claim.generation, result_data={"n": 1}
    ).accepted


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"state": "done"}, "COMPLETED"),
        ({"state": "completed"}, "COMPLETED"),
        ({"status": "completed"}, "COMPLETED"),
        ({"status": "Done"}, "COMPLETED"),
        ({"state": "cancelled"}, "CANCELLED"),
        ({"state": "active"}, "PENDING"),
        ({"state": "waiting"}, "BLOCKED"),
        ({"state": "backlog"}, "BACKLOG"),
        ({"status": "all green"}, "PENDING"),
    ],
)
@pytest.mark.parametrize("way", ["add", "import"])
def test_the_state_of_an_imported_task_is_honoured(
    fleet: Coordinator, way: str, given: dict[str, str], expected: str
) -> None:
    tasks = [{"id": "T", **given}]
    if way == "add":
        fleet.add_tasks(tasks=tasks)
    else:
        fleet.import_plan(source={"tasks": tasks})
    assert state(fleet, "T") == expected


def test_work_that_was_finished_elsewhere_is_never_handed_out_and_opens_its_dependents(
    fleet: Coordinator,
) -> None:
    plan: dict[str, Any] = {
        "tasks": [
            {"id": "A", "state": "done"},
            {"id": "B", "state": "cancelled"},
            {"id": "C", "depends_on": ["A", "B"]},
            {"id": "P"},
            {"id": "Q", "parent": "P", "state": "done"},
        ]
    }
    fleet.import_plan(source=plan)
    assert fleet.claim_task(task_id="A").reason == "DENIED_COMPLETED"
    assert fleet.claim_task(task_id="B").reason == "DENIED_COMPLETED"
    granted = [fleet.claim_next(session_id=f"s{n}").task_id for n in range(3)]
    assert sorted(filter(None, granted)) == ["C", "P"]
    # Its end is an event like any other, in the coordinator's own name.
    assert [
        (entry.generation, entry.session_id) for entry in fleet.get_claim_history(task_id="A")
    ] == [(1, "genlock")]
    again = fleet.import_plan(source=plan)
    assert (again.added, again.changed) == ((), ())


def test_a_plan_finishes_a_task_that_nobody_has_begun_and_no_other(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["new", "begun"])
    fleet.claim_task(task_id="begun")
    result = fleet.import_plan(
        source={"tasks": [{"id": "new", "state": "done"}, {"id": "begun", "state": "done"}]}
    )
    assert result.changed == ("new",)
    assert result.fields == {"new": ("state",)}
    assert (state(fleet, "new"), state(fleet, "begun")) == ("COMPLETED", "IN_PROGRESS")


def test_a_state_that_no_task_can_begin_in_is_refused_with_those_that_it_can(
    fleet: Coordinator,
) -> None:
    with pytest.raises(BadArgument, match="backlog, todo, ready, active, waiting, done, cancelled"):
        fleet.add_tasks(tasks=[{"id": "T", "state": "reviewed"}])


def test_a_task_waits_for_what_waiting_for_names_and_forgets_it_when_that_is_done(
    fleet: Coordinator,
) -> None:
    plan = {"tasks": [{"id": "A"}, {"id": "T", "waiting_for": "A"}]}
    fleet.import_plan(source=plan)
    assert fleet.claim_task(task_id="T").reason == "DENIED_BLOCKED"
    assert fleet.claim_task(task_id="T").waits_for == ("A",)
    complete(fleet, "A")
    found = fleet.get_task_state(task_id="T")
    assert (found.state, found.task.waiting_for) == ("PENDING", "")
    again = fleet.import_plan(source=plan)
    assert again.changed == ()
    assert state(fleet, "T") == "PENDING"
    # What it no longer waits for may be done again.
    fleet.reset_task(task_id="A")
    assert fleet.claim_task(task_id="T").success


def test_a_task_that_waits_for_a_person_is_blocked_until_the_field_is_cleared(
    fleet: Coordinator,
) -> None:
    fleet.add_tasks(tasks=[{"id": "T", "waiting_for": "legal to sign off"}])
    denied = fleet.claim_task(task_id="T")
    assert (denied.reason, denied.waits_for) == ("DENIED_BLOCKED", ("legal to sign off",))
    assert not fleet.claim_next().success
    fleet.edit_task(task_id="T", changes={"waiting_for": ""})
    assert fleet.claim_next().task_id == "T"


def test_waiting_for_added_by_an_edit_blocks_and_waits(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["A", "T"])
    fleet.edit_task(task_id="T", changes={"waiting_for": "A"})
    assert state(fleet, "T") == "BLOCKED"
    complete(fleet, "A")
    assert state(fleet, "T") == "PENDING"


def test_a_plan_that_says_fan_out_fan_in_completes_the_parent_with_its_last_child(
    fleet: Coordinator,
) -> None:
    fleet.import_plan(
        source={
            "tasks": [
                {"id": "P", "coordination_mode": "fan-out-fan-in"},
                {"id": "a", "parent": "P"},
                {"id": "b", "parent": "P"},
            ]
        }
    )
    complete(fleet, "a")
    assert state(fleet, "P") == "BLOCKED"
    complete(fleet, "b")
    assert state(fleet, "P") == "COMPLETED"


def test_a_plan_that_says_sequential_opens_one_child_after_the_other(fleet: Coordinator) -> None:
    plan = {
        "tasks": [
            {"id": "P", "coordination_mode": "sequential"},
            {"id": "z", "parent": "P"},
            {"id": "a", "parent": "P"},
            {"id": "m", "parent": "P"},
        ]
    }
    fleet.import_plan(source=plan)
    order = []
    for _ in range(3):
        granted = fleet.claim_next()
        order.append(granted.task_id)
        assert granted.task_id is not None
        assert not fleet.claim_next(session_id="other").success
        fleet.submit_result(task_id=granted.task_id, generation=1)
    assert order == ["z", "a", "m"]
    assert fleet.import_plan(source=plan).changed == ()


def test_a_planner_splits_a_task_that_nobody_holds(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["P"])
    spawned = fleet.spawn_subtasks(task_id="P", subtasks=["first", "second"], mode="fan-out-fan-in")
    assert (spawned.success, spawned.children) == (True, ("P::1", "P::2"))
    found = fleet.get_task_state(task_id="P")
    assert (found.state, found.generation) == ("BLOCKED", 0)
    assert found.task.coordination_mode == "fan-out-fan-in"
    for child in spawned.children:
        complete(fleet, child)
    assert state(fleet, "P") == "COMPLETED"


def test_a_planner_cannot_split_a_task_that_somebody_holds(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["P"])
    fleet.claim_task(task_id="P", agent_id="ada", session_id="s")
    with pytest.raises(NotAllowed, match=r"held by ada .* only its holder may split it"):
        fleet.spawn_subtasks(task_id="P", subtasks=["first"])
    complete_by_holder = fleet.submit_result(task_id="P", generation=1, session_id="s")
    assert complete_by_holder.accepted
    with pytest.raises(NotAllowed, match="COMPLETED; reset it first"):
        fleet.spawn_subtasks(task_id="P", subtasks=["first"])


def test_a_plan_that_does_not_mention_the_mode_of_a_spawn_changes_nothing(
    fleet: Coordinator,
) -> None:
    plan = {"tasks": [{"id": "P"}]}
    fleet.import_plan(source=plan)
    fleet.spawn_subtasks(task_id="P", subtasks=["first"], mode="sequential")
    assert fleet.import_plan(source=plan).changed == ()
    assert fleet.get_task_state(task_id="P").task.coordination_mode == "sequential"
