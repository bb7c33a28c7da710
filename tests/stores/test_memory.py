"""Memory: what only this store does."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genlock.errors import Closed, StoreError
from genlock.store import Index, Query
from genlock.stores.memory import MemoryStore
from genlock.stores.rows import PIECE, Ordered
from genlock.testing.sample import make_change, make_key, read_feed


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore()
    yield store
    store.close()


def test_handles_share_one_memory_and_close_apart(store: MemoryStore) -> None:
    others = [store.handle(), MemoryStore(shared=store)]
    store.commit([make_change(make_key())])
    store.close()
    for other in others:
        assert len(read_feed(other)) == 1
    with pytest.raises(Closed):
        store.load([])


def test_two_stores_share_nothing(store: MemoryStore) -> None:
    store.commit([make_change(make_key())])
    assert read_feed(MemoryStore()) == []


def test_a_memory_is_not_durable(store: MemoryStore) -> None:
    assert not store.limits.durable


def test_a_pool_that_has_been_emptied_is_forgotten(store: MemoryStore) -> None:
    changes = [
        make_change(make_key(f"A-{number}"), index=Index(pool=f"pool {number}", order="1"))
        for number in range(50)
    ]
    store.commit(changes)
    store.commit([make_change(change.key, change) for change in changes])
    assert list(store._data.indexes.pools("acme", "apollo", "task")) == []
    assert not any(shelf[0] == "pool" for shelf in store._data.indexes._shelves)


def test_a_forked_child_is_told_that_its_memory_is_another(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(StoreError, match="does not survive fork"):
        store.find(Query("acme"))
    store.close()


numbers = st.integers(0, 5 * PIECE)


@given(
    st.lists(numbers, max_size=4000, unique=True), st.sets(numbers), st.lists(numbers, max_size=20)
)
def test_an_ordered_list_is_sorted_whatever_comes_and_goes(
    added: list[int], removed: set[int], asked: list[int]
) -> None:
    ordered = Ordered()
    for number in added:
        ordered.add((number,))
    for number in removed & set(added):
        ordered.remove((number,))
    expected = sorted({(number,) for number in added} - {(number,) for number in removed})
    assert list(ordered.after(())) == expected
    assert bool(ordered) == bool(expected)
    for number in asked:
        assert list(ordered.after((number,))) == expected[bisect_right(expected, (number,)) :]


def test_an_ordered_list_is_sorted_when_it_is_long() -> None:
    ordered = Ordered()
    items = [(number * 7919 % 10_007,) for number in range(10_007)]
    for item in items:
        ordered.add(item)
    assert list(ordered.after(())) == sorted(items)
    for item in items[:9_000]:
        ordered.remove(item)
    assert list(ordered.after((5_000,))) == [
        item for item in sorted(items[9_000:]) if item > (5_000,)
    ]
