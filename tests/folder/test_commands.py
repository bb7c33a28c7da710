"""The command line on a folder: init, doctor, folder, copy."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import genlock
from genlock.engine.replay_check import check
from tests.cli.console import run
from tests.folder.test_observations import git
from tests.folder.workspace import Workspace


@pytest.fixture
def taken_up(workspace: Workspace) -> Workspace:
    """A gptodo workspace on which `genlock init --folder` was called."""
    workspace.add("build", requires=["design"])
    workspace.add("design", priority="high")
    git(workspace.root, "init", "-b", "main")
    git(workspace.root, "add", ".")
    git(workspace.root, "commit", "-m", "Plan")
    done = run("init", "--folder", ".", "--text", cwd=workspace.root)
    assert done.code == 0, done.err
    assert "2 tasks, 1 BLOCKED, 1 PENDING" in done.out
    return workspace


def ready(workspace: Workspace) -> list[str]:
    return [task["id"] for task in answer(workspace, "ready")["ready_tasks"]]


def answer(workspace: Workspace, *arguments: str) -> Any:
    done = run(*arguments, "--json", cwd=workspace.root)
    assert done.code == 0, done.err
    return done.json()


def test_init_takes_up_a_workspace_and_changes_nothing_in_it(taken_up: Workspace) -> None:
    shown = subprocess.run(
        ["git", "status", "--porcelain"], cwd=taken_up.root, capture_output=True, text=True
    ).stdout
    assert shown.split() == ["??", ".genlock/"]
    assert ready(taken_up) == ["design"]


def test_init_again_changes_nothing(taken_up: Workspace) -> None:
    again = answer(taken_up, "init", "--folder", ".")
    assert (again["made"], again["tasks"]) == (False, 2)


def test_a_claim_and_its_result_by_the_command_line(taken_up: Workspace) -> None:
    claim = answer(taken_up, "claim", "design", "--session", "s1", "--agent", "ada")
    assert taken_up.values("design")["assigned_to"] == "ada"
    generation = str(claim["claim"]["generation"])
    answer(taken_up, "submit", "design", "-g", generation, "--session", "s1")
    assert taken_up.values("design")["state"] == "done"
    shown = subprocess.run(
        ["git", "status", "--porcelain", "state"], cwd=taken_up.root, capture_output=True, text=True
    ).stdout
    assert shown == ""
    assert ready(taken_up) == ["build"]


def test_checkout_is_shown_by_doctor_and_decided_by_a_person(taken_up: Workspace) -> None:
    claim = answer(taken_up, "claim", "design", "--session", "s1", "--agent", "ada")
    git(taken_up.root, "checkout", "--", "tasks")
    assert answer(taken_up, "folder", "status")["checked_out"] == ["design"]
    findings = {each["check"]: each for each in answer(taken_up, "doctor")["findings"]}
    assert findings["checkouts"]["items"] == ["design"]
    assert answer(taken_up, "folder", "restore")["restored"] == ["design"]
    assert taken_up.values("design")["assigned_to"] == "ada"
    assert answer(taken_up, "folder", "status")["checked_out"] == []
    assert answer(taken_up, "show", "design")["generation"] == claim["claim"]["generation"]
    git(taken_up.root, "checkout", "--", "tasks")
    assert answer(taken_up, "folder", "adopt", "design")["adopted"] == ["design"]
    shown = answer(taken_up, "show", "design")
    assert (shown["state"], shown["generation"]) == ("PENDING", claim["claim"]["generation"] + 1)


def test_deleted_file_is_restored(taken_up: Workspace) -> None:
    (taken_up.tasks / "design.md").unlink()
    answer(taken_up, "sweep")
    assert answer(taken_up, "folder", "status")["missing"] == ["design"]
    assert answer(taken_up, "folder", "restore", "design")["restored"] == ["design"]
    assert taken_up.values("design")["priority"] == "high"
    assert ready(taken_up) == ["design"]


def test_doctor_names_files_that_cannot_be_read(taken_up: Workspace) -> None:
    (taken_up.tasks / "design.md").write_text("---\nstate: [\n---\n")
    report = answer(taken_up, "doctor")
    findings = {each["check"]: each for each in report["findings"]}
    assert report["healthy"] is True
    assert "tasks/design.md" in findings["unreadable files"]["items"][0]


def test_folder_commands_on_another_store_say_what_to_type(tmp_path: Path) -> None:
    run("init", cwd=tmp_path)
    done = run("folder", "status", cwd=tmp_path)
    assert done.code != 0
    assert "genlock init --folder PATH" in " ".join(done.err.split())


def test_init_where_there_is_no_workspace_says_so(tmp_path: Path) -> None:
    done = run("init", "--folder", "nowhere", cwd=tmp_path)
    assert "nowhere is no folder" in done.err


def test_copy_from_and_to_a_folder_keeps_everything(workspace: Workspace, tmp_path: Path) -> None:
    workspace.add("task")
    workspace.add("other", requires=["task"])
    fleet = workspace.connect()
    fleet.sweep()
    claim = fleet.claim_task(task_id="task").claim
    assert claim is not None
    fleet.submit_result(task_id="task", generation=claim.generation, result_data={"x": 1})
    fleet.close()
    there, back = f"sqlite://{tmp_path}/there.db", f"folder://{tmp_path}/back?layout=gptodo"
    for source, target in ((workspace.url, there), (there, back)):
        done = run("copy", source, target, cwd=tmp_path)
        assert done.code == 0, done.err
    (tmp_path / "back" / "tasks").mkdir(exist_ok=True)
    store = genlock.open_store(back)
    assert check(store) == []
    store.close()
    copied = Workspace(tmp_path / "back")
    assert copied.values("task")["state"] == "done"
    assert copied.values("other")["requires"] == ["task"]
    again = copied.connect("s2", "a2")
    assert again.claim_task(task_id="other").success
    copied.close()
