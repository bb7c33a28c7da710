"""The real gptodo, as it is on PyPI, on the same folder: what each of the two sees of the other."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

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


# Both tools at random


class Mixture:
    """Operations by both tools on a few tasks, one after the other, and what must hold after
    each."""

    TASKS = ("t1", "t2", "t3", "t4", "t5")

    def __init__(self, workspace: Workspace, seed: int) -> None:
        self.workspace = workspace
        self.dice = random.Random(seed)
        self.fleets = {
            agent: workspace.connect(f"s-{agent}", agent) for agent in ("ada", "bob", "cleo")
        }
        for id in self.TASKS:
            workspace.add(id, x_kept=f"key of {id}")
        self.claims: dict[str, dict[str, int]] = {id: {} for id in self.TASKS}
        """By task, what each agent believes to hold."""
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        id = self.dice.choice(self.TASKS)
        act = self.dice.choice(
            (self.claim, self.submit, self.release, self.renew, self.lock, self.unlock, self.edit)
        )
        act(id)
        self.counts[act.__name__] += 1
        self.check(id)

    def claim(self, id: str) -> None:
        agent = self.dice.choice(list(self.fleets))
        before = self.workspace.lock_of(id)
        result = self.fleets[agent].claim_task(task_id=id)
        if result.claim is None:
            self.counts[f"refused: {result.reason}"] += 1
            return
        # The lock of another worker that was there, and that gptodo honours, was respected.
        assert before is None or before["worker"] == agent, (id, before, result)
        self.claims[id][agent] = result.claim.generation

    def submit(self, id: str) -> None:
        self._fenced(id, "submit")

    def release(self, id: str) -> None:
        self._fenced(id, "release")

    def renew(self, id: str) -> None:
        self._fenced(id, "renew")

    def _fenced(self, id: str, act: str) -> None:
        if not self.claims[id]:
            return
        agent = self.dice.choice(list(self.claims[id]))
        generation, fleet = self.claims[id][agent], self.fleets[agent]
        lock = self.workspace.lock_of(id)
        values = self.workspace.values(id)
        holds = (
            lock is not None
            and lock["worker"] == agent
            and (values["state"], values.get("assigned_to")) == ("active", agent)
        )
        if act == "submit":
            done = submitted(fleet, id, generation) == "ACCEPTED"
        elif act == "release":
            done = fleet.release_claim(task_id=id, generation=generation).success
        else:
            done = fleet.renew_lease(task_id=id, generation=generation).success
        # A zombie is refused: whoever the files do not name has lost the right.
        assert not done or holds, (id, act, agent, lock, values)
        if not done:
            self.counts["refused: stale"] += 1
        if act != "renew" or not done:
            del self.claims[id][agent]

    def lock(self, id: str) -> None:
        worker = self.dice.choice(("w1", "w2"))
        force = ["--force"] if self.dice.random() < 0.3 else []
        before = self.workspace.lock_of(id)
        answer = self.workspace.gptodo_json("lock", id, "-w", worker, *force)
        assert answer["success"] is (before is None or before["worker"] == worker or bool(force)), (
            id,
            before,
            answer,
        )

    def unlock(self, id: str) -> None:
        held = self.workspace.lock_of(id)
        worker = held["worker"] if held and self.dice.random() < 0.7 else "w1"
        force = ["--force"] if self.dice.random() < 0.3 else []
        self.workspace.gptodo("unlock", id, "-w", worker, *force, fails=True)

    def edit(self, id: str) -> None:
        values = self.workspace.values(id)
        state = self.dice.choice(("backlog", "active", "done", "waiting", "cancelled"))
        pair = self.dice.choice(
            (("state", state), ("priority", "high"), ("priority", "low"), ("assigned_to", "human"))
        )
        if values["state"] in ("done", "cancelled"):
            pair = ("state", "backlog")
        self.workspace.gptodo("edit", id, "--set", *pair, fails=True)
        if pair[0] == "state" and self.dice.random() < 0.5:
            self.workspace.edit(id, state="todo", assigned_to=None)

    def check(self, id: str) -> None:
        values = self.workspace.values(id)
        assert values["x_kept"] == f"key of {id}"
        state = self.fleets["ada"].get_task_state(task_id=id)
        lock = self.workspace.lock_of(id)
        if state.claim is not None and lock is not None:
            assert state.claim.agent_id == lock["worker"]
        if state.claim is not None and state.claim.session_id.startswith("s-"):
            assert lock is not None
            assert values["assigned_to"] == state.claim.agent_id


def run_mixture(workspace: Workspace, seed: int, steps: int) -> Counter[str]:
    mixture = Mixture(workspace, seed)
    for _ in range(steps):
        mixture.step()
    fleet = mixture.fleets["ada"]
    events = fleet.read_events(limit=1000)
    counts, after = Counter[str](), None
    while True:
        events = fleet.read_events(limit=1000, after=after)
        counts.update(event.event_type for event in events.events)
        if not events.more:
            break
        after = events.cursor
    mixture.counts["observations"] = counts["EXTERNAL_CHANGE"]
    return mixture.counts


def test_no_task_is_held_twice_and_no_key_is_lost_by_a_mixture_of_both(
    workspace: Workspace,
) -> None:
    counts = run_mixture(workspace, seed=7, steps=60)
    assert counts["observations"] > 5
    assert counts["claim"] > 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_task_is_held_twice_by_two_thousand_operations_of_both(tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    for seed in range(5):
        workspace = Workspace(tmp_path / str(seed))
        try:
            totals += run_mixture(workspace, seed=seed, steps=400)
        finally:
            workspace.close()
    print(dict(totals))
    assert (
        sum(
            totals[name]
            for name in ("claim", "submit", "release", "renew", "lock", "unlock", "edit")
        )
        == 2000
    )
    assert totals["refused: stale"] > 10
