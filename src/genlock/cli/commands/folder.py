"""Folders of task files: whether file or record is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from rich.console import Console

    from genlock.task_folders import FolderState


@click.group()
def folder() -> None:
    """Look at task files that other tools share, and decide which count.

    Genlock takes the edits of other tools into account by itself. A file that git has put back to
    an earlier state is left alone until you say which is right.
    """


@folder.command()
@verb()
def status(app: App) -> None:
    """Compare every task file with its record."""
    from genlock.task_folders import examine

    found = examine(app.store_url)
    app.answers.give(
        found,
        text=lambda console: console.print("\n".join(_lines(found)), markup=False),
        bare=[*found.checked_out, *found.missing, *found.unreadable],
    )


@folder.command()
@click.argument("tasks", nargs=-1, metavar="[TASK]…")
@verb()
def restore(app: App, tasks: tuple[str, ...]) -> None:
    """Write files as the records have them.

    Without a task: all files that git has put back, or that were deleted.
    """
    from genlock.task_folders import restore_files

    _give(app, "restored", restore_files(app.store_url, tasks))


@folder.command()
@click.argument("tasks", nargs=-1, metavar="[TASK]…")
@verb()
def adopt(app: App, tasks: tuple[str, ...]) -> None:
    """Let files that git has put back count as edits.

    Whoever holds such a task is fenced by that, as by every edit of its state.
    """
    from genlock.task_folders import adopt_files

    _give(app, "adopted", adopt_files(app.store_url, tasks))


def _give(app: App, done: str, tasks: list[str]) -> None:
    text = f"{done}: {', '.join(tasks)}" if tasks else f"nothing to be {done}"
    app.answers.give({done: tasks}, text=lambda console: _print(console, text), bare=tasks)


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False)


def _lines(found: FolderState) -> list[str]:
    lines = [
        f"{found.folder}: layout {found.layout}, {found.tasks:,} tasks, locks by {found.locks}",
    ]
    for what, ids in (
        ("edited by others", found.edited),
        ("put back by git", found.checked_out),
        ("behind the record", found.unwritten),
        ("deleted", found.missing),
        ("without a file", found.without_file),
    ):
        if ids:
            lines.append(f"{what}: {', '.join(ids)}")
    lines += [f"cannot be read: {fault}" for fault in found.unreadable.values()]
    return lines
