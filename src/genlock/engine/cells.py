"""A record in a round, and what is remembered of records from one round to the next: the decoding of bytes that have not changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from genlock.core.codec import Sealed, decode_record, encode_record, seal
from genlock.core.decision import Decision
from genlock.core.index import index_of
from genlock.core.keys import TASK, Key
from genlock.core.model import Record
from genlock.errors import GenlockError
from genlock.store import Change, Stored


class Cell(Struct, eq=False, gc=False):
    """A record in a round: as it was read, as it is being changed, and what happened to it on the way."""

    key: Key
    read_version: int
    read_digest: bytes
    read: Record | None
    version: int
    digest: bytes
    record: Record | None
    sealed: Sequence[Sealed] = ()
    events: Sequence[Any] = ()
    conflicted: bool = False
    unsure: bool = False
    """Was it sent, and is it not there although it may still come?"""
    error: GenlockError | None = None
    position: int = 0
    """Of the last of its events in the feed, once it is committed."""

    def apply(self, decision: Decision) -> None:
        """Folds a decision's events in and chains them."""
        if not decision.events:
            return
        version, digest, sealed = self.version, self.digest, []
        for event in decision.events:
            chained = seal(event, version + 1, digest)
            version, digest = chained.version, chained.digest
            sealed.append(chained)
        # Only now that all could be written down is anything taken over.
        self.version, self.digest = version, digest
        self.sealed = [*self.sealed, *sealed] if self.sealed else sealed
        self.events = [*self.events, *decision.events] if self.events else decision.events
        self.record = decision.record

    def change(self) -> Change:
        """What is to be written."""
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
            )
        )


def cell_of(key: Key, stored: Stored | None, record: Record | None) -> Cell:
    """A record that was just read; one that is not there has nothing stored."""
    if stored is None:
        return Cell(key, 0, b"", record, 0, b"", record)
    version, digest = stored[1], stored[2]
    return Cell(key, version, digest, record, version, digest, record)


_change = partial(tuple.__new__, Change)  # half of what the class itself takes


class Memo:
    """Decoded records by the digest of their bytes: what was loaded again and has not changed is not decoded again."""

    MOST = 4096

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[bytes, Record]] = {}

    def decode(self, stored: Stored) -> Record:
        """The record. Tasks change too often to be kept."""
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
