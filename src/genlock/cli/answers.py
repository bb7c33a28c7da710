"""Answers on stdout, talk on stderr.

A verb gives its answer once, as a value; how it is written depends on who reads: on a terminal as text or a table, off it or with
--json as one JSON document, with --quiet bare: ids and numbers, one a line, and no talk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from genlock.cli.sentences import tell
from genlock.errors import GenlockError

if TYPE_CHECKING:
    from rich.console import Console


class Style(Enum):
    """How answers are written."""

    TEXT = "text"
    JSON = "json"
    BARE = "bare"


class Answers:
    """The way out of a verb."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.style = Style.JSON if as_json else Style.BARE if quiet else Style.TEXT if sys.stdout.isatty() else Style.JSON

    def give(self, value: Any, *, text: Callable[[Console], None], bare: Iterable[object] = ()) -> None:
        """Write the answer: `value` as JSON, `text` on a terminal, `bare` one a line with --quiet."""
        if self.style is Style.JSON:
            self.write(_json(value))
        elif self.style is Style.BARE:
            self.write("".join(f"{line}\n" for line in bare).encode(errors="backslashreplace"))
        else:
            text(self.console())
            sys.stdout.flush()

    def write(self, data: bytes) -> None:
        """Bytes as they are: JSON is UTF-8 whatever the terminal speaks."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def console(self, *, stderr: bool = False) -> Console:
        """Rich's console, for a terminal; imported only then."""
        from rich.console import Console

        # A terminal that knows no "→" is shown a "?".
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        # Without colours there is no style at all: what was asked for is a text free of escape codes.
        return Console(stderr=stderr, highlight=False, soft_wrap=False, color_system=None if os.environ.get("NO_COLOR") else "auto")

    def say(self, line: str) -> None:
        """Talk, on stderr; none with --quiet."""
        if not self.quiet:
            tell(line)

    def fail(self, error: GenlockError) -> None:
        """An error, on stderr: for machines as JSON."""
        more = {name: found for name in ("faults", "notes") if (found := getattr(error, name, None))}
        self.complain(error.code, str(error), **more)

    def complain(self, code: str, message: str, **more: Any) -> None:
        """What is wrong and what to type next; `code` is the name for machines."""
        if self.style is Style.JSON:
            said = _json({"error": {"code": code, "message": _encodable(message), **more}}).decode()
            sys.stderr.write(said)
        else:
            tell(f"genlock: {message}")


def _json(value: Any) -> bytes:
    import msgspec

    return msgspec.json.encode(value, enc_hook=_plain, order="deterministic" if isinstance(value, dict) else None) + b"\n"


def _encodable(text: str) -> str:
    """Arguments may hold bytes that are no text."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value)} has no JSON form")
