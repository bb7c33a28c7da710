"""Roles and reviews through the library: what the scenarios cannot say in a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock import Coordinator
from genlock.core.policy import MAX_INLINE_RESULT_BYTES
from genlock.core.reasons import RefusedState, ReviewCause, Status
from genlock.core.results import ReviewInfo
from genlock.engine.replay_check import check
from genlock.errors import BadArgument, PlanInvalid, ResultNotFound, ReviewNotFound
from genlock.plans import write_yaml
from genlock.service.events.formats import as_ddb, as_sc

DDB = """\
roles:
  architect:
    converge_edges: [intent_requirements, requirements_design, design_code]
  tdd_engineer:
    converge_edges: [code_unit_tests, design_test_cases]
  cicd_agent:
    converge_edges: [uat_tests, cicd]
  full_stack:
    converge_edges: [all]  # single-agent backward compat
"""
TABLE = {
    "roles": {
        "architect": {
            "converge_edges": ["intent_requirements", "requirements_design", "design_code"]
        },
        "tdd_engineer": {"converge_edges": ["code_unit_tests", "design_test_cases"]},
        "cicd_agent": {"converge_edges": ["uat_tests", "cicd"]},
        "full_stack": {"converge_edges": ["all"]},
    }
}
LARGE = {"text": "x" * (MAX_INLINE_RESULT_BYTES + 1)}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path / 'genlock.db'}"


@pytest.fixture
def fleet(url: str) -> Iterator[Coordinator]:
    with genlock.connect(
        url, create=True, session_id="s1", agent_id="alice", user_id="ann"
    ) as fleet:
        yield fleet


def escalated(fleet: Coordinator, task: str, data: Any = "done", **claim: Any) -> ReviewInfo:
    """A result that waits for a review."""
    granted = fleet.claim_task(task_id=task, **claim).require()
    answer = fleet.submit_result(task_id=task, generation=granted.generation, result_data=data)
    assert answer.reason == "CONVERGENCE_ESCALATED"
    return fleet.get_review(task_id=task)


def named(waiting: ReviewInfo) -> dict[str, Any]:
    return {
        "task_id": waiting.task_id,
        "generation": waiting.generation,
        "digest": waiting.digest,
    }


def test_the_document_s_file_is_kept_as_it_is_written(fleet: Coordinator) -> None:
    from genlock.plans import load_yaml

    assert load_yaml(DDB) == TABLE
    assert fleet.set_policy(agent_roles=load_yaml(DDB)).agent_roles == TABLE
    assert fleet.get_policy().agent_roles == TABLE
    fleet.set_policy(policy={"order": "leaf-first"}, tracks={"A": "All"})
    assert fleet.get_policy().agent_roles == TABLE, "other settings leave it alone"
    assert fleet.set_policy(agent_roles={"roles": {}}).agent_roles == {}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"roles": {"a": ["x"]}}, "roles.a is a mapping with converge_edges"),
        ({"roles": {"a": {"edges": []}}}, "roles.a has no key 'edges'"),
        ({"roles": {"a/b": {}}}, "a name in roles 'a/b': character 2 is '/'"),
        ({"roles": {"a": {"converge_edges": "all"}}}, "roles.a.converge_edges is a list"),
        ({"role": {}}, "agent_roles has no key 'role'; there are: roles, edges"),
        ({"edges": {"x": {"human_required": 1}}}, "edges.x.human_required is true or false"),
        ({"edges": {"x": {"evaluators": [5]}}}, "edges.x.evaluators must be a string"),
        ({"roles": {str(n): {} for n in range(65)}}, "roles has 65 entries, at most 64"),
    ],
)
def test_a_wrong_table_is_refused_by_name_and_changes_nothing(
    fleet: Coordinator, table: Any, complaint: str
) -> None:
    fleet.set_policy(agent_roles=TABLE)
    with pytest.raises(BadArgument, match=re.escape(complaint)):
        fleet.set_policy(agent_roles=table)
    assert fleet.get_policy().agent_roles == TABLE


def test_a_plan_brings_roles_and_gives_them_back(fleet: Coordinator) -> None:
    source = (
        DDB
        + "edges:\n  cicd:\n    human_required: true\n    evaluators: [smoke]\ntasks: [{id: a}]\n"
    )
    fleet.import_plan(source=source)
    rule = {"cicd": {"human_required": True, "evaluators": ["smoke"]}}
    assert fleet.get_policy().agent_roles == {**TABLE, "edges": rule}
    exported = "\n".join(write_yaml(fleet.get_plan()))
    with genlock.connect("memory://") as other:
        other.import_plan(source=exported)
        assert other.get_policy().agent_roles == {**TABLE, "edges": rule}
    fleet.import_plan(source="tasks: [{id: a}, {id: b}]\n")
    assert fleet.get_policy().agent_roles == {**TABLE, "edges": rule}, "a plan without roles"


def test_a_plan_with_a_wrong_table_or_nothing_else_says_so(fleet: Coordinator) -> None:
    with pytest.raises(PlanInvalid, match=r"line 1, column 1: roles\.a\.converge_edges is a list"):
        fleet.import_plan(source="roles: {a: {converge_edges: all}}\ntasks: [{id: a}]\n")
    with pytest.raises(PlanInvalid, match="genlock roles import FILE"):
        fleet.import_plan(source=DDB)


def test_who_states_no_role_has_no_authority_over_an_edge(fleet: Coordinator) -> None:
    fleet.set_policy(agent_roles=TABLE)
    fleet.add_tasks(tasks=["LOGIN:design_code"])
    waiting = escalated(fleet, "LOGIN:design_code")
    assert waiting.causes == (ReviewCause.OUTSIDE_ROLE,)
    assert (waiting.agent_role, waiting.edge) == ("", "design_code")


def test_four_eyes_are_those_of_another_user_and_not_of_another_session(
    url: str, fleet: Coordinator
) -> None:
    fleet.set_policy(policy={"four_eyes": True})
    fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True}])
    waiting = escalated(fleet, "A-001-x")
    with genlock.connect(url, session_id="s2", agent_id="zoe", user_id="ann") as same:
        refused = same.approve_review(**named(waiting))
        assert (refused.success, refused.reason, refused.author) == (False, "FOUR_EYES", "ann")
    with genlock.connect(url, session_id="s3", agent_id="bot") as nobody:
        assert nobody.approve_review(**named(waiting)).reason == "FOUR_EYES"
    with genlock.connect(url, session_id="s1", agent_id="alice", user_id="bea") as other:
        approved = other.approve_review(**named(waiting))
        assert (approved.reason, approved.reviewer) == ("APPROVED", "bea")
    event = fleet.read_events(task_id="A-001-x").events[-1]
    assert event.event_type == "RESULT_ACCEPTED"
    names = {name: event.event[name] for name in ("author_user_id", "author_agent_id", "actor")}
    assert names["author_user_id"] == "ann"
    assert names["author_agent_id"] == "alice"
    assert names["actor"]["user_id"] == "bea"


def test_the_documents_see_the_review_under_their_own_names(fleet: Coordinator, url: str) -> None:
    fleet.set_policy(agent_roles=TABLE)
    fleet.add_tasks(tasks=["LOGIN:design_code"])
    waiting = escalated(fleet, "LOGIN:design_code", agent_role="tdd_engineer")
    with genlock.connect(url, session_id="s2", agent_id="bob", user_id="bea") as reviewer:
        reviewer.approve_review(**named(waiting))
    escalation, approval = fleet.read_events(task_id="LOGIN:design_code").events[-2:]
    assert b'"type":"task:released"' in as_sc(escalation)
    assert as_sc(approval) == b"", "no claim ends by it"
    told = as_ddb(escalation)
    assert b'"type":"convergence_escalated"' in told
    assert b'"agent_role":"tdd_engineer"' in told
    told = as_ddb(approval)
    assert b'"type":"edge_converged"' in told
    assert b'"agent_id":"alice"' in told
    assert b'"reviewed_by":"bea"' in told


def test_one_may_reject_one_s_own_work_with_four_eyes(fleet: Coordinator) -> None:
    fleet.set_policy(policy={"four_eyes": True})
    fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True}])
    assert fleet.reject_review(**named(escalated(fleet, "A-001-x"))).reason == "REJECTED"


def test_a_prefix_of_the_digest_names_the_result_and_a_short_one_is_refused(
    fleet: Coordinator,
) -> None:
    fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True}])
    waiting = escalated(fleet, "A-001-x")
    with pytest.raises(BadArgument, match="12 or more digits of 0-9a-f"):
        fleet.approve_review(task_id="A-001-x", generation=1, digest=waiting.digest[:11])
    assert fleet.approve_review(task_id="A-001-x", generation=1, digest="").reason == "STALE_REVIEW"
    approved = fleet.approve_review(task_id="A-001-x", generation=1, digest=waiting.digest[:12])
    assert approved.reason == "APPROVED"


def test_a_large_result_can_be_read_while_it_waits_and_its_bytes_move_with_it(
    url: str, fleet: Coordinator
) -> None:
    fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True}])
    waiting = escalated(fleet, "A-001-x", LARGE)
    assert (waiting.payload, waiting.result_data) == (True, None)
    assert fleet.read_result(task_id="A-001-x", digest=waiting.digest) == LARGE
    again = fleet.submit_result(task_id="A-001-x", generation=1, result_data=LARGE)
    assert again.reason == "CONVERGENCE_ESCALATED"
    assert len(payloads(fleet)) == 1, "the second submission left no bytes behind"
    # Rejected: the refused result has the very bytes.
    kept = fleet.reject_review(**named(waiting), feedback="too long").refused_id
    (refused,) = fleet.list_refused_results(task_id="A-001-x")
    assert (refused.id, refused.rejection_reason, refused.payload) == (
        kept,
        "REVIEW_REJECTED",
        True,
    )
    assert fleet.read_result(task_id="A-001-x", digest=waiting.digest) == LARGE
    assert len(payloads(fleet)) == 1
    # Adopted: a copy, which waits for a review in its turn, and counts once it is approved.
    claim = fleet.claim_task(task_id="A-001-x")
    assert claim.feedback is not None
    assert (claim.feedback.text, claim.feedback.by) == ("too long", "ann")
    assert kept is not None
    adopted = fleet.adopt_result(task_id="A-001-x", refused_id=kept, generation=2)
    assert adopted.reason == "CONVERGENCE_ESCALATED"
    assert len(payloads(fleet)) == 2
    fleet.approve_review(**named(fleet.get_review(task_id="A-001-x")))
    assert fleet.read_result(task_id="A-001-x") == LARGE
    assert fleet.get_task_state(task_id="A-001-x").feedback is None, "nothing is left to do better"
    assert not check(fleet.engine.store)


def test_work_that_a_review_rejected_may_be_discarded_with_its_bytes(
    url: str, fleet: Coordinator
) -> None:
    fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True}])
    waiting = escalated(fleet, "A-001-x", LARGE)
    kept = fleet.reject_review(**named(waiting)).refused_id
    assert kept is not None
    fleet.discard_result(task_id="A-001-x", refused_id=kept)
    assert payloads(fleet) == []
    (refused,) = fleet.list_refused_results(task_id="A-001-x", include_settled=True)
    assert refused.state is RefusedState.DISCARDED
    with pytest.raises(ResultNotFound):
        fleet.read_result(task_id="A-001-x", digest=waiting.digest)


def test_what_is_not_in_review_has_nothing_to_show(fleet: Coordinator) -> None:
    fleet.add_tasks(tasks=["A-001-x"])
    with pytest.raises(ReviewNotFound, match="not in review: it is PENDING"):
        fleet.get_review(task_id="A-001-x")
    assert fleet.list_reviews() == ()


def test_reviews_are_listed_by_page(fleet: Coordinator) -> None:
    names = [f"A-{n:03}-x" for n in range(1, 6)]
    fleet.add_tasks(tasks=[{"id": name, "human_required": True} for name in names])
    for name in names:
        escalated(fleet, name)
    first = fleet.list_reviews(limit=2)
    rest = fleet.list_reviews(after=first[-1].task_id)
    assert [one.task_id for one in (*first, *rest)] == names


def test_a_session_s_memory_has_what_it_submitted_and_what_was_approved(
    fleet: Coordinator, url: str
) -> None:
    fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True}])
    waiting = escalated(fleet, "A-001-x")
    assert fleet.get_session_memory().completed_tasks == ()
    with genlock.connect(url, session_id="s2", agent_id="bob", user_id="bea") as reviewer:
        reviewer.register_session()
        reviewer.approve_review(**named(waiting))
        assert reviewer.get_session_memory().completed_tasks == ()
    memory = fleet.get_session_memory()
    assert memory.completed_tasks == ("A-001-x",)
    outcomes = [line.outcome for line in memory.task_log if line.event == "RESULT_SUBMITTED"]
    assert outcomes == ["IN_REVIEW", "ACCEPTED"]


def test_explain_and_the_overview_say_what_waits_for_a_review(fleet: Coordinator) -> None:
    fleet.set_policy(agent_roles=TABLE)
    fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True, "roles": ["cicd_agent"]}])
    denied = fleet.explain(task_id="A-001-x", agent_role="architect")
    assert denied.because == ("it is for the roles cicd_agent, not for role architect",)
    escalated(fleet, "A-001-x", agent_role="cicd_agent")
    found = fleet.explain(task_id="A-001-x")
    assert found.because == ("its result waits for a review: a person has to look at it",)
    assert found.try_next == (("genlock", "review", "show", "A-001-x"),)
    (need,) = fleet.get_overview().needs
    assert (need.kind, need.task_id) == ("IN_REVIEW", "A-001-x")
    assert need.command == ("genlock", "review", "show", "A-001-x")
    assert need.acts == ("approve", "reject")


def test_a_review_outlives_its_coordinator(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'genlock.db'}"
    with genlock.connect(url, create=True, session_id="s1", agent_id="alice") as fleet:
        fleet.add_tasks(tasks=[{"id": "A-001-x", "human_required": True}, "A-002-y"])
        fleet.edit_task(task_id="A-002-y", changes={"depends_on": ["A-001-x"]})
        waiting = escalated(fleet, "A-001-x")
    with genlock.connect(url) as fleet:
        assert fleet.approve_review(**named(waiting)).state is Status.COMPLETED
        assert [one.task.id for one in fleet.ready()] == ["A-002-y"]


def payloads(fleet: Coordinator) -> list[Any]:
    return list(fleet.engine.store.payloads().names())
