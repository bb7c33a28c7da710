"""Dependencies between tasks: graph, blocking."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from genlock.cli.app import App, verb
from genlock.cli.suggestions import note_missing

if TYPE_CHECKING:
    from genlock.core.graph import Graph

_FORMATS = ["text", "mermaid", "dot", "json"]
_STEPS_AROUND = 2
_STEPS_BLOCKING = 5


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="How to draw it; default: text on a terminal, else json.",
)
@click.option(
    "--track",
    "tracks",
    metavar="T",
    multiple=True,
    help="Only this track; may be given several times.",
)
@click.option("--around", metavar="TASK", help="Only the tasks around this one.")
@click.option(
    "--depth",
    type=int,
    metavar="N",
    help=f"With --around: the number of steps each way; default: {_STEPS_AROUND}.",
)
@verb()
def graph(
    app: App, form: str | None, tracks: tuple[str, ...], around: str | None, depth: int | None
) -> None:
    """Draw the dependencies between tasks."""
    from genlock.cli.answers import Style
    from genlock.cli.render import graph

    if depth is not None and around is None:
        raise click.UsageError("--depth says how far to go from a task: name it with --around")
    found = app.fleet.get_graph(
        tracks=tracks or None, around=around, depth=_STEPS_AROUND if depth is None else depth
    )
    if not found.tasks:
        note_missing(app, tracks)
    style = app.answers.style
    if style is Style.JSON and form in (None, "json"):
        app.answers.give(_value(found), text=lambda console: None)
    elif style is Style.BARE and form is None:
        app.answers.give(None, text=lambda console: None, bare=[task.id for task in found.tasks])
    elif form == "mermaid":
        _write(app, graph.mermaid(found))
    elif form == "dot":
        _write(app, graph.dot(found))
    elif form == "json":
        app.answers.style = Style.JSON
        app.answers.give(_value(found), text=lambda console: None)
    else:
        _draw(app, found)


def _draw(app: App, found: Graph) -> None:
    from genlock.cli.render import graph

    purposes = dict(app.fleet.get_policy().track_titles)
    if not found.tasks:
        app.answers.say(
            f"there are no tasks here; to import a plan, type: {app.command('plan import', 'FILE')}"
        )
    elif sys.stdout.isatty():
        console = app.answers.console()
        graph.print_drawing(console, graph.draw(found, purposes, console.width))
    else:
        _write(app, (line.text for line in graph.draw(found, purposes)))


@click.command()
@click.argument("task")
@click.option(
    "--depth",
    type=int,
    metavar="N",
    default=_STEPS_BLOCKING,
    show_default=True,
    help="The number of steps each way.",
)
@verb()
def blocking(app: App, task: str, depth: int) -> None:
    """Show what a task waits for, and what waits for it.

    Indirectly, too, with the state of each task.
    """
    from genlock.cli.render import graph

    found = app.fleet.get_graph(around=task, depth=depth)
    middle = next(node for node in found.tasks if node.distance == 0)
    before, behind = (graph.reached(found, edges) for edges in graph.edges_around(found))
    app.answers.give(
        {"task": middle, "waits_for": before, "waited_for_by": behind, "cycles": found.cycles},
        text=lambda console: graph.print_drawing(console, graph.draw_around(found, console.width)),
        bare=[node.id for node in before],
    )


def _value(found: Graph) -> dict[str, Any]:
    from genlock.cli.render.graph import edges_of

    return {
        "tasks": found.tasks,
        "edges": edges_of(found),
        "cycles": found.cycles,
        "around": found.around,
    }


def _write(app: App, lines: Iterable[str]) -> None:
    for line in lines:
        app.answers.write_text(f"{line}\n", flush=False)
    app.answers.flush()
