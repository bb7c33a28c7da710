"""Opens a database: checks the owner and format of the schema, and identifies the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from genlock.errors import GenlockError, StoreForeign
from genlock.failpoints import hit
from genlock.stores.connection_pool import Refused
from genlock.stores.epoch_guard import EpochNumber
from genlock.stores.migrations import MIGRATION_SECONDS, About, Condition, Migrated, Schema
from genlock.stores.postgres.connection import PostgresConnection, connect
from genlock.stores.postgres.errors import ERRORS, STANDBY
from genlock.stores.postgres.queries import Statement, migrations_for, queries_for
from genlock.stores.postgres.settings import Settings, settings_of
from genlock.stores.store_guard import connected

OLDEST_SERVER = 150000
_UNSUPPORTED = "0A000"
"""The SQLSTATE of a server that is built like PostgreSQL, but has no log of its own that could
diverge into two histories."""


def about(url: str) -> About:
    """Returns the schema's description of itself. Changes nothing."""
    settings = settings_of(url)
    with connected(partial(connect, settings), ERRORS, settings.where) as connection:
        return PostgresSchema(settings).about(connection)


def migrate(url: str) -> Migrated:
    """Migrates the schema. It must get its locks as quickly as a commit does, because other commits
    queue behind it."""
    settings = settings_of(url)._replace(statement_timeout=MIGRATION_SECONDS)
    with connected(partial(connect, settings), ERRORS, settings.where) as connection:
        return PostgresSchema(settings).migrate(connection)


class PostgresSchema(Schema[PostgresConnection]):
    """The schema of one store. All missing migrations run in one transaction."""

    name = "postgres"
    foreign = "the schema belongs to another program: name another one (?schema=…)"
    unwritable = "is a standby without a store of this format: name the primary"
    denied = ("42501",)
    advice = "let somebody do it who may create the schema and its tables"

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            settings.where, queries_for(settings.schema), migrations_for(settings.schema)
        )
        self._schema = settings.schema

    def examine(self, connection: PostgresConnection) -> Condition:
        """Returns the condition of the schema, including its format."""
        found = super().examine(connection)
        if found.is_ours and not found.format:
            raise StoreForeign(f"{self.where}: the schema does not say of which format it is")
        return found

    def _look(self, connection: PostgresConnection) -> Condition:
        (row,) = connection.rows(self._queries["look"], schema=self._schema)
        is_ours, objects, standby, syncs, encoding, number = row
        if encoding != "UTF8":
            raise StoreForeign(
                f"{self.where}: the database is in {encoding}, and Genlock needs UTF8"
            )
        if number < OLDEST_SERVER:
            raise StoreForeign(
                f"{self.where}: the server is of version {number // 10000}, and Genlock needs 15 "
                "or later"
            )
        server = f"PostgreSQL {number // 10000}.{number % 10000}"
        return Condition(is_ours, objects, standby, syncs, server)

    @contextmanager
    def _exclusive(self, connection: PostgresConnection) -> Iterator[None]:
        connection.command("BEGIN")
        try:
            connection.rows(self._queries["lock_opening"], schema=self._schema)
            yield
            hit("postgres.open.before_commit")
            connection.command("COMMIT")
        except (Refused, GenlockError):
            connection.command("ROLLBACK")
            raise

    def _apply(self, connection: PostgresConnection, found: int) -> None:
        connection.command(f'CREATE SCHEMA IF NOT EXISTS "{self._schema}"')
        super()._apply(connection, found)
        connection.rows(self._queries["set_format"], **self._made_by())


def server_of(
    connection: PostgresConnection, queries: dict[str, Statement]
) -> tuple[str, int | None]:
    """Returns the server's identity and epoch (ADR 35). Raises the epoch first if the store was
    last written to on another server, or in another history.

    A connection leads to one server for its lifetime, and a primary cannot become a standby without
    a restart. So a connection asks once, before its first write. Behind a pooler the server may
    change at any time, so every commit names the server that it is meant for.

    A standby may be promoted at any moment and keeps its connections. So after a server has
    reported that it is a standby, nothing is written on that connection. The next call that asks
    learns of the new history.
    """
    try:
        while True:
            ((mark, kept, epoch, now),) = connection.rows(queries["heed"])
            if mark is None:
                raise Refused(STANDBY, "the server is a standby, which can only be read")
            if mark != kept:
                # The first server to be written to has no other history beside it, so the epoch
                # stays.
                number = EpochNumber(now / 1_000_000).above(epoch) if kept else 0
                begin = queries["begin_epoch"]
                ((epoch,),) = connection.rows(begin, mark=mark, kept=kept, number=number)
            if epoch is not None:
                return mark, epoch
    except Refused as refused:
        if refused.code != _UNSUPPORTED:
            raise
        return "", None
