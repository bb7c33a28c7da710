"""What people may type for ids, tracks and lengths of time."""

from __future__ import annotations

from pathlib import Path

import pytest

import genlock
from genlock.core.durations import read_duration
from genlock.errors import BadArgument
from tests.cli.console import Ran, run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    run("init", cwd=tmp_path)
    with genlock.connect(f"sqlite://{tmp_path}/.genlock/genlock.db") as fleet:
        fleet.add_tasks(
            tasks=[
                "A-001-core",
                "B-002-entities",
                "B-003-views",
                "0001",
                "0001_t10",
                "B-002-entities::1",
            ]
        )
    return tmp_path


def done(project: Path, *words: object) -> Ran:
    ran = run(*words, cwd=project)
    assert ran.code == 0, ran.err
    return ran


# Ids


@pytest.mark.parametrize("typed", ["A-001", "a-001-co", "A-001-core"])
def test_a_unique_beginning_of_an_id_is_enough(project: Path, typed: str) -> None:
    assert done(project, "claim", typed).json()["claim"]["task_id"] == "A-001-core"
    assert done(project, "renew", typed, "-g", "1").json()["success"] is True
    assert done(project, "show", typed).json()["task"]["id"] == "A-001-core"


def test_a_task_is_meant_before_its_subtasks(project: Path) -> None:
    assert done(project, "show", "B-002").json()["task"]["id"] == "B-002-entities"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("B-00", "did you mean B-002-entities or B-002-entities::1 or B-003-views?"),
        ("0001_t1", "did you mean 0001_t10?"),
        ("A-", "did you mean A-001-core?"),
        ("A-0", "did you mean A-001-core?"),
        ("C-001", "there is no task 'C-001' in project 'default' of tenant 'default'"),
    ],
)
def test_several_or_too_little_is_asked_about(project: Path, typed: str, told: str) -> None:
    ran = run("cancel", typed, cwd=project)
    assert ran.code == 3
    assert told in ran.error()["message"]


def test_a_task_with_a_title_alone_is_given_an_id(project: Path) -> None:
    titles = [
        ("Fix the login!", "fix-the-login"),
        ("Fix the login!", "fix-the-login"),
        ("Fix the: login", "fix-the-login-2"),
    ]
    for title, made in titles:
        assert done(project, "add", title, "-q").out == f"{made}\n"
    for title, made in [("Draw it", "B-004-draw-it"), ("Ship it", "B-005-ship-it")]:
        assert done(project, "add", title, "--track", "b", "-q").out == f"{made}\n"
    assert done(project, "show", "B-005").json()["task"]["title"] == "Ship it"
    ran = run("add", "Fix the login", "--title", "another", cwd=project)
    assert "two titles are given, 'Fix the login' and 'another'" in ran.error()["message"]


# Tracks


def test_tracks_in_lower_case_are_those_in_capitals(project: Path) -> None:
    assert done(project, "ready", "--track", "a").json()["ready_tasks"][0]["track"] == "A"
    assert done(project, "next", "--track", "b", "-q").out == "B-002-entities::1\n1\n"
    with genlock.connect("memory://", create=True) as fleet:
        fleet.import_plan(source={"tracks": {"ops": [{"id": "disk", "track": "ops"}]}})
        assert fleet.get_task_state(task_id="disk").task.track == "OPS"
        fleet.set_policy(tracks={"ops": "Keep it running"}, policy={"agents_on_track": {"OPS": 2}})
        assert fleet.get_policy().tracks == {"OPS": "Keep it running"}


def test_a_track_may_be_as_long_as_an_id_that_begins_with_it(project: Path) -> None:
    track = "VERYLONGTRACKNAMEINDEED"
    done(project, "add", f"{track}-001-x")
    assert done(project, "next", "--track", track.lower(), "-q").out == f"{track}-001-x\n1\n"


def test_a_track_that_nobody_has_described_has_no_title(project: Path) -> None:
    drawn = done(project, "graph", "--text").out
    assert "A (0 of 1 done)" in drawn
    assert "Core Architecture" not in drawn
    assert run("policy", "show", cwd=project).json()["tracks"]["A"] == "Core Architecture"
    plan = project / "plan.yaml"
    plan.write_text(
        "tracks:\n  A:\n    purpose: Groundwork\n    tasks: [{id: A-001-core}]\n  B: []\n"
    )
    done(project, "plan", "import", plan)
    assert "A · Groundwork (0 of 1 done)" in done(project, "graph", "--text").out


# Times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("2D", 172800.0),
    ],
)
def test_a_length_of_time_is_seconds_or_has_units(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "m", "5x", "-5m", "5m 3", "1e3", "five", "1h-2m", "٥m", "nan"]
)
def test_anything_else_is_refused_with_how_to_write_it(text: str) -> None:
    with pytest.raises(BadArgument, match="is no length of time: write seconds, or 90s, 5m, 1h30m"):
        read_duration(text)


def test_units_may_stand_wherever_seconds_or_hours_are_taken(project: Path) -> None:
    (project / "plan.yaml").write_text(
        "tasks:\n  - {id: x, lease_seconds: 2m, estimate_seconds: 1h, lock_timeout_hours: 90m}\n"
    )
    done(project, "plan", "import", "plan.yaml")
    task = done(project, "show", "x").json()["task"]
    assert [task[name] for name in ("lease_seconds", "estimate_seconds", "lock_timeout_hours")] == [
        120.0,
        3600.0,
        1.5,
    ]
    done(project, "policy", "set", "grace_seconds=2m", "lock_timeout_hours=30m")
    policy = done(project, "policy", "show").json()["policy"]
    assert (policy["grace_seconds"], policy["lock_timeout_hours"]) == (120.0, 0.5)
    claim = done(project, "claim", "A-001", "--lease", "5m").json()["claim"]
    assert claim["lease_seconds"] == 300.0
    assert done(project, "next", "--wait", "0s", "--lease", "1m").code == 0
    ran = run("renew", "A-001", "-g", "1", env={"GENLOCK_LEASE_SECONDS": "4m"}, cwd=project)
    assert ran.code == 0
    ran = run("renew", "A-001", "-g", "1", "--lease", "5x", cwd=project)
    assert "'5x' is no length of time" in ran.error()["message"]
    done(project, "assign", "B-002-entities", "--to", "bob", "--hours", "30m")


def test_a_length_of_time_in_a_plan_that_is_none_is_a_fault_with_its_place() -> None:
    wrong = pytest.raises(BadArgument, match="lease_seconds must be a number")
    with genlock.connect("memory://", create=True) as fleet, wrong:
        fleet.add_tasks(tasks=[{"id": "x", "lease_seconds": "soon"}])
