"""`genlock status`, the first screen: on a terminal, for machines, on a store and through a
service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.console import run
from tests.cli.stage import Stage
from tests.cli.terminal import shown
from tests.servers.service import serving

PLAIN: dict[str, str | None] = {"NO_COLOR": "1", "GENLOCK_AGENT": None}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Somebody at work, somebody lost, something held, something in the backlog that others wait
    for, and a refused result."""
    stage = Stage(tmp_path_factory.mktemp("status") / "project")
    stage.add(
        {"id": "A-001-core", "title": "Core"},
        {"id": "A-002-api", "depends_on": ["A-001-core"]},
        {"id": "B-001-schema"},
        {"id": "B-002-models", "depends_on": ["B-001-schema"]},
        {"id": "B-003-views", "depends_on": ["B-001-schema"]},
        {"id": "later", "state": "backlog"},
        {"id": "idea", "state": "backlog"},
        {"id": "then", "depends_on": ["later"]},
        {"id": "lost"},
        {"id": "done"},
        {"id": "free", "title": "Something free", "priority": "low"},
    )
    stage.complete("done")
    stage.claim("A-001-core", "gone", ago=600, lease=60)
    stage.claim("A-001-core", "ada", lease=3600)
    stage.submit("A-001-core", 1, "gone", {"late": True})
    stage.claim("lost", "bob", ago=600, lease=60)
    with stage.library() as fleet:
        fleet.hold_task(task_id="B-001-schema", reason="wait for the customer")
    return stage


STUCK = [
    {
        "task_id": "B-001-schema",
        "state": "HELD",
        "why": "held: wait for the customer",
        "waited_for_by": 2,
    },
    {
        "task_id": "later",
        "state": "BACKLOG",
        "why": "in the backlog, and others wait for it",
        "waited_for_by": 1,
    },
    {
        "task_id": "lost",
        "state": "IN_PROGRESS",
        "why": "its holder, bob, looks lost",
        "waited_for_by": 0,
    },
]


def test_machines_are_told_the_states_who_is_on_what_what_is_stuck_and_what_is_next(
    stage: Stage,
) -> None:
    before = stage.files()
    ran = run("status", cwd=stage.folder)
    assert (ran.code, ran.err) == (0, "")
    said = ran.json()
    assert list(said) == ["project", "states", "at_work", "stuck", "next", "refused_results"]
    assert said["states"] == {
        "BACKLOG": 2,
        "PENDING": 1,
        "BLOCKED": 4,
        "IN_PROGRESS": 2,
        "COMPLETED": 1,
        "HELD": 1,
    }
    assert [
        (line["task"], line["agent"], line["session"], line["generation"], line["looks_alive"])
        for line in said["at_work"]
    ] == [
        ("A-001-core", "ada", "ada", 2, True),
        ("lost", "bob", "bob", 1, False),
    ]
    assert (said["stuck"], said["next"], said["refused_results"]) == (STUCK, ["lost", "free"], 1)
    assert stage.files() == before, "looking has written something"


def test_quiet_prints_the_states_and_their_numbers(stage: Stage) -> None:
    assert run("status", "-q", cwd=stage.folder).out.splitlines() == [
        "BACKLOG 2", "PENDING 1", "BLOCKED 4", "IN_PROGRESS 2", "COMPLETED 1", "HELD 1"
    ]  # fmt: skip


def test_on_a_terminal_it_is_one_screen(stage: Stage) -> None:
    code, lines = shown("status", cwd=stage.folder, env=PLAIN)
    # How long a lease still lasts depends on when one looks.
    assert (
        code,
        [
            line.partition("  in 5")[0].partition("  in 1h")[0].partition("  9m")[0].rstrip()
            for line in lines
        ],
    ) == (
        0,
        [
            "project default: 11 tasks: 2 backlog, 1 pending, 4 blocked, 2 in progress, 1",
            "  completed, 1 held",
            "",
            "agent  task        gen  lease ends  looks",
            "ada    A-001-core    2",
            "bob    lost          1",
            "",
            "stuck:",
            "task          why                                     waited for by",
            "B-001-schema  held: wait for the customer                         2",
            "later         in the backlog, and others wait for it              1",
            "lost          its holder, bob, looks lost",
            "  genlock explain B-001-schema",
            "",
            "next:",
            "task  priority  title",
            "lost  medium",
            "free  low       Something free",
            "",
            "1 refused result kept, to be adopted or discarded:",
            "  genlock refused",
        ],
    )


def test_where_the_policy_offers_the_backlog_it_holds_up_nobody(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "project")
    stage.add({"id": "later", "state": "backlog"}, {"id": "then", "depends_on": ["later"]})
    assert [line["task_id"] for line in stage.run("status").json()["stuck"]] == ["later"]
    assert stage.run("policy", "set", "offer_backlog=true").code == 0
    assert stage.run("status").json()["stuck"] == []


def test_an_empty_project_is_told_what_to_type(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "project")
    assert stage.run("status").json() == {
        "project": "default",
        "states": {},
        "at_work": [],
        "stuck": [],
        "next": [],
        "refused_results": 0,
    }
    code, lines = shown("status", cwd=stage.folder, env=PLAIN)
    assert (code, lines) == (
        0,
        ["project default has no tasks; to import a plan, type: genlock plan import FILE"],
    )
    stage.add("a")
    wrong = stage.run("status", "--project", "shop")
    assert (wrong.code, wrong.out, wrong.error()["message"]) == (
        3,
        "",
        "there is no project 'shop' in this store; there are: default",
    )
    assert run("status").code == 3, "where there is no store at all, that is said"


def test_a_service_answers_the_same() -> None:
    with serving("memory://") as service:
        env = {"GENLOCK_URL": service.url}
        plan = "\n".join(
            json.dumps(task)
            for task in ({"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c"})
        )
        assert run("plan", "import", "-", input=plan, env=env).code == 0
        assert run("hold", "a", "--reason", "why not", env=env).code == 0
        assert run("claim", "c", "--agent", "ada", env=env).code == 0
        said = run("status", env=env).json()
    assert said["states"] == {"BLOCKED": 1, "IN_PROGRESS": 1, "HELD": 1}
    assert [
        (line["task"], line["agent"], line["generation"], line["looks_alive"])
        for line in said["at_work"]
    ] == [("c", "ada", 1, True)]
    assert said["stuck"] == [
        {"task_id": "a", "state": "HELD", "why": "held: why not", "waited_for_by": 1}
    ]


def test_where_every_task_is_finished_that_is_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "project")
    stage.add("done", "dropped")
    stage.run("cancel", "dropped")
    assert "every task is finished" not in shown("status", cwd=stage.folder, env=PLAIN)[1]
    stage.run("cancel", "done")

    _, lines = shown("status", cwd=stage.folder, env=PLAIN)
    assert lines[-1] == "every task is finished"
