"""What becomes of refused results: adopt, discard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from genlock.cli import exits
from genlock.cli.app import App, verb
from genlock.errors import ResultNotFound

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("task")
@click.argument("refused_id")
@click.option("--generation", "-g", type=int, metavar="N", help="You hold the task, at this generation.")
@verb(worker=True)
def adopt(app: App, task: str, refused_id: str, generation: int | None) -> None:
    """Make a refused result count.

    With -g as the holder's submission; without it as an operator, who takes the right away from whoever holds the task.
    """
    with _found(app, task, refused_id) as whole:
        answer = app.fleet.adopt_result(task_id=task, refused_id=whole, generation=generation)

    def text(console: Console) -> None:
        from genlock.cli.tables import print_lines
        from genlock.cli.wording import refusal

        if answer.accepted:
            print_lines(console, f"adopted: {task} is completed", f"work product: {answer.work_product_ref}")
        else:
            why = refusal(task, answer.reason, answer.current_generation, answer.waits_for, session=app.who.session)
            print_lines(console, f"refused, {answer.reason}: {why}")

    app.answers.give(answer, text=text, bare=[answer.work_product_ref] if answer.accepted else [])
    if not answer.accepted:
        app.leave(exits.CONFLICT)


@click.command()
@click.argument("task")
@click.argument("refused_id")
@verb()
def discard(app: App, task: str, refused_id: str) -> None:
    """Give a refused result up.

    Its data goes; that it existed stays in the history.
    """
    with _found(app, task, refused_id) as refused_id:
        app.fleet.discard_result(task_id=task, refused_id=refused_id)

    def text(console: Console) -> None:
        from genlock.cli.tables import print_lines

        print_lines(console, f"discarded: {refused_id}")

    app.answers.give({"task_id": task, "refused_id": refused_id, "discarded": True}, text=text, bare=[refused_id])


@contextmanager
def _found(app: App, task: str, typed: str) -> Iterator[str]:
    """A refused result's name begins with its task, which need not be typed twice. Of one that is not there, it is said what to type."""
    try:
        yield typed if typed.startswith(f"{task}/") else f"{task}/{typed}"
    except ResultNotFound as error:
        raise ResultNotFound(f"{error}: {app.command('refused', task)}") from error
