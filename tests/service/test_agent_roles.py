"""Roles of agents over HTTP: the holder of a key states the roles that the key carries, and no
other; where no keys are asked for, everybody's word counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import genlock
from genlock import Coordinator
from genlock.errors import BadArgument, RoleRefused
from genlock.service.compose import Choices
from tests.servers.service import Service, serving

TABLE = {"roles": {"architect": {"converge_edges": ["design"]}, "tester": {}}}


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(choices=Choices(keys=True)) as service:
        yield service


@pytest.fixture
def admin(service: Service) -> Iterator[Coordinator]:
    """Beside the service, on its store."""
    with genlock.connect(service.coordinator.engine.store) as admin:
        admin.set_policy(agent_roles=TABLE)
        admin.add_tasks(tasks=["F:design", "G:design", {"id": "A-001-x", "roles": ["architect"]}])
        yield admin


def holder_of(
    service: Service, admin: Coordinator, *roles: str, role: str = "agent"
) -> Coordinator:
    """Somebody with a key that carries these roles."""
    key = admin.create_key(name="ci", role=role, agent_roles=roles or None)
    assert key.key.agent_roles == roles
    return genlock.connect(service.url, api_key=key.text, session_id="s1", agent_id="alice")


def test_a_key_states_the_roles_that_it_carries_and_no_other(
    service: Service, admin: Coordinator
) -> None:
    with holder_of(service, admin, "architect", "tester") as fleet:
        with pytest.raises(RoleRefused, match="may state the roles architect, tester, not the"):
            fleet.claim_task(task_id="F:design", agent_role="janitor")
        with pytest.raises(RoleRefused):
            fleet.claim_next(agent_role="janitor")
        with pytest.raises(RoleRefused):
            fleet.batch_claim(task_ids=["F:design"], agent_role="janitor")
        assert fleet.get_task_state(task_id="F:design").generation == 0, "nothing was changed"
        claim = fleet.claim_task(task_id="F:design", agent_role="architect").require()
        assert claim.agent_role == "architect"
        assert fleet.submit_result(task_id="F:design", generation=1).reason == "ACCEPTED"


def test_a_key_without_roles_may_state_none(service: Service, admin: Coordinator) -> None:
    with holder_of(service, admin) as fleet:
        with pytest.raises(RoleRefused, match="this key may state no role, not the role 'arch"):
            fleet.claim_task(task_id="F:design", agent_role="architect")
        assert fleet.claim_task(task_id="A-001-x").reason == "DENIED_ROLE"
        fleet.claim_task(task_id="F:design").require()
        answer = fleet.submit_result(task_id="F:design", generation=1)
        assert answer.reason == "CONVERGENCE_ESCALATED"


def test_a_key_of_one_role_states_it_by_itself(service: Service, admin: Coordinator) -> None:
    with holder_of(service, admin, "architect") as fleet:
        assert fleet.claim_task(task_id="A-001-x").require().agent_role == "architect"
        assert fleet.claim_next().require().agent_role == "architect"
    with holder_of(service, admin, "architect", "tester") as fleet:
        assert fleet.claim_task(task_id="G:design").require().agent_role == ""


def test_the_session_claiming_interface_states_the_key_s_role(
    service: Service, admin: Coordinator
) -> None:
    key = admin.create_key(name="ci", role="agent", session_id="s7", agent_roles=["architect"]).text
    with service.client("/api/", headers={"authorization": f"Bearer {key}"}) as client:
        body = {"sessionId": "s7", "agentRole": "janitor"}
        refused = client.post("tasks/F:design/claim", json=body)
        assert refused.status_code == 403, refused.text
        client.post("tasks/F:design/claim", json={"sessionId": "s7"}).raise_for_status()
        release = {"sessionId": "s7", "reason": "completed"}
        client.post("tasks/F:design/release", json=release).raise_for_status()
    assert admin.get_task_state(task_id="F:design").state == "COMPLETED"


def test_completed_by_the_session_claiming_interface_is_reviewed_like_a_submission(
    service: Service, admin: Coordinator
) -> None:
    key = admin.create_key(name="ci", role="agent", session_id="s7").text
    with service.client("/api/", headers={"authorization": f"Bearer {key}"}) as client:
        client.post("tasks/F:design/claim", json={"sessionId": "s7"}).raise_for_status()
        release = {"sessionId": "s7", "reason": "completed"}
        client.post("tasks/F:design/release", json=release).raise_for_status()
    state = admin.get_task_state(task_id="F:design")
    assert state.state == "IN_REVIEW"
    assert state.review is not None
    assert state.review.causes == ("OUTSIDE_ROLE",)


def test_an_operator_may_state_any_role(service: Service, admin: Coordinator) -> None:
    with holder_of(service, admin, role="operator") as fleet:
        assert fleet.claim_task(task_id="A-001-x", agent_role="architect").success


def test_only_an_agent_s_key_carries_roles(admin: Coordinator) -> None:
    with pytest.raises(BadArgument, match="an operator may state any role"):
        admin.create_key(name="ops", role="operator", agent_roles=["architect"])
    with pytest.raises(BadArgument, match="an observer claims nothing"):
        admin.create_key(name="eye", role="observer", agent_roles=["architect"])


def test_an_agent_cannot_approve_and_an_operator_does_so_in_the_name_of_the_key(
    service: Service, admin: Coordinator
) -> None:
    with holder_of(service, admin) as fleet:
        fleet.claim_task(task_id="F:design").require()
        fleet.submit_result(task_id="F:design", generation=1, result_data={"a": 1})
        waiting = fleet.get_review(task_id="F:design")
        with pytest.raises(RoleRefused, match="needs the role operator"):
            fleet.approve_review(task_id="F:design", generation=1, digest=waiting.digest)
        with pytest.raises(RoleRefused, match="needs the role operator"):
            fleet.reject_review(task_id="F:design", generation=1, digest=waiting.digest)
    key = admin.create_key(name="olga", role="operator").text
    with genlock.connect(service.url, api_key=key) as reviewer:
        stale = reviewer.approve_review(task_id="F:design", generation=2, digest=waiting.digest)
        assert (stale.success, stale.reason, stale.digest) == (
            False,
            "STALE_REVIEW",
            waiting.digest,
        )
        done = reviewer.approve_review(task_id="F:design", generation=1, digest=waiting.digest)
        assert (done.reason, done.reviewer, done.state) == ("APPROVED", "olga", "COMPLETED")


def test_without_keys_everybody_s_word_counts() -> None:
    with (
        serving() as service,
        genlock.connect(service.url, session_id="s1", agent_id="alice") as fleet,
    ):
        fleet.add_tasks(tasks=[{"id": "A-001-x", "roles": ["architect"]}])
        assert fleet.claim_task(task_id="A-001-x").reason == "DENIED_ROLE"
        assert fleet.claim_task(task_id="A-001-x", agent_role="architect").success
