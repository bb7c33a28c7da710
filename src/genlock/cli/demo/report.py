"""Lineage and verdict on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from genlock.cli.demo.examine import Finding
from genlock.cli.demo.play import Outcome
from genlock.core.results import ClaimHistory, Lineage


def show(console: Console, outcome: Outcome) -> None:
    """What the play showed."""
    for found in outcome.lineages:
        console.print(_lineage(found))
    console.print(_verdict(outcome.invariants))
    if outcome.store is not None:
        console.print(f"The store is kept. To look at it, type: genlock events --url {outcome.store}", soft_wrap=True)


def _lineage(found: Lineage) -> RenderableType:
    """The generations of a task, and below them what was refused."""
    table = Table(box=SIMPLE_HEAD, title=f"Lineage of {found.task_id}", title_justify="left", title_style="bold", pad_edge=False)
    for column in ("Generation", "Session", "Agent", "User", "Acquired", "Released", "Result"):
        table.add_column(column, no_wrap=True)
    for entry in found.generations:
        acquired, released = _clock(entry.acquired_at), _clock(entry.released_at) if entry.released_at else ""
        table.add_row(str(entry.generation), entry.session_id, entry.agent_id, entry.user_id, acquired, released, _outcome(entry))
    lines = [Text("Rejected submissions:")] if found.refused else []
    for number, refused in enumerate(found.refused, start=1):
        branch = "└─" if number == len(found.refused) else "├─"
        now_at = found.generations[-1].generation
        who = f"{refused.session_id}/{refused.agent_id} submitted at {_clock(refused.submitted_at)}"
        lines.append(Text(f"{branch} {who} → REJECTED (gen {refused.generation} < current {now_at}), {refused.state}"))
    return Group(table, *lines, Text())


def _outcome(entry: ClaimHistory) -> str:
    if entry.result_accepted:
        return "ACCEPTED"
    return entry.release_reason or "HELD"


def _clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}.{instant.microsecond // 100_000}"


def _verdict(findings: Iterable[Finding]) -> RenderableType:
    """The promises, one a line, and below each what speaks against it."""
    lines = [Text("Checked against every event that was written:", style="bold")]
    for finding in findings:
        lines.append(Text.assemble(("  no   ", "bold red") if finding.faults else ("  held ", "green"), finding.promise))
        lines += [Text(f"         {fault}", style="red") for fault in finding.faults]
    return Group(*lines)
