"""gptodo and Genlock do things at random to the same tasks, and what must hold after each."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from genlock.errors import GenlockError
from tests.folder.workspace import GPTODO, Workspace, submitted

pytestmark = pytest.mark.skipif(not GPTODO.exists(), reason="gptodo is not installed")

TASKS = ("t1", "t2", "t3", "t4", "t5")
AGENTS = ("ada", "bob", "cleo")
OPERATIONS = ("claim", "submit", "release", "renew", "lock", "unlock", "edit")


class Mixture:
    """Operations by both tools on a few tasks, one after the other.

    `told` is by what name how often something happened; a rule that was broken is in `violations`.
    """

    def __init__(self, workspace: Workspace, seed: int) -> None:
        self.workspace = workspace
        self.dice = random.Random(seed)
        self.fleets = {agent: workspace.connect(f"s-{agent}", agent) for agent in AGENTS}
        for id in TASKS:
            workspace.add(id, x_kept=f"key of {id}")
        self.claims: dict[str, dict[str, int]] = {id: {} for id in TASKS}
        """By task, what each agent believes to hold."""
        self.told: Counter[str] = Counter()
        self.violations: list[str] = []

    def step(self) -> None:
        id = self.dice.choice(TASKS)
        name = self.dice.choice(OPERATIONS)
        if name in ("submit", "release", "renew") and not self.claims[id]:
            name = self.dice.choice(("claim", "edit"))
        self.told[f"{name} by {'gptodo' if name in OPERATIONS[4:] else 'Genlock'}"] += 1
        match name:
            case "claim":
                self.claim(id)
            case "lock":
                self.lock(id)
            case "unlock":
                self.unlock(id)
            case "edit":
                self.edit(id)
            case _:
                self.write_under_claim(id, name)
        self.check(id)

    def expect(self, rule: bool, *what: object) -> None:
        if not rule:
            self.violations.append(" ".join(map(str, what)))

    # Genlock

    def claim(self, id: str) -> None:
        agent = self.dice.choice(AGENTS)
        before = self.workspace.lock_of(id)
        result = self.fleets[agent].claim_task(task_id=id)
        if result.claim is None:
            self.told[f"claim refused: {result.reason}"] += 1
            return
        mine = before is None or before["worker"] == agent
        self.expect(mine, id, "was granted over the lock", before)
        self.claims[id][agent] = result.claim.generation

    def write_under_claim(self, id: str, act: str) -> None:
        agent = self.dice.choice(list(self.claims[id]))
        generation, fleet = self.claims[id][agent], self.fleets[agent]
        lock, values = self.workspace.lock_of(id), self.workspace.values(id)
        holds = (
            lock is not None
            and lock["worker"] == agent
            and (values["state"], values.get("assigned_to")) == ("active", agent)
        )
        if act == "submit":
            reason = submitted(fleet, id, generation)
            done = reason == "ACCEPTED"
        else:
            call = fleet.release_claim if act == "release" else fleet.renew_lease
            answer = call(task_id=id, generation=generation)
            done, reason = answer.success, str(answer.reason)
        self.expect(holds or not done, "a zombie's", act, "took effect on", id, agent, lock, values)
        if not done:
            self.told[f"{act} refused: {reason}"] += 1
        if act != "renew" or not done:
            del self.claims[id][agent]

    # gptodo

    def lock(self, id: str) -> None:
        worker = self.dice.choice(("w1", "w2"))
        force = ["--force"] if self.dice.random() < 0.3 else []
        before = self.workspace.lock_of(id)
        answer = self.workspace.gptodo_json("lock", id, "-w", worker, *force)
        may = before is None or before["worker"] == worker or bool(force)
        self.expect(answer["success"] is may, id, "lock", before, answer)
        if not answer["success"]:
            self.told["lock refused: held"] += 1

    def unlock(self, id: str) -> None:
        held = self.workspace.lock_of(id)
        worker = held["worker"] if held and self.dice.random() < 0.7 else "w1"
        force = ["--force"] if self.dice.random() < 0.3 else []
        self.workspace.gptodo("unlock", id, "-w", worker, *force, fails=True)

    def edit(self, id: str) -> None:
        values = self.workspace.values(id)
        if values["state"] not in ("todo", "active") and self.dice.random() < 0.7:
            pairs = [("state", "todo")]
        else:
            states = ("backlog", "active", "done", "waiting", "cancelled")
            pairs = [("state", self.dice.choice(states)), ("assigned_to", "human")]
            pairs += [("priority", each) for each in ("high", "low")]
        self.workspace.gptodo("edit", id, "--set", *self.dice.choice(pairs), fails=True)
        if self.dice.random() < 0.5:
            self.workspace.edit(id, assigned_to=None)

    # What must hold

    def check(self, id: str) -> None:
        values = self.workspace.values(id)
        self.expect(values.get("x_kept") == f"key of {id}", id, "lost a key:", values)
        try:
            state = self.fleets["ada"].get_task_state(task_id=id)
        except GenlockError as error:
            self.violations.append(f"{id} cannot be read: {error}")
            return
        lock, claim = self.workspace.lock_of(id), state.claim
        if claim is None:
            return
        if lock is not None:
            self.expect(claim.agent_id == lock["worker"], id, "is held twice:", claim, lock)
        if claim.session_id.startswith("s-"):
            shown = lock is not None and values.get("assigned_to") == claim.agent_id
            self.expect(shown, id, "does not show its claim:", claim, lock, values)

    def finish(self) -> None:
        """Adds what the history says of the edits."""
        after = None
        while True:
            page = self.fleets["ada"].read_events(limit=1000, after=after)
            for event in page.events:
                if event.event_type == "EXTERNAL_CHANGE":
                    self.told["observed edits"] += 1
                    for name in event.event["changes"]:
                        self.told[f"observed: {name}"] += 1
                if event.event_type in ("CLAIM_SUPERSEDED", "TASK_RESET"):
                    self.told[f"followed: {event.event_type}"] += 1
            if not page.more:
                break
            after = page.cursor


def run_mixture(workspace: Workspace, seed: int, steps: int) -> Mixture:
    mixture = Mixture(workspace, seed)
    for _ in range(steps):
        mixture.step()
    mixture.finish()
    return mixture


def test_no_task_is_held_twice_and_no_key_is_lost_by_a_mixture_of_both(
    workspace: Workspace,
) -> None:
    mixture = run_mixture(workspace, seed=7, steps=60)
    assert mixture.violations == []
    assert mixture.told["observed edits"] > 5
    assert mixture.told["claim by Genlock"] > 3


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_task_is_held_twice_by_two_thousand_operations_of_both(tmp_path: Path) -> None:
    told: Counter[str] = Counter()
    violations: list[str] = []
    for seed in range(5):
        workspace = Workspace(tmp_path / str(seed))
        try:
            mixture = run_mixture(workspace, seed=seed, steps=400)
        finally:
            workspace.close()
        told += mixture.told
        violations += mixture.violations
    for name, count in sorted(told.items()):
        print(f"| {name} | {count} |")
    print(f"| violations | {len(violations)} |")
    assert violations == []
    assert sum(count for name, count in told.items() if " by " in name) == 2000
    assert sum(count for name, count in told.items() if "STALE_GENERATION" in name) > 10


# At the same time


class Span(NamedTuple):
    """A worker had a task at least from here to there."""

    task: str
    worker: str
    begun: float
    ended: float


class Contest:
    """Workers of both tools take tasks and give them back, all at once. Nobody forces anything, so
    of two spans of one task none overlaps."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        for id in TASKS[:2]:
            workspace.add(id, x_kept=f"key of {id}")
        self.spans: list[Span] = []
        self.refused: Counter[str] = Counter()

    def genlock(self, agent: str, rounds: int) -> None:
        fleet, dice = self.workspace.connect(f"s-{agent}", agent), random.Random(agent)
        for _ in range(rounds):
            id = dice.choice(TASKS[:2])
            result = fleet.claim_task(task_id=id)
            if result.claim is None:
                self.refused[f"claim refused: {result.reason}"] += 1
                continue
            begun = time.monotonic()
            fleet.renew_lease(task_id=id, generation=result.claim.generation)
            ended = time.monotonic()
            released = fleet.release_claim(task_id=id, generation=result.claim.generation)
            assert released.success, (agent, released)
            self.spans.append(Span(id, agent, begun, ended))

    def gptodo(self, worker: str, rounds: int) -> None:
        dice = random.Random(worker)
        for _ in range(rounds):
            id = dice.choice(TASKS[:2])
            if not self.workspace.gptodo_json("lock", id, "-w", worker)["success"]:
                self.refused["lock refused"] += 1
                continue
            begun = time.monotonic()
            again = self.workspace.gptodo_json("lock", id, "-w", worker)  # writes it once more
            ended = time.monotonic()
            assert again["success"], again
            self.workspace.gptodo("unlock", id, "-w", worker)
            self.spans.append(Span(id, worker, begun, ended))

    def run(self, rounds: int, locks: int) -> None:
        jobs: list[tuple[Callable[[str, int], None], str, int]]
        jobs = [(self.genlock, agent, rounds) for agent in AGENTS[:2]]
        jobs += [(self.gptodo, worker, locks) for worker in ("w1", "w2")]
        with ThreadPoolExecutor(len(jobs)) as pool:
            for done in [pool.submit(act, name, count) for act, name, count in jobs]:
                done.result()

    def overlaps(self) -> list[tuple[Span, Span]]:
        found = []
        for id in TASKS[:2]:
            spans = sorted((each for each in self.spans if each.task == id), key=lambda x: x.begun)
            found += [(one, other) for one, other in pairwise(spans) if other.begun < one.ended]
        return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_task_is_held_twice_while_both_tools_take_it_at_the_same_time(
    workspace: Workspace,
) -> None:
    contest = Contest(workspace)
    contest.run(rounds=600, locks=60)
    print(dict(Counter(span.worker for span in contest.spans)), dict(contest.refused))
    assert contest.overlaps() == []
    assert len({span.worker for span in contest.spans}) == 4
    for id in TASKS[:2]:
        assert workspace.values(id)["x_kept"] == f"key of {id}"
