"""Findings, the results of checks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from genlock.safe_text import safe_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from genlock.cli.doctor.examination import Report


MOST_ITEMS = 20


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing is broken."""
    TROUBLE = "trouble"


class Finding(Struct, frozen=True):
    """The result of one check."""

    check: str
    level: Level
    what: str
    means: str = ""
    try_next: tuple[str, ...] = ()
    """What to type."""
    items: tuple[str, ...] = ()
    """The first few cases."""


def ok(check: str, what: str) -> Finding:
    """Returns a finding without trouble."""
    return Finding(check, Level.OK, what)


def note(
    check: str, what: str, means: str = "", try_next: Sequence[str] = (), items: Sequence[str] = ()
) -> Finding:
    """Returns a finding that is worth knowing."""
    return Finding(check, Level.NOTE, what, means, tuple(try_next), _first(items))


def trouble(
    check: str, what: str, means: str = "", try_next: Sequence[str] = (), items: Sequence[str] = ()
) -> Finding:
    """Returns a finding of trouble."""
    return Finding(check, Level.TROUBLE, what, means, tuple(try_next), _first(items))


def _first(items: Sequence[str]) -> tuple[str, ...]:
    more = (f"and {len(items) - MOST_ITEMS:,} more",) if len(items) > MOST_ITEMS else ()
    return (*items[:MOST_ITEMS], *more)


def number(count: int, one: str, many: str) -> str:
    """Returns a count with its noun: 1 task, 2 tasks."""
    return f"{count:,} {one if count == 1 else many}"


# Findings on a terminal.


_GAP: Final = 2
_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.TROUBLE: "bold red"}


def show(console: Console, report: Report) -> None:
    """Prints one line for each finding without trouble, and more for others."""
    from rich.text import Text

    from genlock.cli.render.tables import print_beside

    levels = max((len(finding.level.value) for finding in report.findings), default=0) + _GAP
    checks = max((len(finding.check) for finding in report.findings), default=0) + _GAP
    for finding in report.findings:
        level = Text(finding.level.value.ljust(levels), _STYLES[finding.level])
        print_beside(console, Text.assemble(level, finding.check.ljust(checks)), *_body(finding))
    for line in report.fixed:
        console.print(Text.assemble(("fixed ", "green"), safe_line(line)))
    troubles = sum(finding.level is Level.TROUBLE for finding in report.findings)
    notes = sum(finding.level is Level.NOTE for finding in report.findings)
    end = "all is well" if not troubles and not notes else f"troubles: {troubles}, notes: {notes}"
    console.print(Text(end, "bold red" if troubles else "bold green"))


def _body(finding: Finding) -> list[Text]:
    from rich.text import Text

    lines = [Text(safe_line(finding.what))]
    lines += [Text(f"- {safe_line(item)}", "bright_black") for item in finding.items]
    if finding.means:
        lines.append(Text(safe_line(finding.means)))
    return lines + [
        Text(f"type: {safe_line(command)}", "bold", no_wrap=True) for command in finding.try_next
    ]
