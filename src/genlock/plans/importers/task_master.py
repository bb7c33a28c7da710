"""Task Master: `.taskmaster/tasks/tasks.json`, with tasks by tag (`{"master": {"tasks": […]}}`) or
without tags (`{"tasks": […]}`).

Task 3 becomes `tm-3` and its subtask 1 `tm-3.1`; tasks of another tag than master begin with the
tag. status: done → done, cancelled → cancelled, deferred → backlog, review and blocked → waiting,
all else → open. A task with subtasks is completed by the last of them. details and testStrategy go
to the description.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from genlock.plans.importers.conversion import (
    Conversion,
    mappings_of,
    read_json,
    sections,
    text_of,
    texts_of,
)

_STATES: Final = {
    "done": "done",
    "completed": "done",
    "cancelled": "cancelled",
    "deferred": "backlog",
    "review": "waiting",
    "blocked": "waiting",
}
_PRIORITIES: Final = ("critical", "high", "medium", "low")
_PLACES: Final = (".taskmaster/tasks/tasks.json", "tasks/tasks.json", "tasks.json")


def read(path: Path, conversion: Conversion) -> None:
    """Reads the tasks of a file or of a project's folder."""
    file = path
    if path.is_dir():
        file = next(
            (path / place for place in _PLACES if (path / place).is_file()), path / "tasks.json"
        )
    value = read_json(file)
    if not isinstance(value, dict):
        return
    groups = {"master": value} if "tasks" in value else value
    for tag, group in groups.items():
        if isinstance(group, dict):
            prefix = "tm" if tag == "master" else re.sub(r"[^A-Za-z0-9._-]", "-", tag)
            for task in mappings_of(group.get("tasks")):
                _convert(task, prefix, None, conversion)


def _convert(task: dict[str, Any], prefix: str, parent: str | None, conversion: Conversion) -> None:
    number = text_of(task.get("id"))
    if not number:
        conversion.leave_out(text_of(task.get("title")) or "a task", "it has no id")
        return
    name = f"{parent}.{number}" if parent else f"{prefix}-{number}"
    status, priority = text_of(task.get("status")), text_of(task.get("priority"))
    state, subtasks = _STATES.get(status), mappings_of(task.get("subtasks"))
    conversion.add(
        {
            "id": name,
            "title": text_of(task.get("title")),
            "description": sections(
                text_of(task.get("description")),
                (("Details", task.get("details")), ("Test strategy", task.get("testStrategy"))),
            ),
            "state": state,
            "waiting_for": f"{status} in Task Master" if state == "waiting" else None,
            "priority": priority if priority in _PRIORITIES else None,
            "depends_on": [
                _named(other, prefix, parent) for other in texts_of(task.get("dependencies"))
            ],
            "parent": parent,
            "coordination_mode": "fan-out-fan-in" if subtasks and state is None else None,
        }
    )
    if status == "in-progress":
        conversion.leave_out(name, "that somebody has begun it; it is imported as open")
    for subtask in subtasks:
        _convert(subtask, prefix, name, conversion)


def _named(other: str, prefix: str, parent: str | None) -> str:
    """Returns the id that a dependency names: subtasks name their siblings by number alone."""
    return f"{parent}.{other}" if parent and "." not in other else f"{prefix}-{other}"
