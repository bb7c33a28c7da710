"""PostgreSQL under `bench.stores`: databases in a known state, and commits replayed raw."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg

from genlock.store import Change, Key
from genlock.stores.postgres import PostgresStore
from genlock.stores.postgres.commit import Batch
from genlock.stores.postgres.connection import PostgresConnection, connect
from genlock.stores.postgres.queries import queries_for
from genlock.stores.postgres.settings import settings_of
from genlock.stores.postgres.store import load
from genlock.stores.round_trips import complete
from tests.servers.postgres import Postgres, running

_QUERIES = queries_for("genlock")


class PostgresDatabases:
    """Copies of one database in a known state."""

    name = "PostgreSQL"
    deaf = "listen=off"

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._number = 0

    def run(self, statement: str) -> None:
        with psycopg.connect(self._server.address, autocommit=True) as connection:
            connection.execute(statement)

    def url(self, name: str) -> str:
        return self._server.address.replace("/postgres", f"/{name}")

    def open(self, url: str) -> PostgresStore:
        return PostgresStore(url)

    def create(self, name: str) -> str:
        self.run(f"DROP DATABASE IF EXISTS {name}")
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def settle(self, url: str) -> None:
        """As it would be after a while."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("CHECKPOINT")

    @contextmanager
    def copy(self, name: str) -> Iterator[str]:
        """A copy's URL; it goes with the block."""
        self._number += 1
        other = f"{name}_{self._number}"
        self.run(f"CREATE DATABASE {other} TEMPLATE {name}")
        yield self.url(other)
        self.run(f"DROP DATABASE {other} (FORCE)")

    def replay(self, url: str, commits: Sequence[Sequence[Change]]) -> float:
        """Runs the commits; the seconds that took."""
        batches = [Batch(commit).columns() for commit in commits]
        with linked(url) as link:
            start = time.perf_counter()
            for columns in batches:
                link.call(_QUERIES["commit"].text, columns)
            return time.perf_counter() - start

    def replay_one_by_one(
        self, url: str, commits: Sequence[Sequence[Change]], loads: Sequence[Sequence[Key]]
    ) -> list[float]:
        """Loads what the engine loaded, then commits; the seconds of each."""
        times = []
        with linked(url) as link:
            for commit, keys in zip(commits, loads, strict=True):
                columns = Batch(commit).columns()
                start = time.perf_counter()
                complete(load(_QUERIES["load"], keys), link.ask)
                link.call(_QUERIES["commit"].text, columns)
                times.append(time.perf_counter() - start)
        return times


@contextmanager
def linked(url: str) -> Iterator[PostgresConnection]:
    link = connect(settings_of(url))
    try:
        yield link
    finally:
        link.close()


@contextmanager
def postgres_databases() -> Iterator[PostgresDatabases]:
    """On a server of their own."""
    with running(shared_buffers="256MB", max_wal_size="4GB") as server:
        yield PostgresDatabases(server)
