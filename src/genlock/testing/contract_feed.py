"""Clauses about events: those of a record in version order, those of a project in feed order."""

from __future__ import annotations

import pytest

from genlock.errors import BadArgument, CursorLost
from genlock.store import Change, Conflict, EventQuery, RecordedEvent, Store
from genlock.testing.contract_base import Another, ContractBase, commit
from genlock.testing.sample import (
    facts_of,
    make_change,
    make_key,
    read_feed,
    read_record,
    recorded_of,
)

FEED = EventQuery("acme", "apollo")


def tail(store: Store, project: str = "apollo") -> str:
    """Returns the cursor of a feed's present end."""
    return store.read_events(EventQuery("acme", project, tail=True)).cursor


def from_cursor(store: Store, cursor: str, limit: int = 1000) -> list[RecordedEvent]:
    """Reads one page after a cursor."""
    return list(store.read_events(EventQuery("acme", "apollo", after=cursor, limit=limit)).events)


def history(
    store: Store, id: str = "A-001", project: str = "apollo", *, commits: int
) -> list[Change]:
    """Writes a record `commits` times, with one to three events each."""
    changes: list[Change] = []
    for number in range(commits):
        changes.append(
            make_change(
                make_key(id, project=project),
                changes[-1] if changes else None,
                events=1 + number % 3,
            )
        )
        commit(store, changes[-1])
    return changes


def must_be_lost(store: Store, cursor: str) -> None:
    """Checks that reading on from here raises CursorLost, with any size of page."""
    for limit in (1, 1000):
        with pytest.raises(CursorLost):
            store.read_events(EventQuery("acme", "apollo", after=cursor, limit=limit))


class FeedClauses(ContractBase):
    """Events and cursors. `RaceClauses` tests them under concurrent commits."""

    def test_events_of_a_record_come_in_version_order(self, store: Store) -> None:
        changes, others = history(store, "A-001", commits=12), history(store, "A-002", commits=3)
        for limit in (1, 2, 5, 1000):
            assert facts_of(read_record(store, make_key("A-001"), limit=limit)) == recorded_of(
                changes
            )
        assert facts_of(read_record(store, make_key("A-002"))) == recorded_of(others)

    def test_events_of_a_record_continue_after_a_version(self, store: Store) -> None:
        events = recorded_of(history(store, commits=5))
        for version in range(len(events) + 2):
            page = store.read_events(
                EventQuery("acme", "apollo", record=make_key(), after_version=version)
            )
            assert facts_of(page.events) == events[version:]
            assert not page.more
            assert page.base is None

    def test_a_page_of_a_records_events_says_whether_there_are_more(self, store: Store) -> None:
        events = recorded_of(history(store, commits=5))
        page = store.read_events(
            EventQuery("acme", "apollo", record=make_key(), limit=len(events) - 1)
        )
        assert (len(page.events), page.more) == (len(events) - 1, True)

    def test_the_feed_has_every_event_of_the_project_in_the_order_of_commits(
        self, store: Store
    ) -> None:
        changes = [*history(store, "A-001", commits=4), *history(store, "A-002", commits=3)]
        changes.append(make_change(changes[3].key, changes[3], events=2))
        commit(store, changes[-1])
        history(store, "A-001", "gemini", commits=3)
        for limit in (1, 2, 5, 1000):
            events = read_feed(store, limit=limit)
            assert facts_of(events) == recorded_of(changes)
            assert [event.position for event in events] == sorted(
                {event.position for event in events}
            )

    def test_feeds_hold_records_of_every_kind(self, store: Store) -> None:
        changes = [
            make_change(make_key("A-001", kind=kind)) for kind in ("task", "session", "project")
        ]
        for change in changes:
            commit(store, change)
        assert facts_of(read_feed(store)) == recorded_of(changes)

    def test_the_position_of_a_commit_is_that_of_its_last_event_in_the_feed(
        self, store: Store
    ) -> None:
        batches = [
            [
                make_change(make_key(f"A-{number:03}", project=project), events=1 + number % 3)
                for number in range(6)
                for project in ("apollo", "gemini")
            ]
            for _ in range(1)
        ]
        batches.append(
            [
                make_change(change.key, change, events=1 + number % 4)
                for number, change in enumerate(batches[0])
            ]
        )
        positions = {}
        for batch in batches:
            for change, position in zip(batch, commit(store, *batch), strict=True):
                positions[change.key, change.version] = position
        for project in ("apollo", "gemini"):
            at = {
                (event.key, event.version): event.position
                for event in read_feed(store, project=project)
            }
            expected = {
                name: position for name, position in positions.items() if name[0].project == project
            }
            assert {name: at[name] for name in expected} == expected

    def test_a_record_s_events_have_the_positions_of_the_feed(self, store: Store) -> None:
        history(store, "A-002", commits=2)
        history(store, "A-001", commits=3)
        assert read_record(store, make_key("A-001")) == [
            event for event in read_feed(store) if event.key.id == "A-001"
        ]

    def test_events_of_a_batch_keep_the_version_order_of_their_record(self, store: Store) -> None:
        commit(store, *(make_change(make_key(f"A-{number:03}"), events=5) for number in range(20)))
        versions: dict[str, list[int]] = {}
        for event in read_feed(store, limit=7):
            versions.setdefault(event.key.id, []).append(event.version)
        assert list(versions.values()) == [[1, 2, 3, 4, 5]] * 20

    def test_every_cursor_continues_right_after_its_page(self, store: Store) -> None:
        events = recorded_of(history(store, commits=7))
        for limit in range(1, len(events) + 2):
            cursor, read = None, []
            for _ in range(len(events) + 1):
                page = store.read_events(EventQuery("acme", "apollo", after=cursor, limit=limit))
                assert len(page.events) <= limit
                read += facts_of(page.events)
                assert page.more or read == events
                assert facts_of(from_cursor(store, page.cursor)) == events[len(read) :]
                cursor = page.cursor
            assert read == events

    def test_a_page_has_the_cursor_behind_each_event_if_asked(self, store: Store) -> None:
        events = recorded_of(history(store, commits=7))
        for limit in (1, 3, len(events), 1000):
            page = store.read_events(EventQuery("acme", "apollo", limit=limit, cursors=True))
            assert len(page.cursors) == len(page.events)
            for at, cursor in enumerate(page.cursors, 1):
                assert facts_of(from_cursor(store, cursor)) == events[at:]
        assert list(store.read_events(FEED).cursors) == []

    def test_every_position_up_to_a_pages_end_is_an_events_or_counted_as_void(
        self, store: Store, another: Another
    ) -> None:
        history(store, "A-001", commits=3)
        for id in ("A-002", "A-003"):
            assert isinstance(
                another().commit([make_change(make_key("A-001"), mark="late", events=2)])[0],
                Conflict,
            )
            history(store, id, commits=2)
        for limit in (1, 2, 1000):
            known, query = 0, EventQuery("acme", "apollo", limit=limit)
            while True:
                page = store.read_events(query)
                known += len(page.events) + page.voids
                assert known == page.position
                if not page.more:
                    break
                query = EventQuery("acme", "apollo", after=page.cursor, limit=limit)

    def test_a_page_says_behind_which_position_its_cursor_stands(self, store: Store) -> None:
        empty = [
            store.read_events(FEED),
            store.read_events(EventQuery("acme", "apollo", tail=True)),
        ]
        history(store, commits=5)
        first, *_ = events = read_feed(store)
        assert all(page.position < first.position for page in empty)
        for limit in range(1, len(events) + 1):
            page = store.read_events(EventQuery("acme", "apollo", limit=limit))
            following = [event.position for event in events[limit:]]
            assert all(
                events[limit - 1].position <= page.position < position for position in following
            )
        ends = [store.read_events(FEED), store.read_events(EventQuery("acme", "apollo", tail=True))]
        (later,) = commit(store, make_change(make_key("A-002")))
        assert all(events[-1].position <= page.position < later for page in ends)

    def test_the_cursor_at_the_tail_shows_only_what_comes_later(self, store: Store) -> None:
        history(store, "A-001", commits=3)
        page = store.read_events(EventQuery("acme", "apollo", tail=True))
        assert list(page.events) == []
        assert from_cursor(store, page.cursor) == []
        later = history(store, "A-002", commits=2)
        assert facts_of(from_cursor(store, page.cursor)) == recorded_of(later)

    def test_a_cursor_some_way_back_from_the_tail_shows_the_last_events(self, store: Store) -> None:
        events = recorded_of(
            [*history(store, "A-001", commits=4), *history(store, "A-002", commits=2)]
        )
        for back in (0, 1, len(events) - 1, len(events), 10**9):
            page = store.read_events(EventQuery("acme", "apollo", tail=True, back=back))
            assert (list(page.events), page.more) == ([], back > 0)
            assert facts_of(from_cursor(store, page.cursor)) == events[max(0, len(events) - back) :]
        assert not store.read_events(EventQuery("acme", "gemini", tail=True, back=7)).more

    def test_the_cursor_of_an_empty_feed_continues(self, store: Store) -> None:
        cursors = [store.read_events(FEED).cursor, tail(store)]
        cursors.append(store.read_events(EventQuery("acme", "apollo", after=cursors[0])).cursor)
        history(store, project="gemini", commits=2)
        changes = history(store, commits=3)
        for cursor in cursors:
            assert facts_of(from_cursor(store, cursor)) == recorded_of(changes)

    def test_the_cursor_at_the_end_continues(self, store: Store) -> None:
        changes = history(store, commits=3)
        cursor = store.read_events(FEED).cursor
        for _ in range(3):
            page = store.read_events(EventQuery("acme", "apollo", after=cursor))
            assert (list(page.events), page.more) == ([], False)
            cursor = page.cursor
        later = make_change(make_key(), changes[-1])
        commit(store, later)
        assert facts_of(from_cursor(store, cursor)) == recorded_of([later])

    def test_a_cursor_serves_every_handle(self, store: Store, another: Another) -> None:
        history(store, "A-001", commits=2)
        cursor = tail(store)
        later = history(store, "A-002", commits=2)
        assert facts_of(from_cursor(another(), cursor)) == recorded_of(later)

    def test_a_cursor_of_another_store_is_lost(self, store: Store, another: Another) -> None:
        other = another(elsewhere="another store")
        for each in (store, other):
            history(each, commits=3)
        must_be_lost(store, tail(other))
        must_be_lost(store, other.read_events(EventQuery("acme", "apollo", limit=1)).cursor)
        assert from_cursor(store, tail(store)) == []

    def test_a_cursor_of_another_store_s_empty_feed_is_lost(
        self, store: Store, another: Another
    ) -> None:
        must_be_lost(store, another(elsewhere="another store").read_events(FEED).cursor)

    def test_a_cursor_of_an_older_epoch_is_lost(self, store: Store, another: Another) -> None:
        reader = another()
        changes = history(store, commits=3)
        old = [
            tail(store),
            reader.read_events(EventQuery("acme", "apollo", limit=1)).cursor,
            tail(store, "gemini"),
        ]
        store.set_epoch(1)
        later = make_change(make_key(), changes[-1])
        commit(store, later)
        for handle in (store, reader):
            for cursor in old:
                must_be_lost(handle, cursor)
            assert facts_of(read_feed(handle, limit=1)) == recorded_of([*changes, later])
            assert from_cursor(handle, tail(handle)) == []

    def test_a_cursor_of_another_feed_is_refused(self, store: Store) -> None:
        for project in ("apollo", "gemini"):
            history(store, project=project, commits=3)
        for cursor in (
            tail(store, "gemini"),
            store.read_events(EventQuery("acme", "gemini", limit=1)).cursor,
        ):
            with pytest.raises((BadArgument, CursorLost)):
                store.read_events(EventQuery("acme", "apollo", after=cursor))

    def test_what_is_no_cursor_is_refused(self, store: Store) -> None:
        history(store, commits=3)
        cursor = tail(store)
        for text in (
            "",
            " ",
            "0",
            "1",
            "-1",
            "garbage",
            "a.b.c",
            "ä",
            "🐙",
            "x" * 10_000,
            "'; --",
            cursor + "x",
            "x" + cursor,
            cursor[:-1],
        ):
            # A piece of a cursor may be a valid cursor by chance; then it is for another position,
            # but is never misread.
            with pytest.raises((BadArgument, CursorLost)):
                store.read_events(EventQuery("acme", "apollo", after=text))
