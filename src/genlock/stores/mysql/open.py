"""Opens a database: checks the owner and format of the tables, and identifies the server."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from genlock.errors import StoreForeign, StoreUnavailable
from genlock.failpoints import hit
from genlock.stores.connection_pool import Refused
from genlock.stores.cursors import text
from genlock.stores.epoch_guard import EpochNumber
from genlock.stores.migrations import MIGRATION_SECONDS, About, Condition, Migrated, Schema
from genlock.stores.mysql.connection import MySQLConnection, Row, connect
from genlock.stores.mysql.errors import ERRORS, READ_ONLY
from genlock.stores.mysql.queries import Queries, migrations_for, queries_for, tables_for
from genlock.stores.mysql.settings import Settings, settings_of
from genlock.stores.store_guard import connected

OLDEST_MYSQL = (8, 4)
OLDEST_MARIADB = (10, 11)
SECONDS_FOR_OTHERS = 30
"""How long opening waits for another process that is creating the tables."""

_VERSION = re.compile(r"(\d+)\.(\d+)")
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


def about(url: str) -> About:
    """Returns the tables' description of themselves. Changes nothing."""
    settings = settings_of(url)
    with connected(partial(connect, settings), ERRORS, settings.where) as connection:
        return MySQLSchema(settings).about(connection)


def migrate(url: str) -> Migrated:
    """Migrates the tables."""
    settings = settings_of(url)._replace(statement_timeout=MIGRATION_SECONDS)
    with connected(partial(connect, settings), ERRORS, settings.where) as connection:
        return MySQLSchema(settings).migrate(connection)


class MySQLSchema(Schema[MySQLConnection]):
    """The tables of one store.

    MySQL has no transactions for table definitions. A migration can be repeated, and the format is
    written after it is complete.
    """

    name = "mysql"
    foreign = "the tables of this name belong to another program: name others (?prefix=…)"
    unwritable = "can only be read, and has no store of this format: name the primary"
    denied = (1044, 1142, 1227, 1290)
    advice = "let somebody do it who may create tables"

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            settings.where, queries_for(settings.prefix), migrations_for(settings.prefix)
        )
        self._settings = settings

    def _look(self, connection: MySQLConnection) -> Condition:
        prefix = self._settings.prefix
        look = self._queries["look"].filled(meta=f"{prefix}meta", tables=tables_for(prefix))
        server, tables = connection.run(look)
        ((standby, syncs, version, most_bytes),), ((ours, objects),) = server.rows, tables.rows
        return Condition(
            bool(ours),
            objects,
            bool(standby),
            bool(syncs),
            self.checked_version(version.decode()),
            most_bytes,
        )

    def checked_version(self, version: str) -> str:
        """Returns name and version of a server. Raises `StoreForeign` if it is too old."""
        name, oldest = "MySQL", OLDEST_MYSQL
        if "mariadb" in version.lower():
            name, oldest = "MariaDB", OLDEST_MARIADB
        found = _VERSION.match(version)
        if found is None or (int(found[1]), int(found[2])) < oldest:
            raise StoreForeign(
                f"{self.where}: the server is {name} {version}, and Genlock needs "
                f"{oldest[0]}.{oldest[1]} or later"
            )
        return f"{name} {version}"

    @contextmanager
    def _exclusive(self, connection: MySQLConnection) -> Iterator[None]:
        # The lock is server-wide, and its name must be short.
        tables = f"{self._settings.arguments['database']}/{self._settings.prefix}"
        name = f"genlock {hashlib.sha256(tables.encode()).hexdigest()[:40]}"
        lock = self._queries["lock_opening"]
        if connection.rows(lock, name=name, seconds=SECONDS_FOR_OTHERS) != ((1,),):
            raise StoreUnavailable(
                f"{self.where}: somebody else has been creating the tables for "
                f"{SECONDS_FOR_OTHERS} s"
            )
        try:
            yield
        finally:
            if connection.is_alive:
                connection.rows(self._queries["unlock_opening"], name=name)

    def _apply(self, connection: MySQLConnection, found: int) -> None:
        super()._apply(connection, found)
        hit("mysql.open.before_commit")
        birth = secrets.token_bytes(8)
        connection.rows(self._queries["set_format"], birth=birth, **self._made_by())


def server_of(connection: MySQLConnection, queries: Queries) -> tuple[bytes, int]:
    """Returns the server's identity and epoch (ADR 35). Raises the epoch first if the store was
    last written to on another server. Raises `Refused` if the server is read-only.

    MySQL has a UUID for each server. MariaDB has none, but servers that replicate from each other
    must have different numbers. The nodes of a Galera cluster, or of a replication group, count as
    one server, because they commit on most nodes or on none.

    A connection asks before its first write. A server may become a replica and a primary again
    without breaking a connection, and receives in between the mark of the other server that was
    written to. So each commit checks whether the recorded mark is still this server's.

    A replica may be promoted at any moment and keeps its connections, and some users may write to a
    replica. So nothing is written after a server has reported that it is read-only.
    """
    variables, cluster, kept = connection.run(queries["look_at_server"].filled())
    found = dict(map(_texts, [*variables.rows, *cluster.rows]))
    ((before, epoch, now),) = kept.rows
    if found["read_only"] != "OFF":
        raise Refused(READ_ONLY, "the server is a replica, or is set to read_only")
    mark = mark_of(found).encode()
    if before == mark:
        return mark, epoch
    number = EpochNumber(int(now) / 1_000_000)
    return mark, _move(connection, queries, mark, number.above(epoch) if before else 0)


def mark_of(found: dict[str, str]) -> str:
    """Returns the mark of a server with these variables."""
    cluster = found.get("wsrep_cluster_state_uuid", _NO_CLUSTER)
    if found.get("wsrep_on") == "ON" and cluster not in ("", _NO_CLUSTER):
        return f"galera {cluster}"
    if found.get("group_replication_group_name"):
        return f"group {found['group_replication_group_name']}"
    return f"server {found.get('server_uuid') or found['server_id']}"


def _move(connection: MySQLConnection, queries: Queries, mark: bytes, number: int) -> int:
    """Records this server as the store's, and returns the epoch. If several processes detect the
    change, one writes. The others wait for its row and find it done."""
    try:
        *_, kept = connection.run(queries["lock_server"].filled())
        ((before,),) = kept.rows
        if before != mark:
            connection.run(queries["set_server"].filled(mark=mark))
        if before not in (mark, b""):
            connection.run(queries["begin_epoch"].filled(number=number))
        *_, present = connection.run(queries["unlock_server"].filled())
    except Refused:
        connection.command("ROLLBACK")
        raise
    return int(present.rows[0][0])


def _texts(row: Row) -> tuple[str, str]:
    name, value = (str(text(part)) for part in row)
    return name.lower(), value
