"""Policy `agents: single` at the edges: the names that are filled in, and what each edge shows where
a claim has no lease. The rules are in tests/core/test_single_agent.py and the scenario."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.core.reasons import ClaimReason
from genlock.errors import BadArgument, GenlockError, StoreUnavailable
from genlock.mcp import scripts
from genlock.mcp.answer import Answer, Caller
from genlock.mcp.tools import TOOLS
from genlock.testing.clock import ManualClock
from genlock.wire.operations import BY_CALL
from genlock.worker.kept_claim import Loss
from tests.cli.stage import Stage
from tests.eventually import eventually
from tests.servers.service import serving
from tests.service.session_api.served import serving as serving_api
from tests.worker.fleets import working

UNNAMED: dict[str, str | None] = {"GENLOCK_AGENT": None}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path / "project")
    stage.add("A", "B", {"id": "C", "roles": ["architect"]})
    with stage.library() as fleet:
        fleet.set_policy(policy={"agents": "single"})
    return stage


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fleet(clock: ManualClock) -> Iterator[genlock.Coordinator]:
    with genlock.connect("memory://", session_id="s", clock=clock) as fleet:
        fleet.set_policy(policy={"agents": "single"})
        fleet.add_tasks(tasks=["A", "B"])
        yield fleet


# The library and the service


def test_a_claim_that_names_no_agent_is_the_lone_agents(fleet: genlock.Coordinator) -> None:
    claim = fleet.claim_task(task_id="A").require()
    assert (claim.agent_id, claim.agent_role, claim.expires_at) == ("primary", "full_stack", None)
    claim = fleet.claim_next().require()
    assert (claim.task_id, claim.agent_id, claim.expires_at) == ("B", "primary", None)
    (held,) = fleet.claim_next().held[:1]
    assert (held.task_id, held.expires_at) == ("A", None)
    (answer,) = fleet.batch_claim(task_ids=["A"], session_id="t").values()
    assert not isinstance(answer, GenlockError)
    assert answer.reason is ClaimReason.DENIED_ACTIVE_CLAIM
    assert answer.holder is not None
    assert (answer.holder.agent, answer.holder.expires_at) == ("primary", None)


def test_in_a_fleet_a_claim_that_names_no_agent_is_an_error(fleet: genlock.Coordinator) -> None:
    fleet.set_policy(policy={"agents": "fleet"})
    with pytest.raises(BadArgument, match="agent_id is missing"):
        fleet.claim_next()


def test_the_client_of_a_service_is_the_lone_agent_too() -> None:
    with serving() as service, genlock.connect(service.url, session_id="s") as fleet:
        fleet.add_tasks(tasks=["A"])
        with pytest.raises(BadArgument, match="agent_id is missing"):
            fleet.claim_task(task_id="A")
        fleet.set_policy(policy={"agents": "single"})
        claim = fleet.claim_task(task_id="A").require()
        assert (claim.agent_id, claim.expires_at) == ("primary", None)
        renewed = fleet.renew_lease(task_id="A", generation=1)
        assert (renewed.success, renewed.new_expiry) == (True, None)
        state = fleet.get_task_state(task_id="A")
        assert state.holder is not None
        assert (state.holder.expires_at, state.holder.looks_alive) == (None, True)
        (row,) = fleet.list_tasks().tasks
        assert row.holder is not None
        assert (row.holder.expires_at, row.holder.health) == (None, "WORKING")
        (card,) = fleet.get_overview().sessions
        assert [task.expires_at for task in card.tasks] == [None]


def test_nothing_that_has_no_lease_counts_as_over(
    fleet: genlock.Coordinator, clock: ManualClock
) -> None:
    """A month later nobody is sent for: no row, no need and no list calls the claim overdue."""
    fleet.claim_task(task_id="A")
    clock.advance(30 * 86400)
    assert fleet.list_expired_claims() == ()
    overview = fleet.get_overview()
    assert not any(overview.needs_counts.values())
    assert fleet.sweep().expired == 0
    said = " ".join(fleet.explain(task_id="A").because)
    assert said.endswith("no lease")


# Workers


def test_a_worker_without_a_name_is_the_lone_agent_and_one_with_a_name_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GENLOCK_AGENT", raising=False)
    with genlock.connect("memory://") as fleet:
        fleet.set_policy(policy={"agents": "single"})
        fleet.add_tasks(tasks=["A", "B"])
        with fleet.next_task() as work:
            assert work.claim.agent_id == "primary"
            assert work.claim.agent_role == "full_stack"
            work.submit("done")
        monkeypatch.setenv("GENLOCK_AGENT", "ada")
        fleet._context = None
        with fleet.next_task() as work:
            assert work.claim.agent_id == "ada"


def test_a_claim_without_a_lease_outlives_an_outage_and_gets_a_lease_with_the_policy() -> None:
    """It is renewed all the same: so it has a lease soon after the project is a fleet's."""
    with working("T") as worker:
        worker.fleet.set_policy(policy={"agents": "single"})

        def away() -> None:
            raise StoreUnavailable("away")

        worker.way.before = away
        kept = worker.keep("T", 1.0)
        assert kept.trusted_until == float("inf")
        eventually(lambda: len(worker.way.renewals) >= 3, "three renewals in vain")
        eventually(lambda: kept.sent + 1.2 < _now(), "longer than a lease would be")
        assert not kept.is_lost
        worker.fleet.set_policy(policy={"agents": "fleet"})
        worker.way.before = lambda: None
        eventually(lambda: kept.leased, "a renewal")
        assert kept.trusted_until < float("inf")
        worker.way.before = away
        assert kept.lost.wait(10)
        assert kept.reason is Loss.OUTAGE


def _now() -> float:
    from genlock.worker import schedule

    return schedule.now()


# The command line


def test_next_claim_and_run_name_the_lone_agent_and_show_that_there_is_no_lease(
    stage: Stage,
) -> None:
    ran = stage.run("next", "--text", env=UNNAMED)
    assert ran.code == 0
    assert "no lease" in ran.out
    claim = stage.run("claim", "C", env=UNNAMED).json()["claim"]
    assert (claim["agent_id"], claim["agent_role"]) == ("primary", "full_stack")
    assert claim["expires_at"] is None
    ran = stage.run("renew", "C", "-g", 1, "--text", env=UNNAMED)
    assert ran.out.strip() == "renewed: the claim of C has no lease"
    assert stage.run("renew", "C", "-g", 1, env=UNNAMED).json()["new_expiry"] is None
    ran = stage.run("claim", "A", "--text", as_="s2", env=UNNAMED)
    assert ran.code == 5
    assert "primary" in ran.out
    assert "no lease" in ran.out
    for verb in (("status",), ("agents",), ("list",), ("show", "C")):
        ran = stage.run(*verb, "--text")
        assert (ran.code, "no lease" in ran.out) == (0, True), verb
    ran = stage.run("run", "B", "--", sys.executable, "-c", "", env=UNNAMED)
    assert ran.code == 0
    (last,) = [each for each in _lineage(stage, "B") if each["generation"] == 1]
    assert last["agent_id"] == "primary"


def _lineage(stage: Stage, task: str) -> Any:
    with stage.library() as fleet:
        told = fleet.get_lineage(task_id=task).generations
    return [{"agent_id": each.agent_id, "generation": each.generation} for each in told]


def test_a_name_that_is_given_stands_on_the_command_line(stage: Stage) -> None:
    claim = stage.run("claim", "A", "--role", "tester").json()["claim"]
    assert (claim["agent_id"], claim["agent_role"]) == ("s1", "tester")


def test_the_policy_is_set_and_shown_by_the_command_line(stage: Stage) -> None:
    assert stage.run("policy", "set", "agents=fleet").code == 0
    assert stage.run("policy", "show").json()["policy"]["agents"] == "fleet"
    ran = stage.run("policy", "set", "agents=alone")
    assert ran.code == 2
    assert "policy agents is one of fleet, single" in ran.err


# MCP, and SC's interface


def _call(fleet: genlock.Coordinator, name: str, *, named: bool, **arguments: Any) -> Answer:
    caller = Caller(
        session="ada-session", agent="claude-code", named=named, project="default", renewed=True
    )
    return scripts.run(
        TOOLS[name](**arguments),
        caller,
        lambda call: getattr(fleet, BY_CALL[type(call)].name)(**scripts.keywords(call)),
    )


def test_an_mcp_server_claims_for_the_lone_agent_and_tells_it_of_no_lease(
    fleet: genlock.Coordinator,
) -> None:
    granted = _call(fleet, "claim", named=False)
    assert granted.facts["expires_at"] is None
    assert "It has no lease: it is yours until you give it back." in granted.text
    state = fleet.get_task_state(task_id="A")
    assert state.holder is not None
    assert state.holder.agent == "primary"
    renewed = _call(fleet, "progress", named=False, task="A", generation=1)
    assert renewed.text == "RENEWED: A is still yours. It has no lease."
    assert "no lease" in _call(fleet, "list", named=False, what="mine").text
    assert _call(fleet, "claim", named=True, task="B").facts["reason"] == "GRANTED"
    other = fleet.get_task_state(task_id="B").holder
    assert other is not None
    assert other.agent == "claude-code"


def test_the_session_claiming_interface_shows_null_where_there_is_no_lease() -> None:
    with serving_api("memory://") as api:
        api.do(lambda fleet: fleet.set_policy(policy={"agents": "single"}))
        api.add("A")
        status, answer = api.post("/api/tasks/A/claim", {"sessionId": "s1"})
        assert (status, answer["claim"]["expiresAt"]) == (200, None)
        status, answer = api.post("/api/tasks/A/claim/heartbeat", {"sessionId": "s1"})
        assert (status, answer["success"], answer["claim"]["expiresAt"]) == (200, True, None)
        status, answer = api.post("/api/tasks/A/claim", {"sessionId": "s2"})
        assert (status, answer["claim"]["remainingMs"]) == (409, None)
        status, answer = api.get("/api/tasks/in-flight")
        (flying,) = answer["inFlight"]
        assert (flying["claim"]["expiresAt"], flying["claim"]["healthStatus"]) == (None, "healthy")
