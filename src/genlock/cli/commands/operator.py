"""Operators' commands: assign, unlock, reset, cancel, hold, reopen, sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, taking_over, verb
from genlock.cli.inputs import HOURS
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import OperatorResult

_force = click.option("--force", is_flag=True, help="Do it even if the task has a live holder.")
_reason = click.option("--reason", default="", metavar="TEXT", help="The reason, for the history.")


@click.command()
@click.argument("task")
@click.argument("agent", required=False)
@click.option("--to", "to", metavar="AGENT", help="The agent; may also stand after the task.")
@click.option(
    "--hours",
    type=HOURS,
    metavar="HOURS",
    help="How long the reservation lasts; default: the project's, 4.",
)
@_force
@verb()
def assign(
    app: App, task: str, agent: str | None, to: str | None, hours: float | None, force: bool
) -> None:
    """Reserve a task for an agent.

    Until the reservation expires, nobody else can claim the task. A live holder keeps it unless
    --force is given.
    """
    if agent is not None and to not in (None, agent):
        raise BadArgument(f"two agents are named, {agent!r} and {to!r}; name one")
    agent = to if agent is None else agent
    if agent is None:
        raise BadArgument(f"for which agent? {app.command('assign', task, '--to', 'AGENT')}")
    with taking_over(
        app, "assign", task, agent, *(() if hours is None else ("--hours", f"{hours:g}"))
    ):
        result = app.fleet.assign_task(task_id=task, agent_id=agent, hours=hours, take_over=force)
    _give(app, result, f"{task} is reserved for {agent}")


@click.command()
@click.argument("task")
@_force
@verb()
def unlock(app: App, task: str, force: bool) -> None:
    """Take a claim away from its holder.

    The holder's generation is stale from then on: Genlock refuses and keeps whatever it submits. A
    live claim is taken away only with --force.
    """
    with taking_over(app, "unlock", task):
        result = app.fleet.force_release(task_id=task, take_over=force)
    _give(app, result, f"{task} is free", f"nobody holds {task}; nothing was changed")


@click.command()
@click.argument("task")
@click.option("--cascade", is_flag=True, help="Also reset every completed task that depends on it.")
@click.option("--yes", is_flag=True, help="With --cascade: do not ask.")
@_force
@verb()
def reset(app: App, task: str, cascade: bool, yes: bool, force: bool) -> None:
    """Reopen a completed task, to be done again.

    Its result stays in the history, and its dependents wait again. A live holder keeps it unless
    --force is given.
    """
    if cascade and not yes:
        _confirm(app, task, app.fleet.preview_reset(task_id=task), *(["--force"] if force else []))
    with taking_over(app, "reset", task, *(["--cascade", "--yes"] if cascade else [])):
        result = app.fleet.reset_task(task_id=task, cascade=cascade, take_over=force)
    also = f", and {', '.join(result.cascade)}" if result.cascade else ""
    _give(app, result, f"{task} is to be done again{also}", bare=[task, *result.cascade])


@click.command()
@click.argument("task")
@_reason
@_force
@verb()
def cancel(app: App, task: str, reason: str, force: bool) -> None:
    """Cancel a task.

    For its dependents it counts as done. A live holder keeps it unless --force is given.
    """
    with taking_over(app, "cancel", task, *(["--reason", reason] if reason else [])):
        result = app.fleet.cancel_task(task_id=task, reason=reason, take_over=force)
    _give(app, result, f"{task} is cancelled", f"{task} is cancelled already")


@click.command()
@click.argument("task")
@_reason
@verb()
def hold(app: App, task: str, reason: str) -> None:
    """Keep a task from being claimed.

    Until it is reopened. The present holder may finish.
    """
    _give(
        app,
        app.fleet.hold_task(task_id=task, reason=reason),
        f"{task} is held",
        f"{task} is held already",
    )


@click.command()
@click.argument("task")
@verb()
def reopen(app: App, task: str) -> None:
    """Reopen a held task.

    A task that is not held is taken out of the backlog.
    """
    _give(
        app,
        app.fleet.reopen_task(task_id=task),
        f"{task} is open",
        f"{task} was neither held nor in the backlog",
    )


@click.command()
@verb()
def sweep(app: App) -> None:
    """Process overdue claims, and finish what a crash cut off.

    You need not: claims do the same on the way.
    """
    result = app.fleet.sweep()

    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_fields

        print_fields(
            console, [(name, str(getattr(result, name))) for name in result.__struct_fields__]
        )

    app.answers.give(
        result,
        text=text,
        bare=[result.expired + result.orphaned + result.stale + result.settled + result.purged],
    )


def _give(
    app: App,
    result: OperatorResult,
    done: str,
    unchanged: str = "nothing was changed",
    bare: list[str] | None = None,
) -> None:
    def text(console: Console) -> None:
        from genlock.cli.render.tables import print_lines
        from genlock.messages import describe

        stands = f"{done}: {result.state}, generation {result.generation}"
        print_lines(console, stands if result.verdict.value == "DONE" else unchanged)
        if result.superseded is not None:
            print_lines(console, describe(result, app.context()).text)

    app.answers.give(result, text=text, bare=bare if bare is not None else [result.generation])


def _confirm(app: App, task: str, others: tuple[str, ...], *options: str) -> None:
    """Says what a cascade would reset, and asks."""
    from genlock.cli.render.tables import count
    from genlock.cli.render.text import confirm

    listed = "".join(f"\n  {other}" for other in others)
    what = f"{task} would be reset, and nothing else"
    if others:
        what = (
            f"{task} and what rests on it, {count(len(others), 'completed task')}, would be "
            f"reset:{listed}"
        )
    confirm(
        app,
        what,
        "Reset them?" if others else "Reset it?",
        "reset",
        task,
        "--cascade",
        "--yes",
        *options,
    )
