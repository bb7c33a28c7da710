"""Graphs as text, for Mermaid and for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from genlock.cli.render.tables import Column, count, print_lines, print_table
from genlock.core.graph import Graph, GraphTask, by_track, lay_out, short_names, tree
from genlock.core.reasons import Status
from genlock.safe_text import safe_line

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.cli.app import CommandLine


MARKS: Final[dict[Status, tuple[str, str, str]]] = {
    Status.BACKLOG: ("…", "dim", "#eeeeee"),
    Status.PENDING: ("○", "cyan", "#cfe8ff"),
    Status.BLOCKED: ("·", "", "#ffffff"),
    Status.IN_PROGRESS: ("▶", "yellow", "#fff2b3"),
    Status.IN_REVIEW: ("?", "magenta", "#ead1ff"),
    Status.COMPLETED: ("✓", "green", "#c8f0c8"),
    Status.CANCELLED: ("✗", "dim", "#dddddd"),
    Status.HELD: ("!", "red", "#ffc9c9"),
}
"""For each state: its mark, its colour on a terminal, its colour in a picture."""

WIDTH: Final = 80
_LEAST_ID = 12
_GAP = "  "


class Line(NamedTuple):
    """A line of a drawing, with one style."""

    text: str
    style: str = ""


def draw(graph: Graph, purposes: Mapping[str, str], width: int = WIDTH) -> Iterator[Line]:
    """Draws the graph by track, each task below its dependencies."""
    short = short_names(graph.tasks)
    for number, (track, tasks) in enumerate(by_track(graph.tasks).items()):
        if number:
            yield Line("")
        done = sum(task.state is Status.COMPLETED for task in tasks)
        purpose = f" · {purposes[track]}" if purposes.get(track) else ""
        yield Line(
            _cut(f"{track or 'no track'}{purpose} ({done} of {len(tasks)} done)", width), "bold"
        )
        deepest = max(1, (width // 3 - 4) // 2)
        rows = lay_out(tasks, deepest)
        left = min(
            max(len(row.branch) + len(row.task.id) for row in rows) + 4,
            max(width * 3 // 5, _LEAST_ID),
        )
        for row in rows:
            yield Line(
                _row(
                    row.branch,
                    row.task,
                    [short.get(name, name) for name in row.others],
                    left,
                    width,
                ),
                MARKS[row.task.state][1],
            )
    for cycle in graph.cycles:
        yield Line(_cut(f"these wait for each other: {' → '.join(cycle)}", width), "red")


def draw_around(graph: Graph, width: int = WIDTH) -> Iterator[Line]:
    """Draws the dependencies and dependents of the task in the middle."""
    assert graph.around is not None
    nodes = {task.id: task for task in graph.tasks}
    middle = nodes[graph.around]
    yield Line(_row("", middle, [], len(middle.id) + 4, width), "bold")
    before, behind = edges_around(graph)
    for title, edges in (("waits for", before), ("is waited for by", behind)):
        lines = list(tree(graph.around, edges))
        yield Line(f"{title}:" if lines else f"{title}: nothing")
        left = min(
            max((len(branch) + len(name) for branch, name, _ in lines), default=0) + 4,
            max(width * 3 // 5, _LEAST_ID),
        )
        for branch, name, again in lines:
            task = nodes.get(name)
            if task is None:
                yield Line(_cut(f"  {branch}  {name}", width), "dim")
            else:
                yield Line(
                    _row(branch, task, [], left, width, again=again),
                    "dim" if again else MARKS[task.state][1],
                )


def edges_around(graph: Graph) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Returns the edges from each task to its dependencies, and from each to its dependents,
    leading away from the middle."""
    nodes = {task.id: task for task in graph.tasks}
    before: dict[str, list[str]] = {}
    behind: dict[str, list[str]] = {}
    for task in graph.tasks:
        for other in dict.fromkeys((*task.depends_on, *task.children)):
            if other in nodes and task.distance <= 0:
                before.setdefault(task.id, []).append(other)
            if other in nodes and nodes[other].distance >= 0:
                behind.setdefault(other, []).append(task.id)
    return before, behind


def reached(graph: Graph, edges: Mapping[str, Sequence[str]]) -> list[GraphTask]:
    """Returns the tasks reached by these edges from the middle, the nearest first. In a cycle a
    task may be reached both ways."""
    assert graph.around is not None
    names = {name for _, name, _ in tree(graph.around, edges)} - {graph.around}
    return sorted(
        (task for task in graph.tasks if task.id in names), key=lambda task: abs(task.distance)
    )


def print_drawing(console: Console, lines: Iterator[Line]) -> None:
    """Prints a drawing on a terminal."""
    from rich.text import Text

    for line in lines:
        console.print(Text(line.text, style=line.style, no_wrap=True, overflow="crop"))


def print_plan(
    console: Console,
    tracks: Mapping[str, Sequence[GraphTask]],
    purposes: Mapping[str, str],
    command: CommandLine,
) -> None:
    """Prints the plan as tables, one per track."""
    if not tracks:
        print_lines(
            console, f"there are no tasks; to import a plan, type: {command('plan import', 'FILE')}"
        )
    short = short_names(task for tasks in tracks.values() for task in tasks)
    for number, (track, tasks) in enumerate(tracks.items()):
        done = sum(task.state is Status.COMPLETED for task in tasks)
        purpose = f" · {purposes[track]}" if purposes.get(track) else ""
        print_lines(
            console,
            *([""] if number else []),
            f"{track or 'no track'}{purpose} ({done} of {count(len(tasks), 'task')} done)",
            style="bold",
        )
        columns = [
            Column("task", least=16),
            Column("state", 3, least=11),
            Column("title", 2, least=12),
            Column("depends on", 1, least=8),
        ]
        rows = [
            (
                task.id,
                state_text(task),
                task.title,
                ", ".join(short.get(name, name) for name in task.depends_on),
            )
            for task in tasks
        ]
        print_table(console, columns, rows)


def state_text(task: GraphTask) -> str:
    """Describes a task's state, with its holder."""
    words = task.state.value.replace("_", " ").lower()
    return f"{words}, {task.agent}" if task.agent else words


def mermaid(graph: Graph) -> Iterator[str]:
    """Yields the lines of a Mermaid flowchart."""
    yield "flowchart LR"
    names = {task.id: f"t{number}" for number, task in enumerate(graph.tasks)}
    for number, (track, tasks) in enumerate(by_track(graph.tasks).items()):
        if track:
            yield f'  subgraph track{number}["{_entities(track)}"]'
        for task in tasks:
            name = _entities(task.id, ":")
            label = f"{name}<br/>{_entities(task.title)}" if task.title else name
            yield f'    {names[task.id]}["{label}"]:::{task.state.value.lower()}'
        if track:
            yield "  end"
    for task in graph.tasks:
        yield from (
            f"  {names[other]} --> {names[task.id]}" for other in task.depends_on if other in names
        )
        yield from (
            f"  {names[other]} -.-> {names[task.id]}" for other in task.children if other in names
        )
    for state in sorted({task.state for task in graph.tasks}):
        yield (
            f"  classDef {state.value.lower()} fill:{MARKS[state][2]},stroke:#555555,color:#111111"
        )


def dot(graph: Graph) -> Iterator[str]:
    """Yields the lines of a Graphviz digraph."""
    yield "digraph plan {"
    yield "  rankdir=LR;"
    yield '  node [shape=box, style="rounded,filled", fontname="Helvetica", fillcolor="#ffffff"];'
    names = {task.id for task in graph.tasks}
    for number, (track, tasks) in enumerate(by_track(graph.tasks).items()):
        if track:
            yield f"  subgraph cluster_{number} {{"
            yield f"    label={_quoted(track)};"
        for task in tasks:
            label = f"{task.id}\n{task.title}" if task.title else task.id
            yield (
                f"    {_quoted(task.id)} [label={_quoted(label)}, "
                f'fillcolor="{MARKS[task.state][2]}"];'
            )
        if track:
            yield "  }"
    for task in graph.tasks:
        yield from (
            f"  {_quoted(other)} -> {_quoted(task.id)};"
            for other in task.depends_on
            if other in names
        )
        yield from (
            f"  {_quoted(other)} -> {_quoted(task.id)} [style=dashed];"
            for other in task.children
            if other in names
        )
    yield "}"


def edges_of(graph: Graph) -> list[dict[str, str]]:
    """Returns every edge, from a dependency to its dependent."""
    return [
        {"from": other, "to": task.id, "kind": kind}
        for task in graph.tasks
        for kind, others in (("dependency", task.depends_on), ("child", task.children))
        for other in others
    ]


def _row(
    branch: str,
    task: GraphTask,
    others: Sequence[str],
    left: int,
    width: int,
    *,
    again: bool = False,
) -> str:
    lead = f"  {branch}{MARKS[task.state][0]} "
    name = _cut(task.id, max(left - len(lead), _LEAST_ID))
    text = (lead + name).ljust(left) + _GAP + ("as above" if again else state_text(task))
    if others:
        text += f"{_GAP}← {', '.join(others)}"
    return _cut(text, width)


def _cut(text: str, width: int) -> str:
    text = safe_line(text) if not text.isprintable() else text
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _entities(text: str, more: str = "") -> str:
    """Escapes text within quotes in Mermaid: special characters become numeric entities."""
    plain = f" -_.,/{more}"
    return "".join(
        char if char.isalnum() or char in plain else f"#{ord(char)};" if char.isprintable() else " "
        for char in text
    )


def _quoted(text: str) -> str:
    """Quotes a string for Graphviz, where a backslash would begin an escape, even in a label."""
    plain = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
