"""Sample records and events, which the clauses write into a store.

A store has none of the core's rules, so these follow none. Digests are chained by sha256 and a
record's body is the fold of its events, so that a clause can replay what it reads back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from genlock.store import (
    Change,
    EventQuery,
    Index,
    Key,
    NewEvent,
    Page,
    RecordedEvent,
    Store,
    Stored,
)

NO_INDEX = Index()


class Version(Protocol):
    """The predecessor of a change: a `Stored` record or the `Change` that wrote it."""

    @property
    def version(self) -> int: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...


def make_key(
    id: str = "A-001", *, tenant: str = "acme", project: str = "apollo", kind: str = "task"
) -> Key:
    """Returns a key, with defaults for the parts that do not matter to a clause."""
    return Key(tenant, project, kind, id)


def digest_of(*parts: bytes) -> bytes:
    """Returns the sha256 of the parts, each preceded by its length."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big") + part)
    return state.digest()


def fold(body: bytes, events: Iterable[bytes]) -> bytes:
    """Returns the body after `events` happen to a record with `body`."""
    for event in events:
        body = digest_of(body, event)
    return body


def make_change(
    key: Key,
    previous: Version | None = None,
    *,
    body: bytes | None = None,
    index: Index = NO_INDEX,
    events: int | Sequence[bytes] = 1,
    mark: str = "",
) -> Change:
    """Returns the change that follows `previous` by this number of events, or by these event
    bodies.

    `mark` distinguishes two changes that follow the same version: their digests differ.
    """
    read_version, read_digest, old_body = (
        (previous.version, previous.digest, previous.body) if previous else (0, b"", b"")
    )
    if isinstance(events, int):
        events = [
            f"{'/'.join(key)} {read_version + number} {mark}".encode()
            for number in range(1, events + 1)
        ]
    written = []
    digest = read_digest
    for version, event in enumerate(events, read_version + 1):
        digest = digest_of(digest, event)
        written.append(NewEvent(version, digest, event))
    return Change(
        key=key,
        read_version=read_version,
        read_digest=read_digest,
        version=read_version + len(written),
        digest=digest,
        body=fold(old_body, events) if body is None else body,
        index=index,
        events=tuple(written),
    )


def stored_of(change: Change) -> Stored:
    """Returns the record that `load` returns once the change is done."""
    return Stored(change.key, change.version, change.digest, change.body)


def recorded_of(changes: Iterable[Change]) -> list[tuple[Key, int, bytes, bytes]]:
    """The events of the changes, as `facts_of` shows them."""
    return [
        (change.key, event.version, event.digest, event.body)
        for change in changes
        for event in change.events
    ]


def facts_of(events: Iterable[RecordedEvent]) -> list[tuple[Key, int, bytes, bytes]]:
    """Returns everything of the events except their positions."""
    return [(event.key, event.version, event.digest, event.body) for event in events]


def keys_of(page: Page) -> list[Key]:
    """The keys of the records found, in their order."""
    return [record.key for record in page.records]


def read_record(store: Store, key: Key, *, limit: int = 1000) -> list[RecordedEvent]:
    """Reads all kept events of one record, page by page."""
    events: list[RecordedEvent] = []
    more, after = True, 0
    while more:
        page = store.read_events(
            EventQuery(key.tenant, key.project, record=key, after_version=after, limit=limit)
        )
        events += page.events
        more = page.more
        assert not more or page.events, "a page of a record's events is empty and yet promises more"
        after = page.events[-1].version if page.events else after
    return events


def read_feed(
    store: Store,
    tenant: str = "acme",
    project: str = "apollo",
    *,
    after: str | None = None,
    limit: int = 1000,
) -> list[RecordedEvent]:
    """Reads a project's feed from a cursor to its present end, page by page."""
    events: list[RecordedEvent] = []
    more = True
    while more:
        page = store.read_events(EventQuery(tenant, project, after=after, limit=limit))
        events += page.events
        after, more = page.cursor, page.more
    return events
