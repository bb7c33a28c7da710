"""Answers on stdout, talk on stderr.

A verb gives its answer once, as a value; how it is written depends on who reads: on a terminal as
text or a table, off it or with
--json as one JSON document, with --quiet bare: ids and numbers, one a line, and no talk.

All that a verb prints goes through here or `sentences`, since much of it was written by strangers:
a terminal shows it, and obeys nothing in it. A test holds that no other module prints.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from genlock.cli.render.text import tell
from genlock.errors import BadArgument, GenlockError
from genlock.safe_text import safe_json, safe_text

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.messages import Context


class Style(Enum):
    """How answers are written."""

    TEXT = "text"
    JSON = "json"
    BARE = "bare"


OUTPUT = "GENLOCK_OUTPUT"


def usual_style(*, on_terminal: bool) -> Style:
    """Where no option says how: as GENLOCK_OUTPUT says, else text on a terminal and JSON off it."""
    wanted = os.environ.get(OUTPUT, "").lower()
    if wanted in (Style.TEXT.value, Style.JSON.value):
        return Style(wanted)
    return Style.TEXT if on_terminal else Style.JSON


def check_output() -> None:
    """BadArgument if GENLOCK_OUTPUT is none of what it may be."""
    wanted = os.environ.get(OUTPUT, "")
    if wanted.lower() not in ("", Style.TEXT.value, Style.JSON.value):
        raise BadArgument(f"{OUTPUT} is text or json, not {wanted[:60]!r}")


class Answers:
    """The way out of a verb."""

    def __init__(
        self, *, as_json: bool = False, as_text: bool = False, quiet: bool = False
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._on_terminal = sys.stdout.isatty()
        self.style = (
            Style.JSON
            if as_json
            else Style.TEXT
            if as_text
            else Style.BARE
            if quiet
            else usual_style(on_terminal=self._on_terminal)
        )

    def give(
        self, value: Any, *, text: Callable[[Console], None], bare: Iterable[object] = ()
    ) -> None:
        """Write the answer: `value` as JSON, `text` for people, `bare` one a line with
        --quiet."""
        if self.style is Style.JSON:
            self.write_json(_json(value))
        elif self.style is Style.BARE:
            self.write_text("".join(f"{line}\n" for line in bare))
        else:
            text(self.console())
            sys.stdout.flush()

    def write_json(self, data: bytes, *, flush: bool = True) -> None:
        """One JSON document with its line end. It is UTF-8 whatever the terminal speaks."""
        self._write(safe_json(data), flush=flush)

    def write_text(self, text: str, *, flush: bool = True) -> None:
        """Text for a program or a person: a pipe or a file is given it as it is, a terminal what is
        safe to show."""
        self._write(
            (safe_text(text) if self._on_terminal else text).encode(errors="backslashreplace"),
            flush=flush,
        )

    def flush(self) -> None:
        """What was written without is on its way."""
        sys.stdout.flush()

    def _write(self, data: bytes, *, flush: bool) -> None:
        if flush:
            sys.stdout.flush()
        sys.stdout.buffer.write(data)
        if flush:
            sys.stdout.buffer.flush()

    def console(self, *, stderr: bool = False) -> Console:
        """Rich's console, for a terminal; imported only then."""
        from genlock.cli.render.tables import console

        # A terminal that knows no "→" is shown a "?".
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        return console(stderr=stderr)

    def say(self, line: str) -> None:
        """Talk, on stderr; none with --quiet."""
        if not self.quiet:
            tell(line)

    def fail(self, error: GenlockError, context: Context | None = None) -> None:
        """An error, on stderr: for machines as JSON."""
        from genlock.messages import NO_CONTEXT, describe

        more = {
            name: found for name in ("faults", "notes") if (found := getattr(error, name, None))
        }
        message = describe(error, context or NO_CONTEXT)
        self.complain(error.code, message.text, message.try_next, **more)

    def complain(
        self, code: str, message: str, try_next: Sequence[Sequence[str]] = (), **more: Any
    ) -> None:
        """What is wrong and what to type next; `code` is the name for machines."""
        if self.style is Style.JSON:
            told = {"code": code, "message": _encodable(message), "try_next": try_next, **more}
            sys.stderr.write(safe_json(_json({"error": told})).decode())
            return
        tell(f"genlock: {message}")
        if try_next:
            from genlock.messages import typed

            for line in map(typed, try_next):
                if not message.endswith(line):
                    tell(f"  {line}")


def _json(value: Any) -> bytes:
    import msgspec

    return (
        msgspec.json.encode(
            value, enc_hook=_plain, order="deterministic" if isinstance(value, dict) else None
        )
        + b"\n"
    )


def _encodable(text: str) -> str:
    """Arguments may hold bytes that are no text."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value)} has no JSON form")


# When nobody reads any more.


def reader_gone() -> bool:
    """Has whoever reads our pipe closed it? Nothing else would tell before the next line is
    written."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(found & select.POLLERR for _, found in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def forget_stdout() -> None:
    """What was not written yet shall not be written, nor tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
