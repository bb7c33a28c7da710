"""Copies of a store: export, backup, restore, copy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.transfer.copy import Copied


@click.command()
@click.argument("target", type=click.Path(path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@verb()
def export(app: App, target: Path | None, force: bool) -> None:
    """Export everything as JSON lines.

    To stdout, or to the file TARGET. Records of every kind and all events of all projects, of one
    instant, also while others work: {"type": "store"}, then for each project {"type": "record"} and
    {"type": "event"}, {"type": "payload"} for large results, and in the end {"type": "end"} with
    the counts.
    """
    from genlock import __version__
    from genlock.cli.open_fleet import by_the_short_way, open_instant
    from genlock.cli.render.progress import bar
    from genlock.transfer.backup import check_target, refuse_database, write_lines
    from genlock.transfer.export import export as lines_of

    if target is not None:
        check_target(target, "genlock.jsonl", force=force)
        refuse_database(target)
    with by_the_short_way(app):
        store = open_instant(app.store_url)
    try:
        with bar(app.answers, "exporting") as advance:
            done = 0

            def note(number: int) -> None:
                nonlocal done
                done += number
                advance(done, None)

            lines = lines_of(store, __version__, note)
            if target is None:
                for line in lines:
                    app.answers.write_json(line + b"\n", flush=False)
                app.answers.flush()
                return
            write_lines(target, lines)
    finally:
        store.close()
    answer = {"target": str(target), "bytes": target.stat().st_size}
    app.answers.give(
        answer, text=lambda console: _print(console, f"exported to {target}"), bare=[target]
    )


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@verb()
def backup(app: App, target: Path, force: bool) -> None:
    """Make a consistent copy of the live store.

    The copy is of one instant, while others go on working. Large results go to the folder
    TARGET.payloads.
    """
    from genlock.cli.open_fleet import store_file
    from genlock.cli.render.progress import bar
    from genlock.messages import command, typed
    from genlock.project_folder import sqlite_url
    from genlock.transfer.backup import backup as make

    source = store_file(app)
    with bar(app.answers, "copying") as advance:
        made = make(source, target, force=force, progress=advance)
    for name in made.missing_payloads:
        app.answers.say(
            f"the bytes of a result are not there, or damaged, and so not in the backup: {name}"
        )

    def text(console: Console) -> None:
        _print(
            console,
            f"backup of {made.source}: {made.target}, {made.bytes:,} bytes, {made.payloads} "
            "payloads",
        )
        check = command("doctor", "--url", sqlite_url(target.absolute()))
        _print(console, f"to check it, type: {typed(check)}")

    app.answers.give(made, text=text, bare=[made.target])


@click.command()
@click.argument("source", metavar="BACKUP", type=click.Path(path_type=Path))
@click.option(
    "--force", is_flag=True, help="Replace the existing store, and keep it beside the new one."
)
@click.option(
    "--incomplete",
    is_flag=True,
    help="Restore even if large results beside BACKUP are missing or damaged.",
)
@verb()
def restore(app: App, source: Path, force: bool, incomplete: bool) -> None:
    """Replace the store by a backup.

    First checks the backup by replay, and large results by their digests. Refuses while any process
    has the store open. Raises the epoch: readers of the feed learn that their cursor is lost, and
    new generations are higher than any that were ever granted.
    """
    from genlock.cli.open_fleet import store_file
    from genlock.cli.render.progress import bar
    from genlock.transfer.restore import restore as put

    target = store_file(app, must_exist=False)
    with bar(app.answers, "copying") as advance:
        done = put(source, target, force=force, incomplete=incomplete, progress=advance)
    for name in done.missing_payloads:
        app.answers.say(
            "the bytes of a result are not beside the backup, or damaged, and so not restored: "
            f"{name}"
        )

    def text(console: Console) -> None:
        _print(
            console,
            f"restored {done.target} from {done.source}: {done.records:,} records, epoch "
            f"{done.epoch}",
        )
        if done.kept_aside is not None:
            _print(console, f"what was there is kept: {done.kept_aside}")

    app.answers.give(done, text=text, bare=[done.target])


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


# Moving to another store: copy.


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--no-verify",
    "verify",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not compare and replay the copy at the end.",
)
@click.option(
    "--any-order",
    is_flag=True,
    help="Faster to DynamoDB: events of different tasks may stand in another order if it is broken "
    "off.",
)
@verb(store=False)
def copy(app: App, source: str, target: str, verify: bool, any_order: bool) -> None:
    """Copy a store to one of any kind.

    FROM and TO are URLs, for example sqlite:///srv/plans/genlock.db and
    postgresql://db.example.com/plans. All tenants and projects: every record, every event in the
    order of its feed, large results; digests and generations stay the same. The epoch rises, so
    that the copy grants nothing that FROM grants. TO is empty, or a copy of FROM that was broken
    off: the same command goes on with it. Nothing may work on either meanwhile.
    """
    from genlock.cli.render.progress import bars
    from genlock.safe_text import without_password
    from genlock.transfer.copy import copy as make
    from genlock.transfer.endpoints import open_source, open_target, user_of

    pid = user_of(source)
    if pid is not None:
        app.answers.say(
            f"process {pid} has {without_password(source)} open; what it writes after the copy is "
            "not in the copy"
        )
    with (
        closing(open_source(source)) as opened,
        closing(open_target(target, any_order=any_order)) as other,
        bars(app.answers) as advance,
    ):
        made = make(opened, other, verify=verify, any_order=any_order, progress=advance)
    for name in made.missing_payloads:
        app.answers.say(
            f"the bytes of a result are not there, or damaged, and so not in the copy: {name}"
        )
    if made.moved:
        app.answers.say(
            f"{without_password(source)} was written to during the copy: end whatever works on it "
            "before anything works on the new store"
        )
    app.answers.give(
        made,
        text=lambda console: _show(console, made, _checked(made, any_order), source, target),
        bare=[made.events],
    )


def _show(console: Console, made: Copied, checked: str, source: str, target: str) -> None:
    from shlex import quote

    from genlock.cli.render.tables import count
    from genlock.project_folder import url_from_anywhere
    from genlock.safe_text import without_password

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
    lines.append(
        "let every agent use the new store from now on: export "
        f"GENLOCK_URL={quote(url_from_anywhere(target))}"
    )
    lines.append(
        "none may use the old one, or both would grant: keep it as a backup, "
        f"{without_password(source)}"
    )
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _checked(made: Copied, any_order: bool) -> str:
    if not made.verified:
        return "not verified"
    return "every record and every event is the same, and replays" + (
        ", but the order may not be" if any_order else ""
    )
