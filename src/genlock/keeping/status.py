"""What a store is: of which format, on which server, and how much is in it."""

from __future__ import annotations

from msgspec import Struct

from genlock.core.keys import NOWHERE
from genlock.engine.check import places
from genlock.open import about_store, open_store
from genlock.store import EventQuery, Query, Store
from genlock.stores.migrations import Applied


class ProjectStatus(Struct, frozen=True):
    """One project of a store."""

    tenant: str
    project: str
    tasks: dict[str, int]
    """How many there are, by state."""
    position: int
    """Of the last event in its feed."""


class Contents(Struct, frozen=True):
    """What can only be said of a store that can be opened."""

    epoch: int
    durable: bool
    shared: bool
    server_clock: bool
    read_only: bool
    projects: tuple[ProjectStatus, ...]


class Status(Struct, frozen=True):
    """All of it. A store of an older format has no `contents` to be seen; one without formats has none, and says of no server."""

    scheme: str
    server: str | None
    format: int | None
    newest: int | None
    migrations: tuple[Applied, ...]
    contents: Contents | None

    @property
    def outdated(self) -> bool:
        """Is it of an older format than this version works with?"""
        return self.format != self.newest


def status(url: str) -> Status:
    """The status of the store at `url`. Nothing is changed."""
    about = about_store(url)
    scheme = url.partition("://")[0]
    if about is None:
        return Status(scheme, None, None, None, (), _contents(url))
    contents = _contents(url) if about.format == about.newest else None
    return Status(scheme, about.server, about.format, about.newest, about.migrations, contents)


def _contents(url: str) -> Contents:
    store = open_store(url, create=False)
    try:
        limits = store.limits
        found = tuple(_project(store, place) for place in places(store) if place[0] != NOWHERE)
        return Contents(store.load([]).epoch, limits.durable, limits.shared, limits.server_clock, limits.read_only, found)
    finally:
        store.close()


def _project(store: Store, place: tuple[str, str]) -> ProjectStatus:
    counts = store.find(Query(*place), count_by="state").counts
    tail = store.read_events(EventQuery(*place, tail=True))
    return ProjectStatus(*place, dict(sorted(counts.items())), tail.position)
