"""What an agent has said so far: its result, its cost, and what went wrong."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, Final

TAIL_BYTES: Final = 4096
"""So much of what an agent wrote last is kept; it is the result if there is no other."""
_LONGEST_ACTIVITY: Final = 200

_LIMIT: Final = re.compile(
    r"rate.?limit|overloaded|too many requests|hit your .{0,40}limit|usage limit"
    r"|quota.{0,20}exceeded|(?:http|status|error|code)\W{0,10}(?:429|529)\b",
    re.IGNORECASE,
)
_NOT_ALLOWED: Final = re.compile(
    r"authentication.?(?:failed|error)|billing.?error|not logged in|run /login|credit balance"
    r"|invalid.{0,6}api.?key|(?:http|status|error|code)\W{0,10}40[13]\b"
    r"|40[13] (?:unauthorized|forbidden)",
    re.IGNORECASE,
)


class Trouble(StrEnum):
    """Why an agent could not go on, and the task is not to blame."""

    LIMIT = "limit"
    NOT_ALLOWED = "not_allowed"
    CUT_OFF = "cut_off"


class Transcript:
    """Filled in line by line, by the reader of the agent's format."""

    def __init__(self) -> None:
        self.activity = ""
        """The last tool or text."""
        self.agent_session = ""
        self.cost_usd: float | None = None
        self.turns = 0
        self.answer: Any = None
        """What the agent says its result is."""
        self.finished = False
        """Has it said that it is at its end?"""
        self.failed = False
        """Did it say that it has failed, whatever its exit code?"""
        self.error = ""
        self.trouble: Trouble | None = None
        self.resets_at: float | None = None
        """When a limit ends, in seconds since 1970, if the agent knows."""
        self.last_json: Any = None
        self.output = b""
        """The last 4 KB of stdout."""
        self.errors = b""
        """The last 4 KB of stderr."""
        self._messages: set[str] = set()

    def do(self, activity: object) -> None:
        """The agent does this now."""
        text = " ".join(str(activity).split())
        if text:
            self.activity = text[:_LONGEST_ACTIVITY]

    def count_message(self, message_id: object) -> None:
        """A turn is a message of the model, which may come in several parts."""
        if isinstance(message_id, str) and message_id not in self._messages:
            self._messages.add(message_id)
            self.turns = max(self.turns, len(self._messages))

    def fail(self, error: object, status: object = None) -> None:
        """It has failed, or a part of it."""
        self.failed = True
        text = error if isinstance(error, str) else "" if error is None else json.dumps(error)
        self.error = text or self.error
        self.trouble = trouble_of_status(status) or trouble_of(text) or self.trouble

    def spend(self, usd: object) -> None:
        """So much since it began."""
        if isinstance(usd, (int, float)) and not isinstance(usd, bool) and usd >= 0:
            self.cost_usd = float(usd)

    def last_words(self) -> str:
        """The end of what it wrote, for an agent whose format says nothing of errors."""
        return (self.output[-2048:] + b"\n" + self.errors[-2048:]).decode(errors="replace")


def trouble_of(text: str) -> Trouble | None:
    """The trouble that an error's text tells of."""
    if _LIMIT.search(text):
        return Trouble.LIMIT
    return Trouble.NOT_ALLOWED if _NOT_ALLOWED.search(text) else None


def trouble_of_status(status: object) -> Trouble | None:
    """The trouble that an HTTP status of the model's service tells of."""
    if status in (429, 529):
        return Trouble.LIMIT
    return Trouble.NOT_ALLOWED if status in (401, 402, 403) else None
