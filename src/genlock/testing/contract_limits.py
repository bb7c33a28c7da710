"""Clauses about limits and names: a commit that is too large is refused as a whole, and different
names never collide."""

from __future__ import annotations

import hashlib
import json
import random
from contextlib import suppress
from functools import partial

import pytest

from genlock.errors import GenlockError, OverLimit, ResultNotFound
from genlock.store import Change, Index, Key, Query, Store
from genlock.testing.concurrency import together
from genlock.testing.contract_base import Another, ContractBase, commit
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


def refused_whole(store: Store, changes: list[Change]) -> None:
    """Checks that the commit is refused as over the limit, and that no part of it was written."""
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

    def test_a_batch_over_the_limit_is_refused_before_anything_is_written(
        self, store: Store
    ) -> None:
        refused_whole(
            store,
            [make_change(make_key(f"A-{number:04}")) for number in range(store.limits.batch + 1)],
        )

    def test_a_body_over_the_limit_is_refused_before_anything_is_written(
        self, store: Store
    ) -> None:
        large = make_change(make_key("A-002"), body=bytes(store.limits.body_bytes + 1))
        refused_whole(
            store, [make_change(make_key("A-001")), large, make_change(make_key("A-003"))]
        )

    def test_an_event_over_the_limit_is_refused_before_anything_is_written(
        self, store: Store
    ) -> None:
        large = make_change(
            make_key("A-002"), body=b"", events=[b"small", bytes(store.limits.body_bytes + 1)]
        )
        refused_whole(
            store, [make_change(make_key("A-001")), large, make_change(make_key("A-003"))]
        )

    def test_as_many_events_as_the_limit_are_taken(self, store: Store) -> None:
        change = make_change(make_key(), events=store.limits.events)
        commit(store, change)
        assert facts_of(read_record(store, change.key)) == recorded_of([change])

    def test_more_events_than_the_limit_are_refused_before_anything_is_written(
        self, store: Store
    ) -> None:
        many = make_change(make_key("A-002"), events=store.limits.events + 1)
        refused_whole(store, [make_change(make_key("A-001")), many, make_change(make_key("A-003"))])


class NameClauses(ContractBase):
    """Similar keys."""

    def apart(self, store: Store, keys: list[Key]) -> None:
        """Checks that each key has a record, events and index entries of its own."""
        assert len(set(keys)) == len(keys)
        changes = {}
        for number, key in enumerate(keys):
            assert store.load([key]).records == {}, f"{key} is taken for another"
            changes[key] = make_change(
                key,
                index=Index(state=f"S{number}", waits_on=("dependency",)),
                events=1 + number % 2,
            )
            commit(store, changes[key])
        assert store.load(keys).records == {
            key: stored_of(change) for key, change in changes.items()
        }
        for key, change in changes.items():
            assert facts_of(read_record(store, key)) == recorded_of([change])
        for tenant, project, kind, _ in keys:
            of_project = [key for key in keys if key[:2] == (tenant, project)]
            assert sorted(facts_of(read_feed(store, tenant, project))) == sorted(
                recorded_of(changes[key] for key in of_project)
            )
            alike = sorted(key for key in of_project if key.kind == kind)
            assert keys_of(store.find(Query(tenant, project, kind))) == alike
            assert (
                keys_of(store.find(Query(tenant, project, kind, waits_on=("dependency",)))) == alike
            )
            of_tenant = sorted(key for key in keys if (key.tenant, key.kind) == (tenant, kind))
            assert keys_of(store.find(Query(tenant, None, kind))) == of_tenant

    def test_tenants_projects_and_kinds_are_apart(self, store: Store) -> None:
        self.apart(
            store,
            [
                Key(t, p, k, "A-001")
                for t in ("acme", "_", "a")
                for p in ("apollo", "a", "acme")
                for k in ("task", "a", "session")
            ],
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
        ids = [
            "A",
            "A-",
            "A-1",
            "A-11",
            "A-111",
            "A-1::1",
            "A-1::11",
            "A-1/1",
            "A-1.1",
            "0001_t1",
            "0001_t1.1",
            "0001_t11",
        ]
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
        self.apart(
            store,
            [
                make_key(id, project=project)
                for id in ("a-001", "A-001", "ä", "Ä", "ß", "SS", "ss")
                for project in ("p", "P")
            ],
        )

    def test_blanks_distinguish(self, store: Store) -> None:
        self.apart(
            store,
            [
                make_key(id, project=project)
                for id in ("a", "a ", " a", "a  ", "a\u00a0")
                for project in ("p", "p ")
            ],
        )

    def test_letters_are_kept_as_given(self, store: Store) -> None:
        composed, decomposed = "caf\u00e9", "cafe\u0301"
        self.apart(
            store,
            [
                make_key(id)
                for id in (
                    composed,
                    decomposed,
                    "\u212b",
                    "\u00c5",
                    "ﬁ",
                    "fi",
                    "🐙",
                    "\U0001f419\ufe0f",
                    "日本",
                )
            ],
        )

    def test_numbers_are_names_like_any_other(self, store: Store) -> None:
        self.apart(
            store,
            [make_key(id) for id in ("1", "01", "1.0", "1e0", "0x1", "١", "True", "null", "None")],
        )

    def test_index_values_that_look_alike_are_apart(self, store: Store) -> None:
        values = ["a", "+a", "A", "a ", "%", "_", "a%", "caf\u00e9", "cafe\u0301", "1", "01", ""]
        for number, value in enumerate(values):
            index = Index(
                state=value, pool=value, order="1", session=value, parent=value, waits_on=(value,)
            )
            commit(store, make_change(make_key(f"A-{number:03}"), index=index))
        for number, value in enumerate(values):
            for query in (
                Query("acme", "apollo", state=value),
                Query("acme", "apollo", pool=value),
                Query("acme", "apollo", session=value),
                Query("acme", "apollo", parent=value),
                Query("acme", "apollo", waits_on=(value,)),
            ):
                assert keys_of(store.find(query)) == [make_key(f"A-{number:03}")], (
                    f"{query} does not find just its own"
                )
        assert store.find(Query("acme", "apollo"), count_by="state").counts == dict.fromkeys(
            values, 1
        )
        assert store.find(Query("acme", "apollo"), count_by="session").counts == dict.fromkeys(
            values, 1
        )


# Payloads: create-only, by record key and digest


def name_of(data: bytes) -> str:
    """The content digest by which a payload is kept."""
    return hashlib.sha256(data).hexdigest()


def name_in_full(key: Key, data: bytes) -> str:
    """The payload's name in a listing."""
    return hashlib.sha256(
        json.dumps([*key, name_of(data)], separators=(",", ":")).encode()
    ).hexdigest()


def fetched(store: Store, key: Key, digest: str) -> bytes:
    """All bytes of a payload."""
    with store.payloads().open(key, digest) as reader:
        return reader.read()


class PayloadClauses(ContractBase):
    """Payloads."""

    def test_payloads_come_back_as_they_were_given(self, store: Store) -> None:
        self.needs("payloads_supported")
        for data in (b"", b"\0", bytes(range(256)), b"\r\n\x1a" * 1000):
            store.payloads().put(make_key(), name_of(data), data)
            assert fetched(store, make_key(), name_of(data)) == data

    def test_a_large_payload_comes_back_whole_or_piece_by_piece(self, store: Store) -> None:
        self.needs("payloads_supported")
        data = random.Random(5).randbytes(5 * 1024 * 1024 + 7)
        store.payloads().put(make_key(), name_of(data), data)
        assert fetched(store, make_key(), name_of(data)) == data
        with store.payloads().open(make_key(), name_of(data)) as reader:
            pieces = []
            while piece := reader.read(1_000_003):
                pieces.append(piece)
        assert b"".join(pieces) == data

    def test_a_missing_payload_is_not_found(self, store: Store) -> None:
        self.needs("payloads_supported")
        store.payloads().put(make_key(), name_of(b"here"), b"here")
        for key, digest in ((make_key(), name_of(b"other")), (make_key("A-002"), name_of(b"here"))):
            with pytest.raises(ResultNotFound):
                store.payloads().open(key, digest)

    def test_a_payload_once_put_stays(self, store: Store, another: Another) -> None:
        self.needs("payloads_supported")
        store.payloads().put(make_key(), name_of(b"first"), b"first")
        store.payloads().put(make_key(), name_of(b"first"), b"first")
        for handle in (store, another()):
            with suppress(GenlockError):  # a store may check the digest, or simply keep its payload
                handle.payloads().put(make_key(), name_of(b"first"), b"other")
            assert fetched(handle, make_key(), name_of(b"first")) == b"first"

    def test_payloads_are_kept_by_record_and_digest(self, store: Store) -> None:
        self.needs("payloads_supported")
        ids = (
            "A-001",
            "a-001",
            "A-001 ",
            "A-001/2/s",
            "A-001/2",
            "..",
            "../A-001",
            ".",
            "A-001::1",
            "caf\u00e9",
            "cafe\u0301",
            "x" * 300,
            "x" * 301,
        )
        keys = [make_key(id) for id in ids]
        keys += [
            make_key(tenant="a", project="b-c"),
            make_key(tenant="a-b", project="c"),
            make_key(kind="refused"),
            make_key(project="Apollo"),
        ]
        data = b"the same bytes"
        for key in keys:
            with pytest.raises(ResultNotFound):
                store.payloads().open(key, name_of(data))
            store.payloads().put(key, name_of(data), data)
            store.payloads().put(key, name_of(repr(key).encode()), repr(key).encode())
        for key in keys:
            assert fetched(store, key, name_of(repr(key).encode())) == repr(key).encode()
            store.payloads().drop(key, name_of(data))
            with pytest.raises(ResultNotFound):
                store.payloads().open(key, name_of(data))
        for key in keys:
            assert fetched(store, key, name_of(repr(key).encode())) == repr(key).encode()

    def test_dropping_what_is_not_there_is_fine(self, store: Store) -> None:
        self.needs("payloads_supported")
        store.payloads().drop(make_key(), name_of(b"never"))
        store.payloads().put(make_key(), name_of(b"data"), b"data")
        for _ in range(2):
            store.payloads().drop(make_key(), name_of(b"data"))
        store.payloads().put(make_key(), name_of(b"data"), b"data")
        assert fetched(store, make_key(), name_of(b"data")) == b"data"

    def test_payloads_are_listed_by_their_names(self, store: Store, another: Another) -> None:
        self.needs("payloads_supported")
        store.payloads().put(make_key(), name_of(b"dropped"), b"dropped")
        assert name_in_full(make_key(), b"dropped") in set(store.payloads().names())
        for data in (b"", b"one", bytes(700_000)):
            store.payloads().put(make_key(), name_of(data), data)
            store.payloads().put(make_key("A-002"), name_of(data), data)
        store.payloads().drop(make_key(), name_of(b"dropped"))
        expected = {
            name_in_full(key, data)
            for key in (make_key(), make_key("A-002"))
            for data in (b"", b"one", bytes(700_000))
        }
        for handle in (store, another()):
            assert sorted(handle.payloads().names()) == sorted(expected)

    def test_payloads_are_seen_by_every_handle_at_once(
        self, store: Store, another: Another
    ) -> None:
        self.needs("payloads_supported")
        other = another()
        store.payloads().put(make_key(), name_of(b"data"), b"data")
        assert fetched(other, make_key(), name_of(b"data")) == b"data"
        other.payloads().drop(make_key(), name_of(b"data"))
        with pytest.raises(ResultNotFound):
            store.payloads().open(make_key(), name_of(b"data"))

    def test_payloads_are_there_when_the_store_is_reopened(self, another: Another) -> None:
        self.needs("payloads_supported")
        self.needs("persistent")
        data = random.Random(6).randbytes(300_000)
        store = another()
        store.payloads().put(make_key(), name_of(data), data)
        store.close()
        assert fetched(another(), make_key(), name_of(data)) == data

    def test_a_payload_put_by_many_at_once_is_whole(self, another: Another) -> None:
        self.needs("payloads_supported")
        handles = [another() for _ in range(4)]
        for number in range(5):
            data = random.Random(number).randbytes(200_000)
            digest = name_of(data)

            def put_and_read(store: Store, data: bytes = data, digest: str = digest) -> bytes:
                store.payloads().put(make_key(), digest, data)
                return fetched(store, make_key(), digest)

            done = together([partial(put_and_read, store) for store in handles])
            assert all(each.answer == data for each in done)
