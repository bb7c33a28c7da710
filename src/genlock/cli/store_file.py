"""The project's store as a file, for verbs that deal with files and not with a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.cli.app import App


def store_file(app: App, *, must_exist: bool = True) -> Path:
    """The file; an error for a store that is none, or not there."""
    from genlock.places import sqlite_path

    path = sqlite_path(app.url)
    if path is None:
        from genlock.schemes import scheme_of

        scheme_of(app.store_url)
        scheme = app.url.partition("://")[0]
        raise BadArgument(f"only an SQLite store is a file; for {scheme}:// use the server's own tools")
    if must_exist:
        from genlock.cli import opening

        opening.must_exist(app)
    return path
