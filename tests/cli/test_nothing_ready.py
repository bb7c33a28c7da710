"""`next` and `ready` where nothing can be claimed: whether the plan is finished or stuck, or others
are at work, and what to type."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.stage import Stage
from tests.cli.terminal import shown
from tests.servers.service import serving

PLAIN: dict[str, str | None] = {"NO_COLOR": "1", "GENLOCK_SESSION": "s9", "GENLOCK_AGENT": "s9"}


class Case(NamedTuple):
    """How a plan of two tasks came to offer nothing, and what is said then."""

    standing: str
    detail: str
    next: str
    """What to type after `next`."""
    ready: str
    """And after `ready`."""
    answer: str
    """What the operation itself answers, without a look at the whole plan."""


CASES = [
    Case(
        "empty",
        "project default has no tasks",
        "genlock plan import FILE",
        "genlock plan import FILE",
        "no task is ready that suits this agent; the project has no unfinished task",
    ),
    Case(
        "finished",
        "every task is finished",
        "genlock status",
        "genlock status",
        "no task is ready that suits this agent; the project has no unfinished task",
    ),
    Case(
        "reserved",
        "what is ready is reserved for another agent: A-001-core",
        "genlock explain A-001-core",
        "genlock explain A-001-core",
        "no task is ready that suits this agent; unfinished: 1 pending, 1 blocked",
    ),
    Case(
        "at_work",
        "1 task is at work, and no other can be claimed now",
        "genlock next --wait 300",
        "genlock status",
        "no task is ready that suits this agent; unfinished: 1 blocked, 1 in progress",
    ),
    Case(
        "waiting",
        "what is left waits for other tasks or for its time: 1 blocked",
        "genlock explain later",
        "genlock explain later",
        "no task is ready that suits this agent; unfinished: 1 blocked",
    ),
    Case(
        "stuck",
        "nobody is at work, and what is left does not open by itself: 1 blocked, 1 held",
        "genlock explain A-001-core",
        "genlock explain A-001-core",
        "no task is ready that suits this agent; unfinished: 1 blocked, 1 held",
    ),
]


@pytest.fixture(params=CASES, ids=lambda case: case.standing)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def stage(tmp_path: Path, case: Case) -> Stage:
    stage = Stage(tmp_path / "project")
    with stage.library() as fleet:
        if case.standing == "waiting":
            fleet.add_tasks(tasks=[{"id": "later", "not_before": "2099-01-01T00:00:00Z"}])
        elif case.standing != "empty":
            fleet.add_tasks(tasks=["A-001-core", {"id": "A-002-api", "depends_on": ["A-001-core"]}])
        match case.standing:
            case "finished":
                fleet.cancel_task(task_id="A-001-core")
                fleet.cancel_task(task_id="A-002-api")
            case "reserved":
                fleet.assign_task(task_id="A-001-core", agent_id="bob")
            case "at_work":
                fleet.claim_task(task_id="A-001-core")
            case "stuck":
                fleet.hold_task(task_id="A-001-core", reason="wait for the customer")
            case _:
                pass
    return stage


def test_next_says_why_nothing_is_ready_and_what_to_type(stage: Stage, case: Case) -> None:
    ran = stage.run("next", as_="s9")
    said = ran.json()
    assert (ran.code, ran.err, said["reason"], said["detail"]) == (
        3,
        "",
        "NOTHING_READY",
        case.answer,
    )
    assert said["outlook"] == {
        "standing": case.standing,
        "detail": case.detail,
        "try_next": [case.next.split()],
    }
    assert (said["message"], said["try_next"]) == (case.detail, [case.next.split()])
    exported = stage.run("next", "--export", as_="s9")
    assert (exported.code, exported.out, exported.err) == (
        3,
        "unset GENLOCK_TASK GENLOCK_GENERATION\n(exit 3)\n",
        f"genlock: not granted, NOTHING_READY: {case.detail}\n",
    )
    code, lines = shown("next", cwd=stage.folder, columns=120, env=PLAIN)
    assert (code, lines) == (3, [f"nothing, NOTHING_READY: {case.detail}", f"  {case.next}"])
    code, lines = shown("next", "--dry-run", cwd=stage.folder, columns=120, env=PLAIN)
    assert (code, lines) == (
        3,
        ["would be granted: nothing", f"  {case.detail}", f"  {case.next}"],
    )


def test_run_says_why_nothing_is_ready(stage: Stage, case: Case) -> None:
    ran = stage.run("run", "--next", "--", "true", as_="s9")
    assert (ran.code, ran.out, ran.err) == (3, "", f"genlock: nothing_ready: {case.detail}\n")


def test_ready_says_why_nothing_is_and_what_to_type(stage: Stage, case: Case) -> None:
    ran = stage.run("ready", as_="s9")
    said = ran.json()
    assert (ran.code, ran.err, said["ready_tasks"]) == (0, "", [])
    assert said["outlook"] == {
        "standing": case.standing,
        "detail": case.detail,
        "try_next": [case.ready.split()],
    }
    code, lines = shown("ready", cwd=stage.folder, columns=120, env=PLAIN)
    assert (code, lines[:2]) == (0, [f"nothing is ready: {case.detail}", f"  {case.ready}"])


def test_through_a_service_it_is_said_alike(stage: Stage, case: Case) -> None:
    with serving(stage.url) as service:
        ran = stage.run("next", as_="s9", env={"GENLOCK_URL": service.url})
    assert (ran.code, ran.json()["outlook"]) == (
        3,
        {"standing": case.standing, "detail": case.detail, "try_next": [case.next.split()]},
    )


def test_where_something_is_ready_nothing_is_said_of_the_rest(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "project")
    stage.add("A-001-core", {"id": "A-002-api", "depends_on": ["A-001-core"]})
    assert "outlook" not in stage.run("ready").json()
    assert "outlook" not in stage.run("next").json()


def test_a_track_is_told_from_the_rest_of_the_plan(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "project")
    stage.add("A-001-core", "B-001-docs", {"id": "B-002-index", "depends_on": ["A-001-core"]})
    stage.complete("A-001-core")
    said = [
        stage.run(verb, "--track", "A").json()["outlook"]["detail"] for verb in ("next", "ready")
    ]
    assert said == ["every task of track A is finished"] * 2
    unknown = stage.run("next", "--track", "Z")
    assert (unknown.json()["outlook"]["standing"], unknown.err) == (
        "empty",
        "no task has track Z; there are: A, B\n",
    )
