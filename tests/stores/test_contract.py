"""The stores keep the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from genlock.store import Clock, Store
from genlock.stores.dynamodb import DynamoDBStore
from genlock.stores.folder import open_folder
from genlock.stores.folder import store as folder_store
from genlock.stores.memory import MemoryStore
from genlock.stores.mysql import MySQLStore
from genlock.stores.postgres import PostgresStore
from genlock.stores.redis import RedisStore
from genlock.stores.sqlite import SQLiteStore
from genlock.testing import StoreContract
from genlock.testing.contract_limits import PayloadClauses
from tests.servers import mariadb, ministack, postgres, redis

MEMORIES: dict[Path, MemoryStore] = {}


class TestSQLiteStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return SQLiteStore(place / "genlock.db", clock=clock)


class TestMemoryStore(StoreContract):
    persistent = False
    processes = False

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return MEMORIES.setdefault(place, MemoryStore()).handle(clock=clock)


class TestFolderStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return open_folder(f"folder://{place}/store?layout=gptodo", clock=clock)


class TestFolderStoreThatCompacts(StoreContract):
    # After every commit, so that every reader finds what was compacted.
    nightly = frozenset({
        "test_a_reader_by_cursor_misses_and_doubles_nothing_while_processes_commit",
        "test_names_that_would_be_equal_if_joined_are_apart",
        "test_of_a_killed_process_every_commit_is_done_or_not_done",
        "test_one_of_many_processes_wins_a_record",
        "test_pages_skip_and_double_nothing_that_stays_while_others_come_and_go",
    })  # fmt: skip
    assert nightly <= set(dir(StoreContract))

    @pytest.fixture(autouse=True)
    def _compacting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(folder_store, "_COMPACT_BYTES", 0)
        monkeypatch.setattr(folder_store, "_COMPACT_SHARE", 1_000_000)

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return open_folder(f"folder://{place}/store?layout=none", clock=clock)


@pytest.mark.slow
class TestFolderStoreOfASpool(StoreContract):
    # The store is the same as above; that it looks for the files of tasks changes nothing.
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return open_folder(
            f"folder://{place}/store?layout=spool&tenant=acme&project=apollo", clock=clock
        )


class TestFolderStoreWithoutFlock(StoreContract):
    # Each entry of its journal is a file, and syncing them takes most of the time.
    nightly = frozenset({
        "test_a_reader_by_cursor_misses_and_doubles_nothing_while_processes_commit",
        "test_names_that_would_be_equal_if_joined_are_apart",
        "test_of_a_killed_process_every_commit_is_done_or_not_done",
        "test_one_of_many_processes_wins_a_record",
        "test_pages_skip_and_double_nothing_that_stays_while_others_come_and_go",
    })  # fmt: skip
    assert nightly <= set(dir(StoreContract))

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return open_folder(f"folder://{place}/store?layout=none&lock=link", clock=clock)


@pytest.mark.usefixtures("postgres")
class TestPostgresStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return PostgresStore(postgres.url_for(place), clock=clock)


@pytest.mark.usefixtures("dynamodb")
class TestDynamoDBStore(StoreContract):
    # The longest, which take much of the time of all: they run nightly here, and for every change
    # on the other stores.
    nightly = frozenset({
        "test_a_reader_by_cursor_misses_and_doubles_nothing_while_processes_commit",
        "test_every_cursor_continues_right_after_its_page",
        "test_names_that_would_be_equal_if_joined_are_apart",
        "test_of_a_killed_process_every_commit_is_done_or_not_done",
        "test_one_of_many_processes_wins_a_record",
        "test_one_of_many_threads_wins_a_record_at_one_version_and_digest",
        "test_pages_skip_and_double_nothing_that_stays_while_others_come_and_go",
    })  # fmt: skip
    assert nightly <= set(dir(StoreContract))

    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return DynamoDBStore(ministack.url_with_payloads(place / "genlock.db"), clock=clock)


@pytest.mark.usefixtures("dynamodb")
class TestPayloadsInABucket(PayloadClauses):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return DynamoDBStore(
            ministack.url_for(place / "genlock.db", payloads=ministack.bucket_for(place)),
            clock=clock,
        )


@pytest.mark.usefixtures("redis")
class TestRedisStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return RedisStore(redis.url_for(place), clock=clock)


@pytest.mark.usefixtures("mariadb")
class TestMySQLStore(StoreContract):
    def open(self, place: Path, clock: Clock | None = None) -> Store:
        return MySQLStore(mariadb.url_for(place), clock=clock)
