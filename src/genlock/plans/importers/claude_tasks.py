"""Claude Code's task lists: `~/.claude/tasks/<list>/<n>.json`, one task per file.

Task 2 of a list becomes `claude-2`. status: pending → open, in_progress → reserved for the owner,
completed → done. blockedBy → depends_on. A list's lock files and high-water marks are not tasks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from genlock.plans.importers.conversion import Conversion, read_json, text_of, texts_of


def read(path: Path, conversion: Conversion) -> None:
    """Reads the tasks of a list's folder, or of one file."""
    files = [path] if path.is_file() else [one for one in path.glob("*.json") if _is_task(one)]
    for file in sorted(files, key=lambda file: (len(file.stem), file.stem)):
        value = read_json(file)
        if isinstance(value, dict):
            _convert(file.stem, value, conversion)


def _is_task(file: Path) -> bool:
    return file.stem.isdecimal()


def _convert(stem: str, task: dict[str, Any], conversion: Conversion) -> None:
    name, status = f"claude-{text_of(task.get('id')) or stem}", text_of(task.get("status"))
    metadata = task.get("metadata")
    conversion.add(
        {
            "id": name,
            "title": text_of(task.get("subject")),
            "description": text_of(task.get("description")),
            "state": "done" if status == "completed" else None,
            "depends_on": [f"claude-{other}" for other in texts_of(task.get("blockedBy"))],
            "assigned_to": (text_of(task.get("owner")) or "claude")
            if status == "in_progress"
            else None,
            "metadata": metadata if isinstance(metadata, dict) else None,
        }
    )
