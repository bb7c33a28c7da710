"""Redis servers that crash, and replicas that are promoted by force: two histories never both
count, and the epoch says so."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import pytest

import genlock
from genlock.errors import CursorLost, OutcomeUnknown, StoreError, StoreForeign, StoreUnavailable
from genlock.store import Change, Committed, Conflict, EventQuery, Key, Store
from genlock.stores.redis import RedisStore
from genlock.testing.concurrency import together
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually
from tests.servers.proxy import Proxy, between
from tests.servers.redis import Redis, await_replica, running
from tests.stores.server_suite import (
    follow_a_switchover,
    lose_nothing_in_a_crash,
    outlive_a_promotion,
)

FEED = EventQuery("acme", "apollo")
FIRST_SECOND = 1_767_225_600  # 2026-01-01 00:00:00 UTC


class Pair(NamedTuple):
    """A master, and a replica that hears of it by way of a proxy."""

    master: Redis
    replica: Redis
    way: Proxy

    def part(self) -> None:
        """From now on the replica hears nothing of what the master does."""
        self.way.close()

    def promote(self) -> None:
        """By force: whatever the replica has not heard of is lost."""
        self.replica.tell("REPLICAOF", "NO", "ONE")


@pytest.fixture(name="pair")
def _pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        master = stack.enter_context(running())
        way = stack.enter_context(between(master.port))
        replica = stack.enter_context(running(replicaof=f"127.0.0.1 {way.port}"))
        await_replica(master, replica)
        yield Pair(master, replica, way)


@contextmanager
def opened(url: str) -> Iterator[RedisStore]:
    store = RedisStore(url)
    try:
        yield store
    finally:
        store.close()


def by_way_of(proxy: Proxy, url: str) -> str:
    """The same server, asked through the proxy."""
    return re.sub(r":\d+/", f":{proxy.port}/", url, count=1)


def commit_once_promoted(store: Store, change: Change) -> None:
    """Commits once the store is back, and once the rise of the epoch has made one conflict."""

    def committed() -> bool:
        store.load([change.key])
        (answer,) = store.commit([change])
        return isinstance(answer, Committed)

    eventually(committed, "the store to come back", retry_on=(StoreUnavailable, OutcomeUnknown))


def answered(store: Store, *keys: Key) -> list[Key]:
    """Which of these are there, once the store says so."""
    snapshot = eventually(
        lambda: store.load(keys), "the replica to answer", retry_on=(StoreUnavailable,)
    )
    return list(snapshot.records)


# Promotion


def test_two_histories_after_a_forced_promotion_never_both_count(pair: Pair) -> None:
    """The lost history grants generation 2 to bob; the surviving one must never grant it to
    anybody."""
    old = genlock.connect(pair.master.url("x"), create=True, session_id="s1", agent_id="alice")
    old.add_tasks(tasks=["T", "U"])
    assert old.claim_task(task_id="T").claim is not None
    await_replica(pair.master, pair.replica)
    pair.part()
    old.release_claim(task_id="T", expected_generation=1)
    lost = old.claim_task(task_id="T", session_id="s2", agent_id="bob")
    assert lost.claim is not None
    assert lost.claim.generation == 2
    also_lost = old.claim_task(task_id="U", session_id="s2", agent_id="bob").claim
    assert also_lost is not None
    assert also_lost.generation == 1
    pair.promote()

    with genlock.connect(
        pair.replica.url("x"), create=True, session_id="s3", agent_id="carol"
    ) as new:
        state = new.get_task_state(task_id="T")
        assert (state.generation, state.holder and state.holder.session) == (1, "s1"), (
            "what bob was granted is lost"
        )
        taken = new.force_release(task_id="T", take_over=True)
        assert taken.generation > 1_000_000
        granted = new.claim_task(task_id="T").claim
        assert granted is not None
        assert granted.generation == taken.generation
        fresh = new.claim_task(task_id="U").claim
        assert fresh is not None
        assert fresh.generation > 1_000_000
        for generation, session in ((1, "s1"), (2, "s2")):
            late = new.submit_result(
                task_id="T", generation=generation, session_id=session, result_data={"late": True}
            )
            assert (late.accepted, late.reason, late.kept) == (False, "STALE_GENERATION", True)
        assert not new.submit_result(task_id="U", generation=1, session_id="s2").accepted
        assert new.submit_result(task_id="T", generation=granted.generation).accepted
    old.close()


@pytest.mark.parametrize("known", [0, 3])
def test_an_id_that_was_given_out_in_the_lost_history_is_not_given_out_again(
    pair: Pair, known: int
) -> None:
    """Also where the replica has never heard of the counter."""
    with genlock.connect(pair.master.url("x"), create=True, session_id="s1") as old:
        old.add_tasks(tasks=["T"])
        before = [old.next_id() for _ in range(known)]
        await_replica(pair.master, pair.replica)
        pair.part()
        lost = [old.next_id() for _ in range(5)] + list(old.next_id(count=990))
        pair.promote()
    with genlock.connect(pair.replica.url("x"), create=True, session_id="s2") as new:
        after = [new.next_id() for _ in range(5)]
    assert not {*before, *lost} & {*after}
    assert after == [f"{known + 1_000 + number:04}" for number in range(1, 6)], (
        "it skips once, not each time"
    )


def test_who_held_a_task_before_and_after_the_promotion_may_still_submit(pair: Pair) -> None:
    with genlock.connect(
        pair.master.url("x"), create=True, session_id="s1", agent_id="alice"
    ) as old:
        old.add_tasks(tasks=["T"])
        claim = old.claim_task(task_id="T").claim
        assert claim is not None
        await_replica(pair.master, pair.replica)
        pair.promote()
    with genlock.connect(
        pair.replica.url("x"), create=True, session_id="s1", agent_id="alice"
    ) as new:
        assert new.submit_result(task_id="T", generation=claim.generation).accepted


def test_the_first_commit_after_a_promotion_raises_the_epoch_and_writes_nothing(pair: Pair) -> None:
    with opened(pair.master.url("x")) as store:
        first = make_change(make_key())
        commit(store, first)
        cursor = store.read_events(FEED).cursor
    await_replica(pair.master, pair.replica)
    pair.promote()
    with opened(pair.replica.url("x")) as store:
        assert store.load([]).epoch == 0
        assert store.read_events(EventQuery("acme", "apollo", after=cursor)).events == []
        second = make_change(first.key, first)
        assert store.commit([second, make_change(make_key(project="gemini"))]) == [
            Conflict(),
            Conflict(),
        ]
        epoch = store.load([]).epoch
        assert FIRST_SECOND < FIRST_SECOND + epoch // 16 < int(pair.replica.tell("TIME")[0]), (
            "the second of its number is over"
        )
        assert len(read_feed(store)) == 1
        with pytest.raises(CursorLost, match="of epoch 0"):
            store.read_events(EventQuery("acme", "apollo", after=cursor))
        commit(store, second)
        assert store.load([]).epoch == epoch
        why = pair.replica.tell("HGET", store._names.store, f"epoch:{epoch}")
        assert b"replication id" in why


def test_a_first_replica_makes_the_epoch_rise_too_and_nothing_is_lost_by_it() -> None:
    """The server changes its replication id, and nobody can tell why."""
    with running() as master, opened(master.url("x")) as store:
        first = make_change(make_key())
        commit(store, first)
        with running(replicaof=f"127.0.0.1 {master.port}") as replica:
            await_replica(master, replica)
            commit_once_promoted(store, make_change(first.key, first))
            assert store.load([]).epoch > 0
            assert len(read_feed(store)) == 2


def test_what_was_decided_before_the_epoch_rose_is_a_conflict_even_where_the_record_is_the_same(
    pair: Pair,
) -> None:
    """Another coordinator has raised it meanwhile; the record is what we read, on a server that is
    gone."""
    first = make_change(make_key())
    with opened(pair.master.url("x")) as store:
        commit(store, first)
    await_replica(pair.master, pair.replica)
    with between(pair.master.port) as way, opened(by_way_of(way, pair.master.url("x"))) as slow:
        read = slow.load([first.key]).records[first.key]
        pair.promote()
        with opened(pair.replica.url("x")) as other:
            other.commit([make_change(make_key("A-002"))])
            commit(other, make_change(make_key("A-002")))
        way.lead_to(pair.replica.port)
        # Whoever has read it, any thread may commit it.
        (run,) = together([lambda: slow.commit([make_change(first.key, read)], epoch=0)])
        assert run.answer == [Conflict()]
        commit(slow, make_change(first.key, slow.load([first.key]).records[first.key]))


def test_an_epoch_that_was_begun_and_lost_is_not_begun_again(pair: Pair) -> None:
    """A second promotion, of a server that has not heard of the first."""
    first = make_change(make_key())
    with opened(pair.master.url("x")) as store:
        commit(store, first)
    await_replica(pair.master, pair.replica)
    with running(replicaof=f"127.0.0.1 {pair.way.port}") as second:
        await_replica(pair.master, second)
        pair.part()
        epochs = []
        for server in (pair.replica, second):
            server.tell("REPLICAOF", "NO", "ONE")
            with opened(server.url("x")) as store:
                commit_once_promoted(store, make_change(first.key, first))
                epochs.append(store.load([]).epoch)
        assert 0 < epochs[0] != epochs[1] > 0


def test_a_commit_that_waited_for_its_replica_outlives_the_promotion(pair: Pair) -> None:
    with opened(pair.master.url("x", wait=1, wait_timeout=9)) as store:
        changes = [make_change(make_key(f"A-{number}")) for number in range(20)]
        for change in changes:
            commit(store, change)
    pair.part()
    pair.promote()
    with opened(pair.replica.url("x")) as store:
        assert {event.key for event in read_feed(store)} == {change.key for change in changes}


def test_a_commit_that_was_cut_before_its_replica_had_it_is_found_by_nobody_until_it_has(
    pair: Pair,
) -> None:
    """Whoever looks for the outcome of his commit would find it on the master, and count on what a
    promotion may still undo."""
    with opened(pair.master.url("x", wait=1, wait_timeout=9)) as patient:
        commit(patient, make_change(make_key()))
    with (
        between(pair.master.port) as near,
        opened(by_way_of(near, pair.master.url("x", wait=1, wait_timeout=0.2))) as store,
    ):
        pair.way.fall_silent()
        near.cut_at_the_answer_to(b"EVALSHA")
        second = make_change(make_key("A-002"))
        with pytest.raises(OutcomeUnknown, match="broke off"):
            store.commit([second])
        assert near.swallowed.is_set()
        for ask in (lambda: store.load([second.key]), lambda: read_feed(store)):
            with pytest.raises(StoreUnavailable, match="still on 0 of 1 replicas"):
                ask()
        pair.way.cut()  # so that the replica asks again
        assert answered(store, second.key) == [second.key]
        pair.part()
        pair.promote()
        with opened(pair.replica.url("x")) as promoted:
            assert list(promoted.load([second.key]).records) == [second.key]


def test_a_master_that_has_become_a_replica_is_unavailable_and_nothing_is_written(
    pair: Pair,
) -> None:
    with opened(pair.master.url("x")) as store:
        first = make_change(make_key())
        commit(store, first)
        await_replica(pair.master, pair.replica)
        pair.promote()
        pair.master.tell("REPLICAOF", "127.0.0.1", pair.replica.port)
        with pytest.raises(StoreUnavailable, match="has become a replica; nothing was written"):
            store.commit([make_change(first.key, first)])


def test_a_store_on_a_replica_is_written_to_once_that_is_promoted(pair: Pair) -> None:
    with opened(pair.master.url("x", wait=1, wait_timeout=9)) as store:
        commit(store, make_change(make_key("A-001")))
    with opened(pair.replica.url("x")) as store:
        outlive_a_promotion(store, pair.promote)


def test_a_replica_that_is_promoted_and_keeps_less_than_the_url_promises_is_not_written_to(
    pair: Pair,
) -> None:
    with opened(pair.master.url("x", wait=1, wait_timeout=9)) as store:
        commit(store, make_change(make_key("A-001")))
    with opened(pair.replica.url("x", durability="always")) as store:
        pair.promote()
        with pytest.raises(
            StoreError, match="durability=always, and the server has appendfsync everysec"
        ):
            store.commit([make_change(make_key("A-002"))])


def test_a_server_whose_master_is_away_and_that_shows_nothing_old_is_unavailable_until_it_shows_something() -> (
    None
):
    with running(replica_serve_stale_data="no") as server, opened(server.url("x")) as store:
        commit(store, make_change(make_key()))
        server.tell("REPLICAOF", "127.0.0.1", 1)
        with pytest.raises(StoreUnavailable, match="Link with MASTER is down"):
            store.load([make_key()])
        with pytest.raises(StoreUnavailable, match="Link with MASTER is down"):
            RedisStore(server.url("x"))
        server.tell("REPLICAOF", "NO", "ONE")
        assert list(store.load([make_key()]).records) == [make_key()]


def test_commits_follow_the_address_of_the_master_to_another_server(pair: Pair) -> None:
    def switch_over() -> None:
        await_replica(pair.master, pair.replica)
        pair.promote()
        pair.master.tell("REPLICAOF", "127.0.0.1", pair.replica.port)

    with between(pair.master.port) as way, opened(by_way_of(way, pair.master.url("x"))) as store:
        follow_a_switchover(store, way, switch_over, pair.replica.port)


def test_what_is_owed_to_replicas_does_not_keep_a_store_at_a_server_that_has_become_one(
    pair: Pair,
) -> None:
    first, lost = make_change(make_key()), make_change(make_key("A-002"))
    with opened(pair.master.url("x", wait=1, wait_timeout=9)) as patient:
        commit(patient, first)
    with (
        between(pair.master.port) as near,
        opened(by_way_of(near, pair.master.url("x", wait=1, wait_timeout=0.2))) as store,
    ):
        pair.way.fall_silent()
        with pytest.raises(OutcomeUnknown, match="on 0 of 1 replicas"):
            store.commit([lost])
        pair.part()
        pair.promote()
        pair.master.tell("REPLICAOF", "127.0.0.1", pair.replica.port)
        near.lead_new_ones_to(pair.replica.port)
        with pytest.raises(StoreUnavailable, match="has become a replica"):
            store.load([lost.key])
        await_replica(pair.replica, pair.master)
        assert answered(store, first.key, lost.key) == [first.key]


def test_a_promoted_replica_that_never_had_the_store_is_not_taken_for_it(pair: Pair) -> None:
    with between(pair.master.port) as way, opened(by_way_of(way, pair.master.url("x"))) as store:
        commit(store, make_change(make_key()))
        with running() as empty:
            way.lead_to(empty.port)
            with pytest.raises(StoreForeign, match="not there any more"):
                store.commit([make_change(make_key("A-002"))])
            with pytest.raises(StoreForeign, match="not there any more"):
                store.load([])


# Crashes


@pytest.mark.parametrize("options", [{}, {"alone": "on"}])
def test_nothing_acknowledged_is_lost_when_a_server_that_syncs_crashes_and_the_store_comes_back_by_itself(
    options: dict[str, str],
) -> None:
    with (
        running(appendfsync="always") as server,
        opened(server.url("x", durability="always", **options)) as store,
    ):
        lose_nothing_in_a_crash(store, server.stop, server.start, commit_once_promoted)
        assert bool(store.load([]).epoch) != bool(options), (
            "a server that is alone and syncs loses nothing, others may"
        )


def test_a_server_that_comes_back_without_its_last_writes_begins_another_epoch_each_time() -> None:
    """As after a crash of the machine: what had not been synced is gone, also that an epoch had
    been begun."""
    with running(appendfsync="always") as server:
        epochs = []
        first = make_change(make_key())
        with opened(server.url("x")) as store:
            commit(store, first)
        server.stop()
        synced = server.folder.parent / f"{server.folder.name}-synced"
        shutil.copytree(server.folder, synced)
        try:
            for mark in ("one", "another"):
                server.start()
                with opened(server.url("x")) as store:
                    commit_once_promoted(store, make_change(first.key, first, mark=mark))
                    epochs.append(store.load([]).epoch)
                server.stop()
                shutil.rmtree(server.folder)
                shutil.copytree(synced, server.folder)
        finally:
            shutil.rmtree(synced)
        assert 0 < epochs[0] != epochs[1] > 0
