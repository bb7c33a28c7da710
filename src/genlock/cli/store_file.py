"""The project's store as a file, for verbs that deal with files and not with a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from genlock.errors import BadArgument

if TYPE_CHECKING:
    from genlock.cli.app import App
    from genlock.store import Store


def store_file(app: App, *, must_exist: bool = True) -> Path:
    """The file; an error for a store that is none, or not there."""
    path = _path(app)
    if path is None:
        scheme = app.url.partition("://")[0]
        raise BadArgument(f"only an SQLite store is a file; for {scheme}:// use the server's own tools")
    if must_exist:
        _must_exist(app, path)
    return path


def open_instant(app: App) -> Store:
    """The store for reading, of one instant where there is such a thing."""
    path = _path(app)
    if path is None:
        from genlock.open import open_store

        return open_store(app.url)
    _must_exist(app, path)
    from genlock.stores.sqlite import SQLiteStore

    return SQLiteStore(path, instant=True)


def _path(app: App) -> Path | None:
    from genlock.cli.opening import sqlite_path

    return sqlite_path(app.url)


def _must_exist(app: App, path: Path) -> None:
    if not path.exists():
        from genlock.cli.opening import NoProject

        given = f" --url {app.url}" if app.setting("url") else ""
        raise NoProject(f"there is no store at {path}; to make one, type: genlock init{given}")
