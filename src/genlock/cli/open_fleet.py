"""Opens the fleet for a command, or its store. Only `init` and `db create` create a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from genlock.errors import BadArgument, NotFound
from genlock.open import connect, open_store, short_remedy
from genlock.schemes import is_service
from genlock.settings import login_name

if TYPE_CHECKING:
    from pathlib import Path

    from genlock.cli.app import App
    from genlock.coordinator import Coordinator
    from genlock.credentials import Keys
    from genlock.store import Store


class NoProject(NotFound):
    """There is no project here."""


def open_fleet(app: App) -> Coordinator:
    """Opens the coordinator for this call. Only workers' commands need the caller's identity.

    A command that acts on a claim passes no agent unless one is named, so that the claim's agent is
    not replaced by a name derived from the process.
    """
    with by_the_short_way(app):
        who = app.who if app.worker else None
        fleet = connect(
            app.url,
            tenant_id=app.setting("tenant"),
            project_id=app.setting("project"),
            session_id=who.session if who else app.setting("session"),
            agent_id=app.setting("agent") or (who.agent if who and not app.holder else None),
            user_id=app.setting("user") or login_name(),
            process=who.process if who else None,
            api_key=keys_of(app),
        )
        if is_service(app.url) and not app.patient:
            from genlock.client.coordinator import report_refused_connection

            report_refused_connection(fleet)
        return fleet


def keys_of(app: App) -> Keys | None:
    """Returns a function from a service's address to its key; None if the URL names a store."""
    if not is_service(app.url):
        return None
    from genlock import token_files
    from genlock.credentials import keys_for

    return keys_for(app.settings["url"], token_files.folders(app.project_folder))


def open_instant(url: str) -> Store:
    """Opens the store for reading, as a snapshot of one instant if the store can provide one."""
    from genlock.project_folder import sqlite_path

    path = sqlite_path(url)
    if path is None:
        return open_store(url)
    return open_instant_file(path)


def open_instant_file(path: Path) -> Store:
    """Opens a store's file for reading, as a snapshot of one instant."""
    from genlock.stores.sqlite import SQLiteStore

    return SQLiteStore(path, create=False, instant=True)


def must_exist(app: App) -> None:
    """Raises `StoreMissing` if there is nothing for doctor to examine. All other faults are
    reported by doctor."""
    from genlock.project_folder import sqlite_path
    from genlock.schemes import scheme_of

    scheme_of(app.store_url)
    path = sqlite_path(app.url)
    if path is not None and not path.exists():
        from genlock.stores.sqlite.open import missing

        with by_the_short_way(app):
            raise missing(path)


@contextmanager
def by_the_short_way(app: App) -> Iterator[None]:
    """Shortens the advice if the project's own store is missing: `genlock init` needs no URL
    then."""
    with short_remedy(own=app.setting("url") is None):
        yield


# The project's store as a file, for commands that work on files and not on a fleet.


def store_file(app: App, *, must_exist: bool = True) -> Path:
    """Returns the store's file; an error if the store is not a file or is missing."""
    from genlock.project_folder import sqlite_path

    path = sqlite_path(app.url)
    if path is None:
        from genlock.schemes import scheme_of

        scheme_of(app.store_url)
        scheme = app.url.partition("://")[0]
        raise BadArgument(
            f"only an SQLite store is a file; for {scheme}:// use the server's own tools"
        )
    if must_exist:
        from genlock.cli import open_fleet

        open_fleet.must_exist(app)
    return path
