"""gptodo's layout: frontmatter that keeps what it does not know, and locks under gptodo's own
flock."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.plans.values import load_yaml
from genlock.stores.folder.layout import TaskFiles
from genlock.stores.folder.layouts import frontmatter
from genlock.stores.folder.layouts.gptodo import GptodoLayout
from tests.folder.workspace import Workspace

PLAIN = """---
state: todo   # of course
created: 2026-01-27T10:00:00+00:00
requires:
- first
- second
priority: "high"
x-map: {a: [1, 2], b: null}
x-text: |
  two
  lines
tags: [a, b]
---

# Title

state: this is text
---
and so is this
"""


def changed(text: str, **changes: Any) -> str:
    return frontmatter.change(frontmatter.split(text), changes)


def test_change_of_a_key_leaves_every_other_byte() -> None:
    assert changed(PLAIN, priority="low") == PLAIN.replace('priority: "high"', "priority: low")
    assert changed(PLAIN, tags=["c d", "0001"]) == PLAIN.replace(
        "tags: [a, b]", 'tags: [c d, "0001"]'
    )
    assert changed(PLAIN, requires=None) == PLAIN.replace("requires:\n- first\n- second\n", "")
    assert changed(PLAIN, assigned_to="bob") == PLAIN.replace(
        "tags: [a, b]\n", "tags: [a, b]\nassigned_to: bob\n"
    )


@pytest.mark.parametrize(
    "changes",
    [{"state": "active"}, {"x-map": "plain"}, {"x-text": None}],
    ids=["comment", "flow", "literal"],
)
def test_change_of_a_key_that_is_not_plain_keeps_the_others(changes: dict[str, Any]) -> None:
    before = load_yaml(frontmatter.split(PLAIN).yaml)
    after = changed(PLAIN, **changes)
    parts = frontmatter.split(after)
    wanted = {key: value for key, value in (before | changes).items() if value is not None}
    assert load_yaml(parts.yaml) == wanted
    assert parts.body == frontmatter.split(PLAIN).body


@pytest.mark.parametrize(
    "text",
    ["", "# No frontmatter\n", "---\nstate: todo\n", "--- \n", "text\n---\nstate: todo\n---\n"],
)
def test_text_without_frontmatter_is_none(text: str) -> None:
    with pytest.raises(frontmatter.NoFrontmatter):
        frontmatter.split(text)


WORDS = st.from_regex(r"[A-Za-z0-9_.'\"#:{}\[\], -]{0,12}", fullmatch=True)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), WORDS, max_size=5))
def test_what_is_read_quickly_is_what_yaml_says(values: dict[str, str]) -> None:
    yaml = "".join(f"{key}: {value}\n" for key, value in values.items())
    quick = frontmatter._read_quickly(yaml)
    if quick is not None:
        assert (load_yaml(yaml) if yaml else {}) == quick


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), st.text(max_size=12), max_size=4),
    st.lists(st.text(max_size=6), max_size=3),
)
def test_what_is_written_reads_back(values: dict[str, str], tags: list[str]) -> None:
    text = frontmatter.new_file(values | {"Tags": tags}, "body")
    assert frontmatter.read(frontmatter.split(text).yaml) == values | {"Tags": tags}


# Locks


@pytest.fixture
def layout(workspace: Workspace) -> GptodoLayout:
    workspace.add("task")
    return GptodoLayout(workspace.root)


OURS = TaskFiles(lock=b'{"worker": "ours"}')


def test_lock_that_came_in_between_is_not_overwritten(
    workspace: Workspace, layout: GptodoLayout
) -> None:
    workspace.lock("task", "w1")
    assert layout.reserve("task", TaskFiles(), OURS) is False
    held = workspace.lock_of("task")
    assert held is not None
    assert held["worker"] == "w1"
    assert layout.reserve("task", OURS, TaskFiles()) is False
    assert workspace.lock_of("task") == held


def test_lock_is_written_in_place_so_that_a_waiter_sees_it(
    workspace: Workspace, layout: GptodoLayout
) -> None:
    workspace.lock("task", "w1")
    path = workspace.locks / "task.lock"
    before = path.stat().st_ino
    assert layout.reserve("task", layout.read("task"), OURS) is True
    assert (path.stat().st_ino, path.read_bytes()) == (before, OURS.lock)


def test_lock_that_is_unlinked_while_we_wait_for_its_flock_is_not_taken_for_ours(
    workspace: Workspace, layout: GptodoLayout
) -> None:
    """gptodo's own race: it unlinks a lock, and a waiter would write into a file that has no name
    any more."""
    workspace.lock("task", "w1")
    path = workspace.locks / "task.lock"
    before = layout.read("task")
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    answers: list[bool] = []
    waiter = threading.Thread(
        target=lambda: answers.append(layout.reserve("task", before, OURS)), daemon=True
    )
    waiter.start()
    path.unlink()
    workspace.lock("task", "w2")
    os.close(fd)
    waiter.join(20)
    held = workspace.lock_of("task")
    assert held is not None
    assert (answers, held["worker"]) == ([False], "w2")


def test_write_that_lands_in_the_old_file_while_it_is_replaced_is_put_back(
    workspace: Workspace, layout: GptodoLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace.tasks / "task.md"
    before = layout.read("task")
    edited = b"---\nstate: done\n---\n"
    replace = os.replace

    def replace_late(source: Any, target: Any) -> None:
        if Path(target) == path and path.read_bytes() == before.file:
            path.write_bytes(edited)
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_late)
    layout.write("task", before, TaskFiles(file=b"ours"), workspace.root / "aside")
    assert path.read_bytes() == edited
    assert sorted(each.name for each in workspace.tasks.iterdir()) == ["task.md"]


@pytest.mark.parametrize(
    "lock",
    [
        b"",
        b"{",
        b"[]",
        b'{"task_id": "t", "worker": "w", "started": "2026-01-01T00:00:00+00:00"}',
        b'{"task_id": "t", "worker": "w", "started": "x", "timeout_hours": 4}',
        b'{"task_id": "t", "worker": "w", "started": "2026-01-01T00:00:00Z", "timeout_hours": 4, "pid": 1}',
        b" " * 20_000,
    ],
)
def test_lock_that_gptodo_does_not_honour_is_none(layout: GptodoLayout, lock: bytes) -> None:
    assert layout.lock_of(lock) is None


def test_a_claim_without_a_lease_locks_its_task_for_a_hundred_years(workspace: Workspace) -> None:
    """gptodo has no lock without an end. What Genlock reads back is its own claim, untouched."""
    workspace.add("task")
    fleet = workspace.connect()
    fleet.set_policy(policy={"agents": "single"})
    claim = fleet.claim_task(task_id="task").require()
    assert claim.expires_at is None
    lock = json.loads((workspace.locks / "task.lock").read_text())
    assert (lock["worker"], lock["timeout_hours"]) == ("a1", 876_600.0)
    renewed = fleet.renew_lease(task_id="task", generation=claim.generation)
    assert (renewed.success, renewed.new_expiry) == (True, None)
    assert fleet.submit_result(task_id="task", generation=claim.generation).accepted
    assert not (workspace.locks / "task.lock").exists()
