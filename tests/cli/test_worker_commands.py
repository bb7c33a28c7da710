"""The verbs of workers, as processes: next, claim, renew, submit, release, spawn."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.console import COMMAND, environment, run
from tests.cli.stage import Stage

TASK = "A-001-core"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A project with three tasks, of which the second waits for the first."""
    stage = Stage(tmp_path / "project")
    stage.add(
        {"id": TASK, "title": "The core"},
        {"id": "A-002-api", "depends_on": [TASK]},
        {"id": "B-001-docs", "priority": "low"},
    )
    return stage


# Claims


def test_next_answers_with_the_claim_of_the_first_task(stage: Stage) -> None:
    ran = stage.run("next")
    said = ran.json()
    assert (ran.code, ran.err) == (0, "")
    assert (said["success"], said["reason"], said["task_id"], said["task"]["title"]) == (
        True,
        "GRANTED",
        TASK,
        "The core",
    )
    assert said["claim"].keys() >= {
        "task_id",
        "generation",
        "session_id",
        "agent_id",
        "claimed_at",
        "lease_seconds",
        "expires_at",
        "state",
    }
    assert (
        said["claim"]["generation"],
        said["claim"]["session_id"],
        said["claim"]["lease_seconds"],
    ) == (1, "s1", 300)


def test_next_keeps_to_the_tracks_it_is_given(stage: Stage) -> None:
    assert stage.run("next", "--track", "B", "-q").out == "B-001-docs\n1\n"
    ran = stage.run("next", "--track", "C", "--track", "B")
    assert (ran.code, ran.json()["reason"]) == (3, "NOTHING_READY")


def test_next_with_nothing_ready_says_so_and_ends_with_3(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "empty")
    ran = stage.run("next")
    assert (ran.code, ran.json()["success"], ran.json()["reason"]) == (3, False, "NOTHING_READY")
    assert stage.run("next", "-q").out == ""


def test_a_claim_by_name_prints_the_task_and_its_generation(stage: Stage) -> None:
    ran = stage.run("claim", TASK, "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, f"{TASK}\n1\n", "")


def completed(stage: Stage) -> None:
    stage.complete(TASK)


def cancelled(stage: Stage) -> None:
    with stage.library() as fleet:
        fleet.cancel_task(task_id=TASK)


def held(stage: Stage) -> None:
    with stage.library() as fleet:
        fleet.hold_task(task_id=TASK, reason="the design is open")


def reserved(stage: Stage) -> None:
    with stage.library() as fleet:
        fleet.assign_task(task_id=TASK, agent_id="bob")


def taken(stage: Stage) -> None:
    stage.claim(TASK, "s2")


def nothing(stage: Stage) -> None:
    pass


@pytest.mark.parametrize(
    ("before", "arguments", "reason", "shown"),
    [
        (completed, [TASK], "DENIED_COMPLETED", {"detail": "the task is completed"}),
        (cancelled, [TASK], "DENIED_COMPLETED", {"detail": "the task is cancelled"}),
        (held, [TASK], "DENIED_HELD", {"detail": "the design is open"}),
        (reserved, [TASK], "DENIED_ASSIGNED", {"detail": "reserved for bob"}),
        (taken, [TASK], "DENIED_ACTIVE_CLAIM", {"current_holder": "s2"}),
        (nothing, ["A-002-api"], "DENIED_BLOCKED", {"waits_for": [TASK]}),
        (
            nothing,
            [TASK, "--lease", "0.5"],
            "DENIED_LIMIT",
            {"limit": "min_lease_duration_seconds"},
        ),
    ],
)
def test_a_denied_claim_ends_with_5_and_the_answer_says_why(
    stage: Stage,
    before: Callable[[Stage], None],
    arguments: list[str],
    reason: str,
    shown: dict[str, object],
) -> None:
    before(stage)
    ran = stage.run("claim", *arguments)
    said = ran.json()
    assert (ran.code, said["success"], said["reason"], said["claim"]) == (5, False, reason, None)
    assert {name: said[name] for name in shown} == shown
    quiet = stage.run("claim", *arguments, "-q")
    assert (quiet.code, quiet.out) == (5, "")


def test_next_with_a_lease_over_a_limit_is_denied_and_ends_with_5(stage: Stage) -> None:
    ran = stage.run("next", "--lease", "0.5")
    assert (ran.code, ran.json()["reason"], ran.json()["limit"]) == (
        5,
        "DENIED_LIMIT",
        "min_lease_duration_seconds",
    )


def test_a_claim_is_extended_by_its_own_session_and_not_by_another_agent_of_it(
    stage: Stage,
) -> None:
    stage.claim(TASK)
    again = stage.run("claim", TASK, "--lease", "600").json()
    assert (again["reason"], again["claim"]["generation"], again["claim"]["lease_seconds"]) == (
        "GRANTED",
        1,
        600,
    )
    other = stage.run("claim", TASK, "--agent", "twin")
    assert (other.code, other.json()["reason"]) == (5, "DENIED_ACTIVE_CLAIM")


def test_an_expired_claim_is_taken_over_at_the_next_generation(stage: Stage) -> None:
    stage.claim(TASK, "s2", ago=3600, lease=60)
    assert stage.run("claim", TASK, "-q").out == f"{TASK}\n2\n"


def test_the_lease_is_as_typed_else_as_set_else_300_seconds(stage: Stage) -> None:
    setting: dict[str, str | None] = {"GENLOCK_LEASE_SECONDS": "77"}
    assert stage.run("claim", TASK).json()["claim"]["lease_seconds"] == 300
    assert stage.run("claim", TASK, env=setting).json()["claim"]["lease_seconds"] == 77
    assert (
        stage.run("claim", TASK, "--lease", 99, env=setting).json()["claim"]["lease_seconds"] == 99
    )
    assert stage.run("next", env=setting).json()["claim"]["lease_seconds"] == 77
    wrong = stage.run("claim", TASK, env={"GENLOCK_LEASE_SECONDS": "soon"})
    assert (wrong.code, wrong.out, "GENLOCK_LEASE_SECONDS" in wrong.err) == (2, "", True)


def test_the_same_operation_again_is_answered_alike(stage: Stage) -> None:
    first = stage.run("next", "--operation", "op-1").json()["claim"]
    assert stage.run("next", "--operation", "op-1").json()["claim"] == first
    other = stage.run("claim", TASK, "--operation", "op-1", "--lease", "60")
    assert (other.code, other.error()["code"]) == (2, "OPERATION_MISMATCH")


# Answers that reach nobody


@contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe into which nothing more goes: whoever writes to it waits."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


def broken_off(stage: Stage, *arguments: object) -> tuple[int, str]:
    """The command, stopped by Ctrl-C after its claim is granted and before anyone could read the
    answer."""
    with full_pipe() as (reader, writer), stage.library() as fleet:
        feed = fleet.watch(timeout_seconds=60, after=fleet.read_events(tail=True).cursor)
        command = [*COMMAND, *map(str, arguments)]
        # The signal may come while a module is read: what Python says of the file that it did not
        # get to close is not ours.
        warnings = "error,ignore::ResourceWarning"
        environ = environment(
            {"GENLOCK_AGENT": "s1", "GENLOCK_SESSION": "s1", "PYTHONWARNINGS": warnings}
        )
        with subprocess.Popen(
            command, cwd=stage.folder, env=environ, stdout=writer, stderr=subprocess.PIPE, text=True
        ) as process:
            assert next(event.event_type for event in feed if event.kind == "task") in (
                "CLAIM_ACQUIRED",
                "LEASE_RENEWED",
            )
            process.send_signal(signal.SIGINT)
            watchdog = threading.Timer(20, process.kill)
            watchdog.start()
            _, said = process.communicate()
            watchdog.cancel()
        os.set_blocking(reader, False)
        assert set(os.read(reader, 1_000_000)) == set(b"x")
        return process.returncode, said


@pytest.mark.parametrize(
    "arguments",
    [["next"], ["next", "-q"], ["claim", TASK], ["claim", TASK, "--export"]],
    ids=" ".join,
)
def test_a_claim_of_which_nobody_was_told_is_given_back(stage: Stage, arguments: list[str]) -> None:
    code, said = broken_off(stage, *arguments)
    # It is told what it was granted, unless the signal came before the answer: then the coordinator
    # gives it back by itself.
    assert (code, said.removeprefix(f"given back: {TASK}\n")) == (130, "genlock: broken off\n")
    assert said.startswith("genlock") or "-q" not in arguments
    assert stage.run("history", TASK).json()["generations"][0]["release_reason"] == "VOLUNTARY"
    assert stage.run("claim", TASK, "-q", as_="s2").out == f"{TASK}\n2\n"


def test_a_claim_that_was_held_before_stays_when_its_extension_is_broken_off(stage: Stage) -> None:
    stage.claim(TASK)
    assert broken_off(stage, "claim", TASK) == (130, "genlock: broken off\n")
    assert stage.run("show", TASK).json()["holder"]["session"] == "s1"


def test_a_claim_stays_if_whoever_made_it_can_ask_again(stage: Stage) -> None:
    assert broken_off(stage, "next", "--operation", "op-1")[0] == 130
    # If the signal came before the answer, the coordinator has given it back by itself.
    given_back = (
        stage.run("history", TASK).json()["generations"][0]["release_reason"] == "VOLUNTARY"
    )
    assert (
        stage.run("next", "--operation", "op-1", "-q").out == f"{TASK}\n{2 if given_back else 1}\n"
    )
    assert stage.run("show", TASK).json()["holder"]["session"] == "s1"


def test_a_claim_whose_reader_has_gone_is_given_back(stage: Stage) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environ = environment()
    ran = subprocess.run(
        [*COMMAND, "next"],
        cwd=stage.folder,
        env=environ,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, f"given back: {TASK}\n")
    assert stage.run("show", TASK, "-q").out == "PENDING\n"


@pytest.mark.parametrize("options", [[], ["--export"], ["--quiet"]])
def test_a_claim_that_could_not_be_written_down_is_given_back(
    stage: Stage, options: list[str]
) -> None:
    with open("/dev/full", "w") as full:
        call = [*COMMAND, "next", *options]
        ran = subprocess.run(
            call,
            cwd=stage.folder,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ran.returncode, "No space left on device" in ran.stderr) == (1, True)
    assert stage.run("show", TASK, "-q").out == "PENDING\n"


# For shells


def test_export_prints_lines_that_a_shell_can_eval(stage: Stage) -> None:
    ran = stage.run("next", "--export")
    assert (ran.code, ran.out) == (0, f"export GENLOCK_TASK={TASK}\nexport GENLOCK_GENERATION=1\n")


def test_export_quotes_what_a_shell_would_read_otherwise(stage: Stage) -> None:
    stage.add("AUTH-LOGIN:design")
    line = stage.run("claim", "AUTH-LOGIN:design", "--export").out.splitlines()[0]
    assert shlex.split(line) == ["export", "GENLOCK_TASK=AUTH-LOGIN:design"]


FAILS = "unset GENLOCK_TASK GENLOCK_GENERATION\n(exit {code})\n"


def test_export_prints_statements_that_unset_and_fail_if_nothing_is_granted(stage: Stage) -> None:
    taken(stage)
    denied = stage.run("claim", TASK, "--export")
    assert (denied.code, denied.out, "DENIED_ACTIVE_CLAIM" in denied.err) == (
        5,
        FAILS.format(code=5),
        True,
    )
    none = stage.run("next", "--track", "Z", "--export")
    assert (none.code, none.out, "NOTHING_READY" in none.err) == (3, FAILS.format(code=3), True)
    stage.claim("B-001-docs")
    held = stage.run("claim", "B-001-docs", "--export")
    assert (held.code, held.out, "GENLOCK_AGENT" in held.err) == (6, FAILS.format(code=6), True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["claim", "C-404-nowhere"], 3),
        (["claim", "a b"], 2),
        (["claim"], 2),
        (["next", "--wait", "soon"], 2),
        (["next", "--wiat", "5"], 2),
        (["next", "--project", "a/b"], 2),
        (["next", "--url", "sqlite:///nowhere/at/all.db"], 3),
        (["next", "--url", "http://127.0.0.1:1"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_export_prints_statements_that_unset_and_fail_after_an_error(
    stage: Stage, arguments: list[str], code: int
) -> None:
    ran = stage.run(*arguments, "--export", env={"GENLOCK_DEADLINE_SECONDS": "0.2"})
    assert (ran.code, ran.out) == (code, FAILS.format(code=code))
    assert ran.err != ""


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("unset", ["", "set -u"])
def test_the_loop_of_the_help_ends_when_the_plan_is_done(
    stage: Stage, shell: str, unset: str
) -> None:
    assert shutil.which(shell), f"this test needs {shell}: install it"
    told = stage.run("next", "--help").out
    (recipe,) = [line.strip() for line in told.splitlines() if 'eval "' in line]
    assert recipe == 'while eval "$(genlock next --export)" && work && genlock submit; do :; done'
    script = stage.folder / "worker.sh"
    script.write_text(
        f"""
        {unset}
        genlock() {{ {shlex.join(COMMAND)} "$@"; }}
        work() {{ echo "$GENLOCK_TASK"; }}
        {recipe}
        echo "$? ${{GENLOCK_TASK-unset}} ${{GENLOCK_GENERATION-unset}}"
        eval "$(genlock next --export)"
        echo "$?"
        """
    )
    nobody: dict[str, str | None] = {"GENLOCK_SESSION": None, "GENLOCK_AGENT": None}
    ran = subprocess.run(
        [shell, script],
        cwd=stage.folder,
        env=environment(nobody),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if not line.startswith("{")]
    assert lines == [TASK, "A-002-api", "B-001-docs", "0 unset unset", "3"]


# Two workers of one session


def test_a_claim_that_was_held_already_has_an_exit_code_of_its_own(stage: Stage) -> None:
    first = stage.run("claim", TASK)
    assert (first.code, first.json()["already_held"]) == (0, False)
    second = stage.run("claim", TASK)
    said = second.json()
    assert (second.code, said["success"], said["already_held"], said["claim"]["generation"]) == (
        6,
        True,
        True,
        1,
    )
    assert second.err == (
        f"{TASK} is held already, by this session (s1) and agent (s1), at generation 1. If another "
        "worker of this session is at work on "
        "it, leave it alone and claim another task. Give each worker a name of its own: "
        "GENLOCK_AGENT, or --agent\n"
    )
    # A worker with a name of its own is denied, as any other is.
    assert stage.run("claim", TASK, env={"GENLOCK_AGENT": "helper"}).code == 5


def test_the_repeat_of_an_operation_id_is_no_second_worker(stage: Stage) -> None:
    first = stage.run("claim", TASK, "--operation", "op-1")
    again = stage.run("claim", TASK, "--operation", "op-1")
    assert (again.code, again.json()) == (0, first.json())


def test_an_overdue_claim_of_ones_own_is_granted_at_a_new_generation(stage: Stage) -> None:
    stage.claim(TASK, ago=3600, lease=60)
    ran = stage.run("claim", TASK)
    assert (ran.code, ran.json()["already_held"], ran.json()["claim"]["generation"]) == (
        0,
        False,
        2,
    )


def test_next_lists_what_the_session_holds_and_hands_out_none_of_it(stage: Stage) -> None:
    stage.claim(TASK)
    ran = stage.run("next")
    said = ran.json()
    assert (ran.code, said["task_id"], said["already_held"]) == (0, "B-001-docs", False)
    assert [(held["task_id"], held["generation"]) for held in said["held"]] == [(TASK, 1)]
    none = stage.run("next")
    assert (none.code, [held["task_id"] for held in none.json()["held"]]) == (
        3,
        [TASK, "B-001-docs"],
    )


def test_after_an_export_renew_and_submit_need_no_arguments(stage: Stage) -> None:
    exported: dict[str, str | None] = {"GENLOCK_TASK": TASK, "GENLOCK_GENERATION": "1"}
    stage.claim(TASK)
    assert stage.run("renew", env=exported).json()["reason"] == "RENEWED"
    assert stage.run("submit", env=exported).json()["reason"] == "ACCEPTED"
    stage.claim("B-001-docs")
    assert (
        stage.run("release", env={**exported, "GENLOCK_TASK": "B-001-docs"}).json()["reason"]
        == "RELEASED"
    )


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_a_script_works_through_a_plan_without_saying_who_it_is(stage: Stage, shell: str) -> None:
    """Claims in $(…), submits outside of it, and is one session; ends when `next` has nothing
    more."""
    script = stage.folder / "worker.sh"
    script.write_text(
        f"""
        genlock() {{ {shlex.join(COMMAND)} "$@"; }}
        while claimed=$(genlock next --export 2>/dev/null); do
            eval "$claimed"
            genlock renew >/dev/null && genlock submit --text "done by $GENLOCK_TASK" -q
        done
        """
    )
    nobody: dict[str, str | None] = {"GENLOCK_SESSION": None, "GENLOCK_AGENT": None}
    ran = subprocess.run(
        [shell, script],
        cwd=stage.folder,
        env=environment(nobody),
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line.partition("-gen1-")[0] for line in ran.stdout.splitlines()] == [
        "wp-A-001-core",
        "wp-A-002-api",
        "wp-B-001-docs",
    ]
    assert ran.stderr == ""
    sessions = {
        entry["session_id"]
        for task in (TASK, "A-002-api")
        for entry in stage.run("history", task).json()["generations"]
    }
    assert len(sessions) == 1


@pytest.mark.parametrize("verb", ["renew", "submit", "release"])
def test_a_fenced_verb_never_looks_the_generation_up(stage: Stage, verb: str) -> None:
    stage.claim(TASK)
    before = stage.files()
    arguments = [verb, TASK]
    missing = stage.run(*arguments)
    assert (missing.code, missing.out) == (2, "")
    assert missing.error()["message"] == (
        f"the generation of {TASK} is missing: give the number that claim or next printed, with -g "
        "or in GENLOCK_GENERATION"
    )
    other = stage.run(*arguments, env={"GENLOCK_TASK": "B-001-docs", "GENLOCK_GENERATION": "1"})
    assert (other.code, other.error()["message"]) == (
        2,
        (
            f"GENLOCK_GENERATION belongs to B-001-docs, not to {TASK}: give the number that claim "
            "or next printed, with -g"
        ),
    )
    assert stage.files() == before


def test_without_a_task_a_fenced_verb_says_how_to_name_one(stage: Stage) -> None:
    ran = stage.run("renew", "-g", "1")
    assert (ran.code, ran.out, "GENLOCK_TASK" in ran.error()["message"]) == (2, "", True)


def test_a_generation_that_is_no_number_is_bad_input(stage: Stage) -> None:
    assert stage.run("renew", TASK, "-g", "one").code == 2
    assert stage.run("renew", TASK, "-g", "-1").code == 2
    assert stage.run("renew", TASK, env={"GENLOCK_GENERATION": "1.5"}).code == 2
    assert stage.run("renew", TASK, env={"GENLOCK_GENERATION": "9" * 5000}).code == 2


# Renewals and releases


def free(stage: Stage) -> None:
    stage.claim(TASK)
    with stage.library() as fleet:
        fleet.release_claim(task_id=TASK, expected_generation=1)


def expired(stage: Stage) -> None:
    stage.claim(TASK, ago=3600, lease=60)


def mine(stage: Stage) -> None:
    stage.claim(TASK)


@pytest.mark.parametrize(
    ("before", "generation", "code", "reason"),
    [
        (mine, 1, 0, "RENEWED"),
        (mine, 2, 5, "GENERATION_MISMATCH"),
        (free, 1, 5, "NO_CLAIM"),
        (taken, 1, 5, "SESSION_MISMATCH"),
        (expired, 1, 5, "ALREADY_EXPIRED"),
    ],
)
def test_a_renewal_is_answered_with_its_reason(
    stage: Stage, before: Callable[[Stage], None], generation: int, code: int, reason: str
) -> None:
    before(stage)
    ran = stage.run("renew", TASK, "-g", generation)
    said = ran.json()
    assert (ran.code, said["success"], said["reason"], said["generation"]) == (
        code,
        code == 0,
        reason,
        1,
    )
    assert (said["new_expiry"] is None) == (code != 0)


def test_a_renewal_keeps_the_length_of_its_lease_unless_told(stage: Stage) -> None:
    stage.claim(TASK, lease=40)
    stage.run("renew", TASK, "-g", 1, env={"GENLOCK_LEASE_SECONDS": "900"})
    assert stage.run("show", TASK).json()["claim"]["lease_seconds"] == 40
    assert stage.run("renew", TASK, "-g", 1, "--lease", 50, "-q").out.endswith("Z\n")
    assert stage.run("show", TASK).json()["claim"]["lease_seconds"] == 50


@pytest.mark.parametrize(
    ("before", "generation", "code", "reason"),
    [
        (mine, 1, 0, "RELEASED"),
        (expired, 1, 0, "RELEASED"),
        (mine, 7, 5, "GENERATION_MISMATCH"),
        (nothing, 0, 5, "NO_CLAIM"),
        (taken, 1, 5, "SESSION_MISMATCH"),
    ],
)
def test_a_release_is_answered_with_its_reason(
    stage: Stage, before: Callable[[Stage], None], generation: int, code: int, reason: str
) -> None:
    before(stage)
    ran = stage.run("release", TASK, "-g", generation)
    assert (ran.code, ran.json()["success"], ran.json()["reason"]) == (code, code == 0, reason)


def test_a_release_after_an_error_is_told_from_a_voluntary_one(stage: Stage) -> None:
    stage.claim(TASK)
    stage.run("release", TASK, "-g", 1, "--error")
    stage.claim(TASK)
    stage.run("release", TASK, "-g", 2)
    assert [
        entry["release_reason"] for entry in stage.run("history", TASK).json()["generations"]
    ] == ["ERROR", "VOLUNTARY"]


# Results


def handed_on(stage: Stage) -> None:
    stage.claim(TASK, ago=3600, lease=60)
    stage.claim(TASK, "s2")


def with_children(stage: Stage) -> None:
    stage.claim(TASK)
    with stage.library() as fleet:
        fleet.spawn_subtasks(task_id=TASK, generation=1, subtasks=["part"], keep=True)


@pytest.mark.parametrize(
    ("before", "generation", "code", "reason", "current"),
    [
        (mine, 1, 0, "ACCEPTED", 1),
        (expired, 1, 0, "ACCEPTED", 1),
        (handed_on, 1, 5, "STALE_GENERATION", 2),
        (mine, 2, 5, "FUTURE_GENERATION", 1),
        (completed, 1, 5, "TASK_ALREADY_COMPLETED", 1),
        (free, 1, 5, "NO_CLAIM", 1),
        (taken, 1, 5, "SESSION_MISMATCH", 1),
        (with_children, 1, 5, "CHILDREN_UNFINISHED", 1),
    ],
)
def test_a_submission_is_answered_with_its_reason_and_what_is_refused_is_kept(
    stage: Stage,
    before: Callable[[Stage], None],
    generation: int,
    code: int,
    reason: str,
    current: int,
) -> None:
    before(stage)
    ran = stage.run("submit", TASK, "-g", generation, "--text", "my work")
    said = ran.json()
    assert (ran.code, said["accepted"], said["reason"], said["current_generation"]) == (
        code,
        code == 0,
        reason,
        current,
    )
    assert (said["kept"], said["refused_id"] is not None) == (code == 5, code == 5)
    kept = stage.run("refused", TASK).json()["refused"]
    assert [(line["rejection_reason"], line["result_data"]) for line in kept] == (
        [(reason, "my work")] if code else []
    )


def test_submit_names_the_tasks_that_can_be_claimed_now(tmp_path: Path) -> None:
    run("init", cwd=tmp_path)
    for words in (
        ["first"],
        ["other"],
        ["opened", "--depends-on", "first"],
        ["waits", "--depends-on", "first", "--depends-on", "other"],
        ["parent"],
        ["child", "--parent", "parent"],
    ):
        assert run("add", *words, cwd=tmp_path).code == 0
    told = {}
    for task in ("first", "child", "other"):
        run("claim", task, cwd=tmp_path)
        told[task] = run("submit", task, "-g", 1, cwd=tmp_path).json()["unblocked"]
    assert told == {"first": ["opened"], "child": ["parent"], "other": ["waits"]}
    run("claim", "opened", cwd=tmp_path)
    text = run("submit", "opened", "-g", 1, cwd=tmp_path, env={"GENLOCK_OUTPUT": "text"})
    assert "now ready" not in text.out
    run("claim", "waits", cwd=tmp_path)
    run("add", "last", "--depends-on", "waits", cwd=tmp_path)
    text = run("submit", "waits", "-g", 1, cwd=tmp_path, env={"GENLOCK_OUTPUT": "text"})
    assert text.out.splitlines()[-1] == "now ready: last"


def test_results_come_as_json_from_a_file_from_stdin_or_as_text(
    stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "result.json").write_text('{"from": "file", "n": 12345678901234567890}')
    given: list[tuple[list[object], str | None, object]] = [
        (["--result", '{"a": [1, 2.5, null]}'], None, {"a": [1, 2.5, None]}),
        (
            ["--result-file", tmp_path / "result.json"],
            None,
            {"from": "file", "n": 12345678901234567890},
        ),
        (["--result-file", "-"], '["from", "stdin"]', ["from", "stdin"]),
        (["--text", "plain – text"], None, "plain – text"),
        ([], None, {}),
    ]
    for at, (arguments, typed, expected) in enumerate(given):
        task = f"result-{at}"
        stage.add(task)
        stage.claim(task)
        told = stage.run(
            "submit", task, "-g", 1, *arguments, "--ref", f"ref-{at}", "-q", input=typed
        ).out
        assert re.fullmatch(rf"wp-{task}-gen1-[0-9a-f]{{6}}\n", told)
        assert f"reference  ref-{at}" in re.sub(
            " {2,}", "  ", stage.run("show", task, env={"GENLOCK_OUTPUT": "text"}).out
        )
        assert stage.run("show", task, "--result").json() == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--result", "{broken"],
            "--result is no JSON: Expecting property name enclosed in double quotes at character 2",
        ),
        (["--result", "plain"], "if it is a plain text, use --text"),
        (["--result", "NaN"], "result_data cannot be written as JSON"),
        (
            ["--result-file", "absent.json"],
            "--result-file: 'absent.json' cannot be read: No such file or directory",
        ),
        (["--result-file", "."], "--result-file: '.' cannot be read: Is a directory"),
        (
            ["--result-file", "latin.txt"],
            "--result-file: 'latin.txt' is no UTF-8 text: byte 2 is 0xff",
        ),
        (["--text", "a\udcff"], "result_data cannot be written as JSON"),
        (
            ["--result", "1", "--text", "1"],
            "give the result by one of --result, --result-file and --text",
        ),
        (["--ref", "x" * 600], "work_product_ref is a text of at most 512 characters"),
        (["--result", "[" * 100_000], "--result is nested too deeply"),
    ],
)
def test_a_result_that_cannot_be_read_is_bad_input_and_changes_nothing(
    stage: Stage, arguments: list[str], complaint: str
) -> None:
    (stage.folder / "latin.txt").write_bytes(b'"\xff"')
    stage.claim(TASK)
    before = stage.files()
    ran = stage.run("submit", TASK, "-g", 1, *arguments)
    assert (ran.code, ran.out, ran.error()["code"]) == (2, "", "BAD_ARGUMENT")
    assert complaint in ran.error()["message"]
    assert stage.files() == before


def test_a_result_that_is_too_large_is_refused_and_the_claim_stays(stage: Stage) -> None:
    stage.claim(TASK)
    ran = stage.run(
        "submit", TASK, "-g", 1, "--result-file", "-", input=json.dumps("x" * 11_000_000)
    )
    assert (ran.code, ran.out, ran.error()["code"]) == (2, "", "RESULT_TOO_LARGE")
    assert stage.run("show", TASK, "-q").out == "IN_PROGRESS\n"


def test_a_large_result_is_read_back_whole(stage: Stage) -> None:
    stage.claim(TASK)
    stage.run("submit", TASK, "-g", 1, "--result-file", "-", input=json.dumps("y" * 100_000))
    assert stage.run("show", TASK).json()["result"]["payload"] is True
    assert stage.run("show", TASK, "--result", "-q").out == "y" * 100_000 + "\n"


# Subtasks


def test_spawn_releases_the_task_and_names_its_children(stage: Stage) -> None:
    stage.claim(TASK)
    ran = stage.run("spawn", TASK, "-g", 1, "first part", "second part", "--mode", "sequential")
    assert (ran.code, ran.json()) == (
        0,
        {
            "success": True,
            "reason": "ACCEPTED",
            "current_generation": 1,
            "children": [f"{TASK}::1", f"{TASK}::2"],
        },
    )
    assert stage.run("show", f"{TASK}::2").json()["unmet_dependencies"] == [f"{TASK}::1"]
    assert stage.run("show", TASK, "-q").out == "BLOCKED\n"


def test_spawn_keeps_the_claim_if_told_and_takes_subtasks_from_a_file(stage: Stage) -> None:
    stage.claim(TASK)
    exported: dict[str, str | None] = {"GENLOCK_TASK": TASK, "GENLOCK_GENERATION": "1"}
    parts = '["a title", {"id": "named", "title": "Named", "priority": "high"}]'
    ran = stage.run("spawn", "--from", "-", "--keep", "-q", env=exported, input=parts)
    assert (ran.code, ran.out) == (0, f"{TASK}::1\nnamed\n")
    assert stage.run("show", TASK, "-q").out == "IN_PROGRESS\n"
    assert stage.run("show", "named").json()["task"]["priority"] == "high"


def test_spawn_takes_the_subtasks_in_one_word_as_the_document_writes_it(stage: Stage) -> None:
    stage.claim(TASK)
    listed = ["--subtasks", "first part, second part,", "--mode", "sequential"]
    ran = stage.run("spawn", TASK, "-g", 1, *listed)
    assert (ran.code, ran.json()["children"]) == (0, [f"{TASK}::1", f"{TASK}::2"])
    assert stage.run("show", f"{TASK}::2").json()["task"]["title"] == "second part"
    found = stage.run("show", TASK).json()
    assert found["spawned_tasks"] == [f"{TASK}::1", f"{TASK}::2"]
    assert found["task"]["coordination_mode"] == "sequential"
    twice = stage.run("spawn", TASK, "part", "--subtasks", "part")
    assert (twice.code, "not both" in twice.error()["message"]) == (2, True)


def test_a_planner_splits_a_task_that_nobody_holds_without_a_generation(stage: Stage) -> None:
    elsewhere: dict[str, str | None] = {"GENLOCK_TASK": "B-001-docs", "GENLOCK_GENERATION": "1"}
    ran = stage.run("spawn", TASK, "--subtasks", "one,two", "--mode", "parallel", env=elsewhere)
    assert (ran.code, ran.json()["children"]) == (0, [f"{TASK}::1", f"{TASK}::2"])
    assert stage.run("show", TASK, "-q").out == "BLOCKED\n"
    stage.claim("B-001-docs")
    held = stage.run("spawn", "B-001-docs", "part")
    assert (held.code, held.out) == (4, "")
    assert "only its holder may split it" in held.error()["message"]


def test_fan_out_fan_in_completes_the_task_with_its_last_child(stage: Stage) -> None:
    stage.claim(TASK)
    assert stage.run("spawn", TASK, "-g", 1, "only part", "--mode", "fan-out-fan-in").code == 0
    stage.complete(f"{TASK}::1")
    assert stage.run("show", TASK, "-q").out == "COMPLETED\n"


def test_a_refused_spawn_ends_with_5(stage: Stage) -> None:
    taken(stage)
    ran = stage.run("spawn", TASK, "-g", 1, "part")
    assert (ran.code, ran.json()["success"], ran.json()["reason"]) == (5, False, "SESSION_MISMATCH")


@pytest.mark.parametrize(
    ("arguments", "typed", "complaint"),
    [
        ([], None, "which subtasks?"),
        (
            ["part", "--mode", "chaos"],
            None,
            "mode is one of sequential, parallel, fan-out-fan-in, not 'chaos'",
        ),
        (["part", "--mode", "fan-out-fan-in", "--keep"], None, "it cannot be kept"),
        (["part", "--from", "-"], "[]", "not both"),
        (["--from", "-"], "{}", "it holds no list"),
        (["--from", "-"], "[1]", "a subtask is a mapping"),
        (["--from", "-"], '[{"id": "a/b"}]', "character 2 is '/' (a slash)"),
        (["--from", "-"], '[{"id": "a\\u0000b"}]', "character 2 is '\\x00' (NUL)"),
        (["--from", "-"], '["fine", ', "--from - is no JSON"),
    ],
)
def test_subtasks_that_are_wrong_are_bad_input_and_change_nothing(
    stage: Stage, arguments: list[str], typed: str | None, complaint: str
) -> None:
    stage.claim(TASK)
    before = stage.files()
    ran = stage.run("spawn", TASK, "-g", 1, *arguments, input=typed)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.error()["message"]
    assert stage.files() == before


# Tasks that do not exist, and ids that are none


@pytest.mark.parametrize(
    "arguments",
    [
        ["claim"],
        ["renew", "-g", "1"],
        ["submit", "-g", "1", "--text", "x"],
        ["release", "-g", "1"],
        ["spawn", "-g", "1"],
    ],
)
def test_an_unknown_task_ends_with_3_and_an_id_that_is_none_with_2(
    stage: Stage, arguments: list[str]
) -> None:
    verb, *options = arguments
    more = ["part"] if verb == "spawn" else []
    before = stage.files()
    unknown = stage.run(verb, "C-404-nowhere", *more, *options)
    assert (unknown.code, unknown.out, unknown.error()["code"]) == (3, "", "TASK_NOT_FOUND")
    broken = stage.run(verb, "a b", *more, *options)
    assert (broken.code, broken.out, broken.error()["code"]) == (2, "", "BAD_ARGUMENT")
    assert stage.files() == before


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        ("", "task id is empty"),
        ("a/b", "character 2 is '/' (a slash)"),
        ("../x", "character 3 is '/' (a slash)"),
        ("fix-🐛", "character 5 is '🐛' (not ASCII: BUG)"),
        ("a\nb", "character 2 is '\\n' (whitespace)"),
        ("x" * 100_000, "is too long: 100000 characters, at most 200 are allowed"),
        ("a::0", "after '::' comes a number"),
        ("a\udcff", "character 2 is '\\udcff'"),
    ],
)
def test_an_id_that_is_none_is_told_what_is_wrong_with_it(
    stage: Stage, task: str, complaint: str
) -> None:
    ran = stage.run("claim", task)
    assert (ran.code, ran.out, ran.error()["code"]) == (2, "", "BAD_ARGUMENT")
    assert complaint in ran.error()["message"]
    assert len(ran.err) < 600


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["next", "--wait", "-1"],
            "'-1' is no length of time: write seconds, or 90s, 5m, 1h30m or 2d",
        ),
        (
            ["next", "--wait", "nan"],
            "'nan' is no length of time: write seconds, or 90s, 5m, 1h30m or 2d",
        ),
        (
            ["next", "--wait", "soon"],
            "'soon' is no length of time: write seconds, or 90s, 5m, 1h30m or 2d",
        ),
        (["next", "--track", "a1"], "track 'A1': character 2 is '1'; allowed are the letters A-Z"),
        (["claim", TASK, "--lease", "0"], "lease_duration_seconds: a lease lasts over 0 s"),
        (
            ["claim", TASK, "--lease", "1e99"],
            "'1e99' is no length of time: write seconds, or 90s, 5m, 1h30m or 2d",
        ),
        (["claim", TASK, "--operation", ""], "operation_id is a text of 1 to 128"),
        (["claim", TASK, "--session", "a/b"], "session 'a/b'"),
        (["claim", TASK, "--agent", "a\tb"], "agent 'a\\tb'"),
        (["claim"], "Missing argument 'TASK'"),
    ],
)
def test_wrong_options_are_bad_input_and_change_nothing(
    stage: Stage, arguments: list[str], complaint: str
) -> None:
    before = stage.files()
    ran = stage.run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err.replace("\\\\", "\\")
    assert stage.files() == before


def test_an_ended_session_may_not_claim(stage: Stage) -> None:
    with stage.library() as fleet:
        fleet.register_session()
        fleet.end_session()
    ran = stage.run("claim", TASK)
    assert (ran.code, ran.out, ran.error()["code"]) == (4, "", "SESSION_ENDED")
