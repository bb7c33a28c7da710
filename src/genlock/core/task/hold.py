"""Holding a task: for one reason, or for several.

A task is held or it is not: whoever reopens it lifts every hold there is, as no one else would know
of which of them it was asked to lift. So it is to see all of them: a hold of a task that is held
already adds its reason to those before it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from genlock.core import events as e
from genlock.core.reasons import Status
from genlock.core.task.draft import TaskDraft

LONGEST_REASONS = 4000
"""Characters of all reasons together; of those before the last as many as there is room for."""


def hold(draft: TaskDraft, reason: str, *, until: datetime | None = None, **fields: Any) -> bool:
    """Nobody is granted the task from now on. False if it is held for this very reason already, and
    time does not lift it.

    Where there are several holds, time lifts them only if it would lift each."""
    record = draft.task
    held = record.hold if record.state is Status.HELD else None
    if held is not None:
        known = f"; {reason}; " in f"; {held.reason}; "
        if known and held.until is None:
            return False
        reason = held.reason if known else _joined(held.reason, reason)
        until = max(until, held.until) if until is not None and held.until is not None else None
    draft.emit(e.TaskHeld, reason=reason, until=until, **fields)
    return True


def _joined(before: str, reason: str) -> str:
    room = LONGEST_REASONS - len(reason) - len("; ")
    if len(before) > room:
        before = before[: max(0, room - 1)] + "…"
    return f"{before}; {reason}"
