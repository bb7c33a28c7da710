"""Files that somebody has put there to do harm, or by accident: each is named, and none of them
keeps anybody from another task, or costs much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from genlock.errors import NotAllowed
from tests.folder.orchestra import Orchestra
from tests.folder.workspace import Workspace, granted, ready, submitted

MEGABYTE = 1 << 20


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_folder(path: Path) -> None:
    path.mkdir()


def put_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "secret")


def put_huge(path: Path) -> None:
    path.write_text("---\nstate: todo\n---\n")
    os.truncate(path, 2000 * MEGABYTE)


def put_large_frontmatter(path: Path) -> None:
    path.write_text(
        "---\nstate: todo\nx: {" + ",".join(f"k{n}: [a, {{b: c}}]" for n in range(9000))
    )
    path.write_text(path.read_text() + "}\n---\n")


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (put_pipe, "tasks/bad.md cannot be read: it is no regular file"),
        (put_folder, "tasks/bad.md cannot be read: it is no regular file"),
        (put_link, "tasks/bad.md cannot be read: it is a symbolic link"),
        (put_huge, "tasks/bad.md cannot be read: it is larger than 4,194,304 bytes"),
        (put_large_frontmatter, "tasks/bad.md: the frontmatter has more than 65,536 characters"),
    ],
)
def test_task_file_that_cannot_be_read_is_named_and_blocks_nobody_else(
    workspace: Workspace, put: Callable[[Path], None], words: str
) -> None:
    workspace.add("good")
    path = workspace.add("bad")
    fleet = workspace.connect()
    fleet.sweep()
    path.unlink()
    put(path)
    with pytest.raises(NotAllowed, match=words):
        fleet.claim_task(task_id="bad")
    assert fleet.claim_next().task_id == "good"
    assert not (workspace.root / "secret").exists()


@pytest.mark.parametrize(
    ("put", "words"),
    [
        (put_pipe, "state/locks/bad.lock cannot be read: it is no regular file"),
        (put_folder, "state/locks/bad.lock cannot be read: it is no regular file"),
        (put_link, "state/locks/bad.lock cannot be read: it is a symbolic link"),
        (put_huge, "state/locks/bad.lock cannot be read: it is larger than 100,000 bytes"),
    ],
)
def test_lock_that_cannot_be_read_is_named_and_blocks_nobody_else(
    workspace: Workspace, put: Callable[[Path], None], words: str
) -> None:
    workspace.add("good")
    workspace.add("bad")
    workspace.locks.mkdir(parents=True)
    put(workspace.locks / "bad.lock")
    fleet = workspace.connect()
    with pytest.raises(NotAllowed, match=words):
        fleet.claim_task(task_id="bad")
    assert fleet.claim_next().task_id == "good"
    assert not (workspace.root / "state" / "secret").exists()


@pytest.mark.parametrize("put", [put_pipe, put_folder, put_link, put_huge])
def test_holder_submits_although_its_lock_cannot_be_read(
    workspace: Workspace, put: Callable[[Path], None]
) -> None:
    workspace.add("task")
    fleet = workspace.connect()
    generation = granted(fleet, "task")
    path = workspace.locks / "task.lock"
    path.unlink()
    put(path)
    assert submitted(fleet, "task", generation) == "ACCEPTED"


@pytest.mark.parametrize("text", ["[" * 9000, "x" * 20_000, '{"task_id":' * 900, "\0" * 50])
def test_lock_that_is_no_lock_is_overwritten(workspace: Workspace, text: str) -> None:
    workspace.add("task")
    workspace.locks.mkdir(parents=True)
    (workspace.locks / "task.lock").write_text(text)
    granted(workspace.connect(), "task")
    lock = workspace.lock_of("task")
    assert lock is not None
    assert lock["worker"] == "a1"


@pytest.mark.parametrize("text", ["[" * 90_000, "x" * 200_000, "[1]", ""])
def test_file_of_an_agent_that_is_none_is_written_again(workspace: Workspace, text: str) -> None:
    workspace.add("task")
    agents = workspace.root / "state" / "agents"
    agents.mkdir(parents=True)
    (agents / "a1.status").write_text(text)
    granted(workspace.connect(), "task")
    assert json.loads((agents / "a1.status").read_text())["current_task"] == "task"


def test_file_that_another_tool_has_emptied_is_not_taken_for_deleted(workspace: Workspace) -> None:
    path = workspace.add("task")
    fleet = workspace.connect()
    fleet.sweep()
    text = path.read_text()
    path.write_text("")  # gptodo writes a file so: it empties it first
    with pytest.raises(NotAllowed, match="has no task in it any more"):
        fleet.claim_task(task_id="task")
    path.write_text(text)
    granted(fleet, "task")


def test_names_that_are_no_text_do_no_harm(workspace: Workspace) -> None:
    workspace.add("good")
    for number in range(300):
        name = os.fsencode(workspace.tasks) + b"/bad-\xff-%d.md" % number
        with open(name, "w") as file:
            file.write("---\nstate: todo\n---\n")
        os.utime(name, (1, 1))  # as old as a file whose fingerprint is kept
    fleet = workspace.connect()
    assert ready(fleet) == ["good"]
    assert fleet.claim_next().task_id == "good"
    done = subprocess.run(
        [Path(sys.executable).with_name("genlock"), "folder", "status", "--url", workspace.url],
        capture_output=True,
        cwd=workspace.root,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("put", [put_pipe, put_link, put_huge])
def test_spool_file_that_cannot_be_read_is_named_and_blocks_nobody_else(
    orchestra: Orchestra, put: Callable[[Path], None]
) -> None:
    orchestra.add("0001")
    bad = orchestra.add("0002")
    (bad / "0002.md").unlink()
    put(bad / "0002.md")
    fleet = orchestra.connect()
    assert [each.task.id for each in fleet.ready(agent_id="claude")] == ["0001"]
    assert fleet.claim_next().task_id == "0001"


def test_claim_of_a_spool_that_is_no_claim_does_no_harm(orchestra: Orchestra) -> None:
    orchestra.add("0001")
    folder = orchestra.move("0001", "in_progress")
    (folder / "genlock.json").write_text('{"claim":' * 5000)
    fleet = orchestra.connect()
    fleet.sweep()
    assert str(fleet.get_task_state(task_id="0001").state) == "HELD"
