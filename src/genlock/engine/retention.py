"""Retention: events older than the tenant keeps are folded into a base. A task's record, and so its generation, is never purged."""

from __future__ import annotations

from datetime import datetime, timedelta

from genlock.core.codec import decode_base, decode_event, encode_base
from genlock.core.keys import REFUSED, SESSION, TASK, Key
from genlock.core.model import Record
from genlock.core.policy import TenantLimits
from genlock.core.rules import evolve
from genlock.store import EventQuery, Query, Store

_PAGE = 500


def purge_old(store: Store, place: tuple[str, str], limits: TenantLimits) -> int:
    """Drops the events that are past the tenant's retention, all but the last of each record; how many."""
    if limits.claim_history_retention_days is None:
        return 0
    before = store.load([]).now - timedelta(days=limits.claim_history_retention_days)
    dropped = 0
    for kind in (TASK, SESSION, REFUSED):
        after: str | None = None
        while True:
            page = store.find(Query(*place, kind=kind, after=after, limit=_PAGE))
            dropped += sum(_purge(store, stored.key, before) for stored in page.records)
            if page.next is None:
                break
            after = page.next
    return dropped


def _purge(store: Store, key: Key, before: datetime) -> int:
    page = store.read_events(EventQuery(*key.place, record=key, limit=_PAGE))
    version, digest, record = 0, b"", None
    if page.base is not None:
        version, digest, record = decode_base(key.kind, page.base)
    folded: Record | None = record
    dropped = 0
    for recorded in page.events[:-1]:
        event = decode_event(recorded.body).event
        if event.timestamp >= before:
            break
        folded = evolve(key.kind, folded, event)
        version, digest = recorded.version, recorded.digest
        dropped += 1
    if dropped and folded is not None:
        store.purge(key, version + 1, encode_base(version, digest, folded))
    return dropped
