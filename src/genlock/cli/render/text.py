"""Sentences on stderr, and questions in a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from genlock.cli import exit_codes
from genlock.errors import BadArgument
from genlock.safe_text import safe_text

if TYPE_CHECKING:
    from genlock.cli.app import App


# Sentences on stderr: on a terminal they are wrapped at blanks, and a command to type stays on one
# line.


_INDENT = "  "
_TAG = 20
"""The maximum length of a label before a command, as in `when done: genlock submit …`."""


def tell(text: str) -> None:
    """Prints text to stderr, with nothing that a terminal would obey; a file or a pipe gets its
    lines unwrapped."""
    width, text = _width(), safe_text(text)
    print(
        text
        if width is None
        else "\n".join(part for line in text.split("\n") for part in folded(line, width)),
        file=sys.stderr,
    )


def ask(question: str) -> str:
    """Returns the line that the user types in answer. (Does not use click: `input` loses a Ctrl-C
    that comes while the question is being written.)"""
    sys.stderr.write(f"{safe_text(question)} [y/N]: ")
    sys.stderr.flush()
    return sys.stdin.readline()


def folded(line: str, width: int) -> list[str]:
    """Wraps a sentence to this width; a command at its end gets a line of its own, however long."""
    if len(line) <= width or line[:1] in (" ", ""):
        return [line]
    said, colon, command = line.rpartition(": genlock ")
    if not colon or any(mark in command for mark in (", ", "; ", ". ")):
        return _broken(line, width)
    if len(said) < _TAG:
        return [line]
    return [*_broken(f"{said}:", width), f"{_INDENT}genlock {command}"]


def _broken(line: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(
        line, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )


def _width() -> int | None:
    """Returns the width of stderr's terminal, if it is one."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


# Questions before acts that cannot be undone. They need a terminal.


def confirm(app: App, what: str, question: str, *unasked: str) -> None:
    """Says what would be done, and asks; without consent the command ends. `unasked` is the
    command, in words, that does it without a question."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadArgument(
            f"{what}\nThere is no terminal to ask on; if you mean it, type: {app.command(*unasked)}"
        )
    app.answers.say(what)
    if ask(question).strip().lower() not in ("y", "yes"):
        app.answers.say("nothing was changed")
        app.leave(exit_codes.ERROR)
