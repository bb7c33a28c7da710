"""What holds on every SQL server whose replica is promoted by force: two histories never both
count, and the epoch says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, NamedTuple

import pytest

import genlock
from genlock.errors import CursorLost, StoreError, StoreReadOnly
from genlock.store import Change, Committed, Conflict, EventQuery, Store
from genlock.testing.concurrency import overlapped, together
from genlock.testing.contract_base import commit
from genlock.testing.sample import make_change, make_key, read_feed
from tests.eventually import eventually
from tests.servers.proxy import between
from tests.stores.server_suite import through

FEED = EventQuery("acme", "apollo")
FIRST_SECOND = 1_767_225_600  # 2026-01-01 00:00:00 UTC


class Pair(NamedTuple):
    """A primary and its replica."""

    kind: Callable[[str], Store]
    primary: str
    """The URL of the store; and of its copy:"""
    replica: str
    port: int
    """Of the primary, and of the replica:"""
    replica_port: int
    part: Callable[[], object]
    """From now on the replica, which has all that there is, hears nothing of what the primary
    does."""
    promote: Callable[[], object]
    """By force: whatever the replica has not heard of is lost."""

    def on_primary(self) -> closing[Store]:
        return closing(self.kind(self.primary))

    def on_replica(self) -> closing[Store]:
        return closing(self.kind(self.replica))


def commit_once_promoted(store: Store, change: Change) -> None:
    """Commits once the store is back, and once the rise of the epoch has made one conflict."""

    def committed() -> bool:
        store.load([change.key])
        (answer,) = store.commit([change])
        return isinstance(answer, Committed)

    eventually(committed, "the store to come back", retry_on=(StoreError,))


class PromotedStore:
    """Tests for whoever inherits them and has a fixture `pair`."""

    def test_two_histories_after_a_forced_promotion_never_both_count(self, pair: Pair) -> None:
        """The lost history grants generation 2 to bob; the surviving one must never grant it to
        anybody."""
        old = genlock.connect(pair.primary, create=True, session_id="s1", agent_id="alice")
        old.add_tasks(tasks=["T", "U"])
        assert old.claim_task(task_id="T").claim is not None
        pair.part()
        old.release_claim(task_id="T", expected_generation=1)
        lost = old.claim_task(task_id="T", session_id="s2", agent_id="bob").claim
        assert lost is not None
        assert lost.generation == 2
        pair.promote()

        with genlock.connect(pair.replica, session_id="s3", agent_id="carol") as new:
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
            late = new.submit_result(
                task_id="T", generation=2, session_id="s2", result_data={"late": True}
            )
            assert (late.accepted, late.reason, late.kept) == (False, "STALE_GENERATION", True)
            assert new.submit_result(task_id="T", generation=granted.generation).accepted
            assert "EPOCH_RAISED" in [event.event_type for event in new.read_events().events]
        old.close()

    @pytest.mark.parametrize("known", [0, 3])
    def test_an_id_that_was_given_out_in_the_lost_history_is_not_given_out_again(
        self, pair: Pair, known: int
    ) -> None:
        """Also where the replica has never heard of the counter."""
        with genlock.connect(pair.primary, create=True, session_id="s1") as old:
            old.add_tasks(tasks=["T"])
            before = [old.next_id() for _ in range(known)]
            pair.part()
            lost = [old.next_id() for _ in range(5)]
            pair.promote()
        with genlock.connect(pair.replica, session_id="s2") as new:
            after = [new.next_id() for _ in range(5)]
        assert not {*before, *lost} & {*after}
        assert after == [f"{known + 1_000 + number:04}" for number in range(1, 6)], (
            "it skips once, not each time"
        )

    def test_the_first_commit_after_a_promotion_raises_the_epoch_and_writes_nothing(
        self, pair: Pair
    ) -> None:
        first = make_change(make_key())
        with pair.on_primary() as store:
            commit(store, first)
            cursor = store.read_events(FEED).cursor
        pair.part()
        pair.promote()
        with pair.on_replica() as store:
            read = store.load([first.key])
            assert read.epoch == 0
            second = make_change(first.key, read.records[first.key])
            assert store.commit([second, make_change(make_key(project="gemini"))]) == [
                Conflict(),
                Conflict(),
            ]
            raised = store.load([first.key])
            epoch = raised.epoch
            assert FIRST_SECOND < FIRST_SECOND + epoch // 16 < int(raised.now.timestamp()), (
                "the second of its number is over"
            )
            assert len(read_feed(store)) == 1
            with pytest.raises(CursorLost, match="of epoch 0"):
                store.read_events(EventQuery("acme", "apollo", after=cursor))
            commit(store, second)
            assert store.load([]).epoch == epoch

    def test_of_many_who_come_to_a_promoted_server_at_once_one_raises_the_epoch(
        self, pair: Pair
    ) -> None:
        with pair.on_primary() as store:
            commit(store, make_change(make_key()))
        pair.part()
        pair.promote()
        with ExitStack() as stack:
            stores = [stack.enter_context(pair.on_replica()) for _ in range(8)]
            keys = [make_key(f"B-{number}") for number in range(8)]
            runs = together(
                [
                    partial(store.commit, [make_change(key)])
                    for store, key in zip(stores, keys, strict=True)
                ]
            )
            assert overlapped(runs[0], runs[1:]) > 0
            epochs = {store.load([]).epoch for store in stores}
            for store, key in zip(stores, keys, strict=True):
                commit_once_promoted(store, make_change(make_key(f"C-{key.id}")))
            assert epochs == {store.load([]).epoch for store in stores}
            assert len(epochs) == 1
            assert min(epochs) > 0

    def test_what_was_decided_before_the_epoch_rose_is_a_conflict_even_where_the_record_is_the_same(
        self, pair: Pair
    ) -> None:
        """Another coordinator has raised it meanwhile; the record is what we read, on a server that
        is gone."""
        first = make_change(make_key())
        with pair.on_primary() as store:
            commit(store, first)
        pair.part()
        with between(pair.port) as way, closing(pair.kind(through(way, pair.primary))) as slow:
            read = slow.load([first.key]).records[first.key]
            pair.promote()
            with pair.on_replica() as other:
                commit_once_promoted(other, make_change(make_key("A-002")))
            way.lead_to(pair.replica_port)
            # Whoever has read it, any thread may commit it.
            (run,) = together([lambda: slow.commit([make_change(first.key, read)], epoch=0)])
            assert run.answer == [Conflict()]
            commit(slow, make_change(first.key, slow.load([first.key]).records[first.key]))

    def test_who_asks_a_server_a_moment_before_it_is_promoted_writes_nothing_in_the_old_epoch(
        self, pair: Pair
    ) -> None:
        """It is asked which it is, and is a replica; when the commit comes, it is one no more."""
        first = make_change(make_key())
        with between(pair.port) as way, closing(pair.kind(through(way, pair.primary))) as opened:
            store: Any = opened
            commit(store, first)
            pair.part()
            way.lead_to(pair.replica_port)
            heed = store._identify

            def be_promoted(link: object) -> None:
                store._identify = heed
                try:
                    heed(link)
                finally:
                    pair.promote()

            store._identify = be_promoted
            second = make_change(first.key, store.load([first.key]).records[first.key])
            with pytest.raises(StoreReadOnly):
                store.commit([second])
            assert store.commit([second]) == [Conflict()]
            assert store.load([]).epoch > 0
            assert len(read_feed(store)) == 1

    def test_the_epoch_is_never_lowered(self, pair: Pair) -> None:
        with pair.on_primary() as store:
            commit(store, make_change(make_key()))
            store.set_epoch(9_000_000_000)
        pair.part()
        pair.promote()
        with pair.on_replica() as store:
            commit_once_promoted(store, make_change(make_key("A-002")))
            assert store.load([]).epoch == 9_000_000_001
