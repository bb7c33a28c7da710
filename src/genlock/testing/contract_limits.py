"""Clauses about limits and names: what is too large is refused whole, and no two names meet."""

from __future__ import annotations

import pytest

from genlock.errors import OverLimit
from genlock.store import Change, Index, Key, Query, Store
from genlock.testing.contract_base import ContractBase, commit
from genlock.testing.sample import facts_of, keys_of, make_change, make_key, read_feed, read_record, recorded_of, stored_of


def refused_whole(store: Store, changes: list[Change]) -> None:
    """The commit is refused as over the limit, and nothing of it is there."""
    with pytest.raises(OverLimit):
        store.commit(changes)
    assert store.load([change.key for change in changes]).records == {}
    assert read_feed(store) == []
    assert read_record(store, changes[0].key) == []
    assert keys_of(store.find(Query("acme", "apollo"))) == []


class LimitClauses(ContractBase):
    """Limits."""

    def test_a_batch_at_the_limit_is_taken(self, store: Store) -> None:
        changes = [make_change(make_key(f"A-{number:04}")) for number in range(store.limits.batch)]
        commit(store, *changes)
        assert len(read_feed(store)) == store.limits.batch

    def test_a_batch_over_the_limit_is_refused_before_anything_is_written(self, store: Store) -> None:
        refused_whole(store, [make_change(make_key(f"A-{number:04}")) for number in range(store.limits.batch + 1)])

    def test_a_body_over_the_limit_is_refused_before_anything_is_written(self, store: Store) -> None:
        large = make_change(make_key("A-002"), body=bytes(store.limits.body_bytes + 1))
        refused_whole(store, [make_change(make_key("A-001")), large, make_change(make_key("A-003"))])

    def test_an_event_over_the_limit_is_refused_before_anything_is_written(self, store: Store) -> None:
        large = make_change(make_key("A-002"), body=b"", events=[b"small", bytes(store.limits.body_bytes + 1)])
        refused_whole(store, [make_change(make_key("A-001")), large, make_change(make_key("A-003"))])

    def test_as_many_events_as_the_limit_are_taken(self, store: Store) -> None:
        change = make_change(make_key(), events=store.limits.events)
        commit(store, change)
        assert facts_of(read_record(store, change.key)) == recorded_of([change])

    def test_more_events_than_the_limit_are_refused_before_anything_is_written(self, store: Store) -> None:
        many = make_change(make_key("A-002"), events=store.limits.events + 1)
        refused_whole(store, [make_change(make_key("A-001")), many, make_change(make_key("A-003"))])


class NameClauses(ContractBase):
    """Keys that look alike."""

    def apart(self, store: Store, keys: list[Key]) -> None:
        """Each key has a record, events and index entries of its own."""
        assert len(set(keys)) == len(keys)
        changes = {}
        for number, key in enumerate(keys):
            assert store.load([key]).records == {}, f"{key} is taken for another"
            changes[key] = make_change(key, index=Index(state=f"S{number}", waits_on=("dependency",)), events=1 + number % 2)
            commit(store, changes[key])
        assert store.load(keys).records == {key: stored_of(change) for key, change in changes.items()}
        for key, change in changes.items():
            assert facts_of(read_record(store, key)) == recorded_of([change])
        for tenant, project, kind, _ in keys:
            of_project = [key for key in keys if key[:2] == (tenant, project)]
            assert sorted(facts_of(read_feed(store, tenant, project))) == sorted(recorded_of(changes[key] for key in of_project))
            alike = sorted(key for key in of_project if key.kind == kind)
            assert keys_of(store.find(Query(tenant, project, kind))) == alike
            assert keys_of(store.find(Query(tenant, project, kind, waits_on=("dependency",)))) == alike
            of_tenant = sorted(key for key in keys if (key.tenant, key.kind) == (tenant, kind))
            assert keys_of(store.find(Query(tenant, None, kind))) == of_tenant

    def test_tenants_projects_and_kinds_are_apart(self, store: Store) -> None:
        self.apart(
            store, [Key(t, p, k, "A-001") for t in ("acme", "_", "a") for p in ("apollo", "a", "acme") for k in ("task", "a", "session")]
        )

    def test_names_that_would_be_equal_if_joined_are_apart(self, store: Store) -> None:
        marks = ("-", "/", ":", "|", "#", ".", "_", "__", "::", ",", "{", "}", "\\", "%")
        keys = [
            [
                Key("a", f"b{mark}c", "task", "d"),
                Key(f"a{mark}b", "c", "task", "d"),
                Key(f"a{mark}b", "c", f"task{mark}d", "e"),
                Key(f"a{mark}b", "c", "task", f"d{mark}e"),
                Key(f"a{mark}b", f"c{mark}task", "d", "e"),
            ]
            for mark in marks
        ]
        self.apart(store, [key for group in keys for key in group])

    def test_ids_that_begin_alike_are_apart(self, store: Store) -> None:
        ids = ["A", "A-", "A-1", "A-11", "A-111", "A-1::1", "A-1::11", "A-1/1", "A-1.1", "0001_t1", "0001_t1.1", "0001_t11"]
        self.apart(store, [make_key(id) for id in ids])

    def test_signs_that_match_anything_elsewhere_are_literal(self, store: Store) -> None:
        ids = [
            "%",
            "_",
            "*",
            "?",
            "[a]",
            "a",
            "ab",
            "a%",
            "a_",
            "a*",
            "a?",
            "^a",
            "a$",
            ".",
            "..",
            "../a",
            "'",
            '"',
            "a;b",
            "$1",
            ":a",
            "{0}",
        ]
        self.apart(store, [make_key(id) for id in ids])

    def test_upper_and_lower_case_are_apart(self, store: Store) -> None:
        self.apart(store, [make_key(id, project=project) for id in ("a-001", "A-001", "ä", "Ä", "ß", "SS", "ss") for project in ("p", "P")])

    def test_blanks_distinguish(self, store: Store) -> None:
        self.apart(store, [make_key(id, project=project) for id in ("a", "a ", " a", "a  ", "a\u00a0") for project in ("p", "p ")])

    def test_letters_are_kept_as_given(self, store: Store) -> None:
        composed, decomposed = "caf\u00e9", "cafe\u0301"
        self.apart(store, [make_key(id) for id in (composed, decomposed, "\u212b", "\u00c5", "ﬁ", "fi", "🐙", "\U0001f419\ufe0f", "日本")])

    def test_numbers_are_names_like_any_other(self, store: Store) -> None:
        self.apart(store, [make_key(id) for id in ("1", "01", "1.0", "1e0", "0x1", "١", "True", "null", "None")])

    def test_index_values_that_look_alike_are_apart(self, store: Store) -> None:
        values = ["a", "+a", "A", "a ", "%", "_", "a%", "caf\u00e9", "cafe\u0301", "1", "01", ""]
        for number, value in enumerate(values):
            index = Index(state=value, pool=value, order="1", session=value, parent=value, waits_on=(value,))
            commit(store, make_change(make_key(f"A-{number:03}"), index=index))
        for number, value in enumerate(values):
            for query in (
                Query("acme", "apollo", state=value),
                Query("acme", "apollo", pool=value),
                Query("acme", "apollo", session=value),
                Query("acme", "apollo", parent=value),
                Query("acme", "apollo", waits_on=(value,)),
            ):
                assert keys_of(store.find(query)) == [make_key(f"A-{number:03}")], f"{query} does not find just its own"
        assert store.find(Query("acme", "apollo"), count_by="state").counts == dict.fromkeys(values, 1)
        assert store.find(Query("acme", "apollo"), count_by="session").counts == dict.fromkeys(values, 1)
