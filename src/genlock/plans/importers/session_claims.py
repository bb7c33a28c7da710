"""tasks.json of the session-claiming tools: a list of tasks, or `{"tasks": […]}`, also in groups
below `backlog` (`{"backlog": {"now": {"tasks": […]}}}`).

A task with an unexpired `claim` is not offered before the claim expires. status: done and completed
→ done, cancelled → cancelled, blocked → waiting, backlog and later → backlog, all else → open.
dependencies, depends_on, dependsOn and blockedBy → depends_on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from genlock.plans.importers.conversion import (
    Conversion,
    instant_of,
    mappings_of,
    read_json,
    text_of,
    texts_of,
)

_STATES: Final = {
    "done": "done",
    "completed": "done",
    "complete": "done",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "blocked": "waiting",
    "backlog": "backlog",
    "later": "backlog",
    "someday": "backlog",
}
_PRIORITIES: Final = ("critical", "high", "medium", "low")
_DEPENDENCIES: Final = ("depends_on", "dependsOn", "dependencies", "blockedBy", "requires")
_KNOWN: Final = {
    "id", "title", "name", "description", "status", "priority", "claim", "assignee", "phase",
    "tags", "parent", "parentId", *_DEPENDENCIES,
}  # fmt: skip


def read(path: Path, conversion: Conversion) -> None:
    """Reads the tasks of the file, or of `tasks.json` in the folder."""
    file = path / "tasks.json" if path.is_dir() else path
    for task in _tasks(read_json(file)):
        _convert(task, conversion)


def _tasks(value: object) -> list[dict[str, Any]]:
    """Returns every task in a value: a mapping with an id inside a list."""
    if isinstance(value, list):
        return [task for task in mappings_of(value) if text_of(task.get("id"))]
    if isinstance(value, dict):
        return [task for below in value.values() for task in _tasks(below)]
    return []


def _convert(task: dict[str, Any], conversion: Conversion) -> None:
    name, status = text_of(task["id"]), text_of(task.get("status")).lower()
    given = task.get("claim")
    claim: dict[str, Any] = given if isinstance(given, dict) else {}
    until = conversion.held_until(instant_of(claim.get("expiresAt")))
    state = _STATES.get(status)
    priority = text_of(task.get("priority")).lower()
    rest = {key: value for key, value in task.items() if key not in _KNOWN}
    if text_of(task.get("assignee")):
        rest["assignee"] = text_of(task["assignee"])
    conversion.add(
        {
            "id": name,
            "title": text_of(task.get("title")) or text_of(task.get("name")),
            "description": text_of(task.get("description")),
            "state": state,
            "waiting_for": "blocked in tasks.json" if state == "waiting" else None,
            "priority": priority if priority in _PRIORITIES else None,
            "depends_on": texts_of([one for key in _DEPENDENCIES for one in _many(task.get(key))]),
            "parent": text_of(task.get("parent")) or text_of(task.get("parentId")) or None,
            "phase": text_of(task.get("phase")),
            "tags": texts_of(task.get("tags")),
            "not_before": until if state is None else None,
            "metadata": rest,
        }
    )
    if claim and until and state is None:
        holder = text_of(claim.get("sessionId")) or "a session"
        conversion.leave_out(name, f"its claim by {holder}; it is not offered before {until}")


def _many(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]
