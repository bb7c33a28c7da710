"""Passes over a whole store: its projects, records and events page by page, the payloads that they
refer to, and the purge of old events.

Retention folds events that are older than the tenant keeps into a base. The record of a task, and
so its generation, is never purged. A purge also drops the payloads to which only purged events
refer, such as a result from before a reset. It drops the payloads first: if it is killed in
between, the event is still there, and the next purge finishes the work. In the other order the
payload's name would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from genlock.core import codec
from genlock.core import events as e
from genlock.core.codec import decode_base, decode_event, decode_record, encode_base
from genlock.core.keys import (
    NOWHERE,
    PAYLOAD,
    PROJECT,
    REFUSED,
    SESSION,
    TASK,
    TENANT,
    Key,
    payload_key,
    payload_task,
    refused_id,
)
from genlock.core.model import Record, RefusedRecord, TaskRecord
from genlock.core.policy import TenantLimits
from genlock.core.reasons import RefusedState
from genlock.core.rules import evolve
from genlock.errors import ResultNotFound, StoreCorrupt, StoreForeign
from genlock.store import (
    EventPage,
    EventQuery,
    Payloads,
    Query,
    RecordedEvent,
    Store,
    Stored,
    payload_name,
)

_PAGE = 500


def records_of(
    store: Store, tenant: str, project: str | None, kind: str, state: str | None = None
) -> Iterator[Stored]:
    """Yields every record of this kind, or every one in this state, by project and id."""
    after: str | None = None
    while True:
        page = store.find(Query(tenant, project, kind, state=state, after=after, limit=_PAGE))
        yield from page.records
        if page.next is None:
            return
        after = page.next


def pages_of(
    store: Store, place: tuple[str, str], after: str | None = None, limit: int = _PAGE
) -> Iterator[EventPage]:
    """Yields the project's feed from a cursor to its present end; the last page may be empty."""
    while True:
        page = store.read_events(EventQuery(*place, after=after, limit=limit))
        yield page
        if not page.more:
            return
        after = page.cursor


def places(store: Store) -> list[tuple[str, str]]:
    """Returns every tenant and project, from the records of the tenants and projects."""
    found: list[tuple[str, str]] = [(NOWHERE, NOWHERE)]
    for tenant in records_of(store, NOWHERE, None, TENANT):
        found += [stored.key.place for stored in records_of(store, tenant.key.id, None, PROJECT)]
    return found


# Payloads


_MARK = b'"payload":true'


class Payload(NamedTuple):
    """Bytes that a record or an event refers to."""

    key: Key
    digest: str
    refused: str
    """The id under which this submission would be kept if it were refused."""


def payloads_of(
    store: Store, places: Iterable[tuple[str, str]] | None = None
) -> Iterator[tuple[Key, str]]:
    """Yields every payload that must exist, by key and digest. Records that cannot be read are left
    to the replay check."""
    for place in store.audit().places if places is None else places:
        for kind in (TASK, REFUSED):
            for stored in records_of(store, *place, kind):
                if _MARK in stored.body:
                    yield from _referred(stored.key, stored.body)


def missing_payloads(
    store: Store, payloads: Payloads | None = None, *, read: bool = False
) -> list[tuple[Key, str]]:
    """Returns the payloads that are missing from the store, or from `payloads`. With `read`, also
    those whose bytes have changed."""
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


def unused_payloads(store: Store, among: Iterable[str] | None = None) -> list[str]:
    """Returns the names of payloads (`among` these) to which no record and no event refers. They
    may belong to a submission that is not committed yet."""
    payloads = store.payloads()
    there = set(payloads.names())  # before the records: later payloads are ignored
    if among is not None:
        there &= set(among)
    if not there:
        return []
    there.difference_update(payload_name(key, digest) for key, digest in payloads_of(store))
    for place in store.audit().places if there else ():
        for page in pages_of(store, place):
            for recorded in page.events:
                if _MARK in recorded.body and recorded.key.kind == TASK:
                    payload = payload_of_event(decode_event(recorded.body).event, recorded.key)
                    there -= (
                        {payload_name(payload.key, payload.digest)}
                        if payload is not None
                        else set()
                    )
    return sorted(there)


def read_whole(payloads: Payloads, key: Key, digest: str) -> bytes:
    """Returns the bytes of a payload. Raises `ResultNotFound` if they are missing or have
    changed."""
    with payloads.open(key, digest) as file:
        data = file.read()
    if codec.digest_of(data).hex() != digest:
        raise ResultNotFound(
            f"{'/'.join(key)} has a payload {digest} whose bytes are not those that were "
            "submitted: it was damaged since"
        )
    return data


_WITH_PAYLOAD = (e.ResultAccepted, e.ConvergenceEscalated, e.ReviewRejected, e.ResultRejected)


def payload_of_event(event: e.Event, key: Key) -> Payload | None:
    """Returns the payload that was submitted by this event, if any."""
    if not isinstance(event, _WITH_PAYLOAD) or not event.payload:
        return None
    if key.kind == REFUSED:
        return Payload(
            payload_key(key.beside(TASK, event.task_id), event.payload_id), event.digest, key.id
        )
    if isinstance(event, e.ReviewRejected):
        return Payload(payload_key(key, event.payload_id), event.digest, event.refused_id)
    session = event.session_id
    if isinstance(event, e.ResultAccepted):
        session = event.author_session_id or session
    name = refused_id(key.id, event.generation, session, event.digest)
    return Payload(payload_key(key, event.payload_id), event.digest, name)


def payload_of_record(record: Record | None, key: Key) -> Payload | None:
    """Returns the payload that must exist because of this record, if any."""
    result = None
    if isinstance(record, TaskRecord):
        result = record.review.result if record.review is not None else record.result
    if result is not None and result.payload:
        name = refused_id(key.id, result.generation, result.session, result.digest)
        return Payload(payload_key(key, result.payload_id), result.digest, name)
    if (
        isinstance(record, RefusedRecord)
        and record.payload
        and record.state is not RefusedState.DISCARDED
    ):
        return Payload(
            payload_key(key.beside(TASK, record.task), record.payload_id), record.digest, key.id
        )
    return None


def _referred(key: Key, body: bytes) -> Iterator[tuple[Key, str]]:
    try:
        payload = payload_of_record(decode_record(key.kind, body), key)
    except (StoreCorrupt, StoreForeign):
        return
    if payload is not None:
        yield payload.key, payload.digest


# Retention


_PURGE_PAGE = 500


def purge_old(store: Store, place: tuple[str, str], limits: TenantLimits) -> int:
    """Drops events past the tenant's retention, except the last of each record. Returns their
    number."""
    if limits.claim_history_retention_days is None:
        return 0
    before = store.load([]).now - timedelta(days=limits.claim_history_retention_days)
    dropped = 0
    for kind in (TASK, SESSION, REFUSED):
        after: str | None = None
        while True:
            page = store.find(Query(*place, kind=kind, after=after, limit=_PURGE_PAGE))
            dropped += sum(_purge(store, stored.key, before) for stored in page.records)
            if page.next is None:
                break
            after = page.next
    return dropped


def _purge(store: Store, key: Key, before: datetime) -> int:
    page = store.read_events(EventQuery(*key.place, record=key, limit=_PURGE_PAGE))
    version, digest, record = 0, b"", None
    if page.base is not None:
        version, digest, record = decode_base(key.kind, page.base)
    folded: Record | None = record
    dropped = 0
    payloads = [payload_of_record(record, key)]
    for recorded in page.events[:-1]:
        event = decode_event(recorded.body).event
        if event.timestamp >= before:
            break
        folded = evolve(key.kind, folded, event)
        version, digest = recorded.version, recorded.digest
        payloads.append(payload_of_event(event, key))
        dropped += 1
    if dropped and folded is not None:
        _drop_unused(
            store,
            key,
            {payload for payload in payloads if payload is not None},
            page.events[dropped:],
        )
        store.purge(key, version + 1, encode_base(version, digest, folded))
    return dropped


def _drop_unused(
    store: Store, key: Key, payloads: set[Payload], kept: Iterable[RecordedEvent]
) -> None:
    """Drops the bytes of these payloads, except those to which a record, or a kept event of the
    task, refers.

    Payloads from before they had names of their own may be shared, and stay (ADR 30). The events of
    a discarded refused result need no bytes: the discard had to drop them.
    """
    payloads = {payload for payload in payloads if payload.key.kind == PAYLOAD}
    if not payloads:
        return
    # Bytes belong to one submission: it has become the task's result or a refused one, whose id
    # follows from it.
    task = key.beside(TASK, payload_task(next(iter(payloads)).key))
    records = store.load(
        [task, *{key.beside(REFUSED, payload.refused) for payload in payloads}]
    ).records
    referred = {
        payload_of_record(decode_record(each.kind, stored.body), each)
        for each, stored in records.items()
    }
    if key.kind == TASK:
        referred |= {payload_of_event(decode_event(recorded.body).event, key) for recorded in kept}
    needed = {(payload.key, payload.digest) for payload in referred if payload is not None}
    for payload in payloads:
        if (payload.key, payload.digest) not in needed:
            store.payloads().drop(payload.key, payload.digest)
