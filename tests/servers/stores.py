"""The stores that tests run on, by name: which server each needs, and how the store that belongs to a folder is opened there.

A new store is one more entry here, and the tests of the engine, the processes and the scenarios run on it too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import genlock
from genlock.store import Clock, Store
from tests.servers import mariadb, postgres


class Kind(NamedTuple):
    """One kind of store."""

    url: Callable[[Path], str]
    """The store that belongs to this path, in whatever process."""
    server: str | None = None
    """The fixture that starts its server."""
    slowness: int = 1
    """By how much a test that has to say a time must say a longer one. Where it is more than 1, `large` tests run nightly."""


LASTING = {
    "sqlite": Kind(lambda place: f"sqlite://{place}"),
    "postgres": Kind(postgres.url_for, "postgres"),
    "mysql": Kind(mariadb.url_for, "mariadb"),
}
"""Those that several processes can open."""

ALL = ("memory", *LASTING)
SERVERS = tuple(name for name, kind in LASTING.items() if kind.server)


def asked_for(request: pytest.FixtureRequest) -> str:
    """The store that a fixture is to give; its server runs from now on."""
    name: str = request.param
    need(request, name)
    return name


def need(request: pytest.FixtureRequest, name: str) -> None:
    """Starts the server of this store, unless it runs already."""
    if name in SERVERS:
        request.getfixturevalue(str(LASTING[name].server))


def opened(name: str, place: Path, clock: Clock | None = None) -> Store:
    """A handle of its own on the store that belongs to this path."""
    return genlock.open_store(LASTING[name].url(place), clock=clock)
