"""The verbs of planners, task by task, as processes: add, edit, next-id."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A project with one task."""
    stage = Stage(tmp_path / "project")
    stage.add("A-001-core")
    return stage


def test_add_makes_a_task_of_what_is_given(stage: Stage) -> None:
    ran = stage.run(
        "add", "A-002-api", "--title", "The API", "--description", "Routes", "--priority", "high", "-d", "A-001-core", "--tag", "x",
        "--tag", "y", "--lease", "60", "--isolation", "worktree", "--parallelizable", "--set", "phase=two", "--set", 'roles=["dev"]',
        "--set", "mine={\"a\": 1}",
    )  # fmt: skip
    assert (ran.code, ran.json()) == (
        0,
        {"verdict": "DONE", "task_id": "A-002-api", "state": "BLOCKED", "changed": []},
    )
    assert stage.run("show", "A-002-api").json()["task"] == {
        "id": "A-002-api",
        "title": "The API",
        "description": "Routes",
        "phase": "two",
        "priority": "high",
        "tags": ["x", "y"],
        "track": "A",
        "sequence": 2,
        "depends_on": ["A-001-core"],
        "roles": ["dev"],
        "lease_seconds": 60.0,
        "parallelizable": True,
        "isolation": "worktree",
        "metadata": {"mine": {"a": 1}},
    }


def test_add_of_the_same_task_again_changes_nothing_and_of_another_is_not_allowed(
    stage: Stage,
) -> None:
    before = stage.files()
    assert stage.run("add", "A-001-core").json()["verdict"] == "UNCHANGED"
    other = stage.run("add", "A-001-core", "--title", "Another")
    assert (other.code, other.out, other.error()["code"]) == (4, "", "TASK_EXISTS")
    assert "edit it instead" in other.error()["message"]
    assert stage.files() == before


def test_add_says_what_was_perhaps_meant_as_an_import_does(stage: Stage) -> None:
    asked = (
        "an id that names its track has a number of three digits, from 001, as in "
        "A-001-core-framework"
    )
    ran = stage.run("add", "A-2-api")
    assert (ran.code, ran.json()["verdict"], ran.err) == (
        0,
        "DONE",
        f"A-2-api: by this id the task has no track: {asked}\n",
    )
    assert stage.run("add", "A-2-api").err == ran.err, (
        "who adds it again may not have read it the first time"
    )
    assert (
        stage.run("add", "A-3-api", "--track", "A").err
        == f"A-3-api: by this id the task has no number in track A: {asked}\n"
    )
    slip = stage.run("add", "A-004-api", "--set", "titel=x")
    assert (slip.code, slip.err) == (
        0,
        "A-004-api: there is no field 'titel', so it is kept in metadata; did you mean title?\n",
    )
    assert stage.run("add", "A-5-api", "-q").err == ""
    assert stage.run("add", "A-006-api").err == ""
    refused = stage.run("add", "A-7-api", "-d", "nothing")
    assert refused.code == 2
    assert "by this id" not in refused.err, "what is refused is said alone"


def test_a_task_is_added_to_the_backlog_under_a_parent_reserved_or_for_later(stage: Stage) -> None:
    assert stage.run("add", "someday", "--backlog").json()["state"] == "BACKLOG"
    assert stage.run("add", "child", "--parent", "A-001-core", "-q").out == "child\n"
    assert stage.run("show", "A-001-core").json()["unfinished_children"] == ["child"]
    stage.run("add", "for-bob", "--assign", "bob", "--track", "B")
    assert stage.run("claim", "for-bob").json()["reason"] == "DENIED_ASSIGNED"
    assert (
        stage.run("add", "later", "--not-before", "2999-01-01T00:00:00Z").json()["state"]
        == "BLOCKED"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([""], "task id is empty"),
        (["a/b"], "character 2 is '/' (a slash)"),
        (["fix-🐛"], "not ASCII: BUG"),
        (["x" * 100_000], "is too long: 100000 characters"),
        ([".."], "is a folder's name"),
        (["new", "-d", "absent"], "absent"),
        (["new", "-d", "new"], "is the task itself"),
        (
            ["new", "--priority", "urgent"],
            "priority must be one of critical, high, medium, low, not 'urgent'",
        ),
        (["new", "--isolation", "vm"], "isolation must be one of none, worktree, container"),
        (["new", "--not-before", "tomorrow"], "not_before must be a time in ISO 8601"),
        (["new", "--not-before", "2026-01-01T00:00:00"], "has no time zone"),
        (["new", "--lease", "-1"], "is no length of time"),
        (["new", "--lease", "soon"], "'soon' is no length of time"),
        (["new", "--set", "tags=x"], "tags must be a list of strings"),
        (["new", "--set", "phase"], "write FIELD=VALUE"),
        (["new", "--title", "a", "--set", "title=b"], "title is given twice"),
        (["new", "--set", "depth=7"], "depth follows from the id"),
        (["new", "--title", "x" * 20_000], "at most 16,384 are kept"),
        (["A-002-x", "--track", "B"], "track 'B' contradicts the id"),
        (["new", "--parent", "absent"], "absent"),
    ],
)
def test_a_definition_that_is_wrong_is_bad_input_and_nothing_is_added(
    stage: Stage, arguments: list[str], complaint: str
) -> None:
    before = stage.files()
    ran = stage.run("add", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err
    assert stage.files() == before


def test_edit_replaces_what_is_named_and_nothing_else(stage: Stage) -> None:
    stage.add({"id": "B-001-docs", "title": "Docs", "tags": ["x"]})
    said = stage.run(
        "edit",
        "B-001-docs",
        "--priority",
        "low",
        "-d",
        "A-001-core",
        "--set",
        "human_required=true",
    ).json()
    assert said == {
        "verdict": "DONE",
        "task_id": "B-001-docs",
        "state": "BLOCKED",
        "changed": ["depends_on", "human_required", "priority"],
    }
    task = stage.run("show", "B-001-docs").json()["task"]
    assert (task["title"], task["tags"], task["priority"], task["depends_on"]) == (
        "Docs",
        ["x"],
        "low",
        ["A-001-core"],
    )
    assert stage.run("edit", "B-001-docs", "--priority", "low").json()["verdict"] == "UNCHANGED"
    assert stage.run("edit", "B-001-docs", "--no-depends-on").json()["state"] == "PENDING"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["A-001-core"], 2, "nothing to change"),
        (["A-001-core", "-d", "A-001-core"], 2, "is the task itself"),
        (["A-001-core", "-d", "absent"], 2, "there is no task 'absent' to depend on"),
        (
            ["A-001-core", "-d", "B-001-docs"],
            2,
            "A-001-core would wait for itself: A-001-core → B-001-docs → A-001-core",
        ),
        (["A-001-core", "-d", "B-001-docs", "--no-depends-on"], 2, "exclude each other"),
        (["A-001-core", "--set", "id=x"], 2, "id"),
        (["A-001-core", "--set", "colour=red"], 2, "a task has no field 'colour'"),
        (["C-404-nowhere", "--title", "x"], 3, "there is no task 'C-404-nowhere'"),
        (["a b", "--title", "x"], 2, "whitespace"),
    ],
)
def test_an_edit_that_is_wrong_changes_nothing(
    stage: Stage, arguments: list[str], code: int, complaint: str
) -> None:
    stage.add({"id": "B-001-docs", "depends_on": ["A-001-core"]})
    before = stage.files()
    ran = stage.run("edit", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert complaint in ran.err
    assert stage.files() == before


def test_next_id_is_given_once(stage: Stage) -> None:
    assert stage.run("next-id").json() == {"ids": ["0001"]}
    assert stage.run("next-id", "--count", 3, "-q").out == "0002\n0003\n0004\n"
    assert stage.run("next-id", "--under", "0001", "-q").out == "0001_t1\n"
    assert stage.run("next-id", "--under", "A-001-core", "-q").out == "A-001-core::1\n"


@pytest.mark.parametrize(
    "arguments", [["--count", "0"], ["--count", "1001"], ["--count", "x"], ["--under", "a/b"]]
)
def test_next_id_with_wrong_options_is_bad_input(stage: Stage, arguments: list[str]) -> None:
    ran = stage.run("next-id", *arguments)
    assert (ran.code, ran.out) == (2, "")
