"""Opens stores by URL: the source and the target of a copy, with retries. Also reports the status
of a store."""

from __future__ import annotations

import time

from msgspec import Struct

from genlock.core.keys import NOWHERE
from genlock.engine.scan import places
from genlock.errors import BadArgument, NotFound, StoreError
from genlock.open import about_store, open_store
from genlock.project_folder import sqlite_path
from genlock.retry import Backoff, Retry
from genlock.store import EventQuery, Query, Store
from genlock.stores.migrations import Applied


def open_source(url: str) -> Store:
    """Opens the source, read-only where possible. It must exist."""
    _refuse_memory(url)
    path = sqlite_path(url)
    if path is None:
        return open_store(url)
    if not path.exists():
        raise NotFound(f"there is no store at {path} to be copied")
    from genlock.stores.sqlite import SQLiteStore

    return SQLiteStore(path, read_only=True)


def open_target(url: str, *, any_order: bool = False) -> Store:
    """Opens the target, and creates it if it is missing. Unless `any_order`, an interrupted copy
    leaves a prefix of each commit."""
    _refuse_memory(url)
    store = open_store(url, create=True)
    # The only one of our stores in which a commit is not atomic.
    if url.startswith("dynamodb://") and not any_order:
        from genlock.stores.dynamodb import DynamoDBStore

        assert isinstance(store, DynamoDBStore)
        store.write_in_order()
    return store


def user_of(url: str) -> int | None:
    """Returns the pid of a process that has the store open, if the store is a file. This process
    must not have it open yet."""
    path = sqlite_path(url)
    if path is None or not path.exists():
        return None
    from genlock.stores.sqlite.backup import user_of as user_of_file

    return user_of_file(path)


def _refuse_memory(url: str) -> None:
    if url.startswith("memory://"):
        raise BadArgument(
            "memory:// lasts as long as a process: there is nothing in it to be copied, and "
            "nothing would be left of a copy"
        )


class ProjectStatus(Struct, frozen=True):
    """One project of a store."""

    tenant: str
    project: str
    tasks: dict[str, int]
    """The number of tasks by state."""
    position: int
    """The position of the last event in its feed."""


class Contents(Struct, frozen=True):
    """The content of a store that can be opened."""

    epoch: int
    durable: bool
    shared: bool
    server_clock: bool
    read_only: bool
    projects: tuple[ProjectStatus, ...]


class Status(Struct, frozen=True):
    """The format, server and contents of a store. A store of an older format shows no contents; a
    store without formats has no server either."""

    scheme: str
    server: str | None
    format: int | None
    newest: int | None
    migrations: tuple[Applied, ...]
    contents: Contents | None

    @property
    def outdated(self) -> bool:
        """Does the store have an older format than this version needs?"""
        return self.format != self.newest


def status(url: str) -> Status:
    """Returns the status of the store at `url`, which stays unchanged."""
    about = about_store(url)
    scheme = url.partition("://")[0]
    if about is None:
        return Status(scheme, None, None, None, (), _contents(url))
    contents = _contents(url) if about.format == about.newest else None
    return Status(scheme, about.server, about.format, about.newest, about.migrations, contents)


def _contents(url: str) -> Contents:
    store = open_store(url)
    try:
        limits = store.limits
        found = tuple(_project(store, place) for place in places(store) if place[0] != NOWHERE)
        return Contents(
            store.load([]).epoch,
            limits.durable,
            limits.shared,
            limits.server_clock,
            limits.read_only,
            found,
        )
    finally:
        store.close()


def _project(store: Store, place: tuple[str, str]) -> ProjectStatus:
    counts = store.find(Query(*place), count_by="state").counts
    tail = store.read_events(EventQuery(*place, tail=True))
    return ProjectStatus(*place, dict(sorted(counts.items())), tail.position)


SECONDS = 60.0
"""How long a copy retries after the first fault, unless it writes something meanwhile. A copy takes
minutes, in which servers restart."""
BACKOFF = Backoff(first=0.1, longest=5.0, jitter=0)


class TransferRetry:
    """The retry of one copy."""

    def __init__(self) -> None:
        self._retry: Retry | None = None

    def wait(self, fault: StoreError) -> None:
        """Waits until the next attempt. Raises the fault if it lasts too long."""
        now = time.monotonic()
        if self._retry is None:
            self._retry = Retry(BACKOFF, now + SECONDS)
        pause = self._retry.failed(now)
        if pause is None:
            raise fault
        time.sleep(pause)

    def renew(self) -> None:
        """After a successful write: the next fault counts as the first."""
        self._retry = None
