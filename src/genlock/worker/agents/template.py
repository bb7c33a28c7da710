"""The command line of an agent, with fields that are filled in for each task.

claude -p --session-id {session}            the prompt comes on stdin
my-agent --file {prompt_file} --out {result}
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from genlock.errors import BadArgument

FIELDS: Final = (
    "prompt",
    "prompt_file",
    "task",
    "generation",
    "session",
    "worktree",
    "branch",
    "git_folders",
    "result",
    "log",
    "max_turns",
    "max_cost",
)
_PIECES: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""The longest argument on Linux, whatever the limit of the whole command line."""


class PromptTooLong(BadArgument):
    """The prompt does not fit into an argument."""


class Template:
    """The words of a command, with fields."""

    def __init__(self, words: Sequence[str], *, shell: bool = False) -> None:
        self.words = tuple(words)
        self.shell = shell
        self.fields = frozenset(field for word in words for field in _fields_of(word))

    @classmethod
    def parse(cls, text: str, *, shell: bool = False) -> Template:
        """Parses a template. With `shell` a shell runs it, with every field quoted."""
        if shell:
            words = [text]
        else:
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise BadArgument(f"the command {text!r} cannot be split: {error}") from None
        if not text.strip() or not words:
            raise BadArgument("the command is empty")
        return cls(words, shell=shell)

    @property
    def takes_prompt(self) -> bool:
        """Is the prompt part of the command line? Otherwise it is passed on stdin."""
        return bool(self.fields & {"prompt", "prompt_file"})

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """Returns the command line for these values."""
        if "prompt" in self.fields and len(values["prompt"].encode()) > LONGEST_ARGUMENT:
            raise PromptTooLong(
                f"the prompt of {values['task']} has {len(values['prompt'].encode()):,} bytes, and "
                "an argument takes 131,071; use {prompt_file} in place of {prompt}, or neither: "
                "then the prompt comes on stdin"
            )
        if self.shell:
            quoted = {name: shlex.quote(value) for name, value in values.items()}
            return ["sh", "-c", _filled(self.words[0], quoted)]
        return [_filled(word, values) for word in self.words]


def _fields_of(word: str) -> list[str]:
    found = []
    for piece in _PIECES.finditer(word):
        name = piece.group(1)
        if name is None and piece.group() in ("{", "}"):
            raise BadArgument(
                f"{word!r} has a single {piece.group()}; write {piece.group() * 2} for the "
                "character itself"
            )
        if name is not None and name not in FIELDS:
            names = ", ".join("{" + field + "}" for field in FIELDS)
            raise BadArgument(
                f"there is no field {{{name}}}; there are {names}, and {{{{ and }}}} are the "
                "characters themselves"
            )
        found += [name] if name is not None else []
    return found


def _filled(word: str, values: Mapping[str, str]) -> str:
    return _PIECES.sub(
        lambda piece: piece.group()[0] if piece.group(1) is None else values[piece.group(1)], word
    )
