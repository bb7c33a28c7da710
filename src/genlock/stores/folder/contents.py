"""What the entries of a journal amount to: records, indexes, feeds, and the images of files."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from genlock.store import Change, Index, Key, Page, Query, RecordedEvent
from genlock.stores.folder.journal import (
    Born,
    Entry,
    Image,
    Kept,
    KeptEvent,
    KeptFeed,
    KeptRow,
    Noted,
    Purged,
    Raised,
    Wrote,
)
from genlock.stores.rows import Data, Feed, Row

MOST_EARLIER = 64
"""So many earlier images of a file are known, to tell a checkout from an edit."""


class Contents(Data):
    """The state after some entries."""

    def __init__(self) -> None:
        super().__init__()
        self.birth = b""
        self.images: dict[str, Image] = {}
        """By task: what its files were when they were last written or observed."""
        self._is_indexed = False
        self.applied = 0
        """How many entries this is."""
        self.commits = 0
        self.changed_at: dict[str, int] = {}
        """By task: the last commit that came with an image of its files."""
        self.last_imaged = 0
        """The last commit that came with any."""

    # The indexes are built when something is looked up by one: whoever claims a task by its id and
    # leaves again needs none, and to build them takes as long as to read the journal.

    def _move(self, key: Key, old: Index | None, new: Index) -> None:
        if self._is_indexed:
            super()._move(key, old, new)

    def find(self, query: Query, count_by: str | None) -> Page:
        """Records by an index field, or how many there are by its value."""
        if not self._is_indexed:
            self._is_indexed = True
            with uncollected():
                for key, row in self.rows.items():
                    super()._move(key, None, row.index)
        return super().find(query, count_by)

    def apply(self, entry: Entry) -> None:
        """Takes one more entry in."""
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
            case KeptRow():
                self._keep(entry)
            case Kept(feeds, images, commits):
                self._take_feeds(feeds)
                self.images = dict(images)
                self.commits = commits

    def _take_images(self, images: dict[str, Image], *, written: bool = True) -> None:
        for id, image in images.items():
            known = self.images.get(id)
            if known is not None and not image.earlier:
                image = _succeeding(known, image)
            self.images[id] = image
            if written:
                self.changed_at[id] = self.last_imaged = self.commits

    def _keep(self, kept: KeptRow) -> None:
        row = Row(kept.version, kept.digest, kept.body, kept.index, kept.base)
        row.events = [
            RecordedEvent(kept.key, event.version, event.digest, event.body, event.position)
            for event in kept.events
        ]
        self.rows[kept.key] = row
        self._move(kept.key, None, kept.index)
        feed = self._feeds.setdefault(kept.key[:2], Feed())
        for event in row.events:
            feed.events[event.position] = event

    def _take_feeds(self, feeds: tuple[KeptFeed, ...]) -> None:
        for kept in feeds:
            feed = self._feeds.setdefault((kept.tenant, kept.project), Feed())
            feed.head, feed.purged_to, feed.purges = kept.head, kept.purged_to, kept.purges

    def position_after(self, change: Change) -> int:
        """The position of the last event of a change that was just written."""
        return self.rows[change.key].events[-1].position

    def compacted(self) -> Iterator[Entry]:
        """The entries from which the same state follows."""
        yield Born(self.birth, self.epoch)
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
        feeds = tuple(
            KeptFeed(*place, feed.head, feed.purged_to, feed.purges)
            for place, feed in self._feeds.items()
        )
        yield Kept(feeds, self.images, self.commits)

    def places(self) -> list[tuple[str, str]]:
        """Every tenant and project that has a record."""
        return sorted({key.place for key in self.rows})

    def key_exists(self, key: Key) -> bool:
        """Is there such a record?"""
        return key in self.rows


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for garbage: all that is made here is kept."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _succeeding(known: Image, image: Image) -> Image:
    """The image, with those before it."""
    if known.file is None or known.file == image.file:
        earlier = known.earlier
    else:
        earlier = (known.file, *(each for each in known.earlier if each != known.file))
    return replace(image, earlier=earlier[:MOST_EARLIER])
