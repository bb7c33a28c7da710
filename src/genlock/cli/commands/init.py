"""Beginning: init."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.option(
    "--stealth",
    is_flag=True,
    help="Put it into the git folder, which git ignores; write nothing else.",
)
@click.option(
    "--folder",
    metavar="PATH",
    help="Work on the task files of a gptodo workspace, or of scripts that move them in ai_comms.",
)
@click.option(
    "--unclaimed-state",
    type=click.Choice(["todo", "backlog"]),
    help="With --folder: what a task that nobody has is called in its file (todo).",
)
@verb()
def init(app: App, stealth: bool, folder: str | None, unclaimed_state: str | None) -> None:
    """Create the project's store here.

    A repository and all its worktrees share one, in .genlock beside .git. Repeating this changes
    nothing.
    """
    from genlock.core.names import check_project, check_tenant
    from genlock.errors import BadArgument

    check_tenant(app.setting("tenant"))
    check_project(app.setting("project"))
    if folder is not None:
        if stealth:
            raise BadArgument("--stealth and --folder exclude each other")
        _take_up_folder(app, folder, unclaimed_state)
        return
    if unclaimed_state is not None:
        raise BadArgument("--unclaimed-state goes with --folder")
    make_store(app, _url(app, stealth=stealth))


def _take_up_folder(app: App, path: str, unclaimed_state: str | None) -> None:
    """Creates the journal beside the task files, reads the files, and enters the folder in the
    project's settings."""
    from genlock.cli.commands.config import write_setting
    from genlock.open import connect, create_store
    from genlock.settings import FILE
    from genlock.task_folders import examine, folder_url_of, layout_of
    from genlock.trust import give_address_consent

    url = folder_url_of(path, layout_of(path), unclaimed_state)
    made = create_store(url)
    make_place(app.project_folder)
    file = app.project_folder / FILE
    write_setting(file, "url", url)
    give_address_consent(file.parent, url)
    with connect(url, session_id="genlock-init") as fleet:
        fleet.sweep()
        counts = dict(fleet.get_overview(limit=1).states)
    found = examine(url)
    lines = [
        f"{'made' if made else 'is there'}: {found.folder}",
        f"{found.tasks:,} tasks"
        + "".join(f", {count:,} {state}" for state, count in sorted(counts.items())),
        *(f"cannot be read: {fault}" for fault in found.unreadable.values()),
    ]
    app.answers.give(
        {"url": url, "made": made, "tasks": found.tasks, "states": counts}
        | {"unreadable": found.unreadable},
        text=lambda console: console.print("\n".join(lines), markup=False),
        bare=[found.folder],
    )


def make_store(app: App, url: str) -> None:
    """Creates the store at `url` unless it exists, and says which is the case."""
    from genlock.open import create_store
    from genlock.project_folder import sqlite_path
    from genlock.safe_text import without_password

    path = sqlite_path(url)
    if path is not None and app.setting("url") is None:
        make_place(path.parent)
    made = create_store(url)
    answer = {
        "url": without_password(url),
        "path": None if path is None else str(path),
        "made": made,
    }
    shown = str(path or without_password(url))
    app.answers.give(
        answer,
        text=lambda console: console.print(
            f"{'made' if made else 'is there'}: {shown}", markup=False
        ),
        bare=[shown],
    )


def _url(app: App, *, stealth: bool) -> str:
    """Returns where to create the store; an existing one stays where it is."""
    from genlock.errors import BadArgument
    from genlock.project_folder import FILE, hidden_folder, sqlite_url
    from genlock.safe_text import without_password

    if not stealth or (app.setting("url") is None and (app.project_folder / FILE).exists()):
        return app.store_url
    if app.setting("url") is not None:
        raise BadArgument(
            f"--stealth is for a project's own store, and the store is {without_password(app.url)} "
            f"by {app.settings['url'].origin}"
        )
    hidden = hidden_folder()
    if hidden is None:
        raise BadArgument(
            "--stealth puts the store into the git folder, and this is no git repository; type: "
            "genlock init"
        )
    return sqlite_url(hidden / FILE)


def make_place(folder: Path) -> None:
    """Makes a project's folder."""
    from genlock.errors import StoreUnavailable
    from genlock.project_folder import make_folder

    try:
        make_folder(folder)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be made: {error.strerror}") from None
