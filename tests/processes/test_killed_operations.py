"""kill -9 at every place where an operation touches the store: what was acknowledged is there, the
rest is whole or absent.

And nobody has to tidy up: the next process goes on at once, takes over what the dead one held, and
finds open what its completions should have opened.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import genlock
from genlock.core.reasons import Status
from genlock.engine.replay_check import check
from tests.processes import operations
from tests.processes.crew import Fact, Member
from tests.processes.operations import CHILDREN, FIRST, PLAN, SECOND, STEPS, VICTIM
from tests.servers import stores

PROGRAM = Path(operations.__file__)
AT_ONCE = 4.0
"""Seconds: less than anybody waits for a gate that is shut, and much more than a commit takes."""


EVERY = {
    "sqlite": ("sqlite.commit.before_commit", "sqlite.commit.after_commit"),
    "postgres": ("postgres.commit.after",),  # before it, nothing has been sent
    "mysql": ("mysql.commit.after",),
    "dynamodb": ("dynamodb.commit.positions",),  # positions are taken, and nothing stands there
}
"""Failpoints at which every turn is cut."""

PARTS = {
    "sqlite": ("sqlite.", "folder."),
    "postgres": ("postgres.",),
    "mysql": ("mysql.",),
    "dynamodb": ("dynamodb.", "folder."),
}
"""How the failpoints begin that a store can reach; payloads may be in a folder."""

BEYOND = {
    "sqlite": {"sqlite.purge.dropped", "folder.payload.dropped"},
    "postgres": {"postgres.purge.done", "postgres.payload.dropped"},
    "dynamodb": {"dynamodb.purge.swapped", "folder.payload.dropped", "dynamodb.commit.group"},
    "mysql": {"mysql.purge.done", "mysql.payload.dropped"},
}
"""Purging and dropping payloads are not a worker's business: tests/stores/test_killed_commits.py
has those.

Nor are changes in groups: a copy writes those, and is cut there by tests/test_copy.py."""

UNCUT = {
    "sqlite": {"renew"},
    "postgres": {"renew"},
    "mysql": {"renew"},
    "dynamodb": {"renew", "open"},
}
"""Operations that may write nothing where they are cut: a table is made by `genlock db create`, not
by who opens it."""


def url_of(kind: str, folder: Path) -> str:
    return stores.LASTING[kind].url(folder / "genlock.db")


def run(source: Member, kind: str, folder: Path, failpoint: str = "") -> tuple[list[Fact], int]:
    """What a process said, and how it ended."""
    folder.mkdir(exist_ok=True)
    said = folder / "facts"
    source.take_time()
    source.tell(url=url_of(kind, folder), failpoint=failpoint, facts=str(said))
    status = source.expect()["status"]
    return [
        json.loads(line) for line in said.read_text().splitlines()
    ] if said.exists() else [], status


@pytest.fixture(scope="module", params=EVERY)
def kind(request: pytest.FixtureRequest) -> str:
    return stores.asked_for(request)


@pytest.fixture(scope="module")
def source(kind: str) -> Iterator[Member]:
    with Member(PROGRAM) as source:
        yield source


@pytest.fixture(scope="module")
def hits(source: Member, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often a process that nobody kills comes by each failpoint."""
    facts, status = run(source, kind, tmp_path_factory.mktemp("unharmed"))
    assert status == 0
    assert [fact["done"] for fact in facts if "done" in fact] == list(STEPS)
    return Counter(fact["hit"] for fact in facts if "hit" in fact)


def turns(hits: Counter[str], kind: str) -> list[str]:
    """Every commit is cut before and after it is made; every other failpoint at its first, its
    middle and its last turn."""
    chosen = set()
    for name, count in hits.items():
        chosen |= {
            f"{name}:{turn}"
            for turn in (
                range(1, count + 1) if name in EVERY[kind] else {1, (count + 1) // 2, count}
            )
        }
    return sorted(chosen)


def kill_at(source: Member, kind: str, folder: Path, failpoint: str) -> int:
    """Kills a process there, looks, and goes on in its place. How many steps were acknowledged."""
    facts, status = run(source, kind, folder, failpoint)
    assert status == -signal.SIGKILL, f"the process passed {failpoint} unharmed"
    acknowledged = [fact["done"] for fact in facts]
    assert acknowledged == list(STEPS)[: len(acknowledged)]
    with genlock.connect(
        url_of(kind, folder), create=True, session_id="survivor", agent_id="survivor"
    ) as fleet:
        began = time.monotonic()
        fleet.add_tasks(tasks=["after-the-kill"])
        assert fleet.claim_task(task_id="after-the-kill").success
        assert time.monotonic() - began < AT_ONCE, "the dead still held the store"
        assert check(fleet.engine.store) == []
        done = {name: step.is_done(fleet) for name, step in STEPS.items()}
        for number, name in enumerate(STEPS):
            if number < len(acknowledged):
                assert done[name], f"{name!r} was acknowledged and is not done"
            elif number > len(acknowledged):
                assert not done[name], f"{name!r} was done before its time"
        if done["submit"] and not done["claim the dependent"]:
            assert fleet.claim_task(task_id=SECOND).success, (
                "the completion did not open its dependent"
            )
        finish(fleet, done)
        assert check(fleet.engine.store) == []
    return len(acknowledged)


def finish(fleet: genlock.Coordinator, done: dict[str, bool]) -> None:
    """The survivor does all that is left."""
    if not done["add"]:
        fleet.add_tasks(tasks=PLAN)
    for claim in fleet.get_active_claims_for_session():
        assert fleet.submit_result(
            task_id=claim.task_id, generation=claim.generation, result_data={"by": "survivor"}
        ).accepted
    complete_all(fleet)
    if VICTIM not in {session.session_id for session in fleet.list_sessions(include_ended=True)}:
        # Killed after its first grant and before it was registered: nobody knows which process it
        # was, so its lease would decide.
        for agent in fleet.list_agents():
            assert agent.session_id == VICTIM
            assert fleet.force_release(task_id=agent.tasks[0], take_over=True).generation == 2
        complete_all(fleet)
    wanted = [FIRST, *(str(task["id"]) for task in PLAN), *(CHILDREN if done["split"] else ())]
    states = fleet.batch_get_states(task_ids=wanted)
    assert {task: states[task].state for task in wanted} == dict.fromkeys(wanted, Status.COMPLETED)


def complete_all(fleet: genlock.Coordinator) -> None:
    while (claim := fleet.claim_next().claim) is not None:
        assert fleet.submit_result(
            task_id=claim.task_id, generation=claim.generation, result_data={"by": "survivor"}
        ).accepted


def test_a_process_killed_at_any_storage_boundary_leaves_each_operation_whole_or_absent(
    source: Member, hits: Counter[str], kind: str, tmp_path: Path
) -> None:
    reached = [kill_at(source, kind, tmp_path / turn, turn) for turn in turns(hits, kind)]
    missed = {name for number, name in enumerate(STEPS) if number not in reached}
    assert missed <= UNCUT[kind], "some operations were never cut"


_HIT = re.compile(r'hit\(f?"([^"]+)"')
ON_A_SERVER = {"postgres", "mysql"}
_OF_ITS_KIND = re.compile(r"\{self\.(?:name|_store)\}")
"""The stores on a server share some code, in which they name themselves."""


def test_every_failpoint_that_operations_can_reach_is_reached(
    hits: Counter[str], kind: str
) -> None:
    source = Path(genlock.__file__).parent
    named = {
        _OF_ITS_KIND.sub(kind if kind in ON_A_SERVER else "", found[1])
        for file in source.rglob("*.py")
        for line in file.read_text().splitlines()
        if (found := _HIT.search(line))
    }
    # Backup and restore are not a worker's business: tests/cli/test_backup_restore_export.py cuts those.
    kept = {
        name for name in named if name.removeprefix("sqlite.").startswith(("backup.", "restore."))
    }
    assert {name for name in named - kept if name.startswith(PARTS[kind])} - set(hits) == BEYOND[
        kind
    ]
    cut = (Path(__file__).parent.parent / "cli" / "test_backup_restore_export.py").read_text()
    assert {name for name in kept if name not in cut} == set()
