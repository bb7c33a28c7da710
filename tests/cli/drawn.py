"""What a call draws on a terminal, as a person would see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cli.terminal import Terminal

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Drawn:
    """What came to the terminal, stdout and stderr together."""

    code: int
    raw: str

    @property
    def text(self) -> str:
        """Without colours and movements."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def draw(*args: object, cwd: Path, columns: int = 80, env: Mapping[str, str | None] | None = None) -> Drawn:
    """Call `genlock` on a terminal so wide."""
    with Terminal(*args, cwd=cwd, columns=columns, env=env) as terminal:
        return Drawn(terminal.end(), terminal.shown)
