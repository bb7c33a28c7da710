"""How answers are written: text for people, JSON for programs, and how one says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import genlock
from tests.cli.console import run
from tests.cli.terminal import Terminal


@pytest.fixture
def project(tmp_path: Path) -> Path:
    run("init", cwd=tmp_path)
    with genlock.connect(f"sqlite://{tmp_path}/.genlock/genlock.db") as fleet:
        fleet.add_tasks(tasks=[f"A-00{number}-x" for number in range(1, 6)])
    return tmp_path


def test_reading_verbs_write_text_into_a_pipe_when_asked_to(project: Path) -> None:
    for words in (["graph"], ["events"]):
        asked = run(*words, "--text", cwd=project)
        assert asked.code == 0
        assert "A-001-x" in asked.out
        assert not asked.out.startswith(("{", "["))
        said = run(*words, cwd=project, env={"GENLOCK_OUTPUT": "text"})
        assert said.out.splitlines()[0] == asked.out.splitlines()[0]
        assert run(*words, cwd=project).out.startswith("{")


def test_an_option_goes_before_the_variable(project: Path) -> None:
    said = {"GENLOCK_OUTPUT": "text"}
    assert run("status", "--json", cwd=project, env=said).json()["states"] == {"PENDING": 5}
    assert run("version", cwd=project, env=said).out.startswith("genlock ")
    said = {"GENLOCK_OUTPUT": "json"}
    with Terminal("status", cwd=project, env=said) as terminal:
        assert terminal.end() == 0
        assert json.loads(terminal.shown)["project"] == "default"


def test_a_wrong_word_for_the_output_is_refused(project: Path) -> None:
    ran = run("status", cwd=project, env={"GENLOCK_OUTPUT": "xml"})
    assert (ran.code, ran.error()["message"]) == (2, "GENLOCK_OUTPUT is text or json, not 'xml'")
    ran = run("status", "--json", "--text", cwd=project)
    assert (ran.code, ran.out) == (2, "")


def ids(project: Path, *words: object) -> list[str]:
    out = run("events", *words, cwd=project).out
    return [json.loads(line)["id"] for line in out.splitlines()]


def test_the_last_events_are_shown_without_reading_all(project: Path) -> None:
    assert ids(project, "--last", "2") == ["A-004-x", "A-005-x"]
    run("hold", "A-001-x", cwd=project)
    assert ids(project, "--last", "2", "--type", "TASK_ADDED") == ["A-004-x", "A-005-x"]
    assert ids(project, "--last", "1", "--task", "A-002-x") == ["A-002-x"]
    assert len(ids(project, "--last", "1000")) == len(ids(project))
    assert ids(project, "--last", "3", "--limit", "1") == ["A-004-x"]


@pytest.mark.parametrize("words", [["--last", "0"], ["--last", "1", "--after", "x"]])
def test_a_wrong_beginning_is_refused(project: Path, words: list[str]) -> None:
    ran = run("events", *words, cwd=project)
    assert (ran.code, ran.error()["code"]) == (2, "BAD_ARGUMENT")


def test_the_watched_status_is_shown_again_when_something_happens(project: Path) -> None:
    with Terminal("status", "--watch", cwd=project) as terminal:
        terminal.wait_for("5 pending")
        run("claim", "A-001-x", cwd=project)
        terminal.wait_for("1 in progress")
        terminal.interrupt()
        assert terminal.end() == 130
