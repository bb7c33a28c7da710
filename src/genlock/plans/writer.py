"""Writes plans as text: YAML for people, JSON lines for programs. Reading the text returns the same
definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from genlock.core.agent_roles import as_document
from genlock.core.model import Task
from genlock.core.names import DEFAULT_PROJECT
from genlock.core.plan import Definition, Plan
from genlock.core.reasons import Status
from genlock.safe_text import safe_json

_DERIVED = frozenset({"sequence", "edge", "depth"})
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./+()-]*(?: [A-Za-z0-9_./+()-]+)*")
_OTHER_VALUES = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that some YAML parsers do not read as text."""
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}


def write_lines(plan: Plan) -> Iterator[str]:
    """Yields the plan as JSON lines, one task each."""
    for definition in plan.tasks:
        yield safe_json(msgspec.json.encode(fields_of(definition, beside_track=False))).decode()


def write_yaml(plan: Plan) -> Iterator[str]:
    """Yields the plan as lines of YAML, its tasks by track."""
    if plan.project not in (None, DEFAULT_PROJECT):
        yield f"project: {scalar(plan.project)}"
    if plan.agent_roles is not None:
        yield from _roles(as_document(plan.agent_roles))
    tracks: dict[str, list[Definition]] = {track: [] for track in plan.tracks or {}}
    free = []
    for definition in plan.tasks:
        if definition.task.track is None:
            free.append(definition)
        else:
            tracks.setdefault(definition.task.track, []).append(definition)
    if tracks:
        yield "tracks:"
    for track in sorted(tracks):
        yield f"  {scalar(track)}:"
        indent = "    "
        if plan.tracks is not None:
            if track in plan.tracks:
                yield f"    purpose: {scalar(plan.tracks[track])}"
            yield "    tasks:" if tracks[track] else "    tasks: []"
            indent = "      "
        for definition in tracks[track]:
            yield from _item(fields_of(definition, beside_track=True), indent)
    if free or not tracks:
        yield "tasks:" if free else "tasks: []"
        for definition in free:
            yield from _item(fields_of(definition, beside_track=True), "  ")


def _roles(document: dict[str, Any]) -> Iterator[str]:
    """Yields the table of roles, in the form of agent_roles.yml."""
    for part, entries in document.items():
        if entries:
            yield f"{part}:"
        for name, entry in entries.items():
            yield f"  {scalar(name)}:{'' if entry else ' {}'}"
            for key, value in entry.items():
                listed = isinstance(value, list)
                shown = f"[{', '.join(map(scalar, value))}]" if listed else str(value).lower()
                yield f"    {key}: {shown}"


def fields_of(definition: Definition, *, beside_track: bool) -> dict[str, Any]:
    """Returns a task's fields for a plan, without those that have their default or follow from the
    id or the place in the plan."""
    task = definition.task
    fields: dict[str, Any] = {
        name: value for name, value in msgspec.to_builtins(task).items() if name not in _DERIVED
    }
    if task.track is not None and (beside_track or task.sequence is not None):
        del fields["track"]
    if task.feature is not None and task.edge is not None:
        del fields["feature"]
    if task.parent is not None and _named_by_id(task):
        del fields["parent"]
    if definition.backlog:
        fields["state"] = "backlog"
    elif definition.finished is not None:
        fields["state"] = "done" if definition.finished is Status.COMPLETED else "cancelled"
    return fields


def _named_by_id(task: Task) -> bool:
    """Does the id imply the parent?"""
    from genlock.core.ids import parse_task_id

    return parse_task_id(task.id, hierarchical=True).parent is not None


def scalar(value: Any) -> str:
    """Formats a value that is not a collection, on one line."""
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _OTHER_VALUES:
            return value
        return (
            '"'
            + "".join(
                _ESCAPED.get(char) or (char if char.isprintable() else _escape(char))
                for char in value
            )
            + '"'
        )
    return msgspec.json.encode(value).decode()


def _escape(char: str) -> str:
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _item(fields: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yields the lines of a mapping as an item of a list."""
    lead = f"{indent}- "
    for key, value in fields.items():
        yield lead + _pair(key, value)
        lead = f"{indent}  "


def _flow(value: Any) -> str:
    """Formats any value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(_pair(key, item) for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return scalar(value)


def _pair(key: str, value: Any) -> str:
    written = scalar(key)
    # A YAML parser searches at most 1,024 characters for a key's colon, unless a question mark
    # announces the key.
    return (
        f"{written}: {_flow(value)}"
        if len(written) < _LONGEST_KEY
        else f"? {written} : {_flow(value)}"
    )


_LONGEST_KEY = 1000
