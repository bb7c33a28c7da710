"""The words of a line of a scenario, as its verb asks for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

_LISTS = frozenset({"depends_on", "tags", "roles", "modules"})


class ScriptError(Exception):
    """The script itself is wrong; says in which line."""


class Arguments:
    """The words of a line after its verb. What no verb asked for is a mistake of the script."""

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
        """The next word."""
        if not self._words:
            raise ScriptError(f"{what} is missing")
        return self._words.pop(0)

    def flag(self, name: str) -> bool:
        """Is this word there?"""
        if name not in self._words:
            return False
        self._words.remove(name)
        return True

    def who(self) -> dict[str, str]:
        """`agent/session`, as keywords."""
        agent, slash, session = self.word("agent/session").partition("/")
        if not slash:
            raise ScriptError(f"who acts is written agent/session, not {agent!r}")
        return {"agent_id": agent, "session_id": session}

    def has_word(self) -> bool:
        return bool(self._words)

    def text(self, name: str) -> str | None:
        """The value of name=…"""
        return self._named.pop(name, None)

    def value(self, name: str) -> Any:
        """The same, as JSON reads it; what is not JSON is a text."""
        return _value(self._named.pop(name)) if name in self._named else None

    def names(self, name: str) -> list[str] | None:
        """The same, as a list."""
        return self._named.pop(name).split(",") if name in self._named else None

    def renamed(self, **keywords: str) -> dict[str, Any]:
        """Those of these names that were given, under the keywords that the coordinator knows them by."""
        return {keyword: self.value(name) for keyword, name in keywords.items() if name in self._named}

    def rest(self) -> dict[str, Any]:
        """All that is named and was not asked for yet."""
        rest = {name: value.split(",") if name in _LISTS else _value(value) for name, value in self._named.items()}
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
