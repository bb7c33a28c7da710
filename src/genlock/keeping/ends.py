"""The two stores of a copy, by URL. The source is only read, and is not made if it is not there."""

from __future__ import annotations

from genlock.errors import BadArgument, NotFound
from genlock.open import open_store
from genlock.places import sqlite_path
from genlock.store import Store


def open_source(url: str) -> Store:
    """The store that is copied, for reading where that can be said."""
    _refuse_memory(url)
    path = sqlite_path(url)
    if path is None:
        return open_store(url)
    if not path.exists():
        raise NotFound(f"there is no store at {path} to be copied")
    from genlock.stores.sqlite import SQLiteStore

    return SQLiteStore(path, read_only=True)


def open_target(url: str, *, any_order: bool = False) -> Store:
    """The store that it is copied to; made if it is not there. What is cut off leaves a beginning in it, unless any order will do."""
    _refuse_memory(url)
    store = open_store(url)
    if url.startswith("dynamodb://") and not any_order:  # the one store of ours in which a commit is not all or nothing
        from genlock.stores.dynamodb import DynamoDBStore

        assert isinstance(store, DynamoDBStore)
        store.write_in_order()
    return store


def user_of(url: str) -> int | None:
    """A process that has the store open, where that can be known: it is a file, and not ours yet."""
    path = sqlite_path(url)
    if path is None or not path.exists():
        return None
    from genlock.stores.sqlite.backup import user_of as user_of_file

    return user_of_file(path)


def _refuse_memory(url: str) -> None:
    if url.startswith("memory://"):
        raise BadArgument("memory:// lasts as long as a process: there is nothing in it to be copied, and nothing would be left of a copy")
