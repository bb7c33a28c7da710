"""Clauses about records: a read returns the last write, and a write succeeds only over the version
that was read."""

from __future__ import annotations

from msgspec.structs import replace

from genlock.store import MAX_DUE, Change, Committed, Conflict, EventQuery, Index, Query, Store
from genlock.testing.contract_base import Another, ContractBase, commit, must_conflict
from genlock.testing.sample import (
    facts_of,
    keys_of,
    make_change,
    make_key,
    read_feed,
    read_record,
    recorded_of,
    stored_of,
)

EVERY_BYTE = bytes(range(256))

FULL_INDEX = Index(
    state="PENDING",
    pool="pool",
    order="0100",
    due_at=1_700_000_000_000_000,
    session="s1",
    parent="A-000",
    waits_on=("A-002", "A-003"),
)


def set_apart(index: Index) -> Index:
    """Returns the index with its dependencies sorted: they are a set, so stores need not keep their
    order."""
    return replace(index, waits_on=tuple(sorted(index.waits_on)))


def whole(store: Store, change: Change) -> None:
    """Checks that the change was written completely."""
    (found,) = store.load([change.key], with_index=True).records.values()
    assert found.index is not None
    written = stored_of(change)._replace(index=set_apart(change.index))
    assert found._replace(index=set_apart(found.index)) == written
    assert facts_of(read_record(store, change.key))[-len(change.events) :] == recorded_of([change])


class RecordClauses(ContractBase):
    """Round trips, compare-and-swap, batches."""

    def test_every_body_comes_back_as_it_was_given(self, store: Store) -> None:
        bodies = [
            b"",
            b"\0",
            EVERY_BYTE,
            b"\xff\xfe",
            "ä € 🐙".encode(),
            b"'; --",
            b"{}",
            EVERY_BYTE[::-1] * 16,
        ]
        changes = [
            make_change(make_key(f"A-{at:03}"), body=body, events=[body])
            for at, body in enumerate(bodies)
        ]
        commit(store, *changes)
        assert store.load([change.key for change in changes]).records == {
            change.key: stored_of(change) for change in changes
        }
        for change in changes:
            assert facts_of(read_record(store, change.key)) == recorded_of([change])

    def test_the_largest_body_allowed_comes_back_as_it_was_given(self, store: Store) -> None:
        body = (EVERY_BYTE * (store.limits.body_bytes // 256 + 1))[: store.limits.body_bytes]
        change = make_change(make_key(), body=body, events=[body])
        commit(store, change)
        whole(store, change)

    def test_digests_are_any_bytes(self, store: Store) -> None:
        digests = [bytes(32), b"\xff" * 32, b"'\"\\%_\0\r\n" * 4, EVERY_BYTE[100:132]]
        for at, digest in enumerate(digests):
            first = make_change(make_key(f"A-{at:03}"))
            first = first._replace(digest=digest, events=(first.events[0]._replace(digest=digest),))
            second = make_change(first.key, first)
            commit(store, first)
            whole(store, first)
            commit(store, second)
            whole(store, second)

    def test_absent_keys_are_simply_absent(self, store: Store) -> None:
        present, absent = make_change(make_key("A-001")), make_key("A-002")
        assert store.load([present.key, absent]).records == {}
        commit(store, present)
        assert store.load([absent, present.key]).records == {present.key: stored_of(present)}
        assert read_record(store, absent) == []

    def test_loading_nothing_still_tells_time_and_epoch(self, store: Store) -> None:
        snapshot = store.load([])
        assert snapshot.records == {}
        assert snapshot.epoch == 0
        assert snapshot.now.tzinfo is not None

    def test_a_key_asked_for_twice_is_found_once(self, store: Store) -> None:
        change = make_change(make_key())
        commit(store, change)
        assert store.load([change.key, change.key]).records == {change.key: stored_of(change)}

    def test_many_keys_are_loaded_at_once(self, store: Store) -> None:
        changes = [make_change(make_key(f"A-{number:04}")) for number in range(store.limits.batch)]
        commit(store, *changes)
        absent = [make_key(f"B-{number:04}") for number in range(store.limits.batch)]
        assert store.load([*absent, *(change.key for change in changes)]).records == {
            change.key: stored_of(change) for change in changes
        }

    def test_keys_of_several_kinds_and_projects_are_loaded_at_once_whatever_their_names(
        self, store: Store
    ) -> None:
        names = [
            "a",
            "A",
            "a ",
            " a",
            "ä €🐙",
            "null",
            "1",
            "1.0",
            "true",
            '"',
            "\\",
            "\\u0041",
            "[]",
            "{}",
            "%_*'",
            "--",
            "a\tb",
            "a\nb",
            "x" * 128,
        ]
        keys = [
            make_key(name, kind=kind, project=project)
            for project in ("p", "q")
            for kind in ("task", "session")
            for name in names
        ]
        changes = [make_change(key) for key in keys[::2]]
        for change in changes:
            commit(store, change)
        assert store.load(keys).records == {change.key: stored_of(change) for change in changes}

    def test_the_index_comes_back_as_it_was_written(self, store: Store) -> None:
        indexes = [
            FULL_INDEX,
            Index(),
            Index(
                state="ä %_*'", pool="", order="", due_at=0, session="", parent="", waits_on=("",)
            ),
            Index(due_at=MAX_DUE),
            Index(due_at=-1, waits_on=("b", "a", "B", "a ")),
        ]
        changes = [
            make_change(make_key(f"A-{at:03}"), index=index) for at, index in enumerate(indexes)
        ]
        commit(store, *changes)
        for change in changes:
            whole(store, change)

    def test_the_index_is_replaced_with_the_record(self, store: Store) -> None:
        first = make_change(make_key(), index=FULL_INDEX)
        second = make_change(
            first.key, first, index=Index(state="BLOCKED", waits_on=("A-003", "A-004"))
        )
        third = make_change(first.key, second)
        for change in (first, second, third):
            commit(store, change)
            whole(store, change)

    def test_the_index_is_shown_only_when_asked_for(self, store: Store) -> None:
        change = make_change(make_key(), index=FULL_INDEX)
        commit(store, change)
        assert store.load([change.key]).records[change.key].index is None

    def test_a_commit_of_nothing_is_answered_with_nothing(self, store: Store) -> None:
        assert list(store.commit([])) == []

    def test_a_record_is_created_only_where_there_is_none(self, store: Store) -> None:
        first = make_change(make_key(), mark="first")
        commit(store, first)
        must_conflict(store, make_change(first.key, mark="second"))
        whole(store, first)

    def test_a_record_that_does_not_exist_is_not_updated(self, store: Store) -> None:
        never = make_change(make_key())
        must_conflict(store, make_change(never.key, never))
        assert store.load([never.key]).records == {}
        assert read_record(store, never.key) == []

    def test_a_record_is_written_only_over_the_version_that_was_read(self, store: Store) -> None:
        first = make_change(make_key())
        second = make_change(first.key, first, events=3)
        commit(store, first)
        commit(store, second)
        for late in (
            make_change(first.key, first, mark="late"),
            make_change(first.key, make_change(first.key, second), mark="early"),
        ):
            must_conflict(store, late)
        must_conflict(store, make_change(first.key, second._replace(version=2)))
        whole(store, second)

    def test_the_same_version_with_another_digest_is_a_conflict(self, store: Store) -> None:
        ours, theirs = make_change(make_key(), mark="ours"), make_change(make_key(), mark="theirs")
        assert ours.version == theirs.version
        commit(store, ours)
        must_conflict(store, make_change(ours.key, theirs))
        must_conflict(store, make_change(ours.key, ours)._replace(read_digest=b""))
        must_conflict(store, make_change(ours.key, ours)._replace(read_digest=ours.digest[:-1]))
        whole(store, ours)
        commit(store, make_change(ours.key, ours))

    def test_of_a_change_that_conflicts_nothing_is_written(self, store: Store) -> None:
        kept = make_change(
            make_key("A-001"),
            index=Index(state="PENDING", pool="old", order="1", session="old"),
            events=2,
        )
        commit(store, kept)
        tail = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
        other = Index(
            state="BLOCKED",
            pool="new",
            order="1",
            due_at=5,
            session="new",
            parent="new",
            waits_on=("A-009",),
        )
        for late in (
            make_change(kept.key, index=other, events=3, mark="late"),
            make_change(make_key("A-002"), kept, index=other, events=3, mark="late"),
        ):
            must_conflict(store, late)
        whole(store, kept)
        assert store.load([make_key("A-002")]).records == {}
        assert facts_of(read_record(store, kept.key)) == recorded_of([kept])
        assert read_record(store, make_key("A-002")) == []
        assert read_feed(store, after=tail) == []
        assert facts_of(read_feed(store)) == recorded_of([kept])
        for query in (
            Query("acme", "apollo", pool="new"),
            Query("acme", "apollo", due_before=MAX_DUE),
            Query("acme", "apollo", session="new"),
            Query("acme", "apollo", parent="new"),
            Query("acme", "apollo", waits_on=("A-009",)),
        ):
            assert keys_of(store.find(query)) == []
        assert keys_of(store.find(Query("acme", "apollo", pool="old"))) == [kept.key]

    def test_a_second_writer_between_read_and_write_makes_a_conflict(
        self, store: Store, another: Another
    ) -> None:
        first = make_change(make_key())
        commit(store, first)
        read = store.load([first.key]).records[first.key]
        slipped = make_change(first.key, read, index=FULL_INDEX, mark="slipped in")
        commit(another(), slipped)
        must_conflict(store, make_change(first.key, read, events=2, mark="too late"))
        whole(store, slipped)
        assert facts_of(read_record(store, first.key)) == recorded_of([first, slipped])
        again = make_change(
            first.key, store.load([first.key]).records[first.key], mark="decided again"
        )
        commit(store, again)
        assert facts_of(read_feed(store)) == recorded_of([first, slipped, again])

    def test_changes_of_a_batch_stand_or_fall_alone(self, store: Store) -> None:
        old = [make_change(make_key(f"A-{number:03}")) for number in range(12)]
        commit(store, *old)
        batch = []
        for number, change in enumerate(old):
            index = Index(
                state="NEW",
                pool=f"p{number}",
                order="1",
                session=f"s{number}",
                parent=f"t{number}",
                waits_on=(f"d{number}",),
            )
            fits = make_change(change.key, change, index=index, events=1 + number % 3)
            stale = make_change(
                change.key,
                None if number % 2 else make_change(change.key, mark="another"),
                index=index,
                mark="late",
                events=2,
            )
            batch.append(fits if number % 3 else stale)
        # Names that are new to the store, in the same batch as changes that conflict: neither may
        # break the other.
        batch += [
            make_change(make_key("B-001")),
            make_change(make_key("A-000", project="gemini"), index=Index(pool="p", session="s")),
        ]
        answers = store.commit(batch)
        assert [type(answer) for answer in answers] == [
            Committed if number % 3 else Conflict for number in range(12)
        ] + [Committed] * 2
        for number, change in enumerate(batch):
            whole(store, old[number] if number < 12 and not number % 3 else change)
        done = [change for number, change in enumerate(batch[:13]) if number >= 12 or number % 3]
        assert sorted(facts_of(read_feed(store))) == sorted(recorded_of([*old, *done]))

    def test_a_batch_in_which_everything_conflicts_writes_nothing(self, store: Store) -> None:
        old = [make_change(make_key(f"A-{number:03}")) for number in range(5)]
        commit(store, *old)
        must_conflict(store, *(make_change(change.key, mark="again") for change in old))
        assert sorted(facts_of(read_feed(store))) == recorded_of(old)

    def test_two_handles_see_each_others_commits_at_once(
        self, store: Store, another: Another
    ) -> None:
        handles = [store, another(), another()]
        change: Change | None = None
        for turn in range(9):
            writer, reader = handles[turn % 3], handles[(turn + 1) % 3]
            cursor = reader.read_events(EventQuery("acme", "apollo", tail=True)).cursor
            change = make_change(
                make_key(), change, index=Index(state=f"S{turn}", session=f"s{turn}"), events=2
            )
            commit(writer, change)
            whole(reader, change)
            assert facts_of(read_feed(reader, after=cursor)) == recorded_of([change])
            assert [
                record.version
                for record in reader.find(Query("acme", "apollo", session=f"s{turn}")).records
            ] == [change.version]

    def test_a_reopened_store_has_everything(self, another: Another) -> None:
        self.needs("persistent")
        store = another()
        store.set_epoch(3)
        changes = [
            make_change(make_key(f"A-{number:03}"), index=FULL_INDEX, events=1 + number % 3)
            for number in range(20)
        ]
        commit(store, *changes[:10])
        cursor = store.read_events(EventQuery("acme", "apollo", tail=True)).cursor
        commit(store, *changes[10:])
        events = read_feed(store)
        store.close()
        reopened = another()
        assert reopened.load([]).epoch == 3
        for change in changes:
            whole(reopened, change)
        assert read_feed(reopened) == events
        assert sorted(facts_of(read_feed(reopened, after=cursor))) == recorded_of(changes[10:])
        assert len(reopened.find(Query("acme", "apollo", waits_on=("A-003",))).records) == 20
        late = make_change(changes[0].key, changes[0])
        must_conflict(reopened, make_change(changes[0].key))
        assert commit(reopened, late)[0] > max(event.position for event in events)
