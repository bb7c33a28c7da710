"""The stores keep the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from genlock.store import Clock, Store
from genlock.stores.memory import MemoryStore
from genlock.stores.postgres import PostgresStore
from genlock.stores.redis import RedisStore
from genlock.stores.sqlite import SQLiteStore
from genlock.testing import StoreContract
from tests.servers import postgres, redis

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


@pytest.mark.usefixtures("redis")
class TestRedisStore(StoreContract):
    payloads_supported = False

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return RedisStore(redis.url_for(place), clock=clock)
