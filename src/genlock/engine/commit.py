"""Records on their way through a batch, and the commit that writes them.

A record is loaded and decoded, decided on, and sealed into a change. A commit sends the changes and
finds out the outcome of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from genlock.core.codec import EncodedEvent, decode_record, encode_event, encode_record
from genlock.core.decision import Decision
from genlock.core.keys import TASK, Key
from genlock.core.model import Record
from genlock.core.rules import index_of
from genlock.engine.outage_grace import OutageTracker
from genlock.errors import (
    Closed,
    GenlockError,
    OutcomeUnknown,
    OverLimit,
    StoreError,
    StoreUnavailable,
)
from genlock.store import (
    Change,
    Committed,
    Conflict,
    EventQuery,
    PendingCommit,
    Store,
    Stored,
    start_commit,
)


class LoadedRecord(Struct, eq=False, gc=False):
    """A record in a round: as read, as changed, and the outcome of the change."""

    key: Key
    read_version: int
    read_digest: bytes
    read: Record | None
    version: int
    digest: bytes
    record: Record | None
    sealed: Sequence[EncodedEvent] = ()
    events: Sequence[Any] = ()
    conflicted: bool = False
    unsure: bool = False
    """Was the change sent and not found, although it may still be written?"""
    error: GenlockError | None = None
    position: int = 0
    """The position of its last event in the feed, once it is committed."""
    seen: object = None
    """The store's token for its observation of the record's files."""

    def apply(self, decision: Decision) -> None:
        """Folds a decision's events in and chains them."""
        if not decision.events:
            return
        version, digest, sealed = self.version, self.digest, []
        for event in decision.events:
            chained = encode_event(event, version + 1, digest)
            version, digest = chained.version, chained.digest
            sealed.append(chained)
        # Nothing is changed until all events could be encoded.
        self.version, self.digest = version, digest
        self.sealed = [*self.sealed, *sealed] if self.sealed else sealed
        self.events = [*self.events, *decision.events] if self.events else decision.events
        self.record = decision.record

    def change(self) -> Change:
        """Returns the change to write."""
        record = self.record
        assert record is not None
        return _change(
            (
                self.key,
                self.read_version,
                self.read_digest,
                self.version,
                self.digest,
                encode_record(record),
                index_of(record),
                self.sealed,
                self.seen,
            )
        )


def loaded_record(key: Key, stored: Stored | None, record: Record | None) -> LoadedRecord:
    """Returns a record that was just read. For a record that does not exist, `stored` is None."""
    if stored is None:
        return LoadedRecord(key, 0, b"", record, 0, b"", record)
    version, digest = stored[1], stored[2]
    return LoadedRecord(key, version, digest, record, version, digest, record)


_change = partial(tuple.__new__, Change)  # takes half the time of the class itself


class DecodeCache:
    """Decoded records by the digest of their bytes: an unchanged record is not decoded again."""

    MOST = 4096

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[bytes, Record]] = {}

    def decode(self, stored: Stored) -> Record:
        """Returns the decoded record. Tasks are not cached: they change too often."""
        key = stored.key
        if key.kind == TASK:
            return decode_record(TASK, stored.body)
        kept = self._kept.get(key)
        if kept is not None and kept[0] == stored.digest:
            return kept[1]
        if len(self._kept) >= self.MOST:
            self._kept.clear()
        record = decode_record(key.kind, stored.body)
        self._kept[key] = stored.digest, record
        return record


Answer = Committed | Conflict | GenlockError

NOT_YET = Conflict()
"""A change of unknown outcome that was not found. It is decided again, and a slow server may still
write it."""


class BatchCommit:
    """The changes of one batch on their way into the store. One thread at a time uses it.

    A commit has three steps: `send`, `wait` and `write`. Only `wait` blocks on the server, so
    another thread can do it while the lane's thread encodes and decodes. If that thread had to
    decode the answers as well, it would compete with the lane for the interpreter, and commits
    would take half as long again under load.
    """

    def __init__(self, store: Store, outages: OutageTracker | None) -> None:
        self._store = store
        self._outages = outages
        self.changes: list[Change] = []
        self.epoch: int | None = None
        """The epoch in which the changes were decided."""
        self.seconds = 0.0
        """How long the commit took."""
        self._began = 0.0
        self._sent: PendingCommit | None = None

    def send(self) -> None:
        """The first step. More changes than the store takes at once are left for `write`."""
        self._began = time.perf_counter()
        if len(self.changes) <= self._store.limits.batch:
            self._sent = start_commit(self._store, self.changes, epoch=self.epoch)

    def wait(self) -> None:
        """The second step: waits until the answers can be read."""
        if self._sent is not None:
            self._sent.wait()
        self.seconds = time.perf_counter() - self._began

    def write(self, until: float) -> list[Answer]:
        """The last step, or the whole commit if nothing was sent."""
        if self._sent is not None:
            return list(self._outcomes(self._sent.answers, self.changes, until))
        answers: list[Answer] = []
        batch = self._store.limits.batch
        began = time.perf_counter()
        for start in range(0, len(self.changes), batch):
            answers += self._commit(self.changes[start : start + batch], until)
        self.seconds = time.perf_counter() - began
        return answers

    def _commit(self, changes: list[Change], until: float) -> Sequence[Answer]:
        return self._outcomes(
            partial(self._store.commit, changes, epoch=self.epoch), changes, until
        )

    def _outcomes(
        self, commit: Callable[[], Sequence[Answer]], changes: list[Change], until: float
    ) -> Sequence[Answer]:
        try:
            return commit()
        except OutcomeUnknown as unknown:
            return [self._find_out(change, unknown, until) for change in changes]
        except OverLimit as error:
            # One change made the store refuse all of them. The others may belong to other callers,
            # so they are committed without it.
            half = len(changes) // 2
            return (
                [*self._commit(changes[:half], until), *self._commit(changes[half:], until)]
                if half
                else [error]
            )
        except (StoreError, Closed) as error:
            if isinstance(error, StoreUnavailable):
                self._was_away()
            return [error] * len(changes)

    def _was_away(self) -> None:
        """Notes that the store was unavailable: claims that fall due in that time may be spared."""
        if self._outages is not None:
            self._outages.lost()

    def _find_out(self, change: Change, unknown: OutcomeUnknown, until: float) -> Answer:
        """Finds out whether a change was written although the connection broke inside the commit.
        It was if our digest is at the version that we wrote."""
        first, number = change.events[0], len(change.events)
        query = EventQuery(
            change.key.tenant,
            change.key.project,
            record=change.key,
            after_version=first.version - 1,
            limit=number,
        )
        pause = 0.002
        while True:
            try:
                events = self._store.read_events(query).events
            except Closed:
                return unknown  # it can no longer be looked up
            except StoreError:
                self._was_away()
                if time.monotonic() > until:
                    return unknown
                time.sleep(pause)
                pause = min(pause * 2, 0.5)
                continue
            if not events:
                return NOT_YET
            return (
                Committed(events[-1].position) if events[0].digest == first.digest else Conflict()
            )
