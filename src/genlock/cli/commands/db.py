"""The store itself: create, migrate, check, status, and its epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from genlock.cli import exit_codes
from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.open import Migrated
    from genlock.transfer.endpoints import ProjectStatus, Status
    from genlock.transfer.verification import Verified


@click.group()
def db() -> None:
    """Create, migrate, check and describe a store.

    URL names the store; default: the project's own, or the one that the settings name.
    """


def _url(function: Callable[..., None]) -> Callable[..., None]:
    return click.argument("url", required=False, metavar="[URL]")(function)


@db.command()
@_url
@verb()
def create(app: App, url: str | None) -> None:
    """Create the store, unless it exists.

    On a server: the schema or table, not the database. As JSON: {"url", "path", "made"}.
    """
    from genlock.cli.commands.init import make_store

    app.name_store(url)
    make_store(app, app.store_url)


@db.command()
@_url
@verb()
def migrate(app: App, url: str | None) -> None:
    """Migrate the store to the format of this version.

    In one step, or not at all. Coordinators of an older version that are running go on, but cannot
    be started again. As JSON: {"url", "before", "after", "applied":
    […]}.
    """
    from genlock.cli.open_fleet import by_the_short_way
    from genlock.open import migrate_store
    from genlock.safe_text import without_password

    app.name_store(url)
    with by_the_short_way(app):
        done = migrate_store(app.store_url)
    answer = {
        "url": without_password(app.url),
        "before": done.before,
        "after": done.after,
        "applied": done.applied,
    }
    app.answers.give(answer, text=lambda console: _print_migrated(console, done), bare=done.applied)


@db.command()
@_url
@verb()
def check(app: App, url: str | None) -> None:
    """Replay all events, and name every difference.

    Every record must be what its events amount to, every feed without a gap, every payload there
    and what was submitted. Exits with 0 if there is no fault, else with 1. As JSON: {"url",
    "records", "faults": [{"where", "what"}]}.
    """
    from genlock.cli.open_fleet import by_the_short_way, open_instant
    from genlock.cli.render.progress import bars
    from genlock.project_folder import sqlite_path
    from genlock.safe_text import without_password
    from genlock.transfer.verification import verify

    app.name_store(url)
    with by_the_short_way(app):
        store = open_instant(app.store_url)
    try:
        with bars(app.answers) as tell:
            found = verify(store, tell, still=sqlite_path(app.url) is not None)
    finally:
        store.close()
    answer = {
        "url": without_password(app.url),
        "records": found.records,
        "faults": found.all_faults,
    }
    lines = [f"{fault.where}: {fault.what}" for fault in found.all_faults]
    app.answers.give(
        answer, text=lambda console: _print_replayed(console, found, lines), bare=lines
    )
    if lines:
        app.leave(exit_codes.ERROR)


@db.command()
@_url
@verb()
def status(app: App, url: str | None) -> None:
    """Describe the store and its contents.

    As JSON: {"url", "scheme", "server", "format", "newest", "migrations": [{"number", "name",
    "applied_at", "applied_by"}], "contents": {"epoch", "durable", "shared", "server_clock",
    "read_only", "projects": [{"tenant", "project", "tasks", "position"}]}}. A store of
    an older format shows no contents.
    """
    import msgspec

    from genlock.cli.open_fleet import by_the_short_way
    from genlock.messages import command, typed
    from genlock.safe_text import without_password
    from genlock.transfer.endpoints import status as status_of

    app.name_store(url)
    with by_the_short_way(app):
        found = status_of(app.store_url)
    shown = without_password(app.url)
    answer = {"url": shown, **msgspec.structs.asdict(found)}
    app.answers.give(
        answer, text=lambda console: _print_status(console, shown, found), bare=[found.format or ""]
    )
    if found.outdated:
        again = typed(command("db migrate", shown if shown == app.url else "URL"))
        app.answers.say(
            "it is of an older format than this version of Genlock works with; to bring it up to "
            f"date, type: {again}"
        )


@db.command("raise-epoch")
@_url
@verb()
def raise_epoch(app: App, url: str | None) -> None:
    """After a restore or a failover that may have lost commits: let nobody go on from what was
    lost.

    Generations go on above epoch × 1,000,000, so a worker from before can never be taken for the
    present holder; readers of the feed are told that their cursors are lost. The epoch is a number
    made of the time, so that two copies of a store begin different ones.

    `genlock restore` and `genlock copy` do this by themselves. So does opening an SQLite file that
    was copied or put back, and the first commit on a replica of PostgreSQL, MySQL or Redis that was
    promoted. Type it yourself after a snapshot of a whole disk or virtual machine was put back, or
    started a second time. As JSON: {"url", "before", "after"}.
    """
    from genlock.cli.open_fleet import by_the_short_way
    from genlock.cli.render.tables import print_lines
    from genlock.open import raise_epoch
    from genlock.safe_text import without_password

    app.name_store(url)
    with by_the_short_way(app):
        before, after = raise_epoch(app.store_url)
    answer = {"url": without_password(app.url), "before": before, "after": after}
    app.answers.give(
        answer, text=lambda console: print_lines(console, f"epoch: {after}"), bare=[str(after)]
    )


def _print_migrated(console: Console, done: Migrated) -> None:
    from genlock.cli.render.tables import print_lines

    print_lines(console, *done.applied)
    before_after = f"was of format {done.before}, is of format {done.after}"
    print_lines(
        console,
        before_after if done.applied else f"is of format {done.after} already: nothing to do",
        style="bold",
    )


def _print_replayed(console: Console, found: Verified, lines: list[str]) -> None:
    from genlock.cli.render.tables import count, print_lines

    print_lines(console, *lines, style="red")
    end = count(len(lines), "fault") if lines else "all is what was written"
    print_lines(console, f"{count(found.records, 'record')}; {end}", style="bold")


def _print_status(console: Console, url: str, found: Status) -> None:
    from genlock.cli.render.tables import Column, print_fields, print_table, stamp

    inside = found.contents
    qualities = [] if inside is None else _qualities(found)
    print_fields(
        console,
        [
            ("store", url),
            ("server", found.server),
            ("format", None if found.format is None else f"{found.format} of {found.newest}"),
            ("epoch", None if inside is None else str(inside.epoch)),
            ("is", ", ".join(qualities)),
        ],
    )
    if found.migrations:
        applied = [
            (f"{each.number:04}_{each.name}", stamp(each.applied_at), each.applied_by)
            for each in found.migrations
        ]
        print_table(
            console,
            [
                Column("migration", least=16),
                Column("applied", weight=2),
                Column("by genlock", weight=1),
            ],
            applied,
        )
    if inside is not None and inside.projects:
        columns = [
            Column("tenant"),
            Column("project"),
            Column("tasks", right=True),
            Column("by state", weight=1),
            Column("events", right=True),
        ]
        print_table(console, columns, [_row(project) for project in inside.projects])


def _row(project: ProjectStatus) -> tuple[object, ...]:
    states = ", ".join(f"{state} {number:,}" for state, number in project.tasks.items())
    return (
        project.tenant,
        project.project,
        f"{sum(project.tasks.values()):,}",
        states,
        f"{project.position:,}",
    )


def _qualities(found: Status) -> list[str]:
    inside = found.contents
    assert inside is not None
    return [
        "durable"
        if inside.durable
        else "not durable: what was acknowledged may be lost when the machine fails",
        *(["shared by machines"] if inside.shared else []),
        *(["of the server's clock"] if inside.server_clock else []),
        *(["read-only"] if inside.read_only else []),
    ]
