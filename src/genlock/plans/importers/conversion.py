"""The base of the importers: the plan that they build, and the list of data that could not be
carried over.

Three rules hold for every tool, so that no task is done twice:

1. A finished task is imported as finished.
2. A task that an agent holds in the other tool is not offered here before that claim ends
   (`not_before`). If the tool has no end for it, the task is reserved for that agent
   (`assigned_to`).
3. A task that waits for a missing task is blocked (`waiting_for`) until a person lifts the wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from genlock.errors import BadArgument
from genlock.plans.values import load_yaml

MOST_DESCRIPTION_BYTES: Final = 12_000
"""A definition has at most 16 KiB, and more fields than this one."""
_MOST_FILE_BYTES: Final = 64 * 1024 * 1024
_FENCE: Final = "---"


class LeftOut(NamedTuple):
    """Data that was not carried over to the plan."""

    task: str
    what: str

    def __str__(self) -> str:
        return f"{self.task}: {self.what}"


class Converted(NamedTuple):
    """A plan for `import_plan`, and the data that was left out."""

    plan: dict[str, Any]
    left_out: tuple[LeftOut, ...]


class Conversion:
    """A plan under construction."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.tasks: list[dict[str, Any]] = []
        self._left_out: list[LeftOut] = []

    def add(self, fields: Mapping[str, Any]) -> None:
        """Adds a task. Empty fields are omitted."""
        self.tasks.append({name: value for name, value in fields.items() if _is_given(value)})

    def leave_out(self, task: str, what: str) -> None:
        """Records data that is not carried over."""
        self._left_out.append(LeftOut(task, what))

    def held_until(self, end: datetime | None) -> str | None:
        """Returns `not_before` for a task that is held until then; None if that time is past."""
        if end is None or end <= self.now:
            return None
        return end.astimezone(UTC).isoformat().replace("+00:00", "Z")

    def finished(self) -> Converted:
        """Returns the plan, with dependencies and parents that exist."""
        ids = {task.get("id") for task in self.tasks}
        for task in self.tasks:
            self._check_links(task, ids)
            self._shorten(task)
        return Converted({"tasks": self.tasks}, tuple(self._left_out))

    def _check_links(self, task: dict[str, Any], ids: set[Any]) -> None:
        name = str(task.get("id"))
        missing = [one for one in task.get("depends_on", ()) if one not in ids]
        if missing:
            task["depends_on"] = [one for one in task["depends_on"] if one in ids]
            named = ", ".join(missing)
            if task.get("state") in ("done", "cancelled"):
                self.leave_out(name, f"waited for {named}, not found here")
            else:
                task.setdefault("waiting_for", named)
                self.leave_out(
                    name, f"waits for {named}, not found here; it is blocked by waiting_for"
                )
        parent = task.get("parent")
        if parent is not None and parent not in ids:
            del task["parent"]
            self.leave_out(name, f"its parent {parent} is not here")

    def _shorten(self, task: dict[str, Any]) -> None:
        text = task.get("description", "").encode()
        if len(text) > MOST_DESCRIPTION_BYTES:
            task["description"] = text[:MOST_DESCRIPTION_BYTES].decode(errors="ignore")
            self.leave_out(
                str(task.get("id")),
                f"its description has {len(text):,} bytes; the first "
                f"{MOST_DESCRIPTION_BYTES:,} are carried over",
            )


def _is_given(value: object) -> bool:
    return value is not None and value != "" and value != [] and value != {}


# Reading values of any type: another tool's file may contain anything.


def text_of(value: object) -> str:
    """Converts a text or a number to text; "" for anything else."""
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def texts_of(value: object) -> list[str]:
    """Returns a list of texts, or one text, as a list without duplicates."""
    given = value if isinstance(value, (list, tuple)) else [value]
    return list(dict.fromkeys(text for text in map(text_of, given) if text))


def mappings_of(value: object) -> list[dict[str, Any]]:
    """Returns the mappings in a list."""
    given = value if isinstance(value, (list, tuple)) else ()
    return [one for one in given if isinstance(one, dict)]


def instant_of(value: object) -> datetime | None:
    """Parses a time in ISO 8601 or in milliseconds since 1970. Without a zone it is UTC."""
    try:
        if isinstance(value, datetime):
            found = value
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found = datetime.fromtimestamp(value / 1000, UTC)
        elif isinstance(value, str) and value:
            found = datetime.fromisoformat(value)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def sections(first: str, others: Iterable[tuple[str, object]]) -> str:
    """Builds a description from several texts, each except the first below its title."""
    parts = [first] if first else []
    parts += [f"## {title}\n\n{text}" for title, given in others if (text := text_of(given))]
    return "\n\n".join(parts)


# Files


def read_text(path: Path) -> str:
    """Returns a file's text. Raises BadArgument if it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise BadArgument(f"{str(path)!r} cannot be read: {error.strerror}") from None
    if len(data) > _MOST_FILE_BYTES:
        raise BadArgument(f"{str(path)!r} has more than {_MOST_FILE_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadArgument(f"{str(path)!r} is not UTF-8") from None


def read_json(path: Path) -> Any:
    """Returns a file's JSON. Raises BadArgument if it is invalid."""
    try:
        return msgspec.json.decode(read_text(path))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadArgument(f"{str(path)!r} is no JSON: {error}") from None


def read_markdown(path: Path) -> tuple[dict[str, Any], str]:
    """Returns the frontmatter of a Markdown file, and the text below it. BadArgument names the file
    and its error."""
    lines = read_text(path).splitlines()
    if not lines or lines[0].strip() != _FENCE:
        raise BadArgument(f"{str(path)!r} has no frontmatter: its first line is not {_FENCE}")
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == _FENCE), None)
    if end is None:
        raise BadArgument(f"{str(path)!r} has frontmatter without an end: a line {_FENCE}")
    try:
        fields = load_yaml("\n".join(lines[1:end]) + "\n")
    except BadArgument as error:
        raise BadArgument(f"{str(path)!r}: the frontmatter is no YAML: {error}") from None
    if not isinstance(fields, dict):
        raise BadArgument(f"{str(path)!r}: the frontmatter is no mapping")
    return fields, "\n".join(lines[end + 1 :]).strip()
