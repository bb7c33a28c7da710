"""What a call draws on a terminal, as a person would see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cli.terminal import Terminal

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ERASES, _TAKES_BACK = "\r\x1b[2K", "\r\x1b[1A\x1b[2K"
"""This line is written anew, or the one above it."""


def left_of(raw: str) -> str:
    """What of it stays on the terminal, without colours and movements: a bar, which comes where a
    call takes long, is gone at its end."""
    marked = raw.replace(_TAKES_BACK, "\v").replace(_ERASES, "\b")
    kept = re.sub(r"[^\n]*\n[^\n\v]*\v", "", re.sub(r"[^\n\v]*\x08", "", marked))
    return _CONTROL.sub("", kept).replace("\r\n", "\n")


@dataclass(frozen=True)
class Drawn:
    """What came to the terminal, stdout and stderr together."""

    code: int
    raw: str

    @property
    def text(self) -> str:
        """What of it stays."""
        return left_of(self.raw)

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def draw(
    *args: object, cwd: Path, columns: int = 80, env: Mapping[str, str | None] | None = None
) -> Drawn:
    """Call `genlock` on a terminal so wide."""
    with Terminal(*args, cwd=cwd, columns=columns, env=env) as terminal:
        return Drawn(terminal.end(), terminal.shown)
