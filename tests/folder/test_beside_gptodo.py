"""The real gptodo, as it is on PyPI, on the same folder: what each of the two sees of the other."""

from __future__ import annotations

import threading

import pytest

from genlock.testing.clock import ManualClock
from tests.folder.workspace import (
    GPTODO,
    Workspace,
    granted,
    kinds_of,
    ready,
    state_of,
    submitted,
)

pytestmark = pytest.mark.skipif(not GPTODO.exists(), reason="gptodo is not installed")


def test_gptodo_reads_a_plan_that_genlock_has_written(workspace: Workspace) -> None:
    fleet = workspace.connect()
    fleet.add_tasks(
        tasks=[
            {"id": "design", "title": "Design it: all", "priority": "high", "tags": ["x", "y z"]},
            {"id": "build", "depends_on": ["design"], "description": "Build *it*."},
            {"id": "later", "state": "backlog"},
            {"id": "AUTH-LOGIN:design", "waiting_for": "the bank"},
        ]
    )
    tasks = {task["id"]: task for task in workspace.gptodo_json("list")["tasks"]}
    assert {id: (task["state"], task["requires"]) for id, task in tasks.items()} == {
        "design": ("todo", []),
        "build": ("todo", ["design"]),
        "later": ("backlog", []),
        "AUTH-LOGIN:design": ("todo", []),
    }
    assert (tasks["design"]["priority"], tasks["design"]["tags"]) == ("high", ["x", "y z"])
    assert workspace.gptodo_json("dep", "check")["status"] == "ok"
    assert not any(task["has_issues"] for task in tasks.values())


def test_gptodo_sees_a_claim_as_a_lock_and_does_not_take_it(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    (lock,) = workspace.gptodo_json("locks")["locks"]
    assert (lock["worker"], lock["expired"], round(lock["timeout_hours"], 4)) == (
        "a1",
        False,
        0.0833,
    )
    denied = workspace.gptodo_json("lock", "task", "-w", "other")
    assert (denied["success"], denied["previous_lock"]["worker"]) == (False, "a1")
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    assert workspace.gptodo_json("locks")["count"] == 0


def test_renewal_makes_the_lock_young_again(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task", 7200)
    first = workspace.lock_of("task")
    fleet.renew_lease(task_id="task", generation=generation)
    second = workspace.lock_of("task")
    assert first is not None
    assert second is not None
    assert second["started"] > first["started"]
    assert workspace.gptodo_json("locks")["locks"][0]["expired"] is False


def test_gptodo_takes_an_overdue_lock_and_the_old_holder_is_stale(workspace: Workspace) -> None:
    workspace.add("task")
    past = ManualClock()
    slow = workspace.connect(clock=past)
    generation = granted(slow, "task", 60)
    assert workspace.gptodo_json("locks")["locks"][0]["expired"] is True
    assert workspace.gptodo_json("lock", "task", "-w", "w2")["success"] is True
    fleet = workspace.connect("s2", "a2")
    assert fleet.claim_task(task_id="task").current_holder == "w2"
    assert submitted(slow, "task", generation) == "STALE_GENERATION"


def test_gptodo_lock_comes_first_and_the_claim_is_denied(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    workspace.gptodo("lock", "task", "-w", "w1")
    denied = fleet.claim_task(task_id="task")
    assert (denied.reason, denied.current_holder) == ("DENIED_ACTIVE_CLAIM", "w1")
    workspace.gptodo("unlock", "task", "-w", "w1")
    assert fleet.claim_task(task_id="task").success


def test_each_tool_opens_the_dependents_of_what_the_other_has_done(workspace: Workspace) -> None:
    workspace.add("first", state="backlog")
    workspace.add("second", state="backlog", requires=["first"])
    workspace.add("third", state="backlog", requires=["second"])
    backlog = Workspace(workspace.root, unclaimed_state="backlog")
    fleet = backlog.connect()
    try:
        assert ready(fleet) == ["first"]
        workspace.gptodo("edit", "first", "--set", "state", "done")
        assert ready(fleet) == ["second"]
        assert submitted(fleet, "second", granted(fleet, "second")) == "ACCEPTED"
        shown = workspace.gptodo_json("ready")["ready_tasks"]
        assert [task["id"] for task in shown] == ["third"]
    finally:
        backlog.close()


def test_released_task_is_open_for_gptodo_again(workspace: Workspace) -> None:
    workspace.add("task", state="backlog")
    backlog = Workspace(workspace.root, unclaimed_state="backlog")
    fleet = backlog.connect()
    try:
        generation = granted(fleet, "task")
        assert workspace.values("task")["state"] == "active"
        fleet.release_claim(task_id="task", generation=generation)
    finally:
        backlog.close()
    values = workspace.values("task")
    assert (values["state"], "assigned_to" in values) == ("backlog", False)
    assert workspace.gptodo_json("ready")["count"] == 1


def test_gptodo_writes_the_file_again_and_nothing_of_ours_is_lost(workspace: Workspace) -> None:
    workspace.add("task", requires=["other"], x_mine="kept", spawned_from="parent")
    workspace.add("other", state="done")
    fleet = workspace.connect()
    fleet.sweep()
    generation = granted(fleet, "task")
    workspace.gptodo("edit", "task", "--set", "priority", "high", "--add", "tag", "new")
    state = fleet.get_task_state(task_id="task")
    assert (state.task.priority, state.task.tags, state.task.depends_on) == (
        "high",
        ("new",),
        ("other",),
    )
    assert state.generation == generation
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    values = workspace.values("task")
    assert (values["state"], values["x_mine"], values["spawned_from"]) == ("done", "kept", "parent")
    assert values["priority"] == "high"


def test_gptodo_edit_over_a_claim_is_an_external_change_and_fences(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    workspace.gptodo("edit", "task", "--set", "assigned_to", "human")
    state = fleet.get_task_state(task_id="task")
    assert state.generation == generation + 1
    assert kinds_of(fleet, "task")[2:] == ["EXTERNAL_CHANGE", "CLAIM_SUPERSEDED", "TASK_ASSIGNED"]
    assert submitted(fleet, "task", generation) == "STALE_GENERATION"


def test_gptodo_lists_the_agents_of_genlock(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect(agent="ada")
    generation = granted(fleet, "task")
    (agent,) = workspace.gptodo_json("agents")["agents"]
    assert (agent["agent_id"], agent["status"], agent["current_task"], agent["stale"]) == (
        "ada",
        "working",
        "task",
        False,
    )
    submitted(fleet, "task", generation)
    (agent,) = workspace.gptodo_json("agents")["agents"]
    assert (agent["status"], agent["current_task"], agent["tasks_completed"]) == ("idle", None, 1)


def test_fan_in_of_children_completes_the_parent_as_gptodo_does(workspace: Workspace) -> None:
    workspace.add("parent")
    fleet = workspace.connect()
    generation = granted(fleet, "parent")
    fleet.spawn_subtasks(
        task_id="parent",
        generation=generation,
        subtasks=[{"id": "child-1"}, {"id": "child-2"}],
        mode="fan-out-fan-in",
    )
    values = workspace.values("parent")
    assert (values["coordination_mode"], values["spawned_tasks"]) == (
        "fan-out-fan-in",
        ["child-1", "child-2"],
    )
    assert workspace.values("child-1")["spawned_from"] == "parent"
    assert submitted(fleet, "child-1", granted(fleet, "child-1")) == "ACCEPTED"
    workspace.gptodo("edit", "child-2", "--set", "state", "done")
    fleet.sweep()
    assert state_of(fleet, "parent") == "COMPLETED"
    assert workspace.values("parent")["state"] == "done"


def test_of_racing_claimers_and_gptodo_locks_one_has_the_task(workspace: Workspace) -> None:
    workspace.add("task")
    fleets = [workspace.connect(f"s{number}", f"a{number}") for number in range(4)]
    fleets[0].sweep()
    won: list[str] = []

    def claim(number: int) -> None:
        if fleets[number].claim_task(task_id="task").success:
            won.append(f"a{number}")

    def lock(worker: str) -> None:
        if workspace.gptodo_json("lock", "task", "-w", worker)["success"]:
            won.append(worker)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(4)]
    threads += [threading.Thread(target=lock, args=(f"w{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 1
    held = workspace.lock_of("task")
    assert held is not None
    assert held["worker"] == won[0]
