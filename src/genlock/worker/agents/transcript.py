"""The transcript of an agent so far: its result, its cost, and its errors."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any, Final

TAIL_BYTES: Final = 4096
"""How much of the end of an agent's output is kept. It is the result if there is no other."""
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
    """A reason why an agent could not continue that is not the task's fault."""

    LIMIT = "limit"
    NOT_ALLOWED = "not_allowed"
    CUT_OFF = "cut_off"


class Transcript:
    """A transcript, filled line by line by the reader of the agent's format."""

    def __init__(self) -> None:
        self.activity = ""
        """The last tool or text."""
        self.agent_session = ""
        self.cost_usd: float | None = None
        self.turns = 0
        self.answer: Any = None
        """The agent's reported result."""
        self.finished = False
        """Has it reported that it is finished?"""
        self.failed = False
        """Has it reported a failure, whatever its exit code?"""
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
        """Records the agent's present activity."""
        text = " ".join(str(activity).split())
        if text:
            self.activity = text[:_LONGEST_ACTIVITY]

    def count_message(self, message_id: object) -> None:
        """Counts a turn: a message of the model, which may arrive in several parts."""
        if isinstance(message_id, str) and message_id not in self._messages:
            self._messages.add(message_id)
            self.turns = max(self.turns, len(self._messages))

    def fail(self, error: object, status: object = None) -> None:
        """Records a failure of the agent, or of a part of its work."""
        self.failed = True
        text = error if isinstance(error, str) else "" if error is None else json.dumps(error)
        self.error = text or self.error
        self.trouble = trouble_of_status(status) or trouble_of(text) or self.trouble

    def spend(self, usd: object) -> None:
        """Records the cost since the agent began."""
        if isinstance(usd, (int, float)) and not isinstance(usd, bool) and usd >= 0:
            self.cost_usd = float(usd)

    def last_words(self) -> str:
        """Returns the end of its output, for an agent whose format does not report errors."""
        return (self.output[-2048:] + b"\n" + self.errors[-2048:]).decode(errors="replace")


def trouble_of(text: str) -> Trouble | None:
    """Returns the trouble that an error's text indicates."""
    if _LIMIT.search(text):
        return Trouble.LIMIT
    return Trouble.NOT_ALLOWED if _NOT_ALLOWED.search(text) else None


def trouble_of_status(status: object) -> Trouble | None:
    """Returns the trouble that an HTTP status of the model's service indicates."""
    if status in (429, 529):
        return Trouble.LIMIT
    return Trouble.NOT_ALLOWED if status in (401, 402, 403) else None
