"""Plans: check, import, compare, show, export."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb
from genlock.cli.render.text import tell
from genlock.cli.suggestions import note_missing

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import PlanResult
    from genlock.errors import PlanInvalid
    from genlock.plans import PlanFile, Source
    from genlock.plans.importers import LeftOut

_INTERRUPTED = 130
_TOOLS = ["gptodo", "sc", "beads", "taskmaster", "backlog", "claude"]
"""The names in `genlock.plans.importers.FORMATS`, which is imported only when needed."""
_MOST_LISTED = 20


@click.group()
def plan() -> None:
    """Check, import, compare, show and export plans.

    A plan is YAML (project, tracks, tasks) or JSON lines (one task per line). Several files make
    one plan; - is stdin.
    """


def _files(function: Callable[..., None]) -> Callable[..., None]:
    return click.argument("files", nargs=-1, required=True, metavar="FILE…")(function)


@plan.command()
@_files
@verb()
def check(app: App, files: tuple[str, ...]) -> None:
    """Report the faults of a plan, and their places.

    With a store, dependencies may also name its tasks. Nothing is written.
    """
    from genlock.errors import StoreMissing
    from genlock.plans import check_plan_alone

    read = _read(files)
    with _faults_shown(app):
        try:
            found = app.fleet.check_plan(source=read)
        except StoreMissing:
            found = check_plan_alone(read)
    _say_notes(app, found.notes)
    tracks = sorted({task.track for task, *_ in found.tasks if task.track is not None})
    edges = sum(len(task.depends_on) for task, *_ in found.tasks)
    words = (
        f"{_count(len(found.tasks), 'task')} in {_count(len(tracks), 'track')}, "
        f"{_count(edges, 'dependency', 'dependencies')}; no fault"
    )
    app.answers.give(
        {
            "files": [file.name for file in read],
            "tasks": len(found.tasks),
            "tracks": tracks,
            "dependencies": edges,
            "notes": found.notes,
        },
        text=lambda console: console.print(words),
        bare=[len(found.tasks)],
    )


@plan.command(name="import")
@_files
@click.option(
    "--from",
    "tool",
    type=click.Choice(_TOOLS),
    help="Read the files or folders of another tool; sc is a tasks.json with claims.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--prune",
    is_flag=True,
    help="Cancel every unfinished task of the project that the plan lacks; lists them, and asks.",
)
@click.option("--yes", is_flag=True, help="With --prune: do not ask.")
@verb()
def import_(
    app: App, files: tuple[str, ...], tool: str | None, dry_run: bool, prune: bool, yes: bool
) -> None:
    """Import a plan into the project.

    Adds new tasks and changes those that differ. Tasks that the plan lacks stay unless --prune is
    given. Nothing is written if the plan has a fault, or names a different project. To finish an
    import that was cut off, import again.
    """
    from genlock.cli.render.progress import bar

    written = [0, 0]
    typed = [*_flags(tool, prune, yes), *files]
    try:
        read: Source
        left_out: Sequence[LeftOut] | None = None
        if tool is None:
            read = _read(files)
        else:
            read, left_out = _read_foreign(tool, files)
        if dry_run:
            _show_difference(app, read, prune, left_out)
            app.answers.say(
                f"nothing was written; to import, type: {app.command('plan import', *typed)}"
            )
            return
        if prune and not yes:
            _confirm(app, [*_flags(tool, prune, True), *files], read)
        with _faults_shown(app), bar(app.answers, "importing") as advance:

            def progress(done: int, total: int) -> None:
                written[:] = done, total
                advance(done, total)

            result = app.fleet.import_plan(source=read, prune=prune, progress=progress)
    except KeyboardInterrupt:
        _broken_off(app, typed, *written)
    _give(app, result, left_out)
    if result.prunable and not prune:
        again = app.command("plan import", *_flags(tool, True, False), *files)
        left = _count(len(result.prunable), "unfinished task")
        app.answers.say(
            f"{left} not in the plan, and left as before; to cancel what is gone, type: {again}"
        )
    if prune and (left_alone := [name for name in result.prunable if name not in result.cancelled]):
        by_force = app.command("cancel", left_alone[0], "--force")
        app.answers.say(
            f"{_count(len(left_alone), 'task')} not cancelled, held by a worker or finished "
            f"meanwhile: {', '.join(left_alone[:5])}; "
            f"to cancel one that is held, type: {by_force}"
        )
    if result.still_cancelled:
        again = app.command("reset", result.still_cancelled[0])
        app.answers.say(
            f"{_count(len(result.still_cancelled), 'task')} in the plan but cancelled before; to "
            f"have one done, type: {again}"
        )


@plan.command()
@_files
@click.option("--prune", is_flag=True, help="Also say what importing with --prune would cancel.")
@verb()
def diff(app: App, files: tuple[str, ...], prune: bool) -> None:
    """Show what an import would change, and change nothing."""
    _show_difference(app, _read(files), prune)


@plan.command()
@click.option("--track", metavar="T", help="Only this track.")
@verb()
def show(app: App, track: str | None) -> None:
    """Show the plan, by track."""
    from genlock.cli.render.graph import print_plan
    from genlock.core.graph import by_track

    graph = app.fleet.get_graph(tracks=track)
    if not graph.tasks:
        note_missing(app, (track,) if track else ())
    purposes = dict(app.fleet.get_policy().track_titles)
    grouped = by_track(graph.tasks)
    value = [
        {"track": name or None, "purpose": purposes.get(name, ""), "tasks": tasks}
        for name, tasks in grouped.items()
    ]
    app.answers.give(
        {"project": app.setting("project"), "tracks": value},
        text=lambda console: print_plan(console, grouped, purposes, app.command),
        bare=[task.id for task in graph.tasks],
    )


@plan.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["yaml", "jsonl"]),
    default="yaml",
    show_default=True,
    help="The format.",
)
@verb()
def export(app: App, form: str) -> None:
    """Export the plan, to import it elsewhere.

    Cancelled tasks, and dependencies on them, are left out.
    """
    from genlock.plans import write_lines, write_yaml

    found = app.fleet.get_plan()
    # The answer is the text itself, on a terminal and elsewhere.
    for line in (write_yaml if form == "yaml" else write_lines)(found):
        app.answers.write_text(f"{line}\n", flush=False)
    app.answers.flush()


def _flags(tool: str | None, prune: bool, yes: bool) -> list[str]:
    """Returns the options of an import as typed."""
    given = ["--from", tool] if tool is not None else []
    return given + ["--prune"] * prune + ["--yes"] * yes


def _show_difference(
    app: App, source: Source, prune: bool, left_out: Sequence[LeftOut] | None = None
) -> None:
    with _faults_shown(app):
        result = app.fleet.diff_plan(source=source, prune=prune)
    _give(app, result, left_out)


def _read_foreign(tool: str, names: Sequence[str]) -> tuple[Source, Sequence[LeftOut]]:
    """Converts another tool's tasks into a plan. Returns it with everything that could not be
    converted."""
    from datetime import UTC, datetime
    from pathlib import Path

    from genlock.plans.importers import convert

    found = convert(tool, [Path(name) for name in names], datetime.now(UTC))
    return found.plan, found.left_out


def _read(names: Sequence[str]) -> list[PlanFile]:
    """Reads the files."""
    from genlock.errors import BadArgument
    from genlock.plans import PlanFile

    files = []
    for name in names:
        try:
            if name == "-":
                files.append(PlanFile("<stdin>", sys.stdin.buffer.read()))
            else:
                with open(name, "rb") as file:
                    files.append(PlanFile(name, file.read()))
        except OSError as error:
            raise BadArgument(f"{name!r} cannot be read: {error.strerror}") from None
    return files


@contextmanager
def _faults_shown(app: App) -> Iterator[None]:
    """Shows a plan's faults one per line, as compilers do, so that an editor can jump to them;
    machines get them as objects."""
    from genlock.cli.answers import Style
    from genlock.errors import PlanInvalid

    try:
        yield
    except PlanInvalid as invalid:
        if app.answers.style is Style.JSON:
            raise
        _say_notes(app, invalid.notes)
        _print_faults(invalid)
        app.leave(exit_codes.USAGE)


def _print_faults(invalid: PlanInvalid) -> None:
    for fault in invalid.faults:
        tell(str(fault))
    tell(f"genlock: {_count(len(invalid.faults), 'fault')}; nothing was written")


def _confirm(app: App, typed: Sequence[str], source: Source) -> None:
    """Says what a pruning import would cancel, and asks: a task may belong to another plan, or be
    claimed.

    During the question others may add tasks. The user has not agreed to cancel those, so the
    question is repeated.
    """
    agreed: set[str] = set()
    while True:
        with _faults_shown(app):
            doomed = app.fleet.diff_plan(source=source, prune=True).cancelled
        if agreed.issuperset(doomed):
            return
        _ask(app, typed, doomed)
        agreed.update(doomed)


def _ask(app: App, typed: Sequence[str], doomed: Sequence[str]) -> None:
    from genlock.cli.render.text import confirm

    at_work = {
        task.id: task.agent for task in app.fleet.get_graph().tasks if task.agent is not None
    }
    listed = [
        f"\n  {name}{f' (stays while it is claimed by {at_work[name]})' if name in at_work else ''}"
        for name in doomed
    ]
    confirm(
        app,
        f"{_count(len(doomed), 'task')} of project {app.setting('project')!r} not in the plan "
        f"would be cancelled:{''.join(listed)}",
        "Cancel them?" if len(doomed) > 1 else "Cancel it?",
        "plan import",
        *typed,
    )


def _broken_off(app: App, typed: Sequence[str], done: int, total: int) -> NoReturn:
    again = app.command("plan import", *typed)
    if total:
        tell(f"genlock: broken off after {done:,} of {total:,} changes; to finish, type: {again}")
    else:
        tell(f"genlock: broken off; nothing was written; to import, type: {again}")
    app.leave(_INTERRUPTED)


def _say_notes(app: App, notes: Sequence[object]) -> None:
    for note in notes:
        app.answers.say(f"{note}")


def _give(app: App, result: PlanResult, left_out: Sequence[LeftOut] | None = None) -> None:
    _say_notes(app, result.notes)
    if left_out:
        app.answers.say(f"not carried over ({len(left_out):,}):")
        _say_notes(app, left_out)
    value: dict[str, Any] = {
        "added": result.added,
        "changed": result.fields,
        "unchanged": len(result.unchanged),
        "gone": result.gone,
        "cancelled": result.cancelled,
        "still_cancelled": result.still_cancelled,
        "notes": result.notes,
    }
    if left_out is not None:
        value["left_out"] = [{"task": one.task, "what": one.what} for one in left_out]
    marked = [("+", result.added), ("~", result.changed), ("-", result.cancelled)]
    app.answers.give(
        value,
        text=lambda console: _print_result(console, result),
        bare=[f"{mark} {name}" for mark, names in marked for name in names],
    )


def _print_result(console: Console, result: PlanResult) -> None:
    from genlock.cli.render.tables import print_lines

    counts = [
        (len(result.added), "added"),
        (len(result.changed), "changed"),
        (len(result.unchanged), "unchanged"),
        (len(result.gone), "gone"),
        (len(result.cancelled), "cancelled"),
    ]
    cancelled = set(result.cancelled)
    _list(console, "+", result.added, "green")
    _list(
        console,
        "~",
        [f"{name}: {', '.join(result.fields[name])}" for name in result.changed],
        "yellow",
    )
    _list(
        console,
        "-",
        [f"{name}{' (cancelled)' if name in cancelled else ''}" for name in result.gone],
        "red",
    )
    print_lines(
        console,
        ", ".join(f"{number:,} {word}" for number, word in counts if number)
        or "the plan has no tasks",
        style="bold",
    )


def _list(console: Console, mark: str, lines: Sequence[str], style: str) -> None:
    from genlock.cli.render.tables import print_lines

    print_lines(console, *(f"{mark} {line}" for line in lines[:_MOST_LISTED]), style=style)
    if len(lines) > _MOST_LISTED:
        print_lines(console, f"{mark} and {len(lines) - _MOST_LISTED:,} more", style=style)


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
