"""The verbs of operators, as processes: assign, unlock, reset, cancel, hold, reopen, adopt,
discard, sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import Stage

TASK = "A-001-core"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A project with a chain of three tasks."""
    stage = Stage(tmp_path / "project")
    stage.add(
        TASK,
        {"id": "A-002-api", "depends_on": [TASK]},
        {"id": "A-003-app", "depends_on": ["A-002-api"]},
    )
    return stage


def refused_id(stage: Stage) -> str:
    return stage.run("refused", TASK, "-q").out.strip()


def test_assign_reserves_a_task_and_takes_it_from_its_holder(stage: Stage) -> None:
    stage.claim(TASK)
    ran = stage.run("assign", TASK, "bob", "--hours", 2, "--force")
    said = ran.json()
    assert (ran.code, said["verdict"], said["state"], said["generation"]) == (
        0,
        "DONE",
        "PENDING",
        2,
    )
    assert (said["superseded"]["agent"], said["superseded"]["session"]) == ("s1", "s1")
    assert stage.run("claim", TASK).json()["reason"] == "DENIED_ASSIGNED"
    assert stage.run("claim", TASK, "-q", as_="bob").out == f"{TASK}\n2\n"


@pytest.mark.parametrize(
    ("typed", "again"),
    [
        (["unlock", TASK], f"unlock {TASK} --force"),
        (["assign", TASK, "bob", "--hours", "2"], f"assign {TASK} bob --hours 2 --force"),
        (["reset", TASK], f"reset {TASK} --force"),
        (["reset", TASK, "--cascade", "--yes"], f"reset {TASK} --cascade --yes --force"),
        (
            ["cancel", TASK, "--reason", "not needed"],
            f"cancel {TASK} --reason 'not needed' --force",
        ),
    ],
)
def test_a_live_claim_is_taken_away_only_with_force(
    stage: Stage, typed: list[str], again: str
) -> None:
    stage.claim(TASK, "alice")
    before = stage.files()
    ran = stage.run(*typed)
    assert (ran.code, ran.out, ran.error()["code"]) == (4, "", "LIVE_CLAIM")
    message = ran.error()["message"]
    assert message.startswith(f"task '{TASK}' is held by alice (session alice) until ")
    assert message.endswith(
        "Z; --force takes the claim away, and what its holder still submits is refused, and kept: "
        f"genlock {again}"
    )
    assert stage.files() == before
    assert stage.run(*typed, "--force").json()["superseded"]["session"] == "alice"


def test_a_claim_whose_lease_is_over_is_taken_away_without_force(stage: Stage) -> None:
    stage.claim(TASK, "alice", ago=3600, lease=60)
    assert stage.run("unlock", TASK).json()["superseded"]["session"] == "alice"


def test_unlock_by_force_fences_the_holder_off(stage: Stage) -> None:
    stage.claim(TASK, "alice")
    said = stage.run("unlock", TASK, "--force").json()
    assert (said["verdict"], said["state"], said["generation"], said["superseded"]["agent"]) == (
        "DONE",
        "PENDING",
        2,
        "alice",
    )
    assert stage.run("submit", TASK, "-g", 1, as_="alice").json()["reason"] == "STALE_GENERATION"


def test_unlock_of_what_nobody_holds_changes_nothing(stage: Stage) -> None:
    said = stage.run("unlock", TASK, "--force").json()
    assert (said["verdict"], said["generation"], said["superseded"]) == ("UNCHANGED", 0, None)
    assert stage.run("unlock", TASK).json() == said


def test_reset_has_a_task_done_again(stage: Stage) -> None:
    stage.complete(TASK)
    said = stage.run("reset", TASK).json()
    assert (said["verdict"], said["state"], said["generation"], said["cascade"]) == (
        "DONE",
        "PENDING",
        2,
        [],
    )
    assert stage.run("show", "A-002-api", "-q").out == "BLOCKED\n"


def test_reset_by_cascade_off_a_terminal_lists_what_it_would_do_and_needs_yes(stage: Stage) -> None:
    for task in (TASK, "A-002-api", "A-003-app"):
        stage.complete(task)
    before = stage.files()
    ran = stage.run("reset", TASK, "--cascade")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error()["message"] == (
        f"{TASK} and what rests on it, 2 completed tasks, would be reset:\n  A-002-api\n  "
        "A-003-app\n"
        f"There is no terminal to ask on; if you mean it, type: genlock reset {TASK} --cascade "
        "--yes"
    )
    assert stage.files() == before
    said = stage.run("reset", TASK, "--cascade", "--yes").json()
    assert (said["verdict"], said["cascade"]) == ("DONE", ["A-002-api", "A-003-app"])
    assert [stage.run("show", task, "-q").out for task in (TASK, "A-002-api", "A-003-app")] == [
        "PENDING\n",
        "BLOCKED\n",
        "BLOCKED\n",
    ]


def test_cancel_counts_as_done_for_what_depends_on_it(stage: Stage) -> None:
    said = stage.run("cancel", TASK, "--reason", "not needed").json()
    assert (said["verdict"], said["state"], said["generation"]) == ("DONE", "CANCELLED", 1)
    assert stage.run("ready", "-q").out == "A-002-api\n"
    assert stage.run("cancel", TASK).json()["verdict"] == "UNCHANGED"


def test_assign_takes_the_agent_with_to_as_the_document_writes_it(stage: Stage) -> None:
    assert stage.run("assign", TASK, "--to", "bob").code == 0
    assert stage.run("show", TASK).json()["task"]["assigned_to"] == "bob"
    two = stage.run("assign", TASK, "bob", "--to", "carol")
    assert (two.code, two.error()["message"]) == (
        2,
        "two agents are named, 'bob' and 'carol'; name one",
    )
    none = stage.run("assign", TASK)
    assert none.error()["message"] == f"for which agent? genlock assign {TASK} --to AGENT"


def test_a_completed_task_cannot_be_cancelled_held_reopened_or_assigned(stage: Stage) -> None:
    stage.complete(TASK)
    before = stage.files()
    for arguments in (["cancel", TASK], ["hold", TASK], ["reopen", TASK], ["assign", TASK, "bob"]):
        ran = stage.run(*arguments)
        assert (ran.code, ran.out, ran.error()["code"]) == (4, "", "NOT_ALLOWED")
        assert (
            ran.error()["message"] == f"task '{TASK}' is COMPLETED; to have it done again, reset it"
        )
    assert stage.files() == before


def test_hold_lets_nobody_have_a_task_until_it_is_reopened(stage: Stage) -> None:
    assert stage.run("hold", TASK, "--reason", "wait for Bob").json()["state"] == "HELD"
    assert stage.run("hold", TASK).json()["verdict"] == "UNCHANGED"
    assert stage.run("show", TASK).json()["hold_reason"] == "wait for Bob"
    assert stage.run("next").code == 3
    assert stage.run("reopen", TASK).json()["state"] == "PENDING"
    assert stage.run("reopen", TASK).json()["verdict"] == "UNCHANGED"
    assert stage.run("next", "-q").out == f"{TASK}\n1\n"


def test_an_operator_adopts_a_refused_result(stage: Stage) -> None:
    stage.claim(TASK, "alice", ago=3600, lease=60)
    stage.claim(TASK, "bob")
    stage.submit(TASK, 1, "alice", {"by": "alice"})
    name = refused_id(stage)
    live = stage.run("adopt", TASK, name)
    assert (live.code, live.out, live.error()["code"]) == (4, "", "LIVE_CLAIM")
    assert live.error()["message"].endswith(
        f"refused, and kept: genlock adopt {TASK} {name} --force"
    )
    ran = stage.run("adopt", TASK, name, "--force")
    said = ran.json()
    assert (ran.code, said["accepted"], said["reason"], said["current_generation"]) == (
        0,
        True,
        "ACCEPTED",
        3,
    )
    assert stage.run("show", TASK, "--result").json() == {"by": "alice"}
    assert (
        stage.run("submit", TASK, "-g", 2, "--text", "late", as_="bob").json()["reason"]
        == "STALE_GENERATION"
    )


def test_the_holder_adopts_a_refused_result_at_its_own_generation(stage: Stage) -> None:
    stage.claim(TASK, "alice", ago=3600, lease=60)
    stage.claim(TASK, "bob")
    stage.submit(TASK, 1, "alice", {"by": "alice"})
    name = refused_id(stage)
    stranger = stage.run("adopt", TASK, name, "-g", 2, as_="eve")
    assert (stranger.code, stranger.json()["accepted"], stranger.json()["reason"]) == (
        5,
        False,
        "SESSION_MISMATCH",
    )
    ran = stage.run("adopt", TASK, name, "-g", 2, as_="bob")
    assert (ran.code, ran.json()["accepted"], ran.json()["current_generation"]) == (0, True, 2)


def test_a_refused_result_of_a_completed_task_is_adopted_after_a_reset(stage: Stage) -> None:
    stage.complete(TASK)
    stage.submit(TASK, 1, data="another")
    ran = stage.run("adopt", TASK, refused_id(stage), "--force", as_="boss")
    assert (ran.code, ran.out, ran.error()["message"]) == (
        4,
        "",
        f"task '{TASK}' is COMPLETED; reset it first, then adopt",
    )
    stage.run("reset", TASK)
    assert stage.run("adopt", TASK, refused_id(stage), as_="boss").code == 0


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_zombie_cannot_adopt_its_own_refused_result(stage: Stage, force: list[str]) -> None:
    stage.claim(TASK, "alice", ago=3600, lease=60)
    stage.claim(TASK, "bob")
    refused = stage.run("submit", TASK, "-g", 1, "--text", "late", as_="alice")
    name = refused_id(stage)
    # Nothing that it is told makes it try.
    assert "adopt" not in refused.out + refused.err
    assert (
        refused.json()["message"]
        == f"{TASK} has moved on to generation 2: an earlier one no longer counts. The "
        f"result is kept as {name}. Stop working on this task, and ask for the next one"
    )
    ran = stage.run("adopt", TASK, name, *force, as_="alice")
    assert (ran.code, ran.out, ran.error()["code"]) == (4, "", "NOT_ALLOWED")
    assert ran.error()["message"] == (
        f"result '{name}' was refused to this very session, 'alice', which does not hold task "
        f"'{TASK}': it cannot adopt it. "
        "The result is kept; stop working on this task, and ask for the next one"
    )
    assert (
        stage.run("adopt", TASK, name, "-g", 2, as_="alice").json()["reason"] == "SESSION_MISMATCH"
    )
    assert stage.run("submit", TASK, "-g", 2, "--text", "in time", as_="bob").code == 0


def test_force_is_not_for_the_holder(stage: Stage) -> None:
    stage.claim(TASK)
    ran = stage.run("adopt", TASK, "1/x", "-g", 1, "--force")
    assert (ran.code, ran.error()["code"]) == (2, "BAD_ARGUMENT")


@pytest.mark.parametrize("verb", ["adopt", "discard"])
def test_who_names_a_refused_result_that_is_not_there_is_told_what_to_type(
    stage: Stage, verb: str
) -> None:
    stage.claim(TASK)
    ran = stage.run(verb, TASK, "1/")
    assert (ran.code, ran.error()["message"]) == (
        3,
        (
            f"task '{TASK}' has no refused result '{TASK}/1/'; the list of refused results has "
            f"those there are: genlock refused {TASK}"
        ),
    )


def test_a_discarded_result_is_gone_and_cannot_be_adopted(stage: Stage) -> None:
    stage.claim(TASK)
    stage.submit(TASK, 4, data="early")
    name = refused_id(stage)
    ran = stage.run("discard", TASK, name.removeprefix(f"{TASK}/"))
    assert (ran.code, ran.json()) == (0, {"task_id": TASK, "refused_id": name, "discarded": True})
    again = stage.run("adopt", TASK, name)
    assert (again.code, again.error()["code"]) == (4, "NOT_ALLOWED")
    assert stage.run("refused", TASK, "--all").json()["refused"][0]["state"] == "DISCARDED"


@pytest.mark.parametrize("verb", ["adopt", "discard"])
def test_a_refused_result_that_does_not_exist_ends_with_3(stage: Stage, verb: str) -> None:
    ran = stage.run(verb, TASK, "nothing/of/the/kind")
    assert (ran.code, ran.out, ran.error()["code"]) == (3, "", "RESULT_NOT_FOUND")


def test_sweep_writes_down_what_is_due(stage: Stage) -> None:
    stage.claim(TASK, "alice", ago=3600, lease=60)
    assert stage.run("sweep").json() == {
        "expired": 1,
        "orphaned": 0,
        "stale": 0,
        "settled": 0,
        "purged": 0,
    }
    assert stage.run("sweep", "-q").out == "0\n"
    assert stage.run("history", TASK).json()["generations"][0]["release_reason"] == "EXPIRED"


def test_quiet_operators_print_the_generation(stage: Stage) -> None:
    assert stage.run("hold", TASK, "-q").out == "0\n"
    assert stage.run("reset", TASK, "-q").out == f"{TASK}\n"
    assert stage.run("cancel", TASK, "-q").out == "1\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["assign", "bob"],
        ["unlock"],
        ["unlock", "--force"],
        ["reset"],
        ["reset", "--cascade", "--yes"],
        ["cancel"],
        ["hold"],
        ["reopen"],
        ["adopt", "x/1/s/d"],
        ["discard", "x/1/s/d"],
    ],
)
def test_an_unknown_task_ends_with_3_and_an_id_that_is_none_with_2(
    stage: Stage, arguments: list[str]
) -> None:
    verb, *more = arguments
    before = stage.files()
    unknown = stage.run(verb, "C-404-nowhere", *more)
    assert (unknown.code, unknown.out) == (3, "")
    broken = stage.run(verb, "a/b", *more)
    assert (broken.code, broken.out, broken.error()["code"]) == (2, "", "BAD_ARGUMENT")
    assert stage.files() == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["assign", TASK, "a/b"], "agent 'a/b'"),
        (["assign", TASK, ""], "agent is empty"),
        (["assign", TASK, "bob", "--hours", "-1"], "'-1' is no length of time: write hours"),
        (["assign", TASK, "bob", "--hours", "9000"], "hours is a number from 0 to 8784"),
        (["cancel", TASK, "--reason", "x" * 1001], "reason is a text of at most 1,000 characters"),
        (["adopt", TASK], "Missing argument 'REFUSED_ID'"),
    ],
)
def test_wrong_options_are_bad_input_and_change_nothing(
    stage: Stage, arguments: list[str], complaint: str
) -> None:
    before = stage.files()
    ran = stage.run(*arguments)
    assert (ran.code, ran.out, complaint in ran.err) == (2, "", True)
    assert stage.files() == before
