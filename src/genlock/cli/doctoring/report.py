"""Findings on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genlock.cli.doctoring.finding import Finding, Level

if TYPE_CHECKING:
    from rich.console import Console, Group

    from genlock.cli.doctoring.examination import Report

_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.TROUBLE: "bold red"}


def show(console: Console, report: Report) -> None:
    """One line for what is well, more for what is not."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in report.findings:
        table.add_row(Text(finding.level.value, _STYLES[finding.level]), Text(finding.check), _body(finding))
    console.print(table)
    for line in report.fixed:
        console.print(Text.assemble(("fixed ", "green"), line))
    troubles = sum(finding.level is Level.TROUBLE for finding in report.findings)
    notes = sum(finding.level is Level.NOTE for finding in report.findings)
    end = "all is well" if not troubles and not notes else f"troubles: {troubles}, notes: {notes}"
    console.print(Text(end, "bold red" if troubles else "bold green"))


def _body(finding: Finding) -> Group:
    from rich.console import Group
    from rich.text import Text

    lines = [Text(finding.what)]
    lines += [Text(f"- {item}", "bright_black") for item in finding.items]
    if finding.means:
        lines.append(Text(finding.means))
    lines += [Text.assemble("type: ", (command, "bold")) for command in finding.try_next]
    return Group(*lines)
