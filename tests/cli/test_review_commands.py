"""review and roles, as processes: what is typed, what is answered, and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import Stage

TABLE = "roles:\n  architect:\n    converge_edges: [design]\n"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A task whose result waits for a review."""
    stage = Stage(tmp_path / "project")
    stage.add({"id": "A-001-core", "human_required": True})
    stage.submit("A-001-core", stage.claim("A-001-core"), data="done")
    return stage


def digest_of(stage: Stage) -> str:
    return str(stage.run("review", "show", "A-001-core").json()["digest"])


def test_review_show_names_what_was_looked_at_and_approve_takes_it(stage: Stage) -> None:
    listed = stage.run("review", "list").json()["reviews"]
    assert [(one["task_id"], one["causes"]) for one in listed] == [
        ("A-001-core", ["HUMAN_REQUIRED"])
    ]
    shown = stage.run("review", "show", "A-001-core").json()
    assert (shown["generation"], shown["result_data"]) == (1, "done")
    ran = stage.run("review", "approve", "A-001-core", "-g", 1, "--digest", shown["digest"][:12])
    assert (ran.code, ran.json()["reason"], ran.json()["state"]) == (0, "APPROVED", "COMPLETED")
    assert stage.run("review", "list", "--quiet").out == ""
    assert stage.run("show", "A-001-core", "--result").json() == "done"


def test_approving_another_result_is_refused_with_exit_code_5(stage: Stage) -> None:
    before = stage.files()
    ran = stage.run("review", "approve", "A-001-core", "-g", 2, "--digest", digest_of(stage))
    assert (ran.code, ran.json()["reason"]) == (5, "STALE_REVIEW")
    assert "another one waits there now" in ran.json()["message"]
    assert ran.json()["try_next"] == [["genlock", "review", "show", "A-001-core"]]
    assert stage.files() == before


def test_reject_keeps_the_work_and_tells_the_next_holder(stage: Stage) -> None:
    ran = stage.run(
        "review", "reject", "A-001-core", "-g", 1, "--digest", digest_of(stage), "--feedback", "no"
    )
    assert (ran.code, ran.json()["state"], ran.json()["generation"]) == (0, "PENDING", 2)
    claimed = stage.run("claim", "A-001-core", as_="s2").json()
    assert claimed["feedback"]["text"] == "no"
    assert claimed["feedback"]["refused_id"] == ran.json()["refused_id"]
    lineage = stage.run("history", "A-001-core").json()
    assert [one["rejection_reason"] for one in lineage["refused"]] == ["REVIEW_REJECTED"]
    adopted = stage.run("adopt", "A-001-core", ran.json()["refused_id"], "-g", 2, as_="s2")
    assert (adopted.code, adopted.json()["reason"]) == (0, "CONVERGENCE_ESCALATED")


def test_four_eyes_say_whose_work_it_is(stage: Stage) -> None:
    stage.run("policy", "set", "four_eyes=true")
    digest = digest_of(stage)
    ran = stage.run("review", "approve", "A-001-core", "-g", 1, "--digest", digest)
    assert (ran.code, ran.json()["reason"]) == (5, "FOUR_EYES")


def test_what_is_not_in_review_cannot_be_shown(stage: Stage) -> None:
    stage.add("A-002-api")
    ran = stage.run("review", "show", "A-002-api")
    assert (ran.code, ran.error()["code"]) == (3, "REVIEW_NOT_FOUND")
    assert "genlock review list" in str(ran.err) or ran.error()["try_next"]


def test_roles_are_checked_imported_shown_and_removed(stage: Stage) -> None:
    (stage.folder / "agent_roles.yml").write_text(TABLE, encoding="utf-8")
    table = {"roles": {"architect": {"converge_edges": ["design"]}}}
    assert stage.run("roles", "check", "agent_roles.yml").json() == table
    assert stage.run("roles", "show").json() == {}, "to check imports nothing"
    assert stage.run("roles", "import", "agent_roles.yml").json() == table
    assert stage.run("roles", "show", "--quiet").out == "architect\n"
    assert stage.run("roles", "import", "-", input="roles:\n").json() == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("roles: [a]\n", "roles is a mapping by name, not ['a']"),
        ("roles:\n  a:\n    converge: []\n", "roles.a has no key 'converge'"),
        ("roles: {", "line 1, column"),
        ("tasks: []\n", "agent_roles has no key 'tasks'; there are: roles, edges"),
    ],
)
def test_a_wrong_file_is_refused_by_name(stage: Stage, text: str, complaint: str) -> None:
    (stage.folder / "agent_roles.yml").write_text(text, encoding="utf-8")
    for verb in ("check", "import"):
        ran = stage.run("roles", verb, "agent_roles.yml")
        assert (ran.code, ran.out) == (2, "")
        assert complaint in ran.error()["message"]


def test_the_environment_states_the_role(stage: Stage) -> None:
    stage.add({"id": "A-002-api", "roles": ["tester"]})
    denied = stage.run("claim", "A-002-api")
    assert (denied.code, denied.json()["reason"], denied.json()["roles"]) == (
        5,
        "DENIED_ROLE",
        ["tester"],
    )
    granted = stage.run("claim", "A-002-api", env={"GENLOCK_ROLE": "tester"})
    assert granted.json()["claim"]["agent_role"] == "tester"


def test_doctor_and_status_name_what_waits_for_a_review(stage: Stage) -> None:
    (found,) = [
        line for line in stage.run("doctor").json()["findings"] if line["check"] == "reviews"
    ]
    assert found["what"] == "1 result waits for a review"
    assert found["try_next"] == ["genlock review show A-001-core"]
    (stuck,) = stage.run("status").json()["stuck"]
    assert stuck["task_id"] == "A-001-core"
    assert stuck["why"].startswith("its result waits for a review")
