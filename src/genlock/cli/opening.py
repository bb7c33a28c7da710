"""Opening the fleet for a verb, or its store. Only `init` and `db create` make a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from genlock.errors import NotFound, StoreMissing
from genlock.open import connect, open_store
from genlock.settings import login_name

if TYPE_CHECKING:
    from genlock.cli.app import App
    from genlock.coordinator import Coordinator
    from genlock.store import Store


class NoProject(NotFound):
    """There is no project here."""


def open_fleet(app: App) -> Coordinator:
    """The coordinator for this call. Only a worker's verb needs to know on whose behalf it runs.

    Whoever holds a claim is not renamed by what its process is called: for the core, no agent is the claim's own.
    """
    with by_the_short_way(app):
        who = app.who if app.worker else None
        return connect(
            app.url,
            create=False,
            tenant_id=app.setting("tenant"),
            project_id=app.setting("project"),
            session_id=who.session if who else app.setting("session"),
            agent_id=app.setting("agent") or (who.agent if who and not app.holder else None),
            user_id=app.setting("user") or login_name(),
            process=who.process if who else None,
            api_key=app.setting("api_key"),
        )


def open_instant(url: str) -> Store:
    """The store for reading, of one instant where there is such a thing."""
    from genlock.places import sqlite_path

    path = sqlite_path(url)
    if path is None:
        return open_store(url, create=False)
    from genlock.stores.sqlite import SQLiteStore

    return SQLiteStore(path, create=False, instant=True)


def must_exist(app: App) -> None:
    """`StoreMissing` if there is nothing that a doctor could look at; what is wrong with what is there is for him to say."""
    from genlock.places import sqlite_path
    from genlock.schemes import scheme_of

    scheme_of(app.store_url)
    path = sqlite_path(app.url)
    if path is not None and not path.exists():
        from genlock.stores.sqlite.opening import missing

        with by_the_short_way(app):
            raise missing(path)


@contextmanager
def by_the_short_way(app: App) -> Iterator[None]:
    """Where the project's own store is missing it is made without naming it."""
    try:
        yield
    except StoreMissing as error:
        if app.setting("url") is not None:
            raise
        what = str(error).rpartition("; to make one, type: ")[0]
        raise StoreMissing(f"{what}; to make one, type: genlock init") from error
