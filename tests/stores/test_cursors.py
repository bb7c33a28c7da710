"""Cursors and pages: texts that name a place, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from genlock.errors import BadArgument, CursorLost
from genlock.store import EventQuery, Query, Store
from genlock.stores.cursors import (
    FeedState,
    check_cursor,
    decode_cursor,
    decode_token,
    encode_cursor,
    encode_token,
)
from genlock.stores.memory import MemoryStore
from genlock.stores.sqlite import SQLiteStore
from genlock.testing.sample import make_change, make_key

FEED = EventQuery("acme", "apollo", limit=1)
STATE = FeedState(b"12345678", 3, 99, head=10, purged_to=5, purges=2)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = (
        MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "genlock.db")
    )
    yield store
    store.close()


def test_a_reader_who_began_after_a_purge_goes_on_below_it_until_the_next(store: Store) -> None:
    for id in ("A", "B", "C", "D"):
        store.commit([make_change(make_key(id))])
    store.purge(make_key("D"), 2, b"base")
    first = store.read_events(FEED)
    second = store.read_events(replace(FEED, after=first.cursor))
    assert [event.key.id for event in (*first.events, *second.events)] == ["A", "B"]
    store.purge(make_key("C"), 2, b"base")
    with pytest.raises(CursorLost, match="purged since"):
        store.read_events(replace(FEED, after=second.cursor))


def test_a_purge_that_comes_late_changes_nothing(store: Store) -> None:
    change = make_change(make_key(), events=6)
    store.commit([change])
    store.purge(make_key(), 5, b"later base")
    store.purge(make_key(), 3, b"earlier base")
    page = store.read_events(EventQuery("acme", "apollo", record=make_key()))
    assert ([event.version for event in page.events], page.base) == ([5, 6], b"later base")


def test_a_purge_of_what_is_not_there_changes_nothing(store: Store) -> None:
    store.commit([make_change(make_key())])
    cursor = store.read_events(EventQuery("acme", "apollo")).cursor
    store.purge(make_key("A-002"), 5, b"base")
    store.purge(make_key(project="gemini"), 5, b"base")
    store.purge(make_key(), 1, b"base")
    assert store.read_events(EventQuery("acme", "apollo", after=cursor)).events == []
    assert store.read_events(EventQuery("acme", "apollo", record=make_key())).base is None


def test_another_feeds_cursor_is_lost(store: Store) -> None:
    for project in ("apollo", "gemini"):
        store.commit([make_change(make_key(project=project))])
    cursor = store.read_events(FEED).cursor
    with pytest.raises(CursorLost, match="another project"):
        store.read_events(EventQuery("acme", "gemini", after=cursor))


def test_a_page_is_not_continued_by_another_querys_end(store: Store) -> None:
    store.commit([make_change(make_key(f"A-{number}")) for number in range(3)])
    token = store.find(Query("acme", "apollo", limit=1)).next
    assert token
    for query in (Query("acme", "apollo", pool="p"), Query("acme", "apollo", due_before=5)):
        with pytest.raises(BadArgument):
            store.find(replace(query, after=token))
    for garbage in ("", "x", "ä", "[]", "bnVsbA==", token[:-4]):
        with pytest.raises(BadArgument):
            store.find(Query("acme", "apollo", after=garbage))


@pytest.mark.parametrize(
    "query",
    [
        Query("acme", pool="p"),
        Query("acme", heads=1),
        Query("acme", due_before=1),
        Query("acme", parent="p"),
        Query("acme", waits_on=("d",)),
        Query("acme", "apollo", pool="p", heads=1),
        Query("acme", "apollo", session="s", parent="p"),
        Query("acme", "apollo", limit=0),
        Query("acme", "apollo", heads=-1),
    ],
)
def test_a_query_that_cannot_be_meant_is_refused(store: Store, query: Query) -> None:
    with pytest.raises(BadArgument):
        store.find(query)


def test_records_are_counted_by_few_fields_only(store: Store) -> None:
    with pytest.raises(BadArgument, match="body"):
        store.find(Query("acme"), count_by="body")


def test_events_of_another_projects_record_are_refused(store: Store) -> None:
    with pytest.raises(BadArgument, match="not a record of acme/apollo"):
        store.read_events(EventQuery("acme", "apollo", record=make_key(project="gemini")))


@given(st.integers(0, 2**40), st.integers(0, 2**63), st.integers(0, 2**40))
def test_cursors_come_back(position: int, epoch: int, purges: int) -> None:
    place = decode_cursor(encode_cursor(STATE._replace(epoch=epoch, purges=purges), position))
    assert (place.birth, place.epoch, place.position, place.feed) == (
        STATE.birth,
        epoch,
        position,
        STATE.feed,
    )


@given(st.integers(0, 47), st.integers(1, 63))
def test_a_cursor_with_any_sign_changed_is_none(at: int, by: int) -> None:
    signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    cursor = encode_cursor(STATE, 7)
    changed = cursor[:at] + signs[(signs.index(cursor[at]) + by) % 64] + cursor[at + 1 :]
    with pytest.raises(BadArgument):
        decode_cursor(changed)


def test_positions_below_the_last_purge_are_good_only_for_who_came_after_it() -> None:
    check_cursor(decode_cursor(encode_cursor(STATE, 2)), STATE)
    check_cursor(decode_cursor(encode_cursor(STATE._replace(purges=1), 5)), STATE)
    with pytest.raises(CursorLost):
        check_cursor(decode_cursor(encode_cursor(STATE._replace(purges=1), 4)), STATE)


@given(st.tuples(st.one_of(st.none(), st.text()), st.integers(-(2**63), 2**63 - 1)))
def test_page_ends_come_back(last: tuple[str | None, int]) -> None:
    assert decode_token(encode_token(*last), tuple[str | None, int]) == last
