"""The stage: how the fleet is shown. A live picture in a terminal that has room for it, plain lines anywhere else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from genlock.cli.demo.crew import Condition
from genlock.cli.demo.plan import short
from genlock.cli.demo.words import Line
from genlock.core.results import TaskState

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_WIDTH = 80
_FIXED_LINES = 6
"""Title, crew, the table's head, two rules, and the line of the cursor."""
_ROWS = 10
_LEAST_TICKER = 4
_BAR = 8
_COLOURS = {"COMPLETED": "green", "IN_PROGRESS": "cyan", "PENDING": "yellow", "BLOCKED": "bright_black", "HELD": "red"}
_MARKS = {Condition.WELL: ("●", "green"), Condition.STOPPED: ("◌", "yellow"), Condition.KILLED: ("✗", "red")}


class Stage(Protocol):
    """Where the fleet is shown."""

    def open(self) -> AbstractContextManager[object]:
        """While this lasts, it is."""

    def tell(self, line: Line, at: datetime | None = None) -> None:
        """Something has happened."""

    def draw(self, states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> None:
        """So it is now."""


class Lines:
    """Plain lines, one for each thing told."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = datetime.now(UTC)

    def open(self) -> AbstractContextManager[object]:
        return nullcontext()

    def tell(self, line: Line, at: datetime | None = None) -> None:
        """One more line."""
        self._say(f"{((at or datetime.now(UTC)) - self._began).total_seconds():6.2f} s  {line.text}")

    def draw(self, states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> None:
        """There is no picture."""


def fits(console: Console) -> bool:
    """Is there room for the picture?"""
    return not console.is_dumb_terminal and console.width >= _WIDTH and console.height >= _FIXED_LINES + _ROWS + _LEAST_TICKER


class Picture:
    """The live picture: crew, tasks, and below them what has happened."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._began = datetime.now(UTC)
        self._lines: deque[tuple[float, Line]] = deque(maxlen=min(console.height, 40) - _FIXED_LINES - _ROWS)
        self._live = Live(console=console, auto_refresh=False)

    def open(self) -> AbstractContextManager[object]:
        """While this lasts the picture moves."""
        return self._live

    def tell(self, line: Line, at: datetime | None = None) -> None:
        """One more line of the ticker."""
        self._lines.append((((at or datetime.now(UTC)) - self._began).total_seconds(), line))

    def draw(self, states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> None:
        """The picture anew."""
        from rich.console import Group
        from rich.text import Text

        now = datetime.now(UTC)
        title = Text.assemble(("Genlock", "bold"), f"  five workers, one plan, {(now - self._began).total_seconds():.1f} s")
        rule = Text("─" * _WIDTH, style="bright_black")
        self._live.update(Group(title, _crew_line(states, crew), rule, _table(states, now), rule, *self._ticker()), refresh=True)

    def _ticker(self) -> list[Text]:
        from rich.text import Text

        lines = [Text.assemble((f"{seconds:6.2f}  ", "bright_black"), (line.text, line.colour)) for seconds, line in self._lines]
        for line in lines:
            line.truncate(_WIDTH, overflow="ellipsis")
        return lines + [Text()] * ((self._lines.maxlen or 0) - len(lines))


def _crew_line(states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> Text:
    """Who is there, and what each believes to be working on."""
    from rich.text import Text

    held = {state.claim.agent_id: short(name) for name, state in states.items() if state.claim is not None}
    line = Text()
    for agent, condition in crew.items():
        mark, colour = _MARKS[condition]
        doing = condition if condition is not Condition.WELL else held.get(agent, "waits")
        line.append(f"{mark} {agent} ", colour).append(f"{doing}".ljust(15 - len(agent) - 3), "bright_black")
    return line


def _table(states: Mapping[str, TaskState], now: datetime) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bright_black", width=_WIDTH)
    for column, width in (("task", 20), ("state", 11), ("gen", 3), ("holder", 6), ("lease", _BAR + 6), ("", 16)):
        table.add_column(column, width=width, no_wrap=True, justify="right" if column == "gen" else "left")
    for name, state in states.items():
        colour = _COLOURS.get(state.state, "white")
        holder = state.claim.agent_id if state.claim else ""
        generation = str(state.generation or "")
        style = "bright_black" if state.state == "BLOCKED" else ""
        table.add_row(name, Text(state.state, colour), generation, holder, _lease(state, now), _remark(state), style=style)
    for _ in range(_ROWS - len(states)):
        table.add_row("")
    return table


def _lease(state: TaskState, now: datetime) -> Text:
    """What is left of the holder's lease, as a bar and in seconds."""
    from rich.text import Text

    claim = state.claim
    if claim is None:
        return Text()
    left = max(0.0, (claim.expires_at - now).total_seconds())
    part = min(1.0, left / claim.lease_seconds)
    full = round(part * _BAR)
    colour = "green" if part > 0.5 else "yellow" if part > 0.2 else "red"
    return Text.assemble(("━" * full, colour), ("─" * (_BAR - full), "bright_black"), f"{left:5.1f}s")


def _remark(state: TaskState) -> Text:
    from rich.text import Text

    waits = state.unmet_dependencies or state.unfinished_children
    if waits:
        return Text("← " + " ".join(short(other).removeprefix(short(state.task.id)) for other in waits))
    if state.result is not None and state.result.adopted_generation:
        return Text(f"adopted from {state.result.adopted_generation}", "green")
    if state.refused_results:
        return Text(f"{state.refused_results} refused, kept", "red")
    if state.task.assigned_to:
        return Text(f"for {state.task.assigned_to}", "yellow")
    return Text()
