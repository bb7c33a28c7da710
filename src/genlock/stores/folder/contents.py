"""The state that follows from the entries of a journal: records, indexes, feeds, and the images of
files."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from genlock.errors import StoreCorrupt
from genlock.store import Change, EventPage, EventQuery, Index, Key, Page, Query, RecordedEvent
from genlock.stores.folder.compacted_part import CompactedPart
from genlock.stores.folder.entries import (
    Born,
    Entry,
    Image,
    KeptEvent,
    KeptFeed,
    KeptImage,
    KeptRow,
    Noted,
    Purged,
    Raised,
    Wrote,
)
from genlock.stores.folder.lazy_dict import LazyDict
from genlock.stores.rows import Data, Feed, Row

MOST_EARLIER = 64
"""How many earlier images of a file are kept, to distinguish a checkout from an edit."""


class Contents(Data):
    """The state after some entries."""

    def __init__(self) -> None:
        super().__init__()
        self.birth = b""
        self.rows: LazyDict[Key, Row] = LazyDict(self._kept_row, self._complete)
        self.images = LazyDict[str, Image](self._kept_image, self._complete)
        """By task: the image of its files, from when they were last written or observed."""
        self._part: CompactedPart | None = None
        """The part of the journal that was not completely read yet."""
        self._is_indexed = False
        self.applied = 0
        """How many entries were applied."""
        self.commits = 0
        self.changed_at: dict[str, int] = {}
        """By task: the last commit that contained an image of its files."""
        self.last_imaged = 0
        """The last commit that contained any image."""

    # The indexes are built at the first lookup by index: a process that claims one task by its id
    # and exits needs none, and building them takes as long as reading the journal.

    def _move(self, key: Key, old: Index | None, new: Index) -> None:
        if self._is_indexed:
            super()._move(key, old, new)

    def find(self, query: Query, count_by: str | None) -> Page:
        """Finds records by an index field, or counts them by its value."""
        if not self._is_indexed:
            self._complete()
            self._is_indexed = True
            with uncollected():
                for key, row in self.rows.items():
                    super()._move(key, None, row.index)
        return super().find(query, count_by)

    def read_events(self, query: EventQuery) -> EventPage:
        """Reads events of a record, or of a project after a cursor."""
        if query.record is None and (query.back or not query.tail):
            self._complete()
        return super().read_events(query)

    # The compacted part is read on demand: one record, or all of them.

    def _kept_row(self, key: Key) -> Row | None:
        kept = None if self._part is None else self._part.row(key)
        return None if kept is None else self._row_of(kept)

    def _kept_image(self, id: str) -> Image | None:
        return None if self._part is None else self._part.image(id)

    def _complete(self) -> None:
        if self._part is None:
            return
        with uncollected():
            for entry in self._part.entries():
                if isinstance(entry, KeptImage):
                    self.images.setdefault(entry.id, entry.image)
                elif isinstance(entry, KeptRow) and not self.rows.has_read(entry.key):
                    self.rows[entry.key] = self._row_of(entry)
        self._part = None

    def _row_of(self, kept: KeptRow) -> Row:
        row = Row(kept.version, kept.digest, kept.body, kept.index, kept.base)
        row.events = [
            RecordedEvent(kept.key, event.version, event.digest, event.body, event.position)
            for event in kept.events
        ]
        feed = self._feeds.setdefault(kept.key[:2], Feed())
        for event in row.events:
            feed.events[event.position] = event
        return row

    def close(self) -> None:
        """Drops its references into the journal. It must not be read afterwards."""
        self._part = None
        self.rows.clear()
        self.images.clear()

    def apply(self, entry: Entry | CompactedPart) -> None:
        """Applies the next entry."""
        self.applied += 1
        match entry:
            case Wrote(changes, images):
                self.commits += 1
                for change in changes:
                    self.write(change)
                self._take_images(images)
            case Born(birth, epoch):
                self.birth, self.epoch = birth, epoch
            case Purged(key, before_version, base):
                self.purge(key, before_version, base)
            case Raised(epoch):
                self.epoch = epoch
            case Noted(images):
                self._take_images(images, written=False)
            case CompactedPart():
                self._take_feeds(entry.feeds)
                self.commits = entry.commits
                self._part = entry
            case _:
                raise StoreCorrupt(f"{type(entry).__name__} stands outside of the compacted part")

    def _take_images(self, images: dict[str, Image], *, written: bool = True) -> None:
        for id, image in images.items():
            known = self.images.get(id)
            if known is not None and not image.earlier:
                image = _succeeding(known, image)
            self.images[id] = image
            if written:
                self.changed_at[id] = self.last_imaged = self.commits

    def _take_feeds(self, feeds: tuple[KeptFeed, ...]) -> None:
        for kept in feeds:
            feed = self._feeds.setdefault((kept.tenant, kept.project), Feed())
            feed.head, feed.purged_to, feed.purges = kept.head, kept.purged_to, kept.purges

    def position_after(self, change: Change) -> int:
        """Returns the position of the last event of a change that was just written."""
        return self.rows[change.key].events[-1].position

    def born(self) -> Born:
        """Returns the first entry of a journal with the same state."""
        return Born(self.birth, self.epoch)

    def kept(self) -> Iterator[KeptRow | KeptImage]:
        """Yields all records and images, for a compaction."""
        for key, row in self.rows.items():
            yield KeptRow(
                key,
                row.version,
                row.digest,
                row.body,
                row.index,
                row.base,
                tuple(
                    KeptEvent(event.version, event.digest, event.body, event.position)
                    for event in row.events
                ),
            )
        for id, image in self.images.items():
            yield KeptImage(id, image)

    def kept_feeds(self) -> tuple[KeptFeed, ...]:
        """Returns the feeds, for a compaction."""
        return tuple(
            KeptFeed(*place, feed.head, feed.purged_to, feed.purges)
            for place, feed in self._feeds.items()
        )

    def places(self) -> list[tuple[str, str]]:
        """Returns every tenant and project that has a record."""
        return sorted({key.place for key in self.rows})

    def key_exists(self, key: Key) -> bool:
        """Is there such a record?"""
        return key in self.rows


@contextmanager
def uncollected() -> Iterator[None]:
    """Disables garbage collection for the block: everything created in it is kept."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _succeeding(known: Image, image: Image) -> Image:
    """Returns the image with its earlier images."""
    if known.file is None or known.file == image.file:
        earlier = known.earlier
    else:
        earlier = (known.file, *(each for each in known.earlier if each != known.file))
    return replace(image, earlier=earlier[:MOST_EARLIER])
