"""Definitions, one by one: add, edit, next-id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genlock.cli.app import App, verb
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import AddResult

F = TypeVar("F", bound=Callable[..., Any])


def _definition(function: F) -> F:
    """The options that `add` and `edit` share; each is a field of a task."""
    for option in reversed(
        [
            click.option("--title", metavar="TEXT", help="What it is called."),
            click.option("--description", metavar="TEXT", help="What is to be done."),
            click.option("--priority", metavar="LEVEL", help="critical, high, medium (the default) or low."),
            click.option("--depends-on", "-d", multiple=True, metavar="TASK", help="It waits for this; may be given several times."),
            click.option("--tag", "tags", multiple=True, metavar="TEXT", help="May be given several times."),
            click.option("--lease", "lease_seconds", type=float, metavar="SECONDS", help="The lease that `next` asks for."),
            click.option("--not-before", metavar="TIME", help="It opens then: 2026-01-31T09:00:00Z."),
            click.option("--isolation", metavar="KIND", help="none, worktree or container."),
            click.option("--parallelizable/--not-parallelizable", default=None, help="May run beside others in one workspace?"),
            click.option("--set", "assignments", multiple=True, metavar="FIELD=VALUE", help="Any other field; VALUE is JSON or a text."),
        ]
    ):
        function = option(function)
    return function


@click.command()
@click.argument("task")
@_definition
@click.option("--track", metavar="TRACK", help="Where the id names none.")
@click.option("--parent", metavar="TASK", help="The task that waits for this one, where the id names none.")
@click.option("--assign", "assigned_to", metavar="AGENT", help="Reserve it for an agent.")
@click.option("--backlog", is_flag=True, help="`next` does not offer it until it is reopened.")
@verb()
def add(app: App, task: str, backlog: bool, **options: Any) -> None:
    """Add a task.

    Its id is TRACK-001-description, feature:edge, 0001_t1.1 or a slug. Adding the same task again changes nothing.
    """
    from genlock.core.plan import note_task

    fields = {"id": task, **_fields(options), **({"state": "backlog"} if backlog else {})}
    result = app.fleet.add_tasks(tasks=[fields])[0]
    for note in note_task(fields):
        app.answers.say(f"{note}")
    _give(app, result, "added", "is there already, as defined")


@click.command()
@click.argument("task")
@_definition
@click.option("--no-depends-on", is_flag=True, help="It waits for nothing.")
@verb()
def edit(app: App, task: str, no_depends_on: bool, **options: Any) -> None:
    """Change a task's definition.

    What is named is replaced: --depends-on gives all its dependencies anew. Claims stay as they are.
    """
    changes = _fields(options)
    if no_depends_on and "depends_on" in changes:
        raise BadArgument("--depends-on and --no-depends-on exclude each other")
    if no_depends_on:
        changes["depends_on"] = []
    if not changes:
        raise BadArgument(f"nothing to change; name what is to be another: {app.command('edit', task, '--title', 'TEXT')}")
    result = app.fleet.edit_task(task_id=task, changes=changes)
    _give(app, result, f"changed {', '.join(result.changed)}", "is so already")


@click.command()
@click.option("--under", "parent", metavar="TASK", help="An id below this task's.")
@click.option("--count", type=int, default=1, metavar="N", help="So many ids, at most 1000.")
@verb()
def next_id(app: App, parent: str | None, count: int) -> None:
    """Take the next free id.

    Nobody else is given it; what is taken and not used is lost.
    """
    found = app.fleet.next_id(parent=parent, count=count)
    ids = [found] if isinstance(found, str) else list(found)

    def text(console: Console) -> None:
        from genlock.cli.tables import print_lines

        print_lines(console, *ids)

    app.answers.give({"ids": ids}, text=text, bare=ids)


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """The fields that were given, by their names in a definition."""
    from genlock.cli.inputs import read_assignment

    assignments = options.pop("assignments")
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items() if value not in (None, ())}
    for assignment in assignments:
        name, value = read_assignment(assignment, "--set", "FIELD=VALUE")
        if name in fields:
            raise BadArgument(f"{name} is given twice")
        fields[name] = value
    return fields


def _give(app: App, result: AddResult, done: str, unchanged: str) -> None:
    def text(console: Console) -> None:
        from genlock.cli.tables import print_lines

        print_lines(console, f"{result.task_id}: {done if result.verdict.value == 'DONE' else unchanged}; it is {result.state}")

    app.answers.give(result, text=text, bare=[result.task_id])
