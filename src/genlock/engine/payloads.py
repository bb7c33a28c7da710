"""Payloads that records refer to: for whoever copies a store, or checks one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from genlock.core import codec
from genlock.core.codec import decode_record
from genlock.core.keys import REFUSED, TASK, Key, payload_key
from genlock.core.model import RefusedRecord, TaskRecord
from genlock.core.reasons import RefusedState
from genlock.engine.walk import records_of
from genlock.errors import ResultNotFound, StoreCorrupt, StoreForeign
from genlock.store import Payloads, Store

_MARK = b'"payload":true'


def payloads_of(store: Store, places: Iterable[tuple[str, str]] | None = None) -> Iterator[tuple[Key, str]]:
    """Every payload that must be there, by the key and digest it was put under. What cannot be read is left to the replay check."""
    for place in store.audit().places if places is None else places:
        for kind in (TASK, REFUSED):
            for stored in records_of(store, *place, kind):
                if _MARK in stored.body:
                    yield from _referred(stored.key, stored.body)


def missing_payloads(store: Store, payloads: Payloads | None = None, *, read: bool = False) -> list[tuple[Key, str]]:
    """Those of them that are not there, or not among these payloads. With `read` also those that are not what was put."""
    payloads = payloads or store.payloads()
    missing = []
    for key, digest in payloads_of(store):
        try:
            if read:
                read_whole(payloads, key, digest)
            else:
                payloads.open(key, digest).close()
        except ResultNotFound:
            missing.append((key, digest))
    return missing


def read_whole(payloads: Payloads, key: Key, digest: str) -> bytes:
    """The bytes of a payload as they were put; `ResultNotFound` if they are not there, or are others by now."""
    with payloads.open(key, digest) as file:
        data = file.read()
    if codec.digest_of(data).hex() != digest:
        raise ResultNotFound(f"{'/'.join(key)} has a payload {digest} whose bytes are not those that were submitted: it was damaged since")
    return data


def _referred(key: Key, body: bytes) -> Iterator[tuple[Key, str]]:
    try:
        record = decode_record(key.kind, body)
    except (StoreCorrupt, StoreForeign):
        return
    if isinstance(record, TaskRecord) and record.result is not None and record.result.payload:
        yield payload_key(key, record.result.payload_id), record.result.digest
    if isinstance(record, RefusedRecord) and record.payload and record.state is not RefusedState.DISCARDED:
        yield payload_key(key.beside(TASK, record.task), record.payload_id), record.digest
