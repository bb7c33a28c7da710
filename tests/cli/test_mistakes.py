"""What people type by mistake, and the answer that gets them on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import genlock
from tests.cli.console import Ran, run
from tests.servers.postgres import free_port


@pytest.fixture
def project(tmp_path: Path) -> Path:
    run("init", cwd=tmp_path)
    with genlock.connect(f"sqlite://{tmp_path}/.genlock/genlock.db") as fleet:
        fleet.add_tasks(tasks=["A-001-core"])
        fleet.claim_task(task_id="A-001-core", session_id="me", agent_id="me")
    return tmp_path


def call(project: Path, *words: object) -> Ran:
    return run(*words, "--session", "me", cwd=project)


@pytest.mark.parametrize(
    "words",
    ["status", "ready", "next", "agents", "events", "graph", "sessions", "refused", "plan show"],
)
def test_a_project_that_does_not_exist_is_an_error(project: Path, words: str) -> None:
    ran = run(*words.split(), "--project", "nope", cwd=project)
    assert (ran.code, ran.out) == (3, "")
    assert ran.error()["code"] == "PROJECT_NOT_FOUND"
    assert ran.error()["message"] == (
        "there is no project 'nope' in this store; there are: default"
    )


def test_a_service_that_does_not_listen_is_told_of_at_once(project: Path) -> None:
    began = time.monotonic()
    ran = run("status", "--url", f"http://127.0.0.1:{free_port()}", cwd=project)
    assert ran.code != 0
    assert "Connection refused. No service listens there" in ran.error()["message"]
    assert time.monotonic() - began < 4, "the deadline is five seconds"


@pytest.mark.parametrize("verb", ["submit", "renew", "release"])
def test_a_generation_that_never_was_is_asked_about(project: Path, verb: str) -> None:
    ran = call(project, verb, "A-001", "-g", "7")
    assert ran.code == 5
    assert "A-001-core has not been at this generation; did you mean 1?" in ran.json()["message"]


def test_what_was_kept_of_a_mistyped_generation_goes_when_it_is_accepted(project: Path) -> None:
    for generation, text in ((7, "other"), (7, "work"), (1, "work")):
        call(project, "submit", "A-001-core", "-g", generation, "--text", text)
    states = {
        one["result_data"]: one["state"]
        for one in run("refused", "--all", cwd=project).json()["refused"]
    }
    assert states == {"other": "KEPT", None: "DISCARDED"}


def test_another_session_s_kept_result_is_left_alone(project: Path) -> None:
    run("submit", "A-001-core", "-g", "7", "--text", "work", "--session", "other", cwd=project)
    assert call(project, "submit", "A-001-core", "-g", "1", "--text", "work").code == 0
    (kept,) = run("refused", cwd=project).json()["refused"]
    assert (kept["session_id"], kept["state"]) == ("other", "KEPT")


def test_a_lease_below_the_least_is_said_to_be_under_it(project: Path) -> None:
    run("add", "free", cwd=project)
    ran = call(project, "claim", "free", "--lease", "0.5")
    assert ran.json()["message"] == (
        "the claim would be under the limit min_lease_duration_seconds = 1: a lease lasts at "
        "least 1 s, not 0.5 s"
    )
