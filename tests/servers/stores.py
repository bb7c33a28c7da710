"""The stores that tests run on, by name: which server each needs, and how the store that belongs to
a folder is opened there.

A new store is one more entry here, and the tests of the engine, the processes and the scenarios run
on it too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

import genlock
from genlock.store import Clock, Store
from tests.servers import mariadb, ministack, postgres, redis


class Server(Protocol):
    """A server of a test's own, which it may stop and crash. The port stays the same from one start
    to the next."""

    port: int

    def start(self) -> None:
        """Returns when it takes connections."""

    def stop(self) -> None:
        """As an operator would: connections are broken off."""

    def kill(self) -> None:
        """As if it had crashed."""

    def store_url(self, place: Path, port: int | None = None) -> str:
        """The store that belongs to this path, by way of another port (a proxy's) if one is
        given."""


class Kind(NamedTuple):
    """One kind of store."""

    url: Callable[[Path], str]
    """The store that belongs to this path, in whatever process."""
    server: str | None = None
    """The fixture that starts its server."""
    slowness: int = 1
    """By how much a test that has to say a time must say a longer one. Where it is more than 1,
    `large` tests run nightly."""
    nightly: bool = False
    """Do the tests of the engine and the processes, and the scenarios, run there nightly, all but
    those marked `core`?"""
    there: Callable[[], bool] = lambda: True
    """Can its server be started on this machine?"""
    own: Callable[[], AbstractContextManager[Server]] | None = None
    """Starts a server of a test's own, which syncs: for tests that disturb it."""


LASTING = {
    "sqlite": Kind(lambda place: f"sqlite://{place}"),
    "folder": Kind(lambda place: f"folder://{place}.folder?layout=gptodo", nightly=True),
    "postgres": Kind(
        postgres.url_for,
        "postgres",
        there=lambda: postgres.binaries() is not None,
        own=postgres.running,
    ),
    "mysql": Kind(mariadb.url_for, "mariadb", there=mariadb.is_there, own=mariadb.running),
    "redis": Kind(redis.url_for, "redis", there=redis.is_there, own=redis.syncing),
    # Its server and its driver are Python, and take some milliseconds each for every call: all of
    # the tests took minutes.
    "dynamodb": Kind(
        ministack.url_with_payloads,
        "dynamodb",
        slowness=6,
        nightly=True,
        there=ministack.PROGRAM.exists,
    ),
}
"""Those that several processes can open."""

ALL = ("memory", *LASTING)
SERVERS = tuple(name for name, kind in LASTING.items() if kind.server)
NIGHTLY = frozenset(name for name, kind in LASTING.items() if kind.nightly)
DISTURBED = tuple(name for name, kind in LASTING.items() if kind.own)
"""Those whose server a test may have for itself."""


def absent() -> list[str]:
    """Those whose server is not on this machine. Where a missing server is a failure, none counts
    as absent: its tests fail, and say so."""
    return (
        []
        if os.environ.get("CI") == "true"
        else [name for name, kind in LASTING.items() if not kind.there()]
    )


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
    return genlock.open_store(LASTING[name].url(place), create=True, clock=clock)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.slow] if LASTING[name].slowness > 1 else [])
        for name in DISTURBED
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of each kind in turn, which the tests of one file may stop and crash; where
    everything takes longer, nightly."""
    own = LASTING[request.param].own
    assert own is not None
    with own() as server:
        yield server
