"""The words of a scenario: parses the arguments of a line for its verb, and formats outcomes as
text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from genlock.core.results import ClaimHistory, OperatorResult, SubmissionResult, TaskResult

_LISTS = frozenset({"depends_on", "tags", "roles", "modules"})


class ScriptError(Exception):
    """The script itself is wrong. Names the line."""


class Arguments:
    """The words of a line after its verb. A word that no verb reads is a mistake of the script."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words: list[str] = []
        self._named: dict[str, str] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if equals:
                self._named[name] = value
            else:
                self._words.append(word)

    def word(self, what: str) -> str:
        """Takes the next word."""
        if not self._words:
            raise ScriptError(f"{what} is missing")
        return self._words.pop(0)

    def flag(self, name: str) -> bool:
        """Is this word present?"""
        if name not in self._words:
            return False
        self._words.remove(name)
        return True

    def who(self) -> dict[str, str]:
        """Takes `agent/session` as keywords; `/session` names no agent."""
        agent, slash, session = self.word("agent/session").partition("/")
        if not slash:
            raise ScriptError(f"who acts is written agent/session, not {agent!r}")
        return {"session_id": session} | ({"agent_id": agent} if agent else {})

    def has_word(self) -> bool:
        return bool(self._words)

    def text(self, name: str) -> str | None:
        """Takes the value of name=…."""
        return self._named.pop(name, None)

    def value(self, name: str) -> Any:
        """Takes the value parsed as JSON, or as text if it is not JSON."""
        return _value(self._named.pop(name)) if name in self._named else None

    def names(self, name: str) -> list[str] | None:
        """Takes the value as a list."""
        return self._named.pop(name).split(",") if name in self._named else None

    def renamed(self, **keywords: str) -> dict[str, Any]:
        """Takes those of these names that were given, under the coordinator's keywords for them."""
        return {
            keyword: self.value(name) for keyword, name in keywords.items() if name in self._named
        }

    def rest(self) -> dict[str, Any]:
        """Takes all named values that were not read yet."""
        rest = {
            name: value.split(",") if name in _LISTS else _value(value)
            for name, value in self._named.items()
        }
        self._named.clear()
        return rest

    def check_all_used(self) -> None:
        left = [*self._words, *self._named]
        if left:
            raise ScriptError(f"nobody asked for {left[0]!r}")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


Verb = Callable[[Arguments], str]


# Outcomes in words


def submitted_content(line: Arguments, author: str) -> Any:
    """Returns the content to submit: by default one that is unique to this author."""
    size = line.value("bytes")
    if line.flag("empty"):
        return {}
    if size is not None:
        return {"text": "x" * (size - len('{"text":""}'))}
    return {"said": line.text("result") or f"by {author}"}


def said_in(data: Any) -> str | None:
    return data.get("said") if isinstance(data, dict) else None


def child_of(text: str) -> dict[str, Any]:
    name, _, depends_on = text.partition("<")
    return {"id": name, "depends_on": depends_on.split("+") if depends_on else []}


def submission_text(answer: SubmissionResult) -> str:
    if answer.review_causes:
        return f"in_review {'+'.join(answer.review_causes)}"
    if answer.accepted:
        return "accepted"
    words = [
        f"refused {answer.reason.value} current={answer.current_generation}",
        *listed("waits_for", answer.waits_for),
    ]
    if answer.work_lost != answer.kept:
        words.append(f"work_lost={answer.work_lost}")
    return " ".join([*words, "kept"] if answer.kept else words)


def operator_text(answer: OperatorResult) -> str:
    words = [answer.verdict.value.lower(), answer.state.value, f"generation={answer.generation}"]
    if answer.superseded is not None:
        words.append(f"superseded={answer.superseded.agent}/{answer.superseded.session}")
    return " ".join([*words, *listed("cascade", answer.cascade)])


def history_text(history: Iterable[ClaimHistory]) -> str:
    entries = []
    for entry in history:
        words = [entry.release_reason.value if entry.release_reason else "ACTIVE"]
        words += ["result_accepted"] if entry.result_accepted else []
        words += ["result_rejected"] if entry.result_rejected else []
        entries.append(f"{entry.generation}:{','.join(words)}")
    return " ".join(entries) or "none"


def refusals_text(results: Iterable[TaskResult]) -> str:
    shown = (
        f"{result.generation}/{result.session_id}:{result.rejection_reason}:{result.state}"
        for result in results
    )
    return " ".join(shown) or "none"


def activity_of(session: Any) -> str:
    if session.ended_at is not None:
        return "ended"
    return "active" if session.active else "gone" if session.process_gone else "silent"


def listed(name: str, values: Iterable[str]) -> list[str]:
    text = ",".join(map(short, values))
    return [f"{name}={text}"] if text else []


def short(waiting: str) -> str:
    """Returns what a task waits for, in one word."""
    return waiting.replace("not before ", "not_before:")


def shown_value(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
