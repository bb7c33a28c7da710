"""Backlog.md: `backlog/tasks/*.md` with frontmatter. Files in `backlog/completed` are done, and
those in `backlog/drafts` are the backlog.

status: Done → done, To Do → open, In Progress → reserved for the first assignee; a custom status →
open, with a note. dependencies → depends_on, parent_task_id → parent, labels → tags.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from genlock.errors import BadArgument
from genlock.plans.importers.conversion import Conversion, read_markdown, text_of, texts_of

_FOLDERS: Final = {"tasks": None, "completed": "done", "drafts": "backlog"}
_PRIORITIES: Final = ("critical", "high", "medium", "low")
_MORE: Final = ("milestone", "reporter", "created_date", "updated_date", "references")


def read(path: Path, conversion: Conversion) -> None:
    """Reads the tasks of a project's folder, of its `backlog` folder, or of one file."""
    if path.is_file():
        _convert(path, None, conversion)
        return
    root = next((path / name for name in ("backlog", ".backlog") if (path / name).is_dir()), path)
    for name, state in _FOLDERS.items():
        for file in sorted((root / name).glob("*.md")):
            if file.name.lower() != "readme.md":
                _convert(file, state, conversion)


def _convert(file: Path, state: str | None, conversion: Conversion) -> None:
    try:
        fields, body = read_markdown(file)
    except BadArgument as error:
        conversion.leave_out(file.stem, f"it cannot be read: {error}")
        return
    name = text_of(fields.get("id")).lower()
    if not name:
        conversion.leave_out(file.stem, "it has no id")
        return
    status = text_of(fields.get("status")).lower()
    if status == "done":
        state = "done"
    elif status not in ("", "to do", "in progress", "draft"):
        conversion.leave_out(name, f"its status {status!r}; it is imported as open")
    assignees = texts_of(fields.get("assignee"))
    priority = text_of(fields.get("priority")).lower()
    conversion.add(
        {
            "id": name,
            "title": text_of(fields.get("title")),
            "description": body,
            "state": state,
            "priority": priority if priority in _PRIORITIES else None,
            "depends_on": [other.lower() for other in texts_of(fields.get("dependencies"))],
            "parent": text_of(fields.get("parent_task_id")).lower() or None,
            "assigned_to": _holder(assignees) if status == "in progress" and not state else None,
            "tags": texts_of(fields.get("labels")),
            "metadata": _metadata(fields, assignees),
        }
    )


def _holder(assignees: list[str]) -> str:
    return assignees[0].lstrip("@") if assignees else "backlog"


def _metadata(fields: dict[str, Any], assignees: list[str]) -> dict[str, Any]:
    more = {key: texts_of(fields.get(key)) for key in _MORE}
    kept = {key: value[0] if len(value) == 1 else value for key, value in more.items() if value}
    return kept | ({"assignee": assignees} if assignees else {})
