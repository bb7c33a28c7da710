"""Answers on stdout, notes on stderr.

A command gives its answer once, as a value. The reader decides the form: text or a table on a
terminal; one JSON document elsewhere or with --json; with --quiet only ids and numbers, one per
line, and no notes.

All output of a command goes through this module or `render.text`, because much of it is foreign
text: a terminal must show it and obey nothing in it. A test ensures that no other module prints.
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
    """Returns the default style: the one in GENLOCK_OUTPUT, else text on a terminal and JSON
    elsewhere."""
    wanted = os.environ.get(OUTPUT, "").lower()
    if wanted in (Style.TEXT.value, Style.JSON.value):
        return Style(wanted)
    return Style.TEXT if on_terminal else Style.JSON


def check_output() -> None:
    """Raises BadArgument if GENLOCK_OUTPUT has an invalid value."""
    wanted = os.environ.get(OUTPUT, "")
    if wanted.lower() not in ("", Style.TEXT.value, Style.JSON.value):
        raise BadArgument(f"{OUTPUT} is text or json, not {wanted[:60]!r}")


class Answers:
    """The output of a command."""

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
        """Writes the answer: `value` as JSON, `text` for people, `bare` one per line with
        --quiet."""
        if self.style is Style.JSON:
            self.write_json(_json(value))
        elif self.style is Style.BARE:
            self.write_text("".join(f"{line}\n" for line in bare))
        else:
            text(self.console())
            sys.stdout.flush()

    def write_json(self, data: bytes, *, flush: bool = True) -> None:
        """Writes one JSON document and a line end, in UTF-8 whatever the terminal's encoding."""
        self._write(safe_json(data), flush=flush)

    def write_text(self, text: str, *, flush: bool = True) -> None:
        """Writes text: unchanged to a pipe or a file, made safe to show on a terminal."""
        self._write(
            (safe_text(text) if self._on_terminal else text).encode(errors="backslashreplace"),
            flush=flush,
        )

    def flush(self) -> None:
        """Flushes text that was written with `flush=False`."""
        sys.stdout.flush()

    def _write(self, data: bytes, *, flush: bool) -> None:
        if flush:
            sys.stdout.flush()
        sys.stdout.buffer.write(data)
        if flush:
            sys.stdout.buffer.flush()

    def console(self, *, stderr: bool = False) -> Console:
        """Returns Rich's console, which is imported only for a terminal."""
        from genlock.cli.render.tables import console

        # A terminal whose encoding has no "→" shows a "?".
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        return console(stderr=stderr)

    def say(self, line: str) -> None:
        """Writes a note to stderr; nothing with --quiet."""
        if not self.quiet:
            tell(line)

    def fail(self, error: GenlockError, context: Context | None = None) -> None:
        """Writes an error to stderr, as JSON for machines."""
        from genlock.messages import NO_CONTEXT, describe

        more = {
            name: found for name in ("faults", "notes") if (found := getattr(error, name, None))
        }
        message = describe(error, context or NO_CONTEXT)
        self.complain(error.code, message.text, message.try_next, **more)

    def complain(
        self, code: str, message: str, try_next: Sequence[Sequence[str]] = (), **more: Any
    ) -> None:
        """Writes what is wrong and what to type next; `code` is the name for machines."""
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
    """Escapes bytes that are not valid text, which arguments may contain."""
    return text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value)} has no JSON form")


# When the reader of stdout has gone.


def reader_gone() -> bool:
    """Has the reader of our pipe closed it? Without this check we would notice only at the next
    write."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(found & select.POLLERR for _, found in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


def forget_stdout() -> None:
    """Discards unwritten output, so that the interpreter does not try to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
