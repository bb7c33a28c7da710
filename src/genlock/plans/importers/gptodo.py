"""gptodo: a workspace with `tasks/*.md`, each with frontmatter, and locks in `state/locks`.

state: backlog, someday, new and paused → backlog; todo → open; active → reserved for `assigned_to`;
ready_for_review and waiting → waiting; done → done; cancelled and expired → cancelled. `requires`
and `depends` → depends_on. A lock that has not expired → not offered before it does. The name of
the file is the id, its first heading the title. Keys that are unknown in plans go to the metadata.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from genlock.errors import BadArgument
from genlock.plans.importers.conversion import (
    Conversion,
    instant_of,
    read_json,
    read_markdown,
    text_of,
    texts_of,
)

_STATES: Final = {
    "backlog": "backlog",
    "someday": "backlog",
    "new": "backlog",
    "paused": "backlog",
    "todo": None,
    "active": None,
    "ready_for_review": "waiting",
    "waiting": "waiting",
    "done": "done",
    "completed": "done",
    "cancelled": "cancelled",
    "expired": "cancelled",
}
_PRIORITIES: Final = {"urgent": "critical", "high": "high", "medium": "medium", "low": "low"}
_PASSED_ON: Final = ("parallelizable", "isolation", "worktree_path", "coordination_mode", "parent")
_USED: Final = {
    "state", "status", "priority", "requires", "depends", "depends_on", "tags", "waiting_for",
    "wait", "assigned_to", "assigned_at", "lock_timeout_hours", "title", *_PASSED_ON,
}  # fmt: skip
_MOST_DAYS: Final = 3650


def read(path: Path, conversion: Conversion) -> None:
    """Reads the tasks of a workspace, of its `tasks` folder, or of one file."""
    if path.is_file():
        _convert(path, path.parent.parent, conversion)
        return
    folder = path / "tasks" if (path / "tasks").is_dir() else path
    for file in sorted(folder.glob("*.md")):
        if file.name != "README.md":
            _convert(file, folder.parent, conversion)


def _convert(file: Path, workspace: Path, conversion: Conversion) -> None:
    name = file.stem
    try:
        fields, body = read_markdown(file)
    except BadArgument as error:
        conversion.leave_out(name, f"it cannot be read: {error}")
        return
    state = _state(name, fields, conversion)
    is_open = state is None
    conversion.add(
        {
            "id": name,
            "title": text_of(fields.get("title")) or _heading(body) or name,
            "description": body,
            "state": state,
            "waiting_for": _waits(fields, state),
            "priority": _PRIORITIES.get(text_of(fields.get("priority"))),
            "depends_on": [
                *texts_of(fields.get("requires") or fields.get("depends_on")),
                *texts_of(fields.get("depends")),
            ],
            "tags": texts_of(fields.get("tags")),
            "assigned_to": text_of(fields.get("assigned_to")) or None if is_open else None,
            "lock_timeout_hours": fields.get("lock_timeout_hours") if is_open else None,
            "not_before": _not_before(name, fields, workspace, conversion) if is_open else None,
            **{key: fields.get(key) for key in _PASSED_ON},
            "metadata": {key: _plain(value) for key, value in fields.items() if key not in _USED},
        }
    )
    if "recur" in fields:
        conversion.leave_out(name, "that it recurs; it is imported as it stands now")


def _state(name: str, fields: dict[str, Any], conversion: Conversion) -> str | None:
    given = text_of(fields.get("state")) or text_of(fields.get("status")) or "backlog"
    if given not in _STATES:
        conversion.leave_out(name, f"its state {given!r}; it is imported into the backlog")
        return "backlog"
    return _STATES[given]


def _waits(fields: dict[str, Any], state: str | None) -> str | None:
    if state in ("done", "cancelled"):
        return None
    given = fields.get("waiting_for")
    if isinstance(given, str) and given.strip():
        return given.strip()
    if given:
        return msgspec.json.encode(_plain(given)).decode()[:200]
    return "a review in gptodo" if fields.get("state") == "ready_for_review" else None


def _not_before(
    name: str, fields: dict[str, Any], workspace: Path, conversion: Conversion
) -> str | None:
    """Returns the end of another tool's lock, or the task's own `wait`."""
    waits = conversion.held_until(instant_of(_plain(fields.get("wait"))))
    lock = workspace / "state" / "locks" / f"{name}.lock"
    if not lock.is_file():
        return waits
    try:
        given = read_json(lock)
    except BadArgument:
        return waits  # gptodo ignores a lock that it cannot read
    if not isinstance(given, dict):
        return waits
    started, hours = instant_of(given.get("started")), given.get("timeout_hours")
    if started is None or not isinstance(hours, (int, float)) or not 0 < hours < _MOST_DAYS * 24:
        return waits
    until = conversion.held_until(started + timedelta(hours=hours))
    if until is None:
        return waits
    worker = text_of(given.get("worker")) or "a worker"
    conversion.leave_out(name, f"its lock by {worker}; it is not offered before {until}")
    return max(until, waits or until)


def _heading(body: str) -> str:
    lines = (line.strip() for line in body.splitlines())
    return next((line.lstrip("# ") for line in lines if line.startswith("# ")), "")


def _plain(value: object) -> Any:
    """Converts a value from YAML to JSON: times become text."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)
