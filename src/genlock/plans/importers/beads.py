"""beads: `.beads/issues.jsonl`, one issue per line.

status: open → open, in_progress → reserved for the assignee, blocked → waiting, deferred → backlog,
closed → done, tombstone → left out. priority 0 to 4 → critical, high, medium, low, low. The
dependency blocks → depends_on; parent-child → parent. An epic that has children is completed by the
last of them. design, acceptance_criteria and notes go to the description; labels become tags.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from genlock.errors import BadArgument
from genlock.plans.importers.conversion import (
    Conversion,
    mappings_of,
    read_text,
    sections,
    text_of,
    texts_of,
)

_FILES: Final = ("issues.jsonl", "beads.jsonl")
_PRIORITIES: Final = ("critical", "high", "medium", "low", "low")
_STATES: Final = {
    "open": None,
    "in_progress": None,
    "hooked": None,
    "pinned": "backlog",
    "blocked": "waiting",
    "deferred": "backlog",
    "closed": "done",
}
_TAKEN: Final = ("in_progress", "hooked")
_REFERENCES: Final = ("related", "relates_to", "discovered-from")


def read(path: Path, conversion: Conversion) -> None:
    """Reads the issues of a file, or of a folder that has one in `.beads`."""
    issues = list(_issues(_file(path), conversion))
    parents = {parent for issue in issues for parent in _links(issue, "parent-child")}
    for issue in issues:
        _convert(issue, parents, conversion)


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    for folder in (path / ".beads", path):
        for name in _FILES:
            if (folder / name).is_file():
                return folder / name
    raise BadArgument(f"there is no .beads/issues.jsonl in {str(path)!r}; `bd export` writes one")


def _issues(path: Path, conversion: Conversion) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            issue = msgspec.json.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadArgument(f"{path}:{number}: this line is no JSON: {error}") from None
        name = text_of(issue.get("id")) if isinstance(issue, dict) else ""
        if not name:
            conversion.leave_out(f"line {number}", "it has no id, so it is no issue")
        elif issue.get("status") == "tombstone":
            conversion.leave_out(name, "it was deleted")
        else:
            found.append(issue)
    return found


def _convert(issue: dict[str, Any], parents: set[str], conversion: Conversion) -> None:
    name, status = text_of(issue["id"]), text_of(issue.get("status")) or "open"
    state = _STATES.get(status)
    if status not in _STATES:
        conversion.leave_out(name, f"its status {status!r}; it is imported as open")
    assignee = text_of(issue.get("assignee"))
    is_epic = issue.get("issue_type") == "epic" and name in parents
    related = [other for kind in _REFERENCES for other in _links(issue, kind)]
    conversion.add(
        {
            "id": name,
            "title": text_of(issue.get("title")),
            "description": _description(issue),
            "state": state,
            "waiting_for": "blocked in beads" if status == "blocked" else None,
            "priority": _priority(issue.get("priority")),
            "depends_on": _links(issue, "blocks"),
            "parent": next(iter(_links(issue, "parent-child")), None),
            "coordination_mode": "fan-out-fan-in" if is_epic else None,
            "assigned_to": (assignee or "beads") if status in _TAKEN else None,
            "tags": texts_of(issue.get("labels")),
            "estimate_seconds": _seconds(issue.get("estimated_minutes")),
            "metadata": {
                "beads": {
                    key: value
                    for key, value in (
                        ("issue_type", text_of(issue.get("issue_type"))),
                        ("assignee", assignee),
                        ("external_ref", text_of(issue.get("external_ref"))),
                        ("close_reason", text_of(issue.get("close_reason"))),
                        ("related", related),
                    )
                    if value
                }
            },
        }
    )
    _say_rest(name, issue, conversion)


def _description(issue: dict[str, Any]) -> str:
    return sections(
        text_of(issue.get("description")),
        (
            ("Design", issue.get("design")),
            ("Acceptance criteria", issue.get("acceptance_criteria")),
            ("Notes", issue.get("notes")),
        ),
    )


def _links(issue: dict[str, Any], kind: str) -> list[str]:
    """Returns the issues that this one depends on, by dependencies of this kind."""
    links = mappings_of(issue.get("dependencies"))
    return texts_of([link.get("depends_on_id") for link in links if link.get("type") == kind])


def _priority(value: object) -> str | None:
    is_known = isinstance(value, int) and 0 <= value < len(_PRIORITIES)
    return _PRIORITIES[value] if is_known and isinstance(value, int) else None


def _seconds(minutes: object) -> int | None:
    return minutes * 60 if isinstance(minutes, int) and minutes > 0 else None


def _say_rest(name: str, issue: dict[str, Any], conversion: Conversion) -> None:
    known = {"blocks", "parent-child", *_REFERENCES}
    for link in mappings_of(issue.get("dependencies")):
        if link.get("type") not in known:
            other, kind = text_of(link.get("depends_on_id")), text_of(link.get("type"))
            conversion.leave_out(name, f"its dependency on {other} of the type {kind!r}")
    more = _links(issue, "parent-child")[1:]
    if more:
        conversion.leave_out(name, f"its other parents: {', '.join(more)}")
    comments = mappings_of(issue.get("comments"))
    if comments:
        conversion.leave_out(name, f"its comments ({len(comments)})")
