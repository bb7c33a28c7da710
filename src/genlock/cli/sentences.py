"""Sentences on stderr: on a terminal they are broken at blanks, and a command to be typed stays whole."""

from __future__ import annotations

import os
import sys

_INDENT = "  "
_TAG = 20
"""So long is at most what only names a command, as in `when done: genlock submit …`."""


def tell(text: str) -> None:
    """Print it; a file or a pipe is given it as it is."""
    width = _width()
    print(text if width is None else "\n".join(part for line in text.split("\n") for part in folded(line, width)), file=sys.stderr)


def folded(line: str, width: int) -> list[str]:
    """A sentence in lines of this width; the command at its end, if it has one, in a line of its own, however long."""
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

    return wrap(line, width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)


def _width() -> int | None:
    """How wide the terminal is that stderr goes to."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None
