"""Every row of the table of observations: what it means when another tool changes a task's
files."""

from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from genlock.errors import NotAllowed
from genlock.testing.clock import ManualClock
from tests.folder.workspace import (
    Workspace,
    granted,
    kinds_of,
    later,
    ready,
    state_of,
    submitted,
)

# New files


def test_new_file_is_a_new_task(workspace: Workspace) -> None:
    fleet = workspace.connect()
    workspace.add("first", priority="high", tags=["x"], requires=["second"])
    workspace.add("second", "# The second one\n\nText.")
    assert ready(fleet) == ["second"]
    task = fleet.get_task_state(task_id="first").task
    assert (task.priority, task.tags, task.depends_on) == ("high", ("x",), ("second",))
    assert fleet.get_task_state(task_id="second").task.title == "The second one"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("todo", "PENDING"),
        ("backlog", "BACKLOG"),
        ("new", "BACKLOG"),
        ("paused", "BACKLOG"),
        ("waiting", "HELD"),
        ("someday", "HELD"),
        ("expired", "HELD"),
        ("ready_for_review", "HELD"),
        ("active", "HELD"),
        ("done", "COMPLETED"),
        ("cancelled", "CANCELLED"),
    ],
)
def test_state_of_a_new_file_is_the_state_of_its_task(
    workspace: Workspace, state: str, expected: str
) -> None:
    workspace.add("task", state=state)
    assert state_of(workspace.connect(), "task") == expected


def test_new_file_that_names_its_assignee_is_reserved_for_it(workspace: Workspace) -> None:
    workspace.add("task", state="active", assigned_to="bob")
    assert workspace.connect().claim_task(task_id="task").reason == "DENIED_ASSIGNED"
    assert workspace.connect("s2", "bob").claim_task(task_id="task").success


def test_new_file_with_a_live_lock_is_held_by_its_worker(workspace: Workspace) -> None:
    workspace.add("task")
    workspace.lock("task", "w1")
    denied = workspace.connect().claim_task(task_id="task")
    assert (denied.reason, denied.current_holder) == ("DENIED_ACTIVE_CLAIM", "w1")


def test_nothing_is_written_into_a_workspace_before_the_first_claim(workspace: Workspace) -> None:
    paths = [
        workspace.add("one", state="someday"),
        workspace.add("two", state="active", assigned_to="bob"),
        workspace.add("three", requires=["one"], state="backlog"),
        workspace.add("four", state="done"),
    ]
    workspace.lock("two", "bob", since=later(hours=-9))
    paths.append(workspace.locks / "two.lock")
    before = [(path.stat().st_ino, path.read_bytes()) for path in paths]
    fleet = workspace.connect()
    fleet.ready()
    fleet.sweep()
    assert [(path.stat().st_ino, path.read_bytes()) for path in paths] == before


# Changes of a task that somebody holds


@pytest.mark.parametrize(
    "change",
    [
        {"state": "todo"},
        {"state": "backlog"},
        {"state": "waiting", "waiting_for": "the bank"},
        {"state": "someday"},
        {"state": "ready_for_review"},
        {"state": "cancelled"},
        {"state": "done"},
        {"assigned_to": "bob"},
        {"assigned_to": None},
    ],
    ids=lambda change: "-".join(f"{name}={value}" for name, value in change.items()),
)
def test_foreign_change_of_state_or_assignee_fences_the_holder(
    workspace: Workspace, change: dict[str, str | None]
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    workspace.edit("task", **change)
    assert submitted(fleet, "task", generation) == "STALE_GENERATION"
    renewed = fleet.renew_lease(task_id="task", generation=generation)
    assert renewed.reason == "GENERATION_MISMATCH"
    assert fleet.get_task_state(task_id="task").generation > generation
    kinds = kinds_of(fleet, "task")
    assert "EXTERNAL_CHANGE" in kinds
    assert workspace.lock_of("task") is None


def test_foreign_lock_over_a_claim_fences_its_holder(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    workspace.lock("task", "w2")
    assert submitted(fleet, "task", generation) == "STALE_GENERATION"
    state = fleet.get_task_state(task_id="task")
    assert state.holder is not None
    assert (state.holder.session, state.holder.agent) == ("gptodo:w2", "w2")
    assert state.generation == generation + 1
    assert workspace.lock_of("task") is not None


def test_lock_that_another_tool_removed_fences_the_holder(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    workspace.unlock("task")
    assert submitted(fleet, "task", generation) == "STALE_GENERATION"
    assert state_of(fleet, "task") == "PENDING"


def test_overdue_lock_that_was_cleaned_up_leaves_the_late_result_good(
    workspace: Workspace,
) -> None:
    clock = ManualClock()
    workspace.add("task")
    fleet = workspace.connect(clock=clock)
    generation = granted(fleet, "task", 60)
    clock.advance(seconds=61)
    workspace.unlock("task")
    assert submitted(fleet, "task", generation) == "ACCEPTED"


def test_foreign_edit_of_the_text_or_of_unknown_keys_takes_nothing_away(
    workspace: Workspace,
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    workspace.edit("task", x_mine="yes", next_action="write it")
    path = workspace.tasks / "task.md"
    path.write_text(path.read_text() + "\nMore text.\n")
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    assert workspace.values("task")["x_mine"] == "yes"
    assert "More text." in workspace.text("task")


def test_foreign_edit_of_the_definition_is_taken_over_and_takes_nothing_away(
    workspace: Workspace,
) -> None:
    workspace.add("task", requires=["other"])
    workspace.add("other", state="done")
    fleet = workspace.connect()
    fleet.sweep()
    generation = granted(fleet, "task")
    workspace.edit("task", priority="high", tags=["urgent"], requires=["third"])
    task = fleet.get_task_state(task_id="task").task
    assert (task.priority, task.tags, task.depends_on) == ("high", ("urgent",), ("third",))
    assert submitted(fleet, "task", generation) == "ACCEPTED"


# States


def test_foreign_done_completes_with_an_external_result(workspace: Workspace) -> None:
    workspace.add("first")
    workspace.add("second", requires=["first"])
    fleet = workspace.connect()
    assert ready(fleet) == ["first"]
    workspace.edit("first", state="done")
    assert ready(fleet) == ["second"]
    result = fleet.get_task_state(task_id="first").result
    assert result is not None
    assert (result.result_data, result.session_id) == ({"external": "gptodo"}, "gptodo")


def test_done_by_a_foreign_holder_is_a_result_in_its_name(workspace: Workspace) -> None:
    workspace.add("task")
    workspace.lock("task", "w1")
    fleet = workspace.connect()
    generation = fleet.get_task_state(task_id="task").generation
    workspace.edit("task", state="done")
    workspace.unlock("task")
    state = fleet.get_task_state(task_id="task")
    assert state.result is not None
    assert (state.result.session_id, state.generation) == ("gptodo:w1", generation)


def test_foreign_cancel_cancels(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    workspace.edit("task", state="cancelled")
    assert state_of(fleet, "task") == "CANCELLED"


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_foreign_reopen_is_a_reset(workspace: Workspace, end: str) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    workspace.edit("task", state=end)
    before = fleet.get_task_state(task_id="task").generation
    workspace.edit("task", state="todo")
    after = fleet.get_task_state(task_id="task")
    assert (str(after.state), after.result) == ("PENDING", None)
    # Nobody was granted a cancelled task's generation, so the reset may keep it.
    assert after.generation - before == {"done": 1, "cancelled": 0}[end]
    assert "TASK_RESET" in kinds_of(fleet, "task")


def test_reopened_dependency_blocks_its_dependent_again(workspace: Workspace) -> None:
    workspace.add("first", state="done")
    workspace.add("second", requires=["first"])
    fleet = workspace.connect()
    assert ready(fleet) == ["second"]
    workspace.edit("first", state="todo")
    assert ready(fleet) == ["first"]


@pytest.mark.parametrize("state", ["someday", "ready_for_review", "expired"])
def test_foreign_state_that_says_not_now_holds_the_task_until_the_file_is_open_again(
    workspace: Workspace, state: str
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    assert ready(fleet) == ["task"]
    workspace.edit("task", state=state)
    assert ready(fleet) == []
    shown = fleet.get_task_state(task_id="task")
    assert (str(shown.state), shown.hold_reason) == ("HELD", f"{state} in its file")
    assert workspace.values("task")["state"] == state
    workspace.edit("task", state="todo")
    assert ready(fleet) == ["task"]


def test_foreign_active_without_an_assignee_holds_the_task(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    workspace.edit("task", state="active")
    assert fleet.claim_task(task_id="task").reason == "DENIED_HELD"
    assert workspace.values("task")["state"] == "active"


def test_foreign_waiting_for_blocks_the_task(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    workspace.edit("task", state="waiting", waiting_for="the bank")
    denied = fleet.claim_task(task_id="task")
    assert (denied.reason, denied.waits_for) == ("DENIED_BLOCKED", ("the bank",))
    workspace.edit("task", state="todo", waiting_for=None)
    assert ready(fleet) == ["task"]


def test_foreign_move_to_the_backlog_and_back(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    workspace.edit("task", state="backlog")
    assert state_of(fleet, "task") == "BACKLOG"
    workspace.edit("task", state="todo")
    assert state_of(fleet, "task") == "PENDING"


def test_hold_of_ours_is_shown_in_the_file_and_lifted_there(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.hold_task(task_id="task", reason="ask Ada first")
    values = workspace.values("task")
    assert (values["state"], values["waiting_for"]) == ("waiting", "ask Ada first")
    workspace.edit("task", state="todo", waiting_for=None)
    assert ready(fleet) == ["task"]


# Assignees


def test_foreign_assignee_reserves_the_task(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    workspace.edit("task", assigned_to="bob")
    assert fleet.claim_task(task_id="task").reason == "DENIED_ASSIGNED"
    workspace.edit("task", assigned_to=None)
    assert fleet.claim_task(task_id="task").success


# Locks


def test_refreshed_foreign_lock_renews_and_a_removed_one_releases(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    workspace.lock("task", "w1", hours=1)
    first = fleet.get_task_state(task_id="task")
    workspace.lock("task", "w1", hours=2)
    second = fleet.get_task_state(task_id="task")
    assert first.holder is not None
    assert second.holder is not None
    assert first.holder.expires_at is not None
    assert second.holder.expires_at is not None
    assert second.holder.expires_at - first.holder.expires_at > timedelta(minutes=59)
    assert first.generation == second.generation
    workspace.unlock("task")
    assert fleet.claim_task(task_id="task").success
    assert [kind for kind in kinds_of(fleet, "task") if kind != "EXTERNAL_CHANGE"] == [
        "TASK_ADDED",
        "CLAIM_ACQUIRED",
        "LEASE_RENEWED",
        "CLAIM_RELEASED",
        "CLAIM_ACQUIRED",
    ]


def test_foreign_lock_that_ran_out_is_taken_over(workspace: Workspace) -> None:
    clock = ManualClock()
    workspace.add("task")
    workspace.lock("task", "w1", hours=1, since=clock.now())
    fleet = workspace.connect(clock=clock)
    assert fleet.claim_task(task_id="task").current_holder == "w1"
    clock.advance(seconds=3601)
    generation = granted(fleet, "task")
    lock = workspace.lock_of("task")
    assert lock is not None
    assert (lock["worker"], set(lock)) == (
        "a1",
        {"task_id", "worker", "started", "timeout_hours"},
    )
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    assert workspace.lock_of("task") is None


def test_lock_that_gptodo_ignores_is_no_lock(workspace: Workspace) -> None:
    workspace.add("task")
    workspace.locks.mkdir(parents=True)
    (workspace.locks / "task.lock").write_text('{"task_id": "task", "worker": "w1", "pid": 1}')
    assert workspace.connect().claim_task(task_id="task").success


def test_foreign_lock_of_a_candidate_is_seen_by_claim_next(workspace: Workspace) -> None:
    for id in ("a", "b"):
        workspace.add(id)
    fleet = workspace.connect()
    assert ready(fleet) == ["a", "b"]
    workspace.lock("a", "w1")
    assert fleet.claim_next().task_id == "b"


def test_lock_that_stands_on_a_task_that_is_opened_again_is_respected(
    workspace: Workspace,
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    workspace.lock("task", "w1")
    workspace.edit("task", state="done")
    assert state_of(fleet, "task") == "COMPLETED"
    workspace.edit("task", state="todo")
    assert fleet.claim_task(task_id="task").current_holder == "w1"
    workspace.edit("task", state="done")
    assert state_of(fleet, "task") == "COMPLETED"
    fleet.reset_task(task_id="task")
    assert fleet.claim_task(task_id="task").current_holder == "w1"


def test_operator_takes_a_task_from_a_foreign_worker(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    workspace.lock("task", "w1")
    assert fleet.claim_task(task_id="task").current_holder == "w1"
    fleet.force_release(task_id="task", take_over=True)
    assert workspace.lock_of("task") is None
    assert fleet.claim_task(task_id="task").success


# Files that are gone, or cannot be read


def test_deleted_file_is_held_for_a_person_and_lifted_when_it_is_back(
    workspace: Workspace,
) -> None:
    path = workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    kept = path.read_bytes()
    path.unlink()
    denied = fleet.claim_task(task_id="task")
    assert (denied.reason, denied.detail) == ("DENIED_HELD", "its file was deleted")
    path.write_bytes(kept)
    assert fleet.claim_task(task_id="task").success


def test_deleted_file_does_not_fence_the_holder_and_is_not_made_again(
    workspace: Workspace,
) -> None:
    path = workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    path.unlink()
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "---\nstate: todo\nrequires: [a\n---\n",
        "---\nstate: no-such-state\n---\n",
        "---\n- a list\n---\n",
        "---\nstate: todo\n<<<<<<< HEAD\npriority: high\n=======\npriority: low\n>>>>>>> x\n---\n",
    ],
    ids=["broken", "unknown-state", "list", "merge-conflict"],
)
def test_unreadable_file_is_named_and_blocks_nobody_else(workspace: Workspace, text: str) -> None:
    workspace.add("good")
    path = workspace.add("bad")
    fleet = workspace.connect()
    assert ready(fleet) == ["bad", "good"]
    path.write_text(text)
    with pytest.raises(NotAllowed, match=r"tasks/bad\.md"):
        fleet.claim_task(task_id="bad")
    assert fleet.claim_next().task_id == "good"
    assert path.read_text() == text


def test_holder_submits_although_its_file_cannot_be_read(workspace: Workspace) -> None:
    path = workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    path.write_text("---\nstate: [\n---\n")
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    assert path.read_text() == "---\nstate: [\n---\n"


def test_files_that_are_no_tasks_are_left_alone(workspace: Workspace) -> None:
    for name, text in {
        "README.md": "# Read me\n",
        "empty.md": "",
        ".hidden.md": "---\nstate: todo\n---\n",
        "notes.txt": "---\nstate: todo\n---\n",
        "torn.md": "---\nstate: to",
    }.items():
        (workspace.tasks / name).write_text(text)
    workspace.add("task")
    assert ready(workspace.connect()) == ["task"]


# Races


def test_edit_between_load_and_commit_is_not_overwritten(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    store = fleet.engine.store
    commit = store.commit
    edits = iter([lambda: workspace.edit("task", state="done")])

    def commit_late(changes: object, **options: object) -> object:
        next(edits, lambda: None)()
        return commit(changes, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "commit", commit_late)
    assert submitted(fleet, "task", generation) == "STALE_GENERATION"
    assert workspace.values("task")["state"] == "done"


def test_edit_is_observed_by_whichever_coordinator_comes_first(workspace: Workspace) -> None:
    workspace.add("task")
    one, two = workspace.connect(), workspace.connect("s2", "a2")
    generation = granted(one, "task")
    workspace.edit("task", state="todo")
    assert granted(two, "task") > generation
    assert submitted(one, "task", generation) == "STALE_GENERATION"


# Git


def git(root: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments],
        cwd=root,
        check=True,
        capture_output=True,
    )


def test_branch_switch_is_a_checkout_and_fences_nobody(workspace: Workspace) -> None:
    workspace.add("task")
    workspace.add("other")
    git(workspace.root, "init", "-b", "main")
    fleet = workspace.connect()
    fleet.sweep()
    git(workspace.root, "add", ".")
    git(workspace.root, "commit", "-m", "Plan")
    status = subprocess.run(
        ["git", "ls-files"], cwd=workspace.root, capture_output=True, text=True, check=True
    ).stdout
    assert status.split() == [
        "tasks/other.md",
        "tasks/task.md",
    ]
    generation = granted(fleet, "task")
    git(workspace.root, "commit", "-am", "Work")
    git(workspace.root, "checkout", "HEAD~1")
    assert workspace.values("task")["state"] == "todo"
    fleet.sweep()
    assert state_of(fleet, "task") == "IN_PROGRESS"
    assert fleet.renew_lease(task_id="task", generation=generation).success
    assert workspace.values("task")["state"] == "todo"
    git(workspace.root, "checkout", "main")
    assert submitted(fleet, "task", generation) == "ACCEPTED"
    assert workspace.values("task")["state"] == "done"
    assert "EXTERNAL_CHANGE" not in kinds_of(fleet, "task")


def test_edit_in_a_repository_is_still_an_edit(workspace: Workspace) -> None:
    workspace.add("task")
    git(workspace.root, "init", "-b", "main")
    git(workspace.root, "add", ".")
    git(workspace.root, "commit", "-m", "Plan")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    workspace.edit("task", state="todo", assigned_to=None, assigned_at=None)
    assert submitted(fleet, "task", generation) == "STALE_GENERATION"


def test_linked_worktree_uses_the_main_ones_journal(workspace: Workspace, tmp_path: Path) -> None:
    workspace.add("task")
    git(workspace.root, "init", "-b", "main")
    git(workspace.root, "add", ".")
    git(workspace.root, "commit", "-m", "Plan")
    git(workspace.root, "worktree", "add", str(tmp_path / "linked"), "-b", "feature")
    generation = granted(workspace.connect(), "task")
    linked = Workspace(tmp_path / "linked")
    other = linked.connect("s2", "a2")
    try:
        assert other.claim_task(task_id="task").reason == "DENIED_ACTIVE_CLAIM"
        assert other.get_task_state(task_id="task").generation == generation
        assert not (tmp_path / "linked" / "state" / "genlock").exists()
    finally:
        linked.close()


# Reviews


def test_foreign_done_does_not_pass_a_review(workspace: Workspace) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    fleet.edit_task(task_id="task", changes={"human_required": True})
    generation = granted(fleet, "task")
    workspace.edit("task", state="done")
    assert state_of(fleet, "task") == "IN_REVIEW"
    assert submitted(fleet, "task", generation) == "STALE_GENERATION"
    assert workspace.values("task")["state"] == "ready_for_review"
    workspace.edit("task", state="done")
    assert state_of(fleet, "task") == "IN_REVIEW"
    workspace.edit("task", state="todo")
    assert state_of(fleet, "task") == "PENDING"
