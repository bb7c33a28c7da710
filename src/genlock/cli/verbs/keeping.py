"""Keeping the store: export, backup, restore."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("target", type=click.Path(path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@verb()
def export(app: App, target: Path | None, force: bool) -> None:
    """Everything as JSON lines.

    To stdout, or to the file TARGET. Records of every kind and all events of all projects, of one instant, also while others work:
    {"type": "store"}, then for each project {"type": "record"} and {"type": "event"}, {"type": "payload"} for large results, and in
    the end {"type": "end"} with the counts.
    """
    from genlock import __version__
    from genlock.cli.opening import by_the_short_way, open_instant
    from genlock.cli.progress import bar
    from genlock.keeping.export import export as lines_of
    from genlock.keeping.files import check_target, refuse_database, write_lines

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
                out = sys.stdout.buffer
                for line in lines:
                    out.write(line + b"\n")
                out.flush()
                return
            write_lines(target, lines)
    finally:
        store.close()
    answer = {"target": str(target), "bytes": target.stat().st_size}
    app.answers.give(answer, text=lambda console: _print(console, f"exported to {target}"), bare=[target])


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace TARGET if it exists.")
@verb()
def backup(app: App, target: Path, force: bool) -> None:
    """A consistent copy of the live store.

    All of one instant, while others go on working. Results too large for a record are copied to the folder TARGET.payloads.
    """
    from genlock.cli.progress import bar
    from genlock.cli.store_file import store_file
    from genlock.cli.wording import command
    from genlock.keeping.backup import backup as make
    from genlock.places import sqlite_url

    source = store_file(app)
    with bar(app.answers, "copying") as advance:
        made = make(source, target, force=force, progress=advance)
    for name in made.missing_payloads:
        app.answers.say(f"the bytes of a result are not there, or damaged, and so not in the backup: {name}")

    def text(console: Console) -> None:
        _print(console, f"backup of {made.source}: {made.target}, {made.bytes:,} bytes, {made.payloads} payloads")
        _print(console, f"to check it, type: {command('doctor', '--url', sqlite_url(target.absolute()))}")

    app.answers.give(made, text=text, bare=[made.target])


@click.command()
@click.argument("source", metavar="BACKUP", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace the store that is there, and keep it beside the new one.")
@click.option("--incomplete", is_flag=True, help="Also if the bytes of large results are missing beside BACKUP, or damaged.")
@verb()
def restore(app: App, source: Path, force: bool, incomplete: bool) -> None:
    """Put a backup in the store's place.

    The backup is checked by replay first, and the bytes of large results by their digests. Refused while any process has the store
    open. The epoch rises: readers of the feed are told that their cursor is lost, and generations go on above all that were ever
    granted.
    """
    from genlock.cli.progress import bar
    from genlock.cli.store_file import store_file
    from genlock.keeping.restore import restore as put

    target = store_file(app, must_exist=False)
    with bar(app.answers, "copying") as advance:
        done = put(source, target, force=force, incomplete=incomplete, progress=advance)
    for name in done.missing_payloads:
        app.answers.say(f"the bytes of a result are not beside the backup, or damaged, and so not restored: {name}")

    def text(console: Console) -> None:
        _print(console, f"restored {done.target} from {done.source}: {done.records:,} records, epoch {done.epoch}")
        if done.kept_aside is not None:
            _print(console, f"what was there is kept: {done.kept_aside}")

    app.answers.give(done, text=text, bare=[done.target])


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)
