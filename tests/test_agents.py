"""The agent registry: who is there, what each does, and what it has done."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

import genlock
from genlock.coordinator import Coordinator
from genlock.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fleet(clock: ManualClock) -> Iterator[Coordinator]:
    with genlock.connect("memory://", create=True, clock=clock, process=None) as opened:
        yield opened


def statuses(fleet: Coordinator) -> dict[str, str]:
    return {one.session_id: str(one.status) for one in fleet.list_agents(include_idle=True)}


def claim(fleet: Coordinator, task: str, session: str, agent: str = "a") -> None:
    assert fleet.claim_task(task_id=task, session_id=session, agent_id=agent).success


def test_an_agent_goes_through_the_states_of_the_document(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["one", "two"])
    fleet.register_session(session_id="s", metadata={"status": "starting"})
    assert statuses(fleet) == {"s": "starting"}
    claim(fleet, "one", "s")
    assert statuses(fleet) == {"s": "working"}
    fleet.heartbeat_session(session_id="s", metadata={"status": "waiting"})
    assert statuses(fleet) == {"s": "waiting"}
    fleet.heartbeat_session(session_id="s", metadata={"status": "working"})
    assert statuses(fleet) == {"s": "working"}
    fleet.submit_result(task_id="one", generation=1, session_id="s")
    assert statuses(fleet) == {"s": "idle"}
    fleet.heartbeat_session(session_id="s", metadata={"status": "stopping"})
    assert statuses(fleet) == {"s": "stopping"}
    fleet.end_session(session_id="s")
    assert statuses(fleet) == {}


def test_a_holder_that_waits_for_its_subtasks_is_waiting(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["parent"])
    claim(fleet, "parent", "s")
    fleet.spawn_subtasks(
        task_id="parent", generation=1, session_id="s", subtasks=["part"], keep=True
    )
    assert statuses(fleet) == {"s": "waiting"}


def test_a_holder_whose_lease_is_over_is_lost_in_json_as_in_the_table(
    fleet: Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["one"])
    claim(fleet, "one", "s")
    clock.advance(301)
    assert [str(one.status) for one in fleet.list_agents()] == ["lost"]
    assert statuses(fleet) == {"s": "lost"}


def test_a_session_that_was_silent_for_long_is_no_idle_agent(
    fleet: Coordinator, clock: ManualClock
) -> None:
    fleet.register_session(session_id="s")
    assert statuses(fleet) == {"s": "idle"}
    clock.advance(601)
    assert statuses(fleet) == {}


def test_a_session_whose_process_is_gone_is_no_idle_agent(fleet: Coordinator) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        fleet.register_session(session_id="s", pid=process.pid)
        assert statuses(fleet) == {"s": "idle"}
        process.kill()
    assert statuses(fleet) == {}


def test_an_agent_is_listed_with_its_work_and_its_place(
    fleet: Coordinator, clock: ManualClock
) -> None:
    fleet.add_tasks(tasks=["one", {"id": "two", "worktree_path": "worktree/two"}, "three"])
    began = clock.now()
    fleet.register_session(
        session_id="s",
        user_id="bob",
        agent_type="autonomous",
        metadata={"workspace": "/home/bob/bob", "worktree": "worktree/x", "agent": "bob-1"},
    )
    clock.advance(5)
    claim(fleet, "one", "s", "bob-1")
    fleet.submit_result(task_id="one", generation=1, session_id="s", agent_id="bob-1")
    clock.advance(5)
    claim(fleet, "three", "s", "bob-1")
    clock.advance(5)
    claim(fleet, "two", "s", "bob-1")
    (agent,) = fleet.list_agents(include_idle=True)
    assert {name: getattr(agent, name) for name in agent.__struct_fields__} == {
        "agent_id": "bob-1",
        "session_id": "s",
        "status": "working",
        "tasks": ("three", "two"),
        "current_task": "two",
        "tasks_completed": 1,
        "started": began,
        "last_heartbeat": clock.now(),
        "user_id": "bob",
        "instance_type": "autonomous",
        "workspace": "/home/bob/bob",
        "worktree": "worktree/two",
    }
    fleet.report_progress(
        task_id="two", generation=1, session_id="s", worktree_path="/work/two.gen1"
    )
    (agent,) = fleet.list_agents()
    assert agent.worktree == "/work/two.gen1", "what a generation reports goes before the plan's"
    for task in ("two", "three"):
        fleet.release_claim(task_id=task, generation=1, session_id="s")
    (agent,) = fleet.list_agents(include_idle=True)
    assert (agent.agent_id, agent.status, agent.worktree) == ("bob-1", "idle", "worktree/x")
    assert fleet.list_agents() == ()


def test_expired_claims_are_listed_until_somebody_takes_over(
    fleet: Coordinator, clock: ManualClock
) -> None:
    """GC 5.2."""
    fleet.add_tasks(tasks=["one", "two", "three"])
    claim(fleet, "two", "s")
    clock.advance(10)
    claim(fleet, "one", "s")
    start = clock.now()
    clock.advance(200)
    claim(fleet, "three", "t")
    assert fleet.list_expired_claims() == ()
    clock.advance(110)

    def listed(**more: object) -> list[str]:
        return [claim.task_id for claim in fleet.list_expired_claims(**more)]  # type: ignore[arg-type]

    assert listed() == ["two", "one"]
    fleet.sweep()
    assert listed() == ["two", "one"]
    assert listed(limit=1) == ["two"]
    assert listed(before=start) == []
    assert listed(before=clock.now()) == ["two", "one"]
    claim(fleet, "two", "t")
    assert listed() == ["one"]
