"""Moving to another store: copy."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.keeping.copy import Copied


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--no-verify", "verify", is_flag=True, flag_value=False, default=True, help="Do not compare and replay the copy in the end.")
@click.option(
    "--any-order", is_flag=True, help="Faster to DynamoDB: events of different tasks may stand in another order if it is broken off."
)
@verb(store=False)
def copy(app: App, source: str, target: str, verify: bool, any_order: bool) -> None:
    """Copy a store to another, of any kind.

    FROM and TO are URLs, for example sqlite:///srv/plans/genlock.db and postgresql://db.example.com/plans. All tenants and projects:
    every record, every event in the order of its feed, large results; digests, generations and epoch stay the same. TO is empty, or a
    copy of FROM that was broken off: the same command goes on with it. Nothing may work on either meanwhile.
    """
    from genlock.cli.progress import bars
    from genlock.cli.wording import without_password
    from genlock.keeping.copy import copy as make
    from genlock.keeping.ends import open_source, open_target, user_of

    pid = user_of(source)
    if pid is not None:
        app.answers.say(f"process {pid} has {without_password(source)} open; what it writes after the copy is not in the copy")
    with closing(open_source(source)) as opened, closing(open_target(target, any_order=any_order)) as other, bars(app.answers) as advance:
        made = make(opened, other, verify=verify, any_order=any_order, progress=advance)
    for name in made.missing_payloads:
        app.answers.say(f"the bytes of a result are not there, or damaged, and so not in the copy: {name}")
    if made.moved:
        app.answers.say(
            f"{without_password(source)} was written to during the copy: end whatever works on it before anything works on the new store"
        )
    app.answers.give(made, text=lambda console: _show(console, made, _checked(made, any_order), source, target), bare=[made.events])


def _show(console: Console, made: Copied, checked: str, source: str, target: str) -> None:
    from shlex import quote

    from genlock.cli.tables import count
    from genlock.cli.wording import without_password

    what = ", ".join(
        [
            f"{count(made.tasks, 'task')} in {count(made.projects, 'project')}",
            count(made.events, "event"),
            count(made.payloads, "large result"),
        ]
    )
    lines = [f"copied in {made.seconds:.1f} s: {what}; epoch {made.epoch}"]
    if made.found:
        lines.append(f"{made.found:,} events were there already")
    lines.append(checked)
    lines.append(f"let every agent use the new store from now on: export GENLOCK_URL={quote(_from_anywhere(target))}")
    lines.append(f"none may use the old one, or both would grant: keep it as a backup, {without_password(source)}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _from_anywhere(url: str) -> str:
    """The URL as it is to be set: whoever uses it stands in another folder."""
    from genlock.cli.wording import without_password
    from genlock.places import sqlite_path, sqlite_url

    path = sqlite_path(url)
    return without_password(url) if path is None else sqlite_url(path.absolute())


def _checked(made: Copied, any_order: bool) -> str:
    if not made.verified:
        return "not verified"
    return "every record and every event is the same, and replays" + (", but the order may not be" if any_order else "")
