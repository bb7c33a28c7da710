"""The stage: how the fleet is shown. A live picture in a terminal, plain lines anywhere else."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleet.crew import Condition
from fleet.plan import short
from fleet.words import Line
from genlock import TaskState

_WIDTH = 80
_FIXED_LINES = 6
"""Title, crew, the table's head, two rules, and the line of the cursor."""
_ROWS = 10
_LEAST_TICKER = 4
_BAR = 8
_COLOURS = {"COMPLETED": "green", "IN_PROGRESS": "cyan", "PENDING": "yellow", "BLOCKED": "bright_black", "HELD": "red"}
_MARKS = {Condition.WELL: ("●", "green"), Condition.STOPPED: ("◌", "yellow"), Condition.KILLED: ("✗", "red")}


class Stage:
    """Shows what is told and drawn."""

    def __init__(self, console: Console) -> None:
        self.console = console
        too_small = console.width < _WIDTH or console.height < _FIXED_LINES + _ROWS + _LEAST_TICKER
        self.plain = not console.is_terminal or console.no_color or console.is_dumb_terminal or too_small
        self._began = datetime.now(UTC)
        self._lines: deque[tuple[float, Line]] = deque(maxlen=max(_LEAST_TICKER, min(console.height, 40) - _FIXED_LINES - _ROWS))
        self._frame: RenderableType = ""
        self._live = None if self.plain else Live(console=console, auto_refresh=False)

    def open(self) -> AbstractContextManager[object]:
        """While this lasts the live picture moves."""
        return self._live if self._live is not None else nullcontext()

    def tell(self, line: Line, at: datetime | None = None) -> None:
        """One more line of the ticker."""
        seconds = ((at or datetime.now(UTC)) - self._began).total_seconds()
        self._lines.append((seconds, line))
        if self.plain:
            self.console.print(f"{seconds:6.2f} s  {line.text}", soft_wrap=True, highlight=False)

    def draw(self, states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> None:
        """The picture anew."""
        if self._live is None:
            return
        now = datetime.now(UTC)
        title = Text.assemble(("Genlock", "bold"), f"  a scripted fleet, {(now - self._began).total_seconds():.1f} s")
        rule = Text("─" * _WIDTH, style="bright_black")
        self._frame = Group(title, _crew_line(states, crew), rule, _table(states, now), rule, *self._ticker())
        self._live.update(self._frame, refresh=True)

    def _ticker(self) -> list[Text]:
        lines = [Text.assemble((f"{seconds:6.2f}  ", "bright_black"), (line.text, line.colour)) for seconds, line in self._lines]
        for line in lines:
            line.truncate(_WIDTH, overflow="ellipsis")
        return lines + [Text()] * ((self._lines.maxlen or 0) - len(lines))


def _crew_line(states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> Text:
    """Who is there, and what each believes to be working on."""
    held = {state.claim.agent_id: short(name) for name, state in states.items() if state.claim is not None}
    line = Text()
    for agent, condition in crew.items():
        mark, colour = _MARKS[condition]
        doing = condition if condition is not Condition.WELL else held.get(agent, "waits")
        line.append(f"{mark} {agent} ", colour).append(f"{doing}".ljust(15 - len(agent) - 3), "bright_black")
    return line


def _table(states: Mapping[str, TaskState], now: datetime) -> Table:
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
    claim = state.claim
    if claim is None:
        return Text()
    left = max(0.0, (claim.expires_at - now).total_seconds())
    part = min(1.0, left / claim.lease_seconds)
    full = round(part * _BAR)
    colour = "green" if part > 0.5 else "yellow" if part > 0.2 else "red"
    return Text.assemble(("━" * full, colour), ("─" * (_BAR - full), "bright_black"), f"{left:5.1f}s")


def _remark(state: TaskState) -> Text:
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
