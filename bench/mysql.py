"""MariaDB under `bench.stores`: tables in a known state, and commits replayed raw.

The raw replay is the packet that the store sends when all changes fit, made before the clock
starts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from genlock.store import Change, Key
from genlock.stores.mysql import MySQLStore
from genlock.stores.mysql.commit import Packet
from genlock.stores.mysql.connection import MySQLConnection, connect
from genlock.stores.mysql.queries import Queries, queries_for
from genlock.stores.mysql.settings import settings_of
from genlock.stores.mysql.store import load
from genlock.stores.round_trips import complete
from tests.servers.mariadb import MariaDB, running


class MySQLDatabases:
    """Copies of the tables of one store in a known state."""

    name = "MariaDB"
    deaf = None

    def __init__(self, server: MariaDB) -> None:
        self._server = server
        self._number = 0

    def url(self, name: str) -> str:
        return self._server.url(f"{name}_")

    def open(self, url: str) -> MySQLStore:
        return MySQLStore(url)

    def create(self, name: str) -> str:
        return self.url(name)

    def settle(self, url: str) -> None:
        """As it would be after a while."""
        self._server.run(f"ANALYZE TABLE {', '.join(self._tables(settings_of(url).prefix))}")

    @contextmanager
    def copy(self, name: str) -> Iterator[str]:
        """A copy's URL; it goes with the block."""
        self._number += 1
        other = f"{name}{self._number}"
        for table in self._tables(f"{name}_"):
            copied = table.replace(name, other, 1)
            self._server.run(f"CREATE TABLE {copied} LIKE {table}")
            self._server.run(f"INSERT INTO {copied} SELECT * FROM {table}")
        self.settle(self.url(other))
        yield self.url(other)
        self._server.run(f"DROP TABLE {', '.join(self._tables(f'{other}_'))}")

    def _tables(self, prefix: str) -> list[str]:
        """All that there are: the store has more with every migration."""
        names = [str(name) for (name,) in self._server.run("SHOW TABLES")]
        return [name for name in names if name.startswith(prefix)]

    def replay(self, url: str, commits: Sequence[Sequence[Change]]) -> float:
        """Runs the commits; the seconds that took."""
        queries = queries_for(settings_of(url).prefix)
        packets = [_packet(queries, commit) for commit in commits]
        with linked(url) as link:
            _number(link, queries, commits)
            start = time.perf_counter()
            for packet in packets:
                link.run(packet)
            return time.perf_counter() - start

    def replay_one_by_one(
        self, url: str, commits: Sequence[Sequence[Change]], loads: Sequence[Sequence[Key]]
    ) -> list[float]:
        """Loads what the engine loaded, then commits; the seconds of each."""
        queries = queries_for(settings_of(url).prefix)
        times = []
        with linked(url) as link:
            _number(link, queries, commits)
            for commit, keys in zip(commits, loads, strict=True):
                packet = _packet(queries, commit)
                start = time.perf_counter()
                complete(load(queries, keys), link.ask)
                link.run(packet)
                times.append(time.perf_counter() - start)
        return times


def _packet(queries: Queries, commit: Sequence[Change]) -> bytes:
    return _of(queries, commit).text()


def _of(queries: Queries, commit: Sequence[Change]) -> Packet:
    return Packet(queries, commit, sorted(range(len(commit)), key=lambda at: commit[at][0]), set())


def _number(link: MySQLConnection, queries: Queries, commits: Sequence[Sequence[Change]]) -> None:
    """Names that occur for the first time get their numbers before the clock starts."""
    for commit in commits:
        packet = _of(queries, commit)
        packet.text()
        link.run(packet.names())


@contextmanager
def linked(url: str) -> Iterator[MySQLConnection]:
    link = connect(settings_of(url))
    try:
        yield link
    finally:
        link.close()


@contextmanager
def mysql_databases() -> Iterator[MySQLDatabases]:
    """On a server of their own, which syncs."""
    with running(innodb_buffer_pool_size="256M", innodb_log_file_size="1G") as server:
        yield MySQLDatabases(server)
