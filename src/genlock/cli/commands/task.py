"""Definitions, one by one: add, edit, next-id."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genlock.cli.app import App, verb
from genlock.cli.inputs import SECONDS
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import AddResult

F = TypeVar("F", bound=Callable[..., Any])


def _definition(function: F) -> F:
    """Adds the options that `add` and `edit` share; each is a field of a task."""
    for option in reversed(
        [
            click.option("--title", metavar="TEXT", help="The title."),
            click.option("--description", metavar="TEXT", help="The work to do."),
            click.option(
                "--priority", metavar="LEVEL", help="critical, high, medium (the default) or low."
            ),
            click.option(
                "--depends-on",
                "-d",
                multiple=True,
                metavar="TASK",
                help="A dependency; may be given several times.",
            ),
            click.option(
                "--tag", "tags", multiple=True, metavar="TEXT", help="May be given several times."
            ),
            click.option(
                "--lease",
                "lease_seconds",
                type=SECONDS,
                metavar="SECONDS",
                help="The lease that `next` asks for.",
            ),
            click.option(
                "--not-before",
                metavar="TIME",
                help="The time before which nobody can claim it: 2026-01-31T09:00:00Z.",
            ),
            click.option("--isolation", metavar="KIND", help="none, worktree or container."),
            click.option(
                "--parallelizable/--not-parallelizable",
                default=None,
                help="Whether it may share a workspace with other tasks.",
            ),
            click.option(
                "--set",
                "assignments",
                multiple=True,
                metavar="FIELD=VALUE",
                help="Any other field; VALUE is JSON or text.",
            ),
        ]
    ):
        function = option(function)
    return function


@click.command()
@click.argument("task", metavar="TASK")
@_definition
@click.option(
    "--track", metavar="TRACK", help="The track, if the id names none; or of the id that is made."
)
@click.option("--parent", metavar="TASK", help="The parent, if the id names none.")
@click.option("--assign", "assigned_to", metavar="AGENT", help="Reserve it for an agent.")
@click.option("--backlog", is_flag=True, help="Do not let `next` offer it until it is reopened.")
@verb()
def add(app: App, task: str, backlog: bool, **options: Any) -> None:
    """Add a task.

    TASK is its id: TRACK-001-description, feature:edge, 0001_t1.1 or a slug. Or it is its title, of
    several words, and the id is made of it: `genlock add "Fix the login" --track A` adds
    A-004-fix-the-login behind A-003. Adding the same task again changes nothing.
    """
    from genlock.core.plan import note_task

    fields = {"id": task, **_fields(options), **({"state": "backlog"} if backlog else {})}
    if len(task.split()) > 1:
        fields = _with_made_id(app, task, fields)
    result = app.fleet.add_tasks(tasks=[fields])[0]
    for note in note_task(fields):
        app.answers.say(f"{note}")
    _give(app, result, "added", "is there already, as defined")


@click.command()
@click.argument("task")
@_definition
@click.option("--no-depends-on", is_flag=True, help="Remove all its dependencies.")
@verb()
def edit(app: App, task: str, no_depends_on: bool, **options: Any) -> None:
    """Change a task's definition.

    Each option replaces a field. --depends-on replaces all dependencies. Claims stay as they are.
    """
    changes = _fields(options)
    if no_depends_on and "depends_on" in changes:
        raise BadArgument("--depends-on and --no-depends-on exclude each other")
    if no_depends_on:
        changes["depends_on"] = []
    if not changes:
        raise BadArgument(
            "nothing to change; name what is to be another: "
            f"{app.command('edit', task, '--title', 'TEXT')}"
        )
    result = app.fleet.edit_task(task_id=task, changes=changes)
    _give(app, result, f"changed {', '.join(result.changed)}", "is so already")


@click.command()
@click.option("--under", "parent", metavar="TASK", help="The parent: the new id is below its id.")
@click.option("--count", type=int, default=1, metavar="N", help="The number of ids, at most 1000.")
@verb()
def next_id(app: App, parent: str | None, count: int) -> None:
    """Take the next free id.

    Nobody else gets this id, and an id that is not used is lost. After a restore or a failover the
    counter skips 1,000 numbers once, because the store may have lost ids that it gave out.
    """
    found = app.fleet.next_id(parent=parent, count=count)
    ids = [found] if isinstance(found, str) else list(found)

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(console, *ids)

    app.answers.give({"ids": ids}, text=text, bare=ids)


def _with_made_id(app: App, title: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Returns the definition of a task given by title, with a generated id. In a track it gets the
    number after the last; an existing task with this title keeps its id."""
    from genlock.core.ids import LONGEST_DESCRIPTION, parse_task_id
    from genlock.core.names import check_track

    if "title" in fields:
        raise BadArgument(
            f"two titles are given, {title!r} and {fields['title']!r}: TASK is the id where "
            "--title is given"
        )
    words = "-".join(_WORDS.findall(title.lower()))
    if not words:
        raise BadArgument(f"no id can be made of {title!r}: give an id, and the title by --title")
    words = words[:LONGEST_DESCRIPTION].rstrip("-")
    track = check_track(fields.pop("track")) if "track" in fields else None
    tasks = app.fleet.get_graph(tracks=track).tasks
    same = next((task.id for task in tasks if task.title == title and task.track == track), None)
    if same is None and track is not None:
        numbers = (parse_task_id(task.id).sequence or 0 for task in tasks if task.track == track)
        last = max(numbers, default=0)
        same = f"{track}-{last + 1:03d}-{words}"
    elif same is None:
        taken = {task.id for task in tasks}
        same = next(
            name for n in count(1) if (name := words if n == 1 else f"{words}-{n}") not in taken
        )
    return fields | {"id": same, "title": title}


_WORDS = re.compile(r"[a-z0-9]+")


def _fields(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the given fields, by their names in a definition."""
    from genlock.cli.inputs import read_assignment

    assignments = options.pop("assignments")
    fields = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, ())
    }
    for assignment in assignments:
        name, value = read_assignment(assignment, "--set", "FIELD=VALUE")
        if name in fields:
            raise BadArgument(f"{name} is given twice")
        fields[name] = value
    return fields


def _give(app: App, result: AddResult, done: str, unchanged: str) -> None:
    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines

        print_lines(
            console,
            f"{result.task_id}: {done if result.verdict.value == 'DONE' else unchanged}; it is "
            f"{result.state}",
        )

    app.answers.give(result, text=text, bare=[result.task_id])
