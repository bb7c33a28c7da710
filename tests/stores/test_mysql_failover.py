"""MariaDB replicas that are promoted by force, and how the servers of MySQL and of clusters are
told from each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from genlock.store import Conflict
from genlock.stores.mysql import MySQLStore
from genlock.stores.mysql.open import mark_of
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key
from tests.servers import mysql
from tests.servers.mariadb import MariaDB, await_replica, running
from tests.stores.failover_suite import Pair, PromotedStore, commit_once_promoted

PREFIX = "plans_"

# On MySQL replication has other words.
pytestmark = pytest.mark.skipif(
    mysql.is_wanted(), reason="the replicas of these tests are MariaDB's"
)


class Servers(NamedTuple):
    """A primary and a replica."""

    primary: MariaDB
    replica: MariaDB

    def part(self) -> None:
        """From now on the replica hears nothing of what the primary does."""
        await_replica(self.primary, self.replica)
        self.replica.run("STOP SLAVE")

    def promote(self) -> None:
        """By force: whatever the replica has not heard of is lost."""
        self.replica.run("STOP SLAVE")
        self.replica.run("RESET SLAVE ALL")
        self.replica.run("SET GLOBAL read_only = 0")


@pytest.fixture(name="servers")
def _servers() -> Iterator[Servers]:
    logs = {"innodb_flush_method": "nosync", "log_bin": "log", "sync_binlog": "1"}
    with (
        running(server_id="1", **logs) as primary,
        running(server_id="2", read_only="1", **logs) as replica,
    ):
        replica.follow(primary)
        yield Servers(primary, replica)


class TestMySQLPromoted(PromotedStore):
    @pytest.fixture
    def pair(self, servers: Servers) -> Pair:
        primary, replica = servers
        return Pair(
            MySQLStore,
            primary.url(PREFIX),
            replica.url(PREFIX),
            primary.port,
            replica.port,
            servers.part,
            servers.promote,
        )


def test_a_server_that_was_restarted_or_has_crashed_is_the_same(servers: Servers) -> None:
    with closing(MySQLStore(servers.primary.url(PREFIX))) as store:
        commit(store, make_change(make_key()))
        for end in (servers.primary.stop, servers.primary.kill):
            end()
            servers.primary.start()
            commit_once_promoted(store, make_change(make_key(end.__name__)))
        assert store.load([]).epoch == 0


def test_a_server_that_was_a_replica_for_a_while_and_is_the_primary_again_raises_the_epoch(
    servers: Servers,
) -> None:
    """No connection breaks when a server becomes a replica, nor when it becomes the primary
    again."""
    primary, replica = servers
    first = make_change(make_key())
    with closing(MySQLStore(primary.url(PREFIX))) as store:
        commit(store, first)
        servers.part()
        servers.promote()
        with closing(MySQLStore(replica.url(PREFIX))) as other:
            commit_once_promoted(other, make_change(make_key("A-002")))
        primary.run("SET GLOBAL read_only = 1")
        primary.follow(replica)
        await_replica(replica, primary)
        between_times = store.load([first.key])
        assert between_times.epoch > 0
        primary.run("STOP SLAVE")
        primary.run("SET GLOBAL read_only = 0")
        assert store.commit([make_change(first.key, between_times.records[first.key])]) == [
            Conflict()
        ]
        assert store.load([]).epoch > between_times.epoch
        commit(store, make_change(first.key, store.load([first.key]).records[first.key]))


ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("found", "mark"),
    [
        ({"server_id": "7"}, "server 7"),
        ({"server_id": "7", "server_uuid": "aa-bb"}, "server aa-bb"),
        ({"server_id": "7", "wsrep_on": "OFF", "wsrep_cluster_state_uuid": ZERO}, "server 7"),
        ({"server_id": "7", "wsrep_on": "ON", "wsrep_cluster_state_uuid": "cc-dd"}, "galera cc-dd"),
        (
            {"server_id": "7", "server_uuid": "aa-bb", "group_replication_group_name": "ee-ff"},
            "group ee-ff",
        ),
        (
            {"server_id": "7", "server_uuid": "aa-bb", "group_replication_group_name": ""},
            "server aa-bb",
        ),
    ],
)
def test_the_nodes_of_a_cluster_that_loses_nothing_count_as_one_server(
    found: dict[str, str], mark: str
) -> None:
    assert mark_of(found) == mark
