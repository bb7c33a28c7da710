"""The verbs of readers, as processes: ready, show, history, explain, agents, sessions, refused."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import Stage
from tests.cli.terminal import shown

TASK = "A-001-core"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A project with three tasks, of which the second waits for the first."""
    stage = Stage(tmp_path / "project")
    stage.add(
        {
            "id": TASK,
            "title": "The core",
            "priority": "high",
            "parallelizable": True,
            "isolation": "worktree",
        },
        {"id": "A-002-api", "depends_on": [TASK]},
        {"id": "B-001-docs"},
    )
    return stage


# list


def test_list_has_rows_counts_and_pages(stage: Stage) -> None:
    stage.claim(TASK, "ada", lease=3600)
    ran = stage.run("list", "--json", "--limit", "2")
    said = ran.json()
    assert [row["id"] for row in said["tasks"]] == [TASK, "B-001-docs"]
    assert (said["total"], said["counts"]) == (3, {"PENDING": 1, "BLOCKED": 1, "IN_PROGRESS": 1})
    assert said["tasks"][0]["holder"]["agent_id"] == "ada"
    assert ran.err == f"3 match; the next page: --after {said['next']}\n"
    more = stage.run("list", "-q", "--limit", "2", "--after", said["next"])
    assert (more.out, more.err) == ("A-002-api\n", "")


def test_list_takes_filters(stage: Stage) -> None:
    stage.claim(TASK, "ada", lease=3600)

    def listed(*options: str) -> list[str]:
        return stage.run("list", "-q", *options).out.split()

    assert listed("--state", "in-progress") == [TASK]
    assert listed("--state", "pending", "--state", "BLOCKED") == ["B-001-docs", "A-002-api"]
    assert listed("--track", "B") == ["B-001-docs"]
    assert listed("--agent", "ada") == [TASK]
    assert listed("--search", "the core") == [TASK]
    assert listed("--sort", "id", "--reverse") == ["B-001-docs", "A-002-api", TASK]
    assert stage.run("list", "--state", "open").code == 2
    assert "states are of BACKLOG, PENDING" in stage.run("list", "--state", "open").err


def test_list_on_a_terminal_is_a_table(stage: Stage) -> None:
    stage.claim(TASK, "ada", lease=3600)
    code, lines = shown("list", cwd=stage.folder, env={"NO_COLOR": "1"})
    assert code == 0
    assert " ".join(lines[0].split()) == (
        "task state held by gen lease ends priority waits for title"
    )
    assert [line.split()[:2] for line in lines[1:4]] == [
        [TASK, "in"],
        ["B-001-docs", "pending"],
        ["A-002-api", "blocked"],
    ]
    assert lines[5] == "3 tasks; by state: 1 pending, 1 blocked, 1 in progress"


# ready


def test_ready_has_the_documented_shape(stage: Stage) -> None:
    ran = stage.run("ready", "--json")
    assert (ran.code, ran.err) == (0, "")
    first = {"id": TASK, "title": "The core", "track": "A", "priority": "high", "assigned_to": None}
    docs = {
        "id": "B-001-docs",
        "title": "",
        "track": "B",
        "priority": "medium",
        "assigned_to": None,
    }
    assert ran.json() == {
        "ready_tasks": [
            {**first, "parallelizable": True, "isolation": "worktree"},
            {**docs, "parallelizable": False, "isolation": "none"},
        ],
        "blocked_tasks": [{"id": "A-002-api", "title": "", "track": "A", "blocked_by": [TASK]}],
    }


def test_ready_off_a_terminal_is_json_and_quiet_is_ids(stage: Stage) -> None:
    assert stage.run("ready").out == stage.run("ready", "--json").out
    assert stage.run("ready", "-q").out == f"{TASK}\nB-001-docs\n"


def test_ready_has_a_bound_off_a_terminal_too_and_says_how_to_get_more(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "large")
    stage.add(*(f"task-{number:04}" for number in range(1200)))
    names = [f"task-{number:04}" for number in range(1200)]
    some = stage.run("ready")
    assert [line["id"] for line in some.json()["ready_tasks"]] == names[:100]
    assert some.err == "there are more: genlock ready --all\n"
    every = stage.run("ready", "--all")
    assert ([line["id"] for line in every.json()["ready_tasks"]], every.err) == (names, "")
    assert [line["id"] for line in stage.run("ready", "--limit", 2).json()["ready_tasks"]] == names[
        :2
    ]
    assert stage.run("ready", "-q").out.splitlines() == names, (
        "ids alone, with nobody to be told that there are more"
    )
    assert stage.run("ready", "--all", "--limit", 2).code == 2


@pytest.mark.parametrize(
    "words",
    [["ready"], ["graph"], ["agents"], ["plan", "show"], ["events"], ["next"]],
    ids=" ".join,
)
def test_a_project_that_is_not_there_is_told_from_an_empty_one(
    stage: Stage, words: list[str]
) -> None:
    ran = stage.run(*words, "--project", "typo")
    assert ran.error()["message"] == (
        "there is no project 'typo' in this store; there are: default"
    )
    assert ran.code == 3


def test_in_a_new_store_nothing_is_said_to_be_missing(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "new")
    assert stage.run("ready").err == ""
    assert (
        stage.run("ready", "--project", "x").error()["message"]
        == "there is no project 'x' in this store, nor any other of tenant 'default'"
    )


def test_a_track_that_no_task_has_is_named_beside_those_there_are(stage: Stage) -> None:
    assert stage.run("ready", "--track", "ZZZ").err == "no task has track ZZZ; there are: A, B\n"
    stage.claim("B-001-docs")
    assert stage.run("ready", "--track", "B").err == "", "it is there, and nothing of it is ready"


def test_a_task_that_is_not_there_is_told_with_those_that_were_perhaps_meant(stage: Stage) -> None:
    for typed in ("A-001-corre", "A-001-kore"):
        ran = stage.run("show", typed)
        assert (ran.code, ran.error()["code"]) == (3, "TASK_NOT_FOUND")
        assert ran.error()["message"].endswith(f"; did you mean {TASK}?")
    assert "did you mean" not in stage.run("show", "something-else").error()["message"]


def test_ready_of_a_track_leaves_the_others_out(stage: Stage) -> None:
    said = stage.run("ready", "--track", "B").json()
    assert ([line["id"] for line in said["ready_tasks"]], said["blocked_tasks"]) == (
        ["B-001-docs"],
        [],
    )
    assert stage.run("ready", "--track", "A", "--track", "B", "-q").out == f"{TASK}\nB-001-docs\n"


def test_ready_for_an_agent_has_what_is_reserved_for_it(stage: Stage) -> None:
    with stage.library() as fleet:
        fleet.assign_task(task_id=TASK, agent_id="bob")
    nobody: dict[str, str | None] = {"GENLOCK_AGENT": None}
    assert stage.run("ready", "-q", env=nobody).out == "B-001-docs\n"
    assert stage.run("ready", "--agent", "bob", "-q", env=nobody).out == f"{TASK}\nB-001-docs\n"
    assert stage.run("ready", "-q", env={"GENLOCK_AGENT": "bob"}).out == f"{TASK}\nB-001-docs\n"
    assert stage.run("ready", "--agent", "eve", "-q").out == "B-001-docs\n"


def test_ready_leaves_out_what_is_claimed_and_offers_what_has_expired(stage: Stage) -> None:
    stage.claim("B-001-docs")
    stage.claim(TASK, "s2", ago=3600, lease=60)
    assert stage.run("ready", "-q").out == f"{TASK}\n"


def test_ready_with_nothing_ready_is_an_empty_answer_and_no_error(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "done")
    stage.add(TASK)
    stage.complete(TASK)
    before = stage.files()
    ran = stage.run("ready")
    finished = {
        "standing": "finished",
        "detail": "every task is finished",
        "try_next": [["genlock", "status"]],
    }
    assert (ran.code, ran.json()) == (
        0,
        {"ready_tasks": [], "blocked_tasks": [], "outlook": finished},
    )
    assert stage.files() == before


def test_a_look_writes_nothing(stage: Stage) -> None:
    stage.complete("B-001-docs")
    stage.claim(TASK)
    before = stage.files()
    for verb in (
        ["ready"],
        ["show", TASK],
        ["history", TASK],
        ["explain", "A-002-api"],
        ["agents"],
        ["sessions"],
        ["refused"],
        ["events"],
    ):
        assert stage.run(*verb).code == 0
    assert stage.run("next-id", "--count", 0).code == 2
    assert stage.files() == before


@pytest.mark.parametrize("limit", ["0", "-5", "100001", "many"])
def test_a_limit_that_is_none_is_bad_input(stage: Stage, limit: str) -> None:
    ran = stage.run("ready", "--limit", limit)
    assert (ran.code, ran.out) == (2, "")


# show and history


def test_show_has_all_about_a_task(stage: Stage) -> None:
    stage.claim(TASK)
    said = stage.run("show", TASK).json()
    assert (said["task"]["title"], said["state"], said["generation"]) == (
        "The core",
        "IN_PROGRESS",
        1,
    )
    assert (
        said["holder"]["agent"],
        said["holder"]["looks_alive"],
        said["claim"]["session_id"],
    ) == ("s1", True, "s1")
    waiting = stage.run("show", "A-002-api").json()
    assert (waiting["state"], waiting["unmet_dependencies"], waiting["holder"]) == (
        "BLOCKED",
        [TASK],
        None,
    )


def test_show_result_is_the_data_alone(stage: Stage) -> None:
    none = stage.run("show", TASK, "--result")
    assert (none.code, none.out, none.error()["code"]) == (3, "", "RESULT_NOT_FOUND")
    stage.complete(TASK)
    assert stage.run("show", TASK, "--result").json() == {"done": TASK}
    assert stage.run("show", TASK, "--result", "-q").out == f'{{"done":"{TASK}"}}\n'


def test_a_refused_result_is_shown_by_its_digest(stage: Stage) -> None:
    stage.claim(TASK)
    stage.submit(TASK, 9, data="too early")
    digest = stage.run("refused", TASK).json()["refused"][0]["digest"]
    assert stage.run("show", TASK, "--result", "--digest", digest).json() == "too early"
    assert stage.run("show", TASK, "--digest", digest).code == 2


def test_history_tells_every_generation_and_the_refused_submissions(stage: Stage) -> None:
    stage.claim(TASK, "alice", ago=3600, lease=60)
    stage.claim(TASK, "bob")
    stage.submit(TASK, 2, "bob", {"by": "bob"})
    stage.submit(TASK, 1, "alice", {"by": "alice"})
    said = stage.run("history", TASK).json()
    assert said["task_id"] == TASK
    told = [
        (
            line["generation"],
            line["session_id"],
            line["release_reason"],
            line["result_accepted"],
            line["result_rejected"],
        )
        for line in said["generations"]
    ]
    assert told == [(1, "alice", "EXPIRED", False, True), (2, "bob", "COMPLETED", True, False)]
    refused = [
        (line["session_id"], line["generation"], line["rejection_reason"], line["state"])
        for line in said["refused"]
    ]
    assert refused == [("alice", 1, "STALE_GENERATION", "KEPT")]
    assert stage.run("history", TASK, "-q").out == "1\n2\n"


# explain


def free(stage: Stage) -> str:
    return TASK


def completed(stage: Stage) -> str:
    stage.complete(TASK)
    return TASK


def held(stage: Stage) -> str:
    with stage.library() as fleet:
        fleet.hold_task(task_id=TASK, reason="the design is open")
    return TASK


def reserved(stage: Stage) -> str:
    with stage.library() as fleet:
        fleet.assign_task(task_id=TASK, agent_id="bob")
    return TASK


def taken(stage: Stage) -> str:
    stage.claim(TASK, "s2")
    return TASK


def blocked(stage: Stage) -> str:
    return "A-002-api"


def early(stage: Stage) -> str:
    stage.add({"id": "later", "not_before": "2999-01-01T00:00:00Z"})
    return "later"


def backlog(stage: Stage) -> str:
    stage.add({"id": "later", "state": "backlog"})
    return "later"


@pytest.mark.parametrize(
    ("before", "reason", "because", "commands"),
    [
        (free, "GRANTED", "a claim would be granted now", [f"genlock claim {TASK}"]),
        (
            backlog,
            "GRANTED",
            "it is in the backlog: only a claim by name is granted",
            ["genlock reopen later", "genlock claim later"],
        ),
        (
            completed,
            "DENIED_COMPLETED",
            "it is completed",
            [f"genlock show {TASK}", f"genlock reset {TASK}"],
        ),
        (held, "DENIED_HELD", "it is held: the design is open", [f"genlock reopen {TASK}"]),
        (reserved, "DENIED_ASSIGNED", "it is reserved for bob", [f"genlock assign {TASK} AGENT"]),
        (
            taken,
            "DENIED_ACTIVE_CLAIM",
            "s2 (session s2) holds it",
            [f"genlock events --follow --task {TASK}", f"genlock unlock {TASK} --force"],
        ),
        (
            early,
            "DENIED_BLOCKED",
            "opens not before 2999-01-01T00:00:00Z",
            ["genlock edit later --set not_before=null"],
        ),
        (blocked, "DENIED_BLOCKED", f"waits for {TASK}", [f"genlock claim {TASK}"]),
    ],
)
def test_explain_says_why_and_what_to_type(
    stage: Stage, before: Callable[[Stage], str], reason: str, because: str, commands: list[str]
) -> None:
    task = before(stage)
    ran = stage.run("explain", task)
    said = ran.json()
    assert (ran.code, said["reason"], said["ready"], said["try_next"]) == (
        0,
        reason,
        reason == "GRANTED",
        [shlex.split(command) for command in commands],
    )
    assert any(line.startswith(because) for line in said["because"])
    assert stage.run("explain", task, "-q").out == f"{reason}\n"
    # What it says to type can be typed, and helps: the last command of each leaves the task ready,
    # or explains the next one.
    for command in commands:
        arguments = shlex.split(command.replace("AGENT", "s1"))[1:]
        if "--follow" not in arguments:
            assert stage.run(*arguments).code == 0
    if reason != "GRANTED":
        assert stage.run("explain", TASK if before is blocked else task, "-q").out == "GRANTED\n"


def test_explain_on_a_task_of_ones_own_says_so_and_offers_what_its_holder_can_do(
    stage: Stage,
) -> None:
    generation = stage.claim(TASK, "s1")
    commands = [f"genlock {verb} {TASK} -g {generation}" for verb in ("renew", "submit", "release")]
    same = stage.run("explain", TASK).json()
    assert (same["reason"], same["own_generation"], same["try_next"]) == (
        "GRANTED",
        generation,
        [shlex.split(command) for command in commands],
    )
    assert same["because"][0].startswith(
        f"your session holds it at generation {generation}, as s1, lease until 20"
    )
    nameless = stage.run("explain", TASK, env={"GENLOCK_AGENT": "another"}).json()
    assert (nameless["reason"], nameless["own_generation"], nameless["try_next"]) == (
        "DENIED_ACTIVE_CLAIM",
        generation,
        [shlex.split(command) for command in commands],
    )
    assert nameless["because"][1] == "a claim as another would be denied; say that you are s1"
    told = shown("explain", TASK, cwd=stage.folder, env={"GENLOCK_SESSION": "s1"})[1]
    assert f"{TASK} is IN_PROGRESS: you hold it" in told[0]
    assert not any("unlock" in line for line in told)
    assert stage.run("explain", TASK, as_="s2").json()["own_generation"] is None


def test_explain_names_a_limit_that_the_lease_is_over(stage: Stage) -> None:
    said = stage.run("explain", TASK, "--lease", "0.5").json()
    assert (said["reason"], said["because"]) == (
        "DENIED_LIMIT",
        ["under the limit min_lease_duration_seconds = 1: a lease lasts at least 1 s, not 0.5 s"],
    )


def test_explain_as_another_agent_says_why_that_one_would_not_get_it(stage: Stage) -> None:
    reserved(stage)
    assert stage.run("explain", TASK, "--as", "bob", "-q").out == "GRANTED\n"
    assert stage.run("explain", TASK, "--as", "eve", "-q").out == "DENIED_ASSIGNED\n"


def test_explain_goes_down_to_what_the_waiting_comes_down_to(stage: Stage) -> None:
    stage.add({"id": "last", "depends_on": ["A-002-api", "B-001-docs"]})
    with stage.library() as fleet:
        fleet.hold_task(task_id="B-001-docs", reason="no words yet")
    said = stage.run("explain", "last").json()
    assert said["waits_for"] == ["A-002-api", "B-001-docs"]
    assert said["roots"] == [
        {"task_id": "B-001-docs", "state": "HELD", "because": "held: no words yet"},
        {"task_id": TASK, "state": "PENDING", "because": "ready, nobody has claimed it"},
    ]
    stage.claim(TASK, "s2")
    assert (
        stage.run("explain", "last")
        .json()["roots"][1]["because"]
        .startswith("s2 (session s2) is at work, lease until 20")
    )


def test_explain_names_a_circle_and_the_edit_that_opens_it(stage: Stage) -> None:
    # A parent waits for its subtask, the subtask for a task that waits for the parent: it was done
    # once, and is to be done again.
    with stage.library() as fleet:
        for name in (TASK, "A-002-api"):
            stage.claim(name)
            fleet.submit_result(task_id=name, generation=1)
        fleet.reset_task(task_id=TASK)
        stage.claim(TASK)
        fleet.spawn_subtasks(
            task_id=TASK,
            generation=2,
            subtasks=[{"id": "piece", "depends_on": ["A-002-api", "B-001-docs"]}],
        )
        fleet.reset_task(task_id="A-002-api")
    said = stage.run("explain", "piece").json()
    assert (said["reason"], set(said["cycle"])) == ("DENIED_BLOCKED", {TASK, "piece", "A-002-api"})
    assert said["cycle"][0] == said["cycle"][-1]
    (command,) = said["try_next"]
    assert command in (
        ["genlock", "edit", "A-002-api", "--no-depends-on"],
        ["genlock", "edit", "piece", "--depends-on", "B-001-docs"],
    )
    assert stage.run(*command[1:]).code == 0
    assert stage.run("explain", "piece").json()["cycle"] == []


# The fleet


def test_agents_are_those_at_work(stage: Stage) -> None:
    assert stage.run("agents").json() == {"agents": []}
    stage.claim(TASK, "alice")
    stage.claim("B-001-docs", "bob")
    assert [
        (one["agent_id"], one["session_id"], one["status"], one["tasks"])
        for one in stage.run("agents").json()["agents"]
    ] == [
        ("alice", "alice", "working", [TASK]),
        ("bob", "bob", "working", ["B-001-docs"]),
    ]
    assert stage.run("agents", "-q").out == "alice\nbob\n"


def test_sessions_are_listed_with_what_they_hold(stage: Stage) -> None:
    stage.claim(TASK, "alice")
    with stage.library("old") as fleet:
        fleet.register_session()
        fleet.end_session()
    said: list[dict[str, Any]] = stage.run("sessions").json()["sessions"]
    assert [(line["session_id"], line["active"], line["pid"]) for line in said] == [
        ("alice", True, os.getpid())
    ]
    assert [(claim["task_id"], claim["generation"]) for claim in said[0]["claims"]] == [(TASK, 1)]
    assert stage.run("sessions", "--all", "-q").out == "alice\nold\n"


def test_refused_results_are_listed_until_they_are_settled(stage: Stage) -> None:
    stage.claim(TASK)
    stage.submit(TASK, 5, data="early")
    stage.claim("B-001-docs")
    stage.submit("B-001-docs", 5, data="early too")
    found = stage.run("refused").json()["refused"]
    assert {(line["task_id"], line["result_data"], line["state"]) for line in found} == {
        (TASK, "early", "KEPT"),
        ("B-001-docs", "early too", "KEPT"),
    }
    mine = stage.run("refused", TASK, "-q").out.strip()
    assert mine.startswith(f"{TASK}/5/s1/")
    assert len(stage.run("refused", "--limit", 1, "-q").out.splitlines()) == 1
    stage.run("discard", TASK, mine)
    assert stage.run("refused", TASK, "-q").out == ""
    assert stage.run("refused", TASK, "--all", "-q").out == f"{mine}\n"


@pytest.mark.parametrize("verb", ["show", "history", "explain", "refused"])
def test_an_unknown_task_ends_with_3_and_an_id_that_is_none_with_2(stage: Stage, verb: str) -> None:
    unknown = stage.run(verb, "C-404-nowhere")
    assert (unknown.code, unknown.out, unknown.error()["code"]) == (3, "", "TASK_NOT_FOUND")
    broken = stage.run(verb, "a b")
    assert (broken.code, broken.out, broken.error()["code"]) == (2, "", "BAD_ARGUMENT")
