"""What operators do: assign, unlock, reset, cancel, hold, reopen, sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb
from genlock.errors import BadArgument

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.core.results import OperatorResult

_reason = click.option("--reason", default="", metavar="TEXT", help="Why, for whoever reads the history.")


@click.command()
@click.argument("task")
@click.argument("agent")
@click.option("--hours", type=float, metavar="N", help="How long the reservation lasts; default: the project's, 4.")
@verb()
def assign(app: App, task: str, agent: str, hours: float | None) -> None:
    """Reserve a task for an agent.

    Until the reservation lapses nobody else is granted it. Whoever holds it now loses it.
    """
    result = app.fleet.assign_task(task_id=task, agent_id=agent, hours=hours)
    _give(app, result, f"{task} is reserved for {agent}")


@click.command()
@click.argument("task")
@click.option("--force", is_flag=True, help="Yes, take it away.")
@verb()
def unlock(app: App, task: str, force: bool) -> None:
    """Take a claim away from its holder.

    Its generation is stale from then on: whatever it still submits is refused, and kept.
    """
    if not force:
        from genlock.cli.wording import who

        holder = app.fleet.get_task_state(task_id=task).holder
        if holder is None:
            raise BadArgument(f"nobody holds {task}: there is nothing to take away")
        raise BadArgument(
            f"{task} is held by {who(holder)}. --force takes the claim away: what its holder still submits is refused, and kept. "
            f"If the holder is lost, type: {app.command('unlock', task, '--force')}"
        )
    result = app.fleet.force_release(task_id=task)
    _give(app, result, f"{task} is free", f"nobody holds {task}; nothing was changed")


@click.command()
@click.argument("task")
@click.option("--cascade", is_flag=True, help="Also every completed task that rests on it.")
@click.option("--yes", is_flag=True, help="With --cascade: do not ask.")
@verb()
def reset(app: App, task: str, cascade: bool, yes: bool) -> None:
    """Have a task done again.

    Its result stays in the history. Whoever holds it loses it; what depends on it waits again.
    """
    if cascade and not yes:
        _confirm(app, task, app.fleet.preview_reset(task_id=task))
    result = app.fleet.reset_task(task_id=task, cascade=cascade)
    also = f", and {', '.join(result.cascade)}" if result.cascade else ""
    _give(app, result, f"{task} is to be done again{also}", bare=[task, *result.cascade])


@click.command()
@click.argument("task")
@_reason
@verb()
def cancel(app: App, task: str, reason: str) -> None:
    """Cancel a task.

    For what depends on it, it counts as done. Whoever holds it loses it.
    """
    _give(app, app.fleet.cancel_task(task_id=task, reason=reason), f"{task} is cancelled", f"{task} is cancelled already")


@click.command()
@click.argument("task")
@_reason
@verb()
def hold(app: App, task: str, reason: str) -> None:
    """Let nobody have a task.

    Until it is reopened. Whoever holds it now may finish.
    """
    _give(app, app.fleet.hold_task(task_id=task, reason=reason), f"{task} is held", f"{task} is held already")


@click.command()
@click.argument("task")
@verb()
def reopen(app: App, task: str) -> None:
    """Open a held task again.

    Or, if it is not held, take it out of the backlog.
    """
    _give(app, app.fleet.reopen_task(task_id=task), f"{task} is open", f"{task} was neither held nor in the backlog")


@click.command()
@verb()
def sweep(app: App) -> None:
    """Look once for what fell due or was cut off.

    Nothing depends on it: claims do the same as they go along.
    """
    result = app.fleet.sweep()

    def text(console: Console) -> None:
        from genlock.cli.tables import print_fields

        print_fields(console, [(name, str(getattr(result, name))) for name in result.__struct_fields__])

    app.answers.give(result, text=text, bare=[result.expired + result.orphaned + result.stale + result.settled + result.purged])


def _give(app: App, result: OperatorResult, done: str, unchanged: str = "nothing was changed", bare: list[str] | None = None) -> None:
    def text(console: Console) -> None:
        from genlock.cli.tables import print_lines
        from genlock.cli.wording import operated

        print_lines(console, *operated(result, done=f"{done}: {result.state}, generation {result.generation}", unchanged=unchanged))

    app.answers.give(result, text=text, bare=bare if bare is not None else [result.generation])


def _confirm(app: App, task: str, others: tuple[str, ...]) -> None:
    """Says what a cascade would reset, and asks."""
    from genlock.cli.asking import confirm
    from genlock.cli.tables import count

    listed = "".join(f"\n  {other}" for other in others)
    what = f"{task} would be reset, and nothing else"
    if others:
        what = f"{task} and what rests on it, {count(len(others), 'completed task')}, would be reset:{listed}"
    confirm(app, what, "Reset them?" if others else "Reset it?", "reset", task, "--cascade", "--yes")
