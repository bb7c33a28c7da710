"""Reads the tasks of other tools as a plan.

Each module reads one tool's files, and its docstring lists how the fields are converted. Shared
code is in `conversion`. A converted plan is a mapping like any other: `import_plan` checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from genlock.errors import BadArgument
from genlock.plans.importers import (
    backlog_md,
    beads,
    claude_tasks,
    gptodo,
    session_claims,
    task_master,
)
from genlock.plans.importers.conversion import Conversion, Converted, LeftOut

__all__ = ["FORMATS", "Converted", "LeftOut", "convert"]


class Format(NamedTuple):
    """The file format of one tool."""

    title: str
    read: Callable[[Path, Conversion], None]


FORMATS: Final[dict[str, Format]] = {
    "gptodo": Format("gptodo", gptodo.read),
    "sc": Format("tasks.json with claims", session_claims.read),
    "beads": Format("beads", beads.read),
    "taskmaster": Format("Task Master", task_master.read),
    "backlog": Format("Backlog.md", backlog_md.read),
    "claude": Format("Claude Code's task lists", claude_tasks.read),
}


def convert(name: str, paths: Sequence[Path], now: datetime) -> Converted:
    """Converts the tasks in these files and folders to a plan, and lists what could not be carried
    over."""
    conversion = Conversion(now)
    for path in paths:
        if not path.exists():
            raise BadArgument(f"there is no file or folder {str(path)!r}")
        FORMATS[name].read(path, conversion)
    if not conversion.tasks:
        named = ", ".join(str(path) for path in paths)
        raise BadArgument(f"there are no tasks of {FORMATS[name].title} in {named}")
    return conversion.finished()
