"""PostgreSQL replicas that are promoted by force, and servers that only look like others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

import pytest

from genlock.errors import StoreError
from genlock.store import Conflict
from genlock.stores.postgres import PostgresStore
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually
from tests.servers import pgbouncer
from tests.servers.postgres import Postgres, await_replica, binaries, running
from tests.servers.proxy import Proxy, between
from tests.stores.failover_suite import Pair, PromotedStore, commit_once_promoted

SCHEMA = "plans"
MARK = f"SELECT mark FROM {SCHEMA}.server"


class Servers(NamedTuple):
    """A primary, and a replica that hears of it by way of a proxy."""

    version: int
    primary: Postgres
    replica: Postgres
    way: Proxy

    def part(self) -> None:
        """From now on the replica hears nothing of what the primary does."""
        await_replica(self.primary, self.replica)
        self.way.close()


@pytest.fixture(name="servers", params=[18, pytest.param(15, marks=pytest.mark.slow)])
def _servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    if binaries(request.param) is None and not os.environ.get(
        "CI"
    ):  # there it fails, for want of the server
        pytest.skip(f"there is no PostgreSQL {request.param} here")
    with ExitStack() as stack:
        primary = stack.enter_context(running(request.param, fsync="off"))
        way = stack.enter_context(between(primary.port))
        replica = stack.enter_context(running(request.param, way.port, fsync="off"))
        yield Servers(request.param, primary, replica, way)


@pytest.fixture(name="primary")
def _primary() -> Iterator[Postgres]:
    with running(fsync="off") as server:
        yield server


def opened(server: Postgres) -> closing[PostgresStore]:
    return closing(PostgresStore(server.url(SCHEMA)))


class TestPostgresPromoted(PromotedStore):
    @pytest.fixture
    def pair(self, servers: Servers) -> Pair:
        primary, replica = servers.primary, servers.replica
        urls = primary.url(SCHEMA), replica.url(SCHEMA)
        return Pair(PostgresStore, *urls, primary.port, replica.port, servers.part, replica.promote)


def test_an_epoch_that_was_begun_and_lost_is_not_begun_again(servers: Servers) -> None:
    """A second promotion, of a server that has not heard of the first: it gives the new timeline
    the same number."""
    with opened(servers.primary) as store:
        commit(store, make_change(make_key()))
    with running(servers.version, servers.way.port, fsync="off") as second:
        await_replica(servers.primary, second)
        servers.part()
        epochs = []
        for server in (servers.replica, second):
            server.promote()
            with opened(server) as store:
                commit_once_promoted(store, make_change(make_key("A-002")))
                epochs.append(store.load([]).epoch)
        assert servers.replica.ask(MARK) == second.ask(MARK)
        assert 0 < epochs[0] != epochs[1] > 0


def test_a_server_that_was_restarted_or_has_crashed_is_the_same(primary: Postgres) -> None:
    with opened(primary) as store:
        commit(store, make_change(make_key()))
        for end in (primary.stop, primary.kill):
            end()
            primary.start()
            commit_once_promoted(store, make_change(make_key(end.__name__)))
        assert store.load([]).epoch == 0


def test_a_copy_of_the_store_on_another_server_is_another_history(primary: Postgres) -> None:
    """Such as one that logical replication has made: its timeline has the same number."""
    with opened(primary) as store:
        commit(store, make_change(make_key()))
    assert (
        primary.ask(
            f"UPDATE {SCHEMA}.server SET mark = '123' || substr(mark, strpos(mark, '/')) RETURNING "
            "1"
        )
        == 1
    )
    with opened(primary) as store:
        commit_once_promoted(store, make_change(make_key("A-002")))
        assert store.load([]).epoch > 0


def test_a_standby_that_is_promoted_while_it_is_read_raises_the_epoch(primary: Postgres) -> None:
    with opened(primary) as store:
        commit(store, make_change(make_key()))
    primary.demote()
    with opened(primary) as store:
        assert store.limits.read_only
        primary.promote()
        commit_once_promoted(store, make_change(make_key("A-002")))
        assert store.load([]).epoch > 0


def test_a_server_that_does_not_say_which_it_is_is_written_to_all_the_same(
    primary: Postgres,
) -> None:
    """As those are that are only built like PostgreSQL: they have no log that could part."""
    with opened(primary) as store:
        primary.ask(
            f"CREATE OR REPLACE FUNCTION {SCHEMA}.server_mark() RETURNS text LANGUAGE plpgsql "
            "STABLE AS $$ BEGIN RAISE 'not supported here' USING ERRCODE = '0A000'; END $$"
        )
        commit(store, make_change(make_key()))
        assert store.load([]).epoch == 0


def test_behind_a_pooler_a_commit_that_was_meant_for_another_server_writes_nothing(
    primary: Postgres,
) -> None:
    # One connection: while the notifier has it, a commit would open another, which asks anew which
    # server it leads to.
    with closing(PostgresStore(primary.url(SCHEMA, pooled="on", pool="1"))) as store:
        commit(store, make_change(make_key()))
        assert store._mark == primary.ask(MARK)
        store._mark = "another"
        assert store.commit([make_change(make_key("A-002"))]) == [Conflict()]
        assert [event.key.id for event in read_feed(store)] == [make_key().id]
        commit(store, make_change(make_key("A-002")))
        assert store.load([]).epoch == 0


@pytest.mark.slow
def test_behind_a_pooler_whose_server_is_another_one_by_now_nothing_is_written_before_the_epoch_has_risen(
    servers: Servers,
) -> None:
    first = make_change(make_key())
    with between(servers.primary.port) as way, pgbouncer.pooling(way) as port:
        url = servers.primary.url(SCHEMA, pooled="on").replace(
            f":{servers.primary.port}/", f":{port}/"
        )
        with closing(PostgresStore(url)) as store:
            commit(store, first)
            read = store.load([first.key]).records[first.key]
            servers.part()
            servers.replica.promote()
            way.lead_to(servers.replica.port)
            answers = eventually(
                lambda: store.commit([make_change(first.key, read)]),
                "the pooler to come back",
                retry_on=(StoreError,),
            )
            assert answers == [Conflict()]
            assert store.load([]).epoch > 0
            assert len(read_feed(store)) == 1
            commit(store, make_change(first.key, store.load([first.key]).records[first.key]))
