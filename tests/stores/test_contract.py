"""The stores keep the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from genlock.store import Clock, Store
from genlock.stores.memory import MemoryStore
from genlock.stores.mysql import MySQLStore
from genlock.stores.postgres import PostgresStore
from genlock.stores.sqlite import SQLiteStore
from genlock.testing import StoreContract
from tests.servers import mariadb, postgres

MEMORIES: dict[Path, MemoryStore] = {}


class TestSQLiteStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return SQLiteStore(place / "genlock.db", clock=clock)


class TestMemoryStore(StoreContract):
    persistent = False
    processes = False

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return MEMORIES.setdefault(place, MemoryStore()).handle(clock=clock)


@pytest.mark.usefixtures("postgres")
class TestPostgresStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return PostgresStore(postgres.url_for(place), clock=clock)


@pytest.mark.usefixtures("mariadb")
class TestMySQLStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return MySQLStore(mariadb.url_for(place), clock=clock)
