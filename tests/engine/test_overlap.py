"""Overlap: what shares modules with work in flight is named, avoided or forbidden. The scenarios
have the rules one after the other; here they meet concurrency, waiters and the interfaces."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import genlock
from genlock import Coordinator
from genlock.core.reasons import ClaimReason
from tests.servers.service import serving


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Coordinator]:
    with genlock.connect(f"sqlite://{tmp_path / 'genlock.db'}", create=True) as fleet:
        yield fleet


def forbidding(fleet: Coordinator, **modules: str) -> None:
    fleet.set_policy(policy={"overlap": "forbid"})
    fleet.add_tasks(
        tasks=[{"id": name, "modules": given.split("+")} for name, given in modules.items()]
    )


def test_of_many_at_once_one_is_granted_the_module(fleet: Coordinator) -> None:
    forbidding(fleet, **{f"task-{n}": f"api+m{n}" for n in range(20)})
    together = threading.Barrier(16)

    def ask(n: int) -> ClaimReason:
        together.wait()
        return fleet.claim_next(session_id=f"s{n}", agent_id=f"agent-{n}").reason

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    assert answers.count(ClaimReason.GRANTED) == 1
    assert answers.count(ClaimReason.NOTHING_READY) == 15


def test_who_waits_is_served_as_soon_as_the_module_is_free(fleet: Coordinator) -> None:
    forbidding(fleet, one="api", two="api")
    fleet.edit_task(task_id="one", changes={"human_required": True})
    held = fleet.claim_task(task_id="one", session_id="s1", agent_id="a1").require()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fleet.claim_next, session_id="s2", agent_id="a2", wait_seconds=20)
        fleet.submit_result(task_id="one", generation=held.generation, session_id="s1")
        # It is in review, so its module is still in use.
        assert fleet.claim_task(task_id="two", session_id="s3", agent_id="a3").limit == "overlap"
        review = fleet.get_review(task_id="one")
        fleet.approve_review(task_id="one", generation=1, digest=review.digest)
        assert waiting.result(10).require().task_id == "two"


def test_what_another_coordinator_has_granted_counts_at_the_next_reading(
    fleet: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genlock.engine.limits._LONGEST_SECONDS", 0.0)
    forbidding(fleet, one="api", two="api", three="web")
    assert fleet.claim_next(session_id="s3", agent_id="a3").require().task_id == "one"
    fleet.release_claim(task_id="one", generation=1, session_id="s3")
    with genlock.connect(f"sqlite://{tmp_path / 'genlock.db'}") as other:
        other.claim_task(task_id="two", session_id="s1", agent_id="a1").require()
    found = fleet.claim_next(session_id="s2", agent_id="a2").require()
    assert found.task_id == "three"


def test_a_preview_claims_nothing_and_says_why(fleet: Coordinator) -> None:
    forbidding(fleet, one="api", two="api", three="web")
    fleet.claim_task(task_id="one", session_id="s1", agent_id="a1").require()
    found = fleet.preview_next(session_id="s2", agent_id="a2")
    assert found.task is not None
    assert found.task.id == "three"
    assert found.because == ("it is ready, and comes first in the order track",)
    fleet.claim_task(task_id="three", session_id="s1", agent_id="a1").require()
    found = fleet.preview_next(session_id="s2", agent_id="a2")
    assert (found.reason, found.task, found.because) == (
        ClaimReason.NOTHING_READY,
        None,
        (
            "1 ready task was examined, and each shares modules with work in flight (policy overlap = forbid)",
        ),
    )
    fleet.set_policy(policy={"overlap": "warn"})
    found = fleet.preview_next(session_id="s2", agent_id="a2")
    assert found.because[1] == (
        "two shares modules with work in flight: one (api). Better one after the other"
    )
    assert fleet.get_task_state(task_id="two").generation == 0


def test_a_preview_minds_roles(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=[{"id": "A-001-x", "roles": ["architect"]}])
    assert fleet.preview_next(session_id="s1", agent_id="a1").task is None
    found = fleet.preview_next(session_id="s1", agent_id="a1", agent_role="architect")
    assert found.because[1] == "it is for the roles architect, and you state architect"


def test_the_routing_answer_warns_of_overlap_and_minds_roles() -> None:
    with serving() as service, genlock.connect(service.url) as fleet:
        fleet.set_policy(policy={"overlap": "warn"})
        fleet.add_tasks(
            tasks=[
                {"id": "A-001-x", "modules": ["api"]},
                {"id": "A-002-x", "modules": ["api"], "roles": ["architect"]},
            ]
        )
        fleet.claim_task(task_id="A-001-x", session_id="s1", agent_id="alice").require()
        body = {"agentId": "bob", "agentRole": "tester"}
        assert service.http.post("/api/start", json=body).json()["next"] is None
        answer = service.http.post("/api/start", json=body | {"agentRole": "architect"}).json()
        assert answer["next"]["taskId"] == "A-002-x"
        assert answer["warnings"] == [
            "A-002-x shares modules with work in flight: A-001-x (api). Better one after the other"
        ]
