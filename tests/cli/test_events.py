"""The feed on the command line: past events, by cursor, and as they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.cli.console import COMMAND, environment
from tests.cli.stage import Stage

TASK = "A-001-core"
PATIENCE = 60
STORY = [
    "PROJECT_CHANGED",
    "TASK_ADDED",
    "TASK_ADDED",
    "CLAIM_ACQUIRED",
    "SESSION_REGISTERED",
    "RESULT_ACCEPTED",
]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A project in which one of two tasks is done."""
    stage = Stage(tmp_path / "project")
    stage.add(TASK, "docs")
    stage.complete(TASK)
    return stage


@contextmanager
def following(
    stage: Stage, *arguments: str, stdout: int | IO[bytes] = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """`events --follow` as a process; killed if it outlives the test's patience."""
    process = subprocess.Popen(
        [*COMMAND, "events", "--follow", *arguments],
        cwd=stage.folder,
        env=environment(),
        stdout=stdout,
        stderr=subprocess.PIPE,
    )
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def lines(stage: Stage, *arguments: object) -> list[dict[str, object]]:
    ran = stage.run("events", *arguments)
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def types(found: list[dict[str, object]]) -> list[object]:
    return [line["event_type"] for line in found]


def test_events_are_one_json_object_a_line_in_order(stage: Stage) -> None:
    found = lines(stage)
    assert types(found) == STORY
    assert [line["position"] for line in found] == [1, 2, 3, 4, 5, 6]
    assert found[3].keys() == {"position", "cursor", "kind", "id", "event_type", "event"}
    assert (found[3]["kind"], found[3]["id"]) == ("task", TASK)
    assert stage.run("events", "--json").out == stage.run("events").out


def test_events_go_on_after_a_cursor_and_quiet_prints_cursors(stage: Stage) -> None:
    cursors = stage.run("events", "-q").out.splitlines()
    assert len(cursors) == 6
    assert types(lines(stage, "--after", cursors[3])) == STORY[4:]
    assert lines(stage, "--after", cursors[-1]) == []


def test_events_are_narrowed_by_task_type_and_limit(stage: Stage) -> None:
    assert types(lines(stage, "--task", TASK)) == [
        "TASK_ADDED",
        "CLAIM_ACQUIRED",
        "RESULT_ACCEPTED",
    ]
    assert types(lines(stage, "--type", "claim-acquired", "--type", "RESULT_ACCEPTED")) == [
        "CLAIM_ACQUIRED",
        "RESULT_ACCEPTED",
    ]
    assert types(lines(stage, "--limit", 2)) == STORY[:2]


def test_a_tasks_events_have_its_refused_results_too(stage: Stage) -> None:
    stage.submit(TASK, 1, data="another")
    assert types(lines(stage, "--task", TASK, "--type", "RESULT_REJECTED")) == ["RESULT_REJECTED"]


def test_events_read_a_long_feed_to_its_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "long")
    stage.add(*(f"task-{number}" for number in range(2500)))
    assert len(stage.run("events", "-q", "--type", "TASK_ADDED").out.splitlines()) == 2500


def test_a_cursor_of_another_store_is_lost_and_says_so(stage: Stage, tmp_path: Path) -> None:
    other = Stage(tmp_path / "other")
    other.add("x")
    foreign = other.run("events", "-q", "--limit", 1).out.strip()
    for arguments in (["--after", foreign], ["--after", foreign, "--follow"]):
        ran = stage.run("events", *arguments)
        assert (ran.code, ran.out, ran.error()["code"]) == (1, "", "CURSOR_LOST")
        assert ran.error()["message"].endswith(
            "to read from the beginning of what is kept, leave --after out"
        )


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (
            ["--type", "CLAIM_EATEN"],
            2,
            (
                "there is no event 'CLAIM_EATEN'; did you mean CLAIM_STALE or CLAIM_RELEASED or "
                "CLAIM_DENIED? There are: ASSIGNMENT_LAPSED, CHILDREN_ANNOUNCED, CHILD_ADDED"
            ),
        ),
        (["--type", "CLAIMED"], 2, "no event 'CLAIMED'; did you mean CLAIM_ACQUIRED?"),
        (["--type", "released"], 2, "no event 'released'; did you mean CLAIM_RELEASED? There"),
        (["--type", "XYZZY"], 2, "no event 'XYZZY'; there are: ASSIGNMENT_LAPSED, "),
        (["--limit", "0"], 2, "--limit is 1 or more, not 0"),
        (["--limit", "few"], 2, "'few' is not a valid integer"),
        (["--task", "C-404-nowhere"], 3, "there is no task 'C-404-nowhere'"),
        (["--task", "a/b"], 2, "a slash"),
        (["--after", "no cursor"], 2, "no cursor"),
    ],
)
def test_wrong_options_are_told(
    stage: Stage, arguments: list[str], code: int, complaint: str
) -> None:
    ran = stage.run("events", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert complaint in ran.err


def test_follow_goes_on_with_what_comes_and_ends_on_ctrl_c(stage: Stage) -> None:
    last = stage.run("events", "-q").out.splitlines()[-2]
    with following(stage, "--after", last) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # The first line shows that it follows; the second can only have come meanwhile.
        assert json.loads(process.stdout.readline())["event_type"] == "RESULT_ACCEPTED"
        stage.claim("docs", "s2")
        assert json.loads(process.stdout.readline())["event_type"] == "CLAIM_ACQUIRED"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr.read() == b"genlock: broken off\n"


def test_follow_ends_after_its_limit(stage: Stage) -> None:
    first = stage.run("events", "-q", "--limit", 1).out.strip()
    with following(stage, "--after", first, "--task", "docs", "--limit", "2") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event_type"] == "TASK_ADDED"
        stage.claim("docs", "s2")
        assert json.loads(process.stdout.readline())["event_type"] == "CLAIM_ACQUIRED"
        assert process.wait() == 0


@pytest.mark.parametrize("busy", [False, True])
def test_follow_ends_when_its_reader_has_gone(stage: Stage, busy: bool) -> None:
    first = stage.run("events", "-q", "--limit", 1).out.strip()
    reader, writer = os.pipe()
    with (
        open(reader, "rb") as pipe,
        open(writer, "wb") as end,
        following(stage, "--after", first, stdout=end) as process,
    ):
        end.close()
        assert json.loads(pipe.readline())["event_type"] == "TASK_ADDED"
        pipe.close()
        if busy:
            stage.claim("docs", "s2")
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_from_past_events_brings_no_traceback(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "long")
    stage.add(*(f"task-{number}" for number in range(2500)))
    shell = f"{' '.join(COMMAND)} events | head -1"
    ran = subprocess.run(
        ["bash", "-c", shell], cwd=stage.folder, env=environment(), capture_output=True, check=False
    )
    assert (ran.returncode, len(ran.stdout.splitlines()), ran.stderr) == (0, 1, b"")
