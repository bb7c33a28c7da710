"""What a copy reads before it is needed, and that nobody can tell but by the time it takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

import genlock
from genlock.engine.replay_check import check
from genlock.engine.scan import records_of
from genlock.errors import StoreCorrupt, StoreUnavailable
from genlock.retry import Backoff
from genlock.store import (
    Change,
    Committed,
    Conflict,
    EventPage,
    EventQuery,
    Key,
    Limits,
    Query,
    Snapshot,
)
from genlock.stores.memory import MemoryStore
from genlock.transfer import copy as copying
from genlock.transfer import endpoints
from genlock.transfer.bulk_reader import CHUNK, BulkReadStore, prefetched
from genlock.transfer.compare import CopyDiffers
from genlock.transfer.copy import copy
from tests.test_copy import facts_of

SECONDS = 10.0
"""Nothing here takes so long."""
SHARED = Limits(shared=True, writers=4)
PLACE = "default", "default"


def fill(store: MemoryStore, tasks: int) -> None:
    with genlock.connect(store.handle(), session_id="s1", agent_id="ada") as fleet:
        fleet.add_tasks(tasks=[{"id": f"A-{number:03}-task"} for number in range(tasks)])
        for number in range(0, tasks, 3):
            assert fleet.claim_task(task_id=f"A-{number:03}-task").success


@pytest.fixture
def source() -> MemoryStore:
    store = MemoryStore()
    fill(store, 12)
    return store


class TestAhead:
    """The next page is fetched while the last one is at work."""

    def test_all_come_in_their_order(self) -> None:
        assert list(prefetched(range(100))) == list(range(100))
        assert list(prefetched([])) == []
        assert list(prefetched([None, 0])) == [None, 0]

    def test_the_next_is_fetched_while_one_is_at_work(self) -> None:
        fetched = threading.Event()

        def items() -> Iterator[int]:
            yield 1
            fetched.set()
            yield 2

        coming = prefetched(items())
        assert next(coming) == 1
        assert fetched.wait(SECONDS)
        assert list(coming) == [2]

    def test_a_fault_comes_where_the_item_would(self) -> None:
        def items() -> Iterator[int]:
            yield 1
            raise StoreUnavailable("away")

        coming = prefetched(items())
        assert next(coming) == 1
        with pytest.raises(StoreUnavailable, match="away"):
            next(coming)


class Watched(MemoryStore):
    """A store that notes what is asked of it, and by which threads."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0
        self.readers: list[str] = []
        self.damaged: Key | None = None

    def load(
        self, keys: Sequence[Key], queries: Sequence[Query] = (), *, with_index: bool = False
    ) -> Snapshot:
        self.loads += 1
        if self.damaged in keys:
            raise StoreCorrupt("this cannot be read")
        return super().load(keys, queries, with_index=with_index)

    def read_events(self, query: EventQuery) -> EventPage:
        if query.record is not None:
            self.readers.append(threading.current_thread().name)
        return super().read_events(query)


class TestForesight:
    """The replay check asks for each record alone; a server is asked for many."""

    def test_records_are_loaded_many_at_a_time_and_their_events_read_beside_the_check(self) -> None:
        store = Watched()
        fill(store, 200)
        records = sum(
            1
            for kind in ("task", "session", "project", "settled", "counter")
            for _ in records_of(store, *PLACE, kind)
        )
        store.loads, store.readers = 0, []
        with BulkReadStore(store) as seen:
            assert check(seen) == []
        assert len(store.readers) >= records
        assert all(name.startswith("genlock-prefetch") for name in store.readers)
        assert store.loads <= records / CHUNK + 10

    def test_what_is_damaged_is_named_as_ever(self) -> None:
        store = Watched()
        fill(store, 100)
        store.damaged = Key(*PLACE, "task", "A-050-task")
        faults = check(store)
        assert [(fault.where, fault.what) for fault in faults] == [
            ("default/default task A-050-task", "this cannot be read")
        ]
        with BulkReadStore(store) as seen:
            assert check(seen) == faults

    def test_a_store_that_is_away_is_no_fault_of_a_record(self, source: MemoryStore) -> None:
        class Away(Watched):
            def read_events(self, query: EventQuery) -> EventPage:
                if query.record is not None:
                    raise StoreUnavailable("away")
                return super().read_events(query)

        target = Away()
        fill(target, 3)
        with pytest.raises(StoreUnavailable, match="away"), BulkReadStore(target) as seen:
            check(seen)

    def test_a_copy_on_a_server_is_checked_so_and_what_is_wrong_is_found(
        self, source: MemoryStore
    ) -> None:
        class Forgetful(Watched):
            def load(
                self,
                keys: Sequence[Key],
                queries: Sequence[Query] = (),
                *,
                with_index: bool = False,
            ) -> Snapshot:
                snapshot = super().load(keys, queries, with_index=with_index)
                if not with_index:
                    return snapshot
                records = {
                    key: stored._replace(digest=b"another")
                    for key, stored in snapshot.records.items()
                }
                return snapshot._replace(records=records)

        target = Watched()
        target.limits = SHARED
        assert copy(source, target).verified
        assert facts_of(target) == facts_of(source)
        assert any(name.startswith("genlock-prefetch") for name in target.readers)
        target = Forgetful()
        target.limits = SHARED
        with pytest.raises(CopyDiffers, match="the target is not the fold of its events"):
            copy(source, target)


class TestCopying:
    """Reading and writing."""

    @pytest.fixture(autouse=True)
    def _short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(copying, "PAGE", 2)
        monkeypatch.setattr(endpoints, "BACKOFF", Backoff(0.001, 0.1))

    def test_the_feed_is_read_on_while_a_commit_is_written(self) -> None:
        pages = threading.Semaphore(0)

        class Read(MemoryStore):
            def read_events(self, query: EventQuery) -> EventPage:
                page = super().read_events(query)
                if query.limit == copying.PAGE and page.events and query.tenant == PLACE[0]:
                    pages.release()
                return page

        class Written(MemoryStore):
            inside = 0
            waited = 0

            def commit(
                self, changes: Sequence[Change], *, epoch: int | None = None
            ) -> Sequence[Committed | Conflict]:
                self.inside += 1
                assert self.inside == 1
                if changes[0].key.place == PLACE and self.waited < 3:
                    self.waited += 1
                    # Its own page has been read, and the next one comes only if somebody reads on
                    # meanwhile.
                    assert pages.acquire(timeout=SECONDS)
                    assert pages.acquire(timeout=SECONDS)
                    pages.release()
                answers = super().commit(changes, epoch=epoch)
                self.inside -= 1
                return answers

        reading, target = Read(), Written()
        fill(reading, 12)
        copy(reading, target)
        assert target.waited == 3
        assert facts_of(target) == facts_of(reading)
