"""What a benchmark prints: a line each, with its target and whether it was met."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Line(NamedTuple):
    """One figure. `met` is None where there is no target."""

    what: str
    value: str
    target: str = ""
    met: bool | None = None


def show(title: str, lines: list[Line]) -> None:
    """Prints the figures of one benchmark."""
    table = Table(
        title=title, title_justify="left", title_style="bold", show_edge=False, pad_edge=False
    )
    table.add_column("what", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for line in lines:
        mark = "" if line.met is None else "[green]met[/]" if line.met else "[red]missed[/]"
        table.add_row(line.what, line.value, line.target, mark)
    console = Console(width=110)
    console.print(table)
    console.print()


def at_least(what: str, ratio: float, target: float) -> Line:
    return Line(what, f"{ratio:.2f}", f"≥ {target}", ratio >= target)


def at_most(what: str, value: float, target: float, unit: str = "") -> Line:
    return Line(what, f"{value:.2f}{unit}", f"≤ {target:g}{unit}", value <= target)


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
