"""Workers that are killed or stopped in the midst of their work: the others finish the plan, and
nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import genlock
from genlock.core.reasons import Status
from genlock.engine.replay_check import check
from tests.processes.accounts import check_what_was_said
from tests.processes.crew import PATIENCE, Fact, Member, all_go
from tests.servers import stores

WORKERS = 8
VICTIMS = 4


@pytest.fixture(params=stores.LASTING)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return stores.LASTING[stores.asked_for(request)].url(tmp_path / "genlock.db")


def layered_plan() -> list[dict[str, object]]:
    """Four layers of twelve; each task waits for two of the layer before."""
    tasks: list[dict[str, object]] = []
    for layer in range(4):
        for place in range(12):
            before = [name(layer - 1, place), name(layer - 1, (place + 5) % 12)] if layer else []
            tasks.append({"id": name(layer, place), "depends_on": before})
    return tasks


def name(layer: int, place: int) -> str:
    return f"{'ABCD'[layer]}-{place + 1:03}-task"


def listen(member: Member, facts: list[Fact], kill_after: int | None) -> None:
    """Hears a worker out, and kills it right after so many facts: it is then somewhere in its next
    call."""
    while (fact := member.hear()) is not None:
        facts.append(fact)
        if len(facts) == kill_after:
            member.kill()
        if fact["fact"] == "finished":
            return


def all_heard(members: list[Member], kills: list[int | None]) -> list[list[Fact]]:
    heard: list[list[Fact]] = [[] for _ in members]
    threads = [
        threading.Thread(target=listen, args=(member, facts, kill_after), daemon=True)
        for member, facts, kill_after in zip(members, heard, kills, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a worker does not come to an end"
    return heard


def test_workers_killed_at_random_lose_nothing_acknowledged_and_the_others_finish_the_plan(
    url: str,
) -> None:
    tasks = layered_plan()
    chance = random.Random(20260104)
    kills: list[int | None] = [chance.randrange(2, 9) for _ in range(VICTIMS)]
    kills += [None] * (WORKERS - VICTIMS)
    with genlock.connect(url, create=True) as fleet, ExitStack() as stack:
        # Kills and leases of a second count as failures of the task; how many come together is not
        # what is tested here.
        fleet.set_policy(policy={"breaker_threshold": 0})
        fleet.add_tasks(tasks=tasks)
        members = [stack.enter_context(Member()) for _ in range(WORKERS)]
        for member in members:
            member.expect(fact="here")
        all_go(
            members,
            [
                {"url": url, "session": f"session {at}", "seed": at, "do": "cycle"}
                for at in range(WORKERS)
            ],
        )
        heard = all_heard(members, kills)
        killed = [
            facts
            for facts, kill_after in zip(heard, kills, strict=True)
            if kill_after is not None and len(facts) >= kill_after
        ]
        assert len(killed) >= VICTIMS // 2, "the plan was finished before the kills"
        for member, facts in zip(members, heard, strict=True):
            if facts in killed:
                assert member.process.wait(PATIENCE) == -signal.SIGKILL
            else:
                assert facts[-1] == {"fact": "finished"}
        said = [
            fact | {"session": f"session {number}"}
            for number, facts in enumerate(heard)
            for fact in facts
        ]
        told = check_what_was_said(fleet, names := [str(task["id"]) for task in tasks], said)
        assert told["submitted"] >= len(tasks) - VICTIMS
        assert told["released"] > 0
        generations = [
            state.generation for state in fleet.batch_get_states(task_ids=names).values()
        ]
        assert max(generations) > 1, "no task ever changed hands"


def test_a_worker_stopped_past_its_lease_finds_its_result_refused_and_kept(url: str) -> None:
    task = "A-001-core-framework"
    with (
        genlock.connect(url, create=True, session_id="bob's", agent_id="bob") as fleet,
        Member() as alice,
    ):
        fleet.add_tasks(tasks=[task])
        alice.expect(fact="here")
        result = {"made by": "alice"}
        all_go(
            [alice],
            [
                {
                    "url": url,
                    "session": "alice's",
                    "do": "work_slowly",
                    "task": task,
                    "result": result,
                }
            ],
        )
        alice.expect(fact="working", generation=1)
        os.kill(alice.process.pid, signal.SIGSTOP)
        stopped = os.waitid(os.P_PID, alice.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP
        # Stopped is not gone: until the lease is over nobody gets the task.
        claim = fleet.claim_next(wait_seconds=30).claim
        assert claim is not None
        assert (claim.task_id, claim.generation) == (task, 2)
        assert fleet.submit_result(
            task_id=task, generation=2, result_data={"made by": "bob"}
        ).accepted
        alice.tell(do="hand in")
        os.kill(alice.process.pid, signal.SIGCONT)
        told = alice.expect(fact="submitted", reason="STALE_GENERATION", current=2, kept=True)
        state = fleet.get_task_state(task_id=task)
        assert state.result is not None
        assert (state.state, state.result.generation, state.result.result_data) == (
            Status.COMPLETED,
            2,
            {"made by": "bob"},
        )
        (kept,) = fleet.list_refused_results(task_id=task)
        assert (kept.id, kept.generation, kept.session_id) == (told["refused_id"], 1, "alice's")
        assert (kept.rejection_reason, kept.result_data) == ("STALE_GENERATION", result)
        first, second = fleet.get_claim_history(task_id=task)
        assert (first.release_reason, first.result_accepted, first.result_rejected) == (
            "EXPIRED",
            False,
            True,
        )
        assert (second.release_reason, second.result_accepted, second.result_rejected) == (
            "COMPLETED",
            True,
            False,
        )
        assert check(fleet.engine.store) == []
