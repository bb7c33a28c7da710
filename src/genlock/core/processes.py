"""What a process may be called that somebody says a session is: it is kept in records, and shown."""

from __future__ import annotations

from typing import Any, Final

from genlock.core.model import Process
from genlock.errors import BadArgument

LONGEST_HOST: Final = 255
MOST_PID: Final = 2**31 - 1
MOST_STARTED: Final = 2**53 - 1
"""What a double still holds exactly: numbers travel as JSON."""


def check_process(process: Any) -> Process:
    """A process's identity, or BadArgument that says which part of it is none."""
    if not isinstance(process, Process):
        raise BadArgument(f"process is a Process, not {process!r:.60}")
    _check_text("host", process.host)
    _check_text("boot", process.boot)
    _check_number("pid", process.pid, 1, MOST_PID)
    _check_number("started", process.started, 0, MOST_STARTED)
    return process


def _check_text(name: str, text: Any) -> None:
    if not isinstance(text, str) or len(text) > LONGEST_HOST or not text.isprintable():
        said = repr(text[:60]) if isinstance(text, str) else type(text).__name__
        raise BadArgument(f"a process's {name} has at most {LONGEST_HOST} printable characters, which {said} has not")


def _check_number(name: str, number: Any, least: int, most: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadArgument(f"a process's {name} is a whole number from {least} to {most:,}")
