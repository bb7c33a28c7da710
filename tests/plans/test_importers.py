"""The tasks of other tools as plans: what becomes of each field, and what is said to be left out."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from genlock.cli.commands.plan import _TOOLS
from genlock.errors import BadArgument
from genlock.plans.importers import FORMATS, Converted, convert
from tests.cli.console import run

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def by_id(found: Converted) -> dict[str, dict[str, Any]]:
    return {task["id"]: task for task in found.plan["tasks"]}


def said(found: Converted) -> list[str]:
    return [str(one) for one in found.left_out]


def beads(folder: Path, *issues: dict[str, Any]) -> Path:
    (folder / ".beads").mkdir()
    lines = [json.dumps({"title": "t", "issue_type": "task"} | issue) for issue in issues]
    (folder / ".beads" / "issues.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def link(other: str, kind: str) -> dict[str, str]:
    return {"issue_id": "x", "depends_on_id": other, "type": kind}


def test_the_command_offers_every_format() -> None:
    assert list(FORMATS) == _TOOLS


def test_beads_issues_become_tasks(tmp_path: Path) -> None:
    folder = beads(
        tmp_path,
        {
            "id": "bd-1",
            "title": "Log in",
            "description": "With a key.",
            "design": "A form.",
            "status": "open",
            "priority": 0,
            "labels": ["web"],
            "estimated_minutes": 30,
            "dependencies": [link("bd-2", "blocks"), link("bd-9", "related")],
        },
        {"id": "bd-2", "status": "closed", "priority": 4, "close_reason": "merged"},
        {"id": "bd-3", "status": "in_progress", "assignee": "ann", "priority": 2},
        {"id": "bd-4", "status": "deferred", "priority": 3},
        {"id": "bd-5", "status": "blocked", "priority": 1},
    )
    found = convert("beads", [folder], NOW)

    assert by_id(found) == {
        "bd-1": {
            "id": "bd-1",
            "title": "Log in",
            "description": "With a key.\n\n## Design\n\nA form.",
            "priority": "critical",
            "depends_on": ["bd-2"],
            "tags": ["web"],
            "estimate_seconds": 1800,
            "metadata": {"beads": {"issue_type": "task", "related": ["bd-9"]}},
        },
        "bd-2": {
            "id": "bd-2",
            "title": "t",
            "state": "done",
            "priority": "low",
            "metadata": {"beads": {"issue_type": "task", "close_reason": "merged"}},
        },
        "bd-3": {
            "id": "bd-3",
            "title": "t",
            "priority": "medium",
            "assigned_to": "ann",
            "metadata": {"beads": {"issue_type": "task", "assignee": "ann"}},
        },
        "bd-4": {
            "id": "bd-4",
            "title": "t",
            "state": "backlog",
            "priority": "low",
            "metadata": {"beads": {"issue_type": "task"}},
        },
        "bd-5": {
            "id": "bd-5",
            "title": "t",
            "state": "waiting",
            "waiting_for": "blocked in beads",
            "priority": "high",
            "metadata": {"beads": {"issue_type": "task"}},
        },
    }
    assert said(found) == []


def test_what_beads_has_and_a_plan_has_not_is_listed(tmp_path: Path) -> None:
    folder = beads(
        tmp_path,
        {"id": "bd-1", "status": "strange", "dependencies": [link("bd-7", "blocks")]},
        {"id": "bd-2", "status": "tombstone"},
        {"id": "bd-3", "status": "open", "comments": [{"text": "a"}, {"text": "b"}]},
        {"id": "bd-4", "status": "open", "dependencies": [link("bd-3", "waits-for")]},
        {"title": "no id"},
    )
    found = convert("beads", [folder], NOW)

    assert said(found) == [
        "bd-2: it was deleted",
        "line 5: it has no id, so it is no issue",
        "bd-1: its status 'strange'; it is imported as open",
        "bd-3: its comments (2)",
        "bd-4: its dependency on bd-3 of the type 'waits-for'",
        "bd-1: waits for bd-7, not found here; it is blocked by waiting_for",
    ]
    assert by_id(found)["bd-1"]["waiting_for"] == "bd-7"


def test_an_epic_is_the_parent_of_its_issues(tmp_path: Path) -> None:
    folder = beads(
        tmp_path,
        {"id": "bd-1", "status": "open", "issue_type": "epic"},
        {"id": "bd-2", "status": "open", "dependencies": [link("bd-1", "parent-child")]},
    )
    tasks = by_id(convert("beads", [folder], NOW))

    assert tasks["bd-1"]["coordination_mode"] == "fan-out-fan-in"
    assert tasks["bd-2"]["parent"] == "bd-1"


def test_tasks_json_with_a_live_claim_is_not_offered_before_the_claim_ends(tmp_path: Path) -> None:
    claim = {"sessionId": "s-1", "expiresAt": "2026-03-01T12:30:00Z"}
    over = {"sessionId": "s-2", "expiresAt": "2026-03-01T11:59:59Z"}
    tasks = [
        {"id": "metrics", "title": "M", "status": "in_progress", "claim": claim, "score": 92},
        {"id": "late", "status": "in_progress", "claim": over},
        {"id": "ready", "status": "ready", "dependencies": ["done-it"], "priority": "High"},
        {"id": "done-it", "status": "completed", "claim": claim},
    ]
    file = tmp_path / "tasks.json"
    file.write_text(
        json.dumps({"backlog": {"now": {"tasks": tasks[:2]}, "next": {"tasks": tasks[2:]}}})
    )
    found = convert("sc", [tmp_path], NOW)

    assert by_id(found) == {
        "metrics": {
            "id": "metrics",
            "title": "M",
            "not_before": "2026-03-01T12:30:00Z",
            "metadata": {"score": 92},
        },
        "late": {"id": "late"},
        "ready": {"id": "ready", "priority": "high", "depends_on": ["done-it"]},
        "done-it": {"id": "done-it", "state": "done"},
    }
    assert said(found) == [
        "metrics: its claim by s-1; it is not offered before 2026-03-01T12:30:00Z"
    ]


def gptodo(folder: Path, name: str, head: str, body: str = "") -> None:
    (folder / "tasks").mkdir(exist_ok=True)
    (folder / "tasks" / f"{name}.md").write_text(f"---\n{head}\n---\n{body}")


def test_gptodo_files_become_tasks(tmp_path: Path) -> None:
    gptodo(
        tmp_path,
        "build-it",
        "state: todo\npriority: urgent\nrequires: [design-it]\ntags: [code]\ncolour: red\n"
        "created: 2026-01-27T10:00:00+00:00",
        "\n# Build it\n\nWith care.\n",
    )
    gptodo(tmp_path, "design-it", "state: done")
    gptodo(tmp_path, "test-it", "state: active\nassigned_to: bob\nparallelizable: true")
    gptodo(tmp_path, "ship-it", "state: ready_for_review")
    gptodo(tmp_path, "later", "state: someday\nwaiting_for: ignored-it")
    (tmp_path / "tasks" / "README.md").write_text("nothing")
    (tmp_path / "tasks" / "torn.md").write_text("---\nstate: to")
    found = convert("gptodo", [tmp_path], NOW)

    tasks = by_id(found)
    assert tasks["build-it"] == {
        "id": "build-it",
        "title": "Build it",
        "description": "# Build it\n\nWith care.",
        "priority": "critical",
        "depends_on": ["design-it"],
        "tags": ["code"],
        "metadata": {"colour": "red", "created": "2026-01-27T10:00:00+00:00"},
    }
    assert tasks["design-it"] == {"id": "design-it", "title": "design-it", "state": "done"}
    assert tasks["test-it"]["assigned_to"] == "bob"
    assert tasks["test-it"]["parallelizable"] is True
    assert tasks["ship-it"]["waiting_for"] == "a review in gptodo"
    assert (tasks["later"]["state"], tasks["later"]["waiting_for"]) == ("backlog", "ignored-it")
    [torn] = said(found)
    assert torn.startswith("torn: it cannot be read: ")
    assert "has frontmatter without an end" in torn


def test_a_gptodo_lock_keeps_a_task_from_being_offered_until_it_ends(tmp_path: Path) -> None:
    for name in ("held", "over"):
        gptodo(tmp_path, name, "state: active")
    locks = tmp_path / "state" / "locks"
    locks.mkdir(parents=True)
    for name, hours in (("held", 4.0), ("over", 0.5)):
        lock = {"task_id": name, "worker": "w1", "timeout_hours": hours}
        (locks / f"{name}.lock").write_text(
            json.dumps(lock | {"started": "2026-03-01T11:00:00+00:00"})
        )
    found = convert("gptodo", [tmp_path], NOW)

    assert by_id(found)["held"]["not_before"] == "2026-03-01T15:00:00Z"
    assert "not_before" not in by_id(found)["over"]
    assert said(found) == ["held: its lock by w1; it is not offered before 2026-03-01T15:00:00Z"]


def test_task_master_tasks_and_subtasks_become_tasks(tmp_path: Path) -> None:
    (tmp_path / ".taskmaster" / "tasks").mkdir(parents=True)
    master = {
        "tasks": [
            {"id": 1, "title": "Set up", "status": "done", "priority": "high"},
            {
                "id": 2,
                "title": "Build",
                "status": "in-progress",
                "dependencies": [1],
                "details": "Much.",
                "testStrategy": "Try it.",
                "subtasks": [
                    {"id": 1, "title": "a", "status": "pending"},
                    {"id": 2, "title": "b", "status": "deferred", "dependencies": [1, "1.9"]},
                ],
            },
        ],
        "metadata": {"created": "x"},
    }
    value = {"master": master, "my tag": {"tasks": [{"id": "1", "title": "Other"}]}}
    (tmp_path / ".taskmaster" / "tasks" / "tasks.json").write_text(json.dumps(value))
    found = convert("taskmaster", [tmp_path], NOW)

    assert by_id(found) == {
        "tm-1": {"id": "tm-1", "title": "Set up", "state": "done", "priority": "high"},
        "tm-2": {
            "id": "tm-2",
            "title": "Build",
            "description": "## Details\n\nMuch.\n\n## Test strategy\n\nTry it.",
            "depends_on": ["tm-1"],
            "coordination_mode": "fan-out-fan-in",
        },
        "tm-2.1": {"id": "tm-2.1", "title": "a", "parent": "tm-2"},
        "tm-2.2": {
            "id": "tm-2.2",
            "title": "b",
            "state": "backlog",
            "depends_on": ["tm-2.1"],
            "parent": "tm-2",
            "waiting_for": "tm-1.9",
        },
        "my-tag-1": {"id": "my-tag-1", "title": "Other"},
    }


def test_backlog_md_files_become_tasks(tmp_path: Path) -> None:
    for name in ("tasks", "completed", "drafts"):
        (tmp_path / "backlog" / name).mkdir(parents=True)
    (tmp_path / "backlog" / "tasks" / "task-2 - Log in.md").write_text(
        "---\nid: TASK-2\ntitle: Log in\nstatus: In Progress\nassignee: ['@ann']\nlabels: [web]\n"
        "dependencies: [task-1]\nparent_task_id: task-3\npriority: high\n---\n## Description\n\nA key.\n"
    )
    (tmp_path / "backlog" / "tasks" / "task-3 - All.md").write_text(
        "---\nid: task-3\ntitle: All\nstatus: Testing\n---\n"
    )
    (tmp_path / "backlog" / "completed" / "task-1.md").write_text(
        "---\nid: task-1\ntitle: First\nstatus: To Do\n---\n"
    )
    (tmp_path / "backlog" / "drafts" / "task-4.md").write_text("---\nid: task-4\n---\n")
    found = convert("backlog", [tmp_path], NOW)

    tasks = by_id(found)
    assert tasks["task-2"] == {
        "id": "task-2",
        "title": "Log in",
        "description": "## Description\n\nA key.",
        "priority": "high",
        "depends_on": ["task-1"],
        "parent": "task-3",
        "assigned_to": "ann",
        "tags": ["web"],
        "metadata": {"assignee": ["@ann"]},
    }
    assert (tasks["task-1"]["state"], tasks["task-4"]["state"]) == ("done", "backlog")
    assert said(found) == ["task-3: its status 'testing'; it is imported as open"]


def test_claude_code_s_task_lists_become_tasks(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text(
        json.dumps({"id": "1", "subject": "Read", "status": "completed"})
    )
    (tmp_path / "2.json").write_text(
        json.dumps({"id": "2", "subject": "Write", "status": "in_progress", "blockedBy": ["1"]})
    )
    (tmp_path / ".highwatermark").write_text("2")
    tasks = by_id(convert("claude", [tmp_path], NOW))

    assert tasks == {
        "claude-1": {"id": "claude-1", "title": "Read", "state": "done"},
        "claude-2": {
            "id": "claude-2",
            "title": "Write",
            "depends_on": ["claude-1"],
            "assigned_to": "claude",
        },
    }


def test_a_description_that_is_too_long_is_cut_and_said_so(tmp_path: Path) -> None:
    folder = beads(tmp_path, {"id": "bd-1", "status": "open", "description": "é" * 10_000})
    found = convert("beads", [folder], NOW)

    assert by_id(found)["bd-1"]["description"] == "é" * 6_000
    assert said(found) == [
        "bd-1: its description has 20,000 bytes; the first 12,000 are carried over"
    ]


@pytest.mark.parametrize(
    ("tool", "name", "text", "words"),
    [
        ("sc", "tasks.json", "{", "is no JSON"),
        ("sc", "tasks.json", "{}", "there are no tasks of tasks.json with claims in"),
        ("sc", "tasks.json", b"\xff", "is not UTF-8"),
        ("beads", "issues.jsonl", '{"id": "a"}\n{"id"', "issues.jsonl:2: this line is no JSON"),
        ("beads", "other", "", "there are no tasks of beads in"),
    ],
)
def test_a_file_that_is_none_is_refused_with_its_name(
    tmp_path: Path, tool: str, name: str, text: str | bytes, words: str
) -> None:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadArgument, match=words):
        convert(tool, [file], NOW)


def test_a_folder_without_the_tool_s_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"there is no .beads/issues\.jsonl in"):
        convert("beads", [tmp_path], NOW)
    with pytest.raises(BadArgument, match="there is no file or folder"):
        convert("gptodo", [tmp_path / "nowhere"], NOW)


# From the command line


def test_an_import_of_beads_offers_what_is_open_and_never_what_is_done(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).code == 0
    beads(
        tmp_path,
        {"id": "bd-1", "status": "closed"},
        {"id": "bd-2", "status": "open", "dependencies": [link("bd-1", "blocks")]},
        {"id": "bd-3", "status": "in_progress", "assignee": "ann"},
        {"id": "bd-4", "status": "tombstone"},
    )
    dry = run("plan", "import", "--from", "beads", ".", "--dry-run", cwd=tmp_path)
    assert dry.code == 0
    assert dry.json()["added"] == ["bd-1", "bd-2", "bd-3"]
    assert run("ready", "--quiet", cwd=tmp_path).out == ""

    done = run("plan", "import", "--from", "beads", ".", cwd=tmp_path).json()
    assert done["left_out"] == [{"task": "bd-4", "what": "it was deleted"}]
    assert run("next", "--agent", "bob", cwd=tmp_path).json()["task_id"] == "bd-2"
    assert (
        run("claim", "bd-3", "--agent", "bob", cwd=tmp_path).json()["reason"] == "DENIED_ASSIGNED"
    )
    assert (
        run("claim", "bd-1", "--agent", "bob", cwd=tmp_path).json()["reason"] == "DENIED_COMPLETED"
    )
    again = run("plan", "import", "--from", "beads", ".", cwd=tmp_path).json()
    assert (again["added"], again["changed"]) == ([], {})


def test_hostile_text_of_another_tool_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    assert run("init", cwd=tmp_path).code == 0
    beads(tmp_path, {"id": "bd-1", "status": "\x1b[2J\x9b31m", "priority": 2})
    shown = run("plan", "import", "--from", "beads", ".", cwd=tmp_path)

    assert shown.code == 0
    assert "\x1b" not in shown.out + shown.err
    assert "\x9b" not in shown.out + shown.err
