"""Beginning: init."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from genlock.cli.app import App, verb

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.option("--stealth", is_flag=True, help="In the git folder, where git does not look: nothing else is written.")
@verb()
def init(app: App, stealth: bool) -> None:
    """Make a project's store here.

    One for a repository and all its worktrees, in .genlock beside .git. Doing it again changes nothing.
    """
    from genlock.core.names import check_project, check_tenant

    check_tenant(app.setting("tenant"))
    check_project(app.setting("project"))
    make_store(app, _url(app, stealth=stealth))


def make_store(app: App, url: str) -> None:
    """Makes the store at `url` unless it is there, and says which."""
    from genlock.cli.wording import without_password
    from genlock.open import create_store
    from genlock.places import sqlite_path

    path = sqlite_path(url)
    if path is not None and app.setting("url") is None:
        make_place(path.parent)
    made = create_store(url)
    answer = {"url": without_password(url), "path": None if path is None else str(path), "made": made}
    shown = str(path or without_password(url))
    app.answers.give(answer, text=lambda console: console.print(f"{'made' if made else 'is there'}: {shown}", markup=False), bare=[shown])


def _url(app: App, *, stealth: bool) -> str:
    """Where the store is to be; one that is there stays where it is."""
    from genlock.cli.wording import without_password
    from genlock.errors import BadArgument
    from genlock.places import FILE, hidden_folder, sqlite_url

    if not stealth or (app.setting("url") is None and (app.project_folder / FILE).exists()):
        return app.store_url
    if app.setting("url") is not None:
        raise BadArgument(
            f"--stealth is for a project's own store, and the store is {without_password(app.url)} by {app.settings['url'].origin}"
        )
    hidden = hidden_folder()
    if hidden is None:
        raise BadArgument("--stealth puts the store into the git folder, and this is no git repository; type: genlock init")
    return sqlite_url(hidden / FILE)


def make_place(folder: Path) -> None:
    """Makes a project's folder."""
    from genlock.errors import StoreUnavailable
    from genlock.places import make_folder

    try:
        make_folder(folder)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be made: {error.strerror}") from None
