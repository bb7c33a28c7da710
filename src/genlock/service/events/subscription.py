"""A subscription: one reader of one or several feeds, who first gets what it missed and then what
comes.

What it missed is read from the store by pages, as fast as the reader takes them. When a page is the
last, the reader joins those who are offered what happens. Offers may begin behind the page, if the
follower was faster: then what is between is read, while offers already queue up. Or before its end,
if the follower is slower: then what is offered twice is left out, by its position. Either way
nothing is missed and nothing comes twice.

The queue is bounded. A reader who lets it overflow is dropped; what it has not got is in the store.
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
"""Between two looks at a store that is away."""
TAKEN_BYTES = 64 * 1024
"""So much of what waits is handed over at once."""

Look = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a look at the store off the loop."""


class Subscription:
    """One reader. Belongs to the event loop."""

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
        """What the reader has got. Who hands events on moves it."""
        self.ending: Ending | None = None
        self.on_end: Callable[[Ending], None] | None = None
        self.idle_since = asyncio.get_running_loop().time()
        self._reader = reader
        self._look = look
        self._followers = followers
        self._settings = settings
        self._filters = filters
        self._behind: dict[Place, str | None] = {}
        """Feeds whose next page is read from the store, and from where."""
        self._floors: dict[Place, int] = {}
        """Feeds whose next offers may have been read already, and up to where."""
        self._passed: dict[Place, str] = {}
        """Feeds in which nothing was for this reader, up to here."""
        self._limit = PAGE
        """Events of the next page: fewer where a few are as much as is kept."""
        self._read: deque[Batch] = deque()
        """From the store: comes before what is offered meanwhile. Nothing more is read before it is
        taken."""
        self._queue: deque[Batch] = deque()
        """What was offered."""
        self._events = 0
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._beat = False
        self._joined: set[Place] = set()

    @property
    def places(self) -> set[Place]:
        """The feeds it reads."""
        return self._joined | set(self._behind)

    # Who is offered

    def offer(self, batch: Batch) -> None:
        """Takes what the reader wants of it, if there is room."""
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
        # One batch always fits: nobody is slow who has nothing waiting.
        if self._queue and (
            self._events > self._settings.queue_events or self._bytes > self._settings.queue_bytes
        ):
            self.end(TOO_SLOW)
            return
        self._passed.pop(batch.place, None)
        self._queue.append(batch)
        self._wake()

    def fail(self, error: GenlockError) -> None:
        """A feed is lost: the reader gets what waits for it, and then this."""
        self.end(failed(error))

    def end(self, ending: Ending) -> None:
        """Nothing more is offered. The first ending counts."""
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
        """Nothing has come for a while: the reader is to be given a sign all the same."""
        self._beat = True
        self._wake()

    # Who reads

    async def open(self, starts: dict[Place, str | None], now: list[Place]) -> None:
        """Begins: `starts` behind their cursors (None: at the first kept event), `now` with what
        comes. `CursorLost` is raised here."""
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
        """One more feed, from its first kept event on."""
        if self.ending is None and place not in self.places:
            self.cursors.set(place, None)
            self._behind[place] = None
            self._wake()

    async def take(self) -> list[Batch] | None:
        """What there is now, or else what comes next. Empty: nothing has come for a heartbeat.
        None: that was all; see `ending`."""
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
        """As much as is written in a few pieces; one batch at least. The rest still counts as
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
        """The queue is empty: the reader has come as far as the feeds have."""
        for place, cursor in self._passed.items():
            self.cursors.set(place, cursor)
        self._passed.clear()

    # How it is read

    async def _read_part(
        self, place: Place, cursor: str | None, most_bytes: int | None = None
    ) -> tuple[Batch, bool]:
        """What comes next, made ready off the loop: a page, raw or decoded, is never kept for a
        client that may not take it."""
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
        """What was read, and if nothing comes behind it the little that has come meanwhile; then
        the reader has joined."""
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

    # Sleeping and waking

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
