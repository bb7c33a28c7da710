"""Clauses about payloads: create-only, by record key and digest."""

from __future__ import annotations

import hashlib
import random
from contextlib import suppress
from functools import partial

import pytest

from genlock.errors import GenlockError, ResultNotFound
from genlock.store import Key, Store
from genlock.testing.concurrency import together
from genlock.testing.contract_base import Another, ContractBase
from genlock.testing.sample import make_key


def name_of(data: bytes) -> str:
    """The content digest by which a payload is kept."""
    return hashlib.sha256(data).hexdigest()


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
            with suppress(GenlockError):  # a store may check the digest, or simply keep what it has
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

    def test_payloads_are_seen_by_every_handle_at_once(self, store: Store, another: Another) -> None:
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
