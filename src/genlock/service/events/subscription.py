"""A subscription: one reader of one or several feeds. It gets missed events first, then live ones.

Missed events are read from the store page by page, as fast as the reader takes them. After the last
page the reader joins the follower's listeners. The follower may be ahead of the page: then the
events between them are read while live events already queue up. Or it may be behind: then events
that were read already are dropped by their position. Either way nothing is missed and nothing comes
twice.

The queue is bounded. A reader whose queue overflows is disconnected and resumes from the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from genlock.errors import GenlockError, StoreUnavailable
from genlock.reads.feed import EventPage
from genlock.reads.reader import Reader
from genlock.service.events.batches import Batch, Filters, part_of
from genlock.service.events.cursors import Cursors, Place
from genlock.service.events.followers import PAGE, Followers
from genlock.service.events.settings import TOO_SLOW, Ending, StreamSettings, failed

AWAY_SECONDS = 0.5
"""The pause between two attempts while the store is unavailable."""
TAKEN_BYTES = 64 * 1024
"""The most bytes of the queue that the reader takes at once."""

Look = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a read of the store in a thread."""


class Subscription:
    """One reader. Used in the event loop only."""

    def __init__(
        self,
        *,
        reader: Reader,
        look: Look,
        followers: Followers,
        settings: StreamSettings,
        filters: Filters,
        tenant: str,
        several: bool,
    ) -> None:
        self.tenant = tenant
        self.cursors = Cursors(several=several)
        """What the reader has received. The sender of events moves it."""
        self.ending: Ending | None = None
        self.on_end: Callable[[Ending], None] | None = None
        self.idle_since = asyncio.get_running_loop().time()
        self._reader = reader
        self._look = look
        self._followers = followers
        self._settings = settings
        self._filters = filters
        self._behind: dict[Place, str | None] = {}
        """Feeds whose next page is read from the store, with the cursor."""
        self._floors: dict[Place, int] = {}
        """Feeds whose next live events may have been read already, with the position up to which
        they were."""
        self._passed: dict[Place, str] = {}
        """Feeds without events for this reader up to this cursor."""
        self._limit = PAGE
        """Events of the next page; fewer if events are large."""
        self._read: deque[Batch] = deque()
        """Events from the store, which precede the queue. No more is read before they are taken."""
        self._queue: deque[Batch] = deque()
        """Live events."""
        self._events = 0
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._beat = False
        self._joined: set[Place] = set()

    @property
    def places(self) -> set[Place]:
        """The feeds of this subscription."""
        return self._joined | set(self._behind)

    # Called by the follower

    def offer(self, batch: Batch) -> None:
        """Queues the events that pass the filters, if there is room."""
        if self.ending is not None:
            return
        floor = self._floors.get(batch.place)
        if floor is not None:
            if batch.position <= floor:
                return
            del self._floors[batch.place]
            batch = batch.after(floor)
        batch = batch.wanted(self._filters)
        if not batch.items:
            self._passed[batch.place] = batch.cursor
            return
        self._events += len(batch.items)
        self._bytes += batch.size
        # One batch always fits: a reader with an empty queue is not slow.
        if self._queue and (
            self._events > self._settings.queue_events or self._bytes > self._settings.queue_bytes
        ):
            self.end(TOO_SLOW)
            return
        self._passed.pop(batch.place, None)
        self._queue.append(batch)
        self._wake()

    def fail(self, error: GenlockError) -> None:
        """Ends the subscription with this error after the queued events."""
        self.end(failed(error))

    def end(self, ending: Ending) -> None:
        """Ends the subscription. The first ending counts."""
        if self.ending is not None:
            return
        self.ending = ending
        if ending.at_once:
            self._read.clear()
            self._queue.clear()
        for place in self._joined:
            self._followers.leave(place, self)
        self._joined.clear()
        self._behind.clear()
        self._wake()
        if self.on_end is not None:
            self.on_end(ending)

    def beat(self) -> None:
        """Wakes the reader without events, for a heartbeat."""
        self._beat = True
        self._wake()

    # Called by the reader

    async def open(self, starts: dict[Place, str | None], now: list[Place]) -> None:
        """Begins the feeds in `starts` after their cursors (None: at the first kept event), and
        those in `now` with live events. Raises `CursorLost`."""
        for place, cursor in starts.items():
            self.cursors.set(place, cursor)
        most = self._settings.page_bytes // max(1, len(starts))
        parts = await asyncio.gather(
            *(self._read_part(place, cursor, most) for place, cursor in starts.items())
        )
        for batch, more in parts:
            self._keep(await self._caught_up(batch, more))
        await asyncio.gather(*(self._begin_now(place) for place in now))

    def add(self, place: Place) -> None:
        """Adds a feed, from its first kept event on."""
        if self.ending is None and place not in self.places:
            self.cursors.set(place, None)
            self._behind[place] = None
            self._wake()

    async def take(self) -> list[Batch] | None:
        """Returns the waiting events, or waits for the next ones. Empty: time for a heartbeat.
        None: the subscription has ended, see `ending`."""
        while True:
            if self._read or self._queue:
                return self._drained()
            if self.ending is not None:
                return None
            if self._beat:
                self._note_passed()
                return self._drained()
            if self._behind:
                self._keep(await self._catch_up())
            else:
                await self._woken(None)

    def _drained(self) -> list[Batch]:
        """Takes a limited amount from the queue, at least one batch. The rest still counts as
        waiting."""
        batches: list[Batch] = []
        size = 0
        while self._read and size < TAKEN_BYTES:
            batches.append(self._read.popleft())
            size += batches[-1].size
        while self._queue and size < TAKEN_BYTES and not self._read:
            batch = self._queue.popleft()
            batches.append(batch)
            size += batch.size
            self._events -= len(batch.items)
            self._bytes -= batch.size
        self._beat = False
        self.idle_since = asyncio.get_running_loop().time()
        return batches

    def _keep(self, batches: list[Batch]) -> None:
        self._read.extend(batch for batch in batches if batch.items)
        for batch in batches[-1:]:
            if (
                not batch.items
                and batch.cursor
                and all(waiting.place != batch.place for waiting in (*self._read, *self._queue))
            ):
                self._passed[batch.place] = batch.cursor

    def _note_passed(self) -> None:
        """Moves the cursors to the ends of the feeds, because the queue is empty."""
        for place, cursor in self._passed.items():
            self.cursors.set(place, cursor)
        self._passed.clear()

    # Reading

    async def _read_part(
        self, place: Place, cursor: str | None, most_bytes: int | None = None
    ) -> tuple[Batch, bool]:
        """Reads and prepares the next events in a thread. A whole page is never kept for a client
        that may not take it."""
        limit = self._limit
        most = self._settings.page_bytes if most_bytes is None else most_bytes

        def read() -> tuple[Batch, bool]:
            page = self._reader.events(place, cursor, limit, cursors=True)
            return part_of(place, page, self._filters, most)

        part: tuple[Batch, bool] = await self._look(read)
        items = len(part[0].items)
        self._limit = max(1, items) if part[0].size * 2 > most else min(PAGE, self._limit * 2)
        return part

    async def _catch_up(self) -> list[Batch]:
        place, cursor = next(iter(self._behind.items()))
        try:
            return await self._caught_up(*await self._read_part(place, cursor))
        except StoreUnavailable:
            await self._woken(AWAY_SECONDS)
        except GenlockError as error:
            self.fail(error)
        return []

    async def _caught_up(self, batch: Batch, more: bool) -> list[Batch]:
        """Joins the follower if no missed events are left. Returns the events read, and those that
        happened meanwhile."""
        batches, place = [batch], batch.place
        if self.ending is not None:
            return []
        if more:
            self._behind[place] = batch.cursor
            return batches
        offered_after = self._join(place, batch.cursor, batch.position)
        while batch.position < offered_after and self.ending is None:
            try:
                batch, _ = await self._read_part(place, batch.cursor)
            except StoreUnavailable:
                await self._woken(AWAY_SECONDS)
                continue
            batches.append(batch if batch.position <= offered_after else batch.until(offered_after))
        return batches

    async def _begin_now(self, place: Place) -> None:
        feed = self._followers.feed(place)
        if self.ending is not None:
            return  # another of its feeds could not be opened
        if feed is None:
            page: EventPage = await self._look(lambda: self._reader.feed_end(place))
            self.cursors.set(place, page.cursor)
            self._keep(
                await self._caught_up(
                    Batch(place, (), page.cursor, page.position, whole=False), False
                )
            )
        else:
            self.cursors.set(place, feed.cursor)
            self._join(place, feed.cursor, feed.position)

    def _join(self, place: Place, cursor: str, position: int) -> int:
        self._behind.pop(place, None)
        self._joined.add(place)
        self._floors[place] = position
        return self._followers.join(place, cursor, position, self)

    # Waiting

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _woken(self, seconds: float | None) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            if seconds is None:
                await self._waiter
            else:
                await asyncio.wait([self._waiter], timeout=seconds)
        finally:
            self._waiter = None
