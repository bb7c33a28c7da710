"""Holding a task: for one reason, or for several.

A task is on hold or not: reopening lifts every hold, since no caller could know which of several it
was meant to lift. So the operator must see all of them: a further hold adds its reason to those
before it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from genlock.core import events as e
from genlock.core.reasons import Status
from genlock.core.task.draft import TaskDraft

LONGEST_REASONS = 4000
"""The limit of characters for all reasons together. Reasons before the last are kept as far as
there is room."""


def hold(draft: TaskDraft, reason: str, *, until: datetime | None = None, **fields: Any) -> bool:
    """Puts the task on hold: it is not granted from now on. Returns False if it is on hold for the
    same reason already, and time does not lift that hold.

    Time lifts several holds only if it would lift each of them."""
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
