"""Payloads that records refer to: for whoever copies a store, or checks one."""

from __future__ import annotations

from collections.abc import Iterator

from genlock.core.codec import decode_record
from genlock.core.keys import REFUSED, TASK, Key
from genlock.core.model import RefusedRecord, TaskRecord
from genlock.core.reasons import RefusedState
from genlock.errors import ResultNotFound, StoreCorrupt, StoreForeign
from genlock.store import Payloads, Query, Store

_PAGE = 500
_MARK = b'"payload":true'


def payloads_of(store: Store) -> Iterator[tuple[Key, str]]:
    """Every payload that must be there, by its task's key and its digest. What cannot be read is left to the replay check."""
    for tenant, project in store.audit().places:
        for kind in (TASK, REFUSED):
            after: str | None = None
            while True:
                page = store.find(Query(tenant, project, kind, after=after, limit=_PAGE))
                for stored in page.records:
                    if _MARK in stored.body:
                        yield from _referred(stored.key, stored.body)
                if page.next is None:
                    break
                after = page.next


def missing_payloads(store: Store, payloads: Payloads | None = None) -> list[tuple[Key, str]]:
    """Those of them that are not there, or not among these payloads."""
    payloads = payloads or store.payloads()
    missing = []
    for key, digest in payloads_of(store):
        try:
            payloads.open(key, digest).close()
        except ResultNotFound:
            missing.append((key, digest))
    return missing


def _referred(key: Key, body: bytes) -> Iterator[tuple[Key, str]]:
    try:
        record = decode_record(key.kind, body)
    except (StoreCorrupt, StoreForeign):
        return
    if isinstance(record, TaskRecord) and record.result is not None and record.result.payload:
        yield key, record.result.digest
    if isinstance(record, RefusedRecord) and record.payload and record.state is not RefusedState.DISCARDED:
        yield key.beside(TASK, record.task), record.digest
