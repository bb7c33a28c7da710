"""What is kept: records, feeds and payloads, shared by all handles on one memory."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from genlock.store import Change, Committed, Conflict, Index, Key, Recorded
from genlock.stores.memory.indexes import Indexes
from genlock.stores.places import FeedState, feed_mark


@dataclass(slots=True)
class Row:
    """A record with its events."""

    version: int
    digest: bytes
    body: bytes
    index: Index
    base: bytes | None = None
    events: list[Recorded] = field(default_factory=list)


@dataclass(slots=True)
class Feed:
    """A project's events by position. Purging leaves holes."""

    head: int = 0
    purged_to: int = 0
    purges: int = 0
    first: int = 1
    events: dict[int, Recorded] = field(default_factory=dict)

    def append(self, event: Recorded) -> None:
        self.head = event.position
        self.events[event.position] = event

    def after(self, position: int) -> Iterator[Recorded]:
        """The kept events after a position."""
        while self.first not in self.events and self.first <= self.head:
            self.first += 1
        for place in range(max(position + 1, self.first), self.head + 1):
            event = self.events.get(place)
            if event is not None:
                yield event

    def drop(self, events: list[Recorded]) -> None:
        for event in events:
            del self.events[event.position]
        self.purged_to = max(self.purged_to, *(event.position for event in events))
        self.purges += 1


class Data:
    """One memory. Whoever reads or writes has `lock`; whoever waits for a change waits on it."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.birth = secrets.token_bytes(8)
        self.epoch = 0
        self.rows: dict[Key, Row] = {}
        self.indexes = Indexes()
        self.payloads: dict[tuple[Key, str], bytes] = {}
        self._feeds: dict[tuple[str, str], Feed] = {}

    def feed(self, tenant: str, project: str) -> Feed:
        """A project's feed; an empty one if nothing was ever written."""
        return self._feeds.get((tenant, project)) or Feed()

    def state(self, tenant: str, project: str) -> FeedState:
        """What decides whether the feed can be continued from a cursor."""
        feed = self.feed(tenant, project)
        return FeedState(self.birth, self.epoch, feed_mark(tenant, project), feed.head, feed.purged_to, feed.purges)

    def write(self, change: Change) -> Committed | Conflict:
        """Writes one change if it fits."""
        row = self.rows.get(change.key)
        if (change.read_version, change.read_digest) != ((row.version, row.digest) if row else (0, b"")):
            return Conflict()
        self.indexes.move(change.key, row.index if row else None, change.index)
        if row is None:
            row = self.rows[change.key] = Row(change.version, change.digest, change.body, change.index)
        else:
            row.version, row.digest, row.body, row.index = change.version, change.digest, change.body, change.index
        feed = self._feeds.setdefault(change.key[:2], Feed())
        for event in change.events:
            recorded = Recorded(change.key, event.version, event.digest, event.body, feed.head + 1)
            row.events.append(recorded)
            feed.append(recorded)
        return Committed(feed.head)

    def purge(self, key: Key, before_version: int, base: bytes) -> None:
        """Drops events and swaps the base in. One who comes late, when more has been purged already, changes nothing."""
        row = self.rows.get(key)
        dropped = [event for event in row.events if event.version < before_version] if row else []
        if row and dropped:
            row.events = row.events[len(dropped) :]
            row.base = base
            self.feed(key.tenant, key.project).drop(dropped)
