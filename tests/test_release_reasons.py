"""A release has one of Genlock's reasons, and beside it whatever its caller said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import genlock
from genlock.errors import BadArgument
from tests.cli.console import run


@pytest.mark.parametrize(
    ("given", "kind", "stated"),
    [
        ("VOLUNTARY", "VOLUNTARY", ""),
        ("ERROR", "ERROR", ""),
        ("", "VOLUNTARY", ""),
        ("lunch", "VOLUNTARY", "lunch"),
        ("ERROR: no compiler", "ERROR", "ERROR: no compiler"),
        ("failed", "ERROR", "failed"),
        ("the error is not mine: gone home", "VOLUNTARY", "the error is not mine: gone home"),
        ("EXPIRED", "VOLUNTARY", "EXPIRED"),
    ],
)
def test_a_release_takes_any_text_beside_its_canonical_kind(
    given: str, kind: str, stated: str
) -> None:
    with genlock.connect("memory://", create=True, session_id="s", agent_id="a") as fleet:
        fleet.add_tasks(tasks=["task"])
        fleet.claim_task(task_id="task")
        assert fleet.release_claim(task_id="task", generation=1, reason=given).success
        (entry,) = fleet.get_claim_history(task_id="task")
        assert (entry.release_reason, entry.stated_reason) == (kind, stated)
        assert fleet.get_task_state(task_id="task").failures == (1 if kind == "ERROR" else 0)


@pytest.mark.parametrize("given", ["completed", "COMPLETED: all of it"])
def test_a_release_that_wants_to_complete_is_told_to_submit(given: str) -> None:
    with genlock.connect("memory://", create=True, session_id="s", agent_id="a") as fleet:
        fleet.add_tasks(tasks=["task"])
        fleet.claim_task(task_id="task")
        with pytest.raises(BadArgument, match="to complete a task, submit its result"):
            fleet.release_claim(task_id="task", generation=1, reason=given)
        assert fleet.get_task_state(task_id="task").state == "IN_PROGRESS"


def test_the_command_line_takes_a_reason_and_history_shows_it(tmp_path: Path) -> None:
    run("init", cwd=tmp_path)
    run("add", "task", cwd=tmp_path)
    run("claim", "task", "--session", "s", cwd=tmp_path)
    told = ("--error", "--reason", "no compiler", "--session", "s")
    assert run("release", "task", "-g", "1", *told, cwd=tmp_path).code == 0
    shown = json.loads(run("history", "task", cwd=tmp_path).out)
    assert shown["generations"][0]["stated_reason"] == "ERROR: no compiler"
