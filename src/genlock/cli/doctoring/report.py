"""Findings on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genlock.cli.doctoring.finding import Finding, Level

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from genlock.cli.doctoring.examination import Report

_GAP: Final = 2
_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.TROUBLE: "bold red"}


def show(console: Console, report: Report) -> None:
    """One line for what is well, more for what is not."""
    from rich.text import Text

    from genlock.cli.tables import print_beside

    levels = max((len(finding.level.value) for finding in report.findings), default=0) + _GAP
    checks = max((len(finding.check) for finding in report.findings), default=0) + _GAP
    for finding in report.findings:
        level = Text(finding.level.value.ljust(levels), _STYLES[finding.level])
        print_beside(console, Text.assemble(level, finding.check.ljust(checks)), *_body(finding))
    for line in report.fixed:
        console.print(Text.assemble(("fixed ", "green"), line))
    troubles = sum(finding.level is Level.TROUBLE for finding in report.findings)
    notes = sum(finding.level is Level.NOTE for finding in report.findings)
    end = "all is well" if not troubles and not notes else f"troubles: {troubles}, notes: {notes}"
    console.print(Text(end, "bold red" if troubles else "bold green"))


def _body(finding: Finding) -> list[Text]:
    from rich.text import Text

    lines = [Text(finding.what)]
    lines += [Text(f"- {item}", "bright_black") for item in finding.items]
    if finding.means:
        lines.append(Text(finding.means))
    return lines + [Text(f"type: {command}", "bold", no_wrap=True) for command in finding.try_next]
