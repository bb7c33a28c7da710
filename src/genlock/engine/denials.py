"""Denials: merged per task, session and reason, and written at most once a second: the one thing not durable before the answer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from genlock.core.commands import Denial, NoteDenials
from genlock.core.keys import ACCESS, Key
from genlock.core.reasons import ClaimReason
from genlock.core.results import ClaimResult

FLUSH_SECONDS = 1.0
_MOST_A_COMMAND = 32
_MOST_KEPT = 10_000


class _Line(NamedTuple):
    place: tuple[str, str]
    task: str
    session: str
    agent: str
    reason: ClaimReason


class Denials:
    """The denials of one lane that are not written yet."""

    def __init__(self, coordinator: str) -> None:
        self._coordinator = coordinator
        self._counts: dict[_Line, int] = {}
        self._last: dict[_Line, datetime] = {}
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._counts)

    def note(self, key: Key, session: str, agent: str, outcome: ClaimResult, now: datetime) -> None:
        """One more denial."""
        self._add(_Line(key[:2], key.id, session, agent, outcome.reason), 1, now)

    def _add(self, line: _Line, count: int, at: datetime) -> None:
        if line not in self._counts and len(self._counts) >= _MOST_KEPT:
            self.dropped += count
            return
        self._counts[line] = self._counts.get(line, 0) + count
        self._last[line] = max(at, self._last.get(line, at))

    def flush(self) -> list[NoteDenials]:
        """What is to be written now."""
        by_key: dict[Key, list[Denial]] = {}
        for line, count in self._counts.items():
            at = self._last[line]
            key = Key(*line.place, ACCESS, f"{self._coordinator}/{at:%Y%m%dT%H}")
            by_key.setdefault(key, []).append(Denial(line.task, line.session, line.agent, line.reason, count, at))
        self._counts.clear()
        self._last.clear()
        return [
            NoteDenials(key, denials=tuple(denials[start : start + _MOST_A_COMMAND]))
            for key, denials in by_key.items()
            for start in range(0, len(denials), _MOST_A_COMMAND)
        ]

    def put_back(self, commands: Iterable[NoteDenials]) -> None:
        """These could not be written; they are with the next ones."""
        for command in commands:
            for denial in command.denials:
                line = _Line(command.key.place, denial.task, denial.session, denial.agent, ClaimReason(denial.reason))
                self._add(line, denial.count, denial.at)
