"""The display of the demo: events as lines, a live picture if the terminal has room for it, and the
report at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from genlock.cli.sample_fleet.crew import Condition
from genlock.cli.sample_fleet.plan import short
from genlock.core.results import ClaimHistory, FeedEvent, Lineage, TaskState

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from genlock.cli.sample_fleet.demo import Finding, Outcome
    from genlock.cli.sample_fleet.isolation import IsolationOutcome

CALM, GOOD, WARNING, BAD = "white", "green", "yellow", "red"


class Line(NamedTuple):
    """One line of the ticker."""

    text: str
    colour: str = CALM


def ticker_line(happened: FeedEvent) -> Line | None:
    """Returns the line that explains an event to a person who watches; None for other events."""
    tell = _WORDS.get(happened.event_type)
    return tell(happened.event) if tell is not None else None


def when(event: Mapping[str, Any], field: str = "timestamp") -> datetime:
    """Returns a time in an event."""
    return datetime.fromisoformat(event[field])


def _claimed(event: Mapping[str, Any]) -> Line | None:
    agent, task, generation = event["agent_id"], short(event["task_id"]), event["generation"]
    if agent == "genlock" or event["lease_duration_seconds"] == 0:
        return None  # a fan-in or an adoption: the acceptance that follows is shown
    if generation == 1:
        return Line(f"{agent} claims {task} at generation 1")
    return Line(f"{agent} takes over {task} at generation {generation}", WARNING)


def _expired(event: Mapping[str, Any]) -> Line:
    return Line(
        f"the lease of {event['holder_agent_id']} on {short(event['task_id'])} has run out", WARNING
    )


def _orphaned(event: Mapping[str, Any]) -> Line:
    early = ""
    if event["expires_at"] is not None:
        left = (when(event, "expires_at") - when(event)).total_seconds()
        early = f", {left:.0f} s before its lease ends"
    return Line(
        f"{event['holder_agent_id']} is found gone: {short(event['task_id'])} is free{early}",
        WARNING,
    )


def _assigned(event: Mapping[str, Any]) -> Line:
    return Line(
        f"{event['agent_id']} reserves {short(event['task_id'])} for {event['assigned_to']}: who "
        "holds it is fenced off",
        WARNING,
    )


def _accepted(event: Mapping[str, Any]) -> Line:
    agent, task, generation = event["agent_id"], short(event["task_id"]), event["generation"]
    if event.get("author_agent_id"):
        return _approved(event)
    if event.get("fan_in"):
        return Line(f"all subtasks are done: {task} completes, at generation {generation}", GOOD)
    if event.get("adopted_generation"):
        text = (
            f"{agent} adopts the refused result of generation {event['adopted_generation']}: "
            f"{task} is done"
        )
        return Line(text, GOOD)
    return Line(f"{agent} completes {task} at generation {generation}", GOOD)


def _approved(event: Mapping[str, Any]) -> Line:
    task, generation = short(event["task_id"]), event["generation"]
    text = f"{event['agent_id']} approves {task}, by {event['author_agent_id']} at generation"
    return Line(f"{text} {generation}: it is done", GOOD)


def _escalated(event: Mapping[str, Any]) -> Line:
    agent, task = event["agent_id"], short(event["task_id"])
    return Line(f"{agent} submits {task}: CONVERGENCE_ESCALATED, a person must look", WARNING)


def _rejected(event: Mapping[str, Any]) -> Line:
    generations = f"{event['submitted_generation']} < {event['current_generation']}"
    reason = event["rejection_reason"]
    return Line(
        f"{event['agent_id']} submits {short(event['task_id'])}: {reason} ({generations}), result "
        "kept",
        BAD,
    )


def _spawned(event: Mapping[str, Any]) -> Line:
    return Line(
        f"{event['agent_id']} splits {short(event['task_id'])} into {len(event['children'])} "
        f"subtasks ({event['mode']})"
    )


def _met(event: Mapping[str, Any]) -> Line:
    return Line(
        f"{short(event['task_id'])} no longer waits for {', '.join(map(short, event['others']))}"
    )


_WORDS = {
    "CLAIM_ACQUIRED": _claimed,
    "CLAIM_EXPIRED": _expired,
    "CLAIM_ORPHANED": _orphaned,
    "TASK_ASSIGNED": _assigned,
    "RESULT_ACCEPTED": _accepted,
    "RESULT_REJECTED": _rejected,
    "CONVERGENCE_ESCALATED": _escalated,
    "SUBTASKS_SPAWNED": _spawned,
    "DEPENDENCY_MET": _met,
}


# The picture

_WIDTH = 80
_FIXED_LINES = 6
"""Title, crew, the table's head, two rules, and the line of the cursor."""
_ROWS = 10
_LEAST_TICKER = 4
_BAR = 8
_COLOURS = {
    "COMPLETED": "green",
    "IN_PROGRESS": "cyan",
    "PENDING": "yellow",
    "BLOCKED": "bright_black",
    "HELD": "red",
    "IN_REVIEW": "magenta",
}
_MARKS = {
    Condition.WELL: ("●", "green"),
    Condition.STOPPED: ("◌", "yellow"),
    Condition.KILLED: ("✗", "red"),
}


class Stage(Protocol):
    """The display of a fleet."""

    def open(self) -> AbstractContextManager[object]:
        """Shows the fleet while the context lasts."""

    def tell(self, line: Line, at: datetime | None = None) -> None:
        """Something has happened."""

    def draw(self, states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> None:
        """Shows the current states."""


class Lines:
    """Plain lines, one for each event."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = datetime.now(UTC)

    def open(self) -> AbstractContextManager[object]:
        return nullcontext()

    def tell(self, line: Line, at: datetime | None = None) -> None:
        """One more line."""
        self._say(
            f"{((at or datetime.now(UTC)) - self._began).total_seconds():6.2f} s  {line.text}"
        )

    def draw(self, states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> None:
        """Does nothing: there is no picture."""


def fits(console: Console) -> bool:
    """Is there room for the picture?"""
    return (
        not console.is_dumb_terminal
        and console.width >= _WIDTH
        and console.height >= _FIXED_LINES + _ROWS + _LEAST_TICKER
    )


class Picture:
    """The live picture: crew, tasks, and the events below them."""

    def __init__(self, console: Console, title: str) -> None:
        from rich.live import Live

        self._title = title
        self._began = datetime.now(UTC)
        self._lines: deque[tuple[float, Line]] = deque(
            maxlen=min(console.height, 40) - _FIXED_LINES - _ROWS
        )
        self._live = Live(console=console, auto_refresh=False)

    def open(self) -> AbstractContextManager[object]:
        """Keeps the picture moving while the context lasts."""
        return self._live

    def tell(self, line: Line, at: datetime | None = None) -> None:
        """Adds a line to the ticker."""
        self._lines.append((((at or datetime.now(UTC)) - self._began).total_seconds(), line))

    def draw(self, states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> None:
        """Draw the picture again."""
        from rich.console import Group
        from rich.text import Text

        now = datetime.now(UTC)
        title = Text.assemble(
            ("Genlock", "bold"),
            f"  {self._title}, {(now - self._began).total_seconds():.1f} s",
        )
        rule = Text("─" * _WIDTH, style="bright_black")
        self._live.update(
            Group(
                title, _crew_line(states, crew), rule, _table(states, now), rule, *self._ticker()
            ),
            refresh=True,
        )

    def _ticker(self) -> list[Text]:
        from rich.text import Text

        lines = [
            Text.assemble((f"{seconds:6.2f}  ", "bright_black"), (line.text, line.colour))
            for seconds, line in self._lines
        ]
        for line in lines:
            line.truncate(_WIDTH, overflow="ellipsis")
        return lines + [Text()] * ((self._lines.maxlen or 0) - len(lines))


def _crew_line(states: Mapping[str, TaskState], crew: Mapping[str, Condition]) -> Text:
    """Returns the agents, with the task that each believes it holds."""
    from rich.text import Text

    held = {
        state.claim.agent_id: short(name)
        for name, state in states.items()
        if state.claim is not None
    }
    line = Text()
    for agent, condition in crew.items():
        mark, colour = _MARKS[condition]
        doing = condition if condition is not Condition.WELL else held.get(agent, "waits")
        line.append(f"{mark} {agent} ", colour).append(
            f"{doing}".ljust(15 - len(agent) - 3), "bright_black"
        )
    return line


def _table(states: Mapping[str, TaskState], now: datetime) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bright_black", width=_WIDTH
    )
    for column, width in (
        ("task", 20),
        ("state", 11),
        ("gen", 3),
        ("holder", 6),
        ("lease", _BAR + 6),
        ("", 16),
    ):
        table.add_column(
            column, width=width, no_wrap=True, justify="right" if column == "gen" else "left"
        )
    for name, state in states.items():
        colour = _COLOURS.get(state.state, "white")
        holder = state.claim.agent_id if state.claim else ""
        generation = str(state.generation or "")
        style = "bright_black" if state.state == "BLOCKED" else ""
        table.add_row(
            name,
            Text(state.state, colour),
            generation,
            holder,
            _lease(state, now),
            _remark(state),
            style=style,
        )
    for _ in range(_ROWS - len(states)):
        table.add_row("")
    return table


def _lease(state: TaskState, now: datetime) -> Text:
    """Returns the rest of the holder's lease, as a bar and in seconds."""
    from rich.text import Text

    claim = state.claim
    if claim is None:
        return Text()
    if claim.expires_at is None:
        from genlock.core.model import NO_LEASE

        return Text(NO_LEASE, "bright_black")
    left = max(0.0, (claim.expires_at - now).total_seconds())
    part = min(1.0, left / claim.lease_seconds)
    full = round(part * _BAR)
    colour = "green" if part > 0.5 else "yellow" if part > 0.2 else "red"
    return Text.assemble(
        ("━" * full, colour), ("─" * (_BAR - full), "bright_black"), f"{left:5.1f}s"
    )


def _remark(state: TaskState) -> Text:
    from rich.text import Text

    waits = state.unmet_dependencies or state.unfinished_children
    if waits:
        return Text(
            "← " + " ".join(short(other).removeprefix(short(state.task.id)) for other in waits)
        )
    if state.review is not None:
        return Text("needs a person", "magenta")
    if state.result is not None and state.result.adopted_generation:
        return Text(f"adopted from {state.result.adopted_generation}", "green")
    if state.refused_results:
        return Text(f"{state.refused_results} refused, kept", "red")
    if state.task.assigned_to:
        return Text(f"for {state.task.assigned_to}", "yellow")
    return Text()


# The report


def show(console: Console, outcome: Outcome) -> None:
    """Prints the report of the demo."""
    for found in outcome.lineages:
        console.print(_lineage(found))
    console.print(_verdict(outcome.invariants))
    if outcome.store is not None:
        console.print(
            f"The store is kept. To look at it, type: genlock events --url {outcome.store}",
            soft_wrap=True,
        )


def show_isolation(console: Console, outcome: IsolationOutcome) -> None:
    """Prints the report of the scene with the repository."""
    from rich.text import Text

    for found in outcome.lineages:
        console.print(_lineage(found))
    console.print(Text("main of the shared repository, the newest first:", style="bold"))
    for line in outcome.main:
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print()
    console.print(_verdict(outcome.invariants))
    if outcome.store is not None:
        console.print(f"All of it is kept in {outcome.store}", soft_wrap=True)


def _lineage(found: Lineage) -> RenderableType:
    """Returns the generations of a task, and below them its refused results."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD,
        title=f"Lineage of {found.task_id}",
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for column in ("Generation", "Session", "Agent", "User", "Acquired", "Released", "Result"):
        table.add_column(column, no_wrap=True)
    for entry in found.generations:
        acquired, released = (
            _clock(entry.acquired_at),
            _clock(entry.released_at) if entry.released_at else "",
        )
        table.add_row(
            str(entry.generation),
            entry.session_id,
            entry.agent_id,
            entry.user_id,
            acquired,
            released,
            _outcome(entry),
        )
    lines = [Text("Rejected submissions:")] if found.refused else []
    for number, refused in enumerate(found.refused, start=1):
        branch = "└─" if number == len(found.refused) else "├─"
        now_at = found.generations[-1].generation
        who = f"{refused.session_id}/{refused.agent_id} submitted at {_clock(refused.submitted_at)}"
        lines.append(
            Text(
                f"{branch} {who} → REJECTED (gen {refused.generation} < current {now_at}), "
                f"{refused.state}"
            )
        )
    return Group(table, *lines, Text())


def _outcome(entry: ClaimHistory) -> str:
    if entry.result_accepted:
        return "ACCEPTED"
    return entry.release_reason or "HELD"


def _clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}.{instant.microsecond // 100_000}"


def _verdict(findings: Iterable[Finding]) -> RenderableType:
    """Returns one line for each guarantee, and below it the violations."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text("Checked against every event that was written:", style="bold")]
    for finding in findings:
        lines.append(
            Text.assemble(
                ("  no   ", "bold red") if finding.faults else ("  held ", "green"), finding.promise
            )
        )
        lines += [Text(f"         {fault}", style="red") for fault in finding.faults]
    return Group(*lines)
