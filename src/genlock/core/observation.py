"""The content of a task's files, in a store whose files other tools write, too.

A layout reads the files of a task into a `Sighting`. The previous sighting is what the layout last
wrote or reported itself. The rules for the changes in between are in `genlock.core.task.observe`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from genlock.core.reasons import Status


class FileLock(Struct, frozen=True, gc=False, omit_defaults=True):
    """A lock of another tool: its holder and its end."""

    worker: str
    since: datetime
    until: datetime


class Sighting(Struct, frozen=True, gc=False, omit_defaults=True):
    """The content of the files of one task."""

    state: str = ""
    """The state as the file names it."""
    means: Status = Status.PENDING
    """The corresponding state in Genlock. HELD: the file has a reason of its own why the task must
    not be claimed."""
    assignee: str = ""
    lock: FileLock | None = None
    fields: dict[str, Any] = {}
    """The definition as far as the file gives it, as `define_task` takes it."""
    gone: bool = False
    """The file no longer exists. The other fields have its last content."""
    fault: str = ""
    """The reason why the file cannot be read; then the other fields are empty."""


class Observation(Struct, frozen=True, gc=False, omit_defaults=True):
    """The changes of another tool in the files of one task."""

    source: str
    """The layout: "gptodo"."""
    was: Sighting | None
    """The previous sighting; None if nothing was known of the task."""
    now: Sighting
