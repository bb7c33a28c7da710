"""What a task's files say, in a store whose files other tools write, too.

A layout reads the files of a task into a `Sighting`. What it has last written or last reported
itself is the sighting before. The rules for what has changed in between are in
`genlock.core.task.observe`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from genlock.core.reasons import Status


class FileLock(Struct, frozen=True, gc=False, omit_defaults=True):
    """A lock of another tool: whose it is, and until when."""

    worker: str
    since: datetime
    until: datetime


class Sighting(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the files of one task say."""

    state: str = ""
    """The word in the file."""
    means: Status = Status.PENDING
    """What that word comes to here. HELD: nobody is to take the task, for a reason of the file's
    own."""
    assignee: str = ""
    lock: FileLock | None = None
    fields: dict[str, Any] = {}
    """The definition as far as the file gives it, as `define_task` takes it."""
    gone: bool = False
    """There is no file any more; the rest is what it said last."""
    fault: str = ""
    """Why the file cannot be read; then it says nothing else."""


class Observation(Struct, frozen=True, gc=False, omit_defaults=True):
    """What another tool has changed in the files of one task."""

    source: str
    """The layout: "gptodo"."""
    was: Sighting | None
    """As it was last known; None if nothing was known of it."""
    now: Sighting
