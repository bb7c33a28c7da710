"""A subscription: one reader of one or several feeds, who first gets what it missed and then what comes.

What it missed is read from the store by pages, as fast as the reader takes them. When a page is the last, the reader joins those who are
offered what happens. Offers may begin behind the page, if the follower was faster: then what is between is read, while offers already
queue up. Or before its end, if the follower is slower: then what is offered twice is left out, by its position. Either way nothing is
missed and nothing comes twice.

The queue is bounded. A reader who lets it overflow is dropped; what it has not got is in the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from genlock.errors import GenlockError, StoreUnavailable
from genlock.service.streams.batches import Batch, batch_of
from genlock.service.streams.cursors import Cursors, Place
from genlock.service.streams.endings import TOO_SLOW, Ending, failed
from genlock.service.streams.filters import Filters
from genlock.service.streams.followers import PAGE, Followers
from genlock.service.streams.settings import StreamSettings
from genlock.store import EventPage, EventQuery, Store

AWAY_SECONDS = 0.5
"""Between two looks at a store that is away."""
FEW = 10
"""So many events are made ready in the loop itself."""

Look = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a look at the store off the loop."""


class Subscription:
    """One reader. Belongs to the event loop."""

    def __init__(
        self, *, store: Store, look: Look, followers: Followers, settings: StreamSettings, filters: Filters, tenant: str, several: bool
    ) -> None:
        self.tenant = tenant
        self.cursors = Cursors(several=several)
        """What the reader has got. Who hands events on moves it."""
        self.ending: Ending | None = None
        self.on_end: Callable[[Ending], None] | None = None
        self.idle_since = asyncio.get_running_loop().time()
        self._store = store
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
        self._queue: deque[Batch] = deque()
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
        if self._queue and (self._events > self._settings.queue_events or self._bytes > self._settings.queue_bytes):
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
        """Begins: `starts` behind their cursors (None: at the first kept event), `now` with what comes. `CursorLost` is raised here."""
        for place, cursor in starts.items():
            self.cursors.set(place, cursor)
        pages = await asyncio.gather(*(self._read_page(place, cursor) for place, cursor in starts.items()))
        for place, page in zip(starts, pages, strict=True):
            self._keep(await self._caught_up(place, page))
        await asyncio.gather(*(self._begin_now(place) for place in now))

    def add(self, place: Place) -> None:
        """One more feed, from its first kept event on."""
        if self.ending is None and place not in self.places:
            self.cursors.set(place, None)
            self._behind[place] = None
            self._wake()

    async def take(self) -> list[Batch] | None:
        """What there is now, or else what comes next. Empty: nothing has come for a heartbeat. None: that was all; see `ending`."""
        while True:
            if self._queue:
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
        batches = list(self._queue)
        self._queue.clear()
        self._events = self._bytes = 0
        self._beat = False
        self.idle_since = asyncio.get_running_loop().time()
        return batches

    def _keep(self, batches: list[Batch]) -> None:
        """From the store: comes before what was offered meanwhile, and takes no room, as nothing is read before it is taken."""
        self._queue.extendleft(batch for batch in reversed(batches) if batch.items)
        for batch in batches[-1:]:
            if not batch.items and batch.cursor and all(waiting.place != batch.place for waiting in self._queue):
                self._passed[batch.place] = batch.cursor

    def _note_passed(self) -> None:
        """The queue is empty: the reader has come as far as the feeds have."""
        for place, cursor in self._passed.items():
            self.cursors.set(place, cursor)
        self._passed.clear()

    # How it is read

    async def _read_page(self, place: Place, cursor: str | None) -> EventPage:
        query = EventQuery(*place, after=cursor, limit=PAGE, cursors=True)
        page: EventPage = await self._look(lambda: self._store.read_events(query))
        return page

    async def _catch_up(self) -> list[Batch]:
        place, cursor = next(iter(self._behind.items()))
        try:
            return await self._caught_up(place, await self._read_page(place, cursor))
        except StoreUnavailable:
            await self._woken(AWAY_SECONDS)
        except GenlockError as error:
            self.fail(error)
        return []

    async def _caught_up(self, place: Place, page: EventPage) -> list[Batch]:
        """The page, and if it is the last the little that has come meanwhile; then the reader has joined."""
        batches = [(await self._batch(place, page)).wanted(self._filters)]
        if self.ending is not None:
            return []
        if page.more:
            self._behind[place] = page.cursor
            return batches
        offered_after = self._join(place, page.cursor, page.position)
        while page.position < offered_after and self.ending is None:
            try:
                page = await self._read_page(place, page.cursor)
            except StoreUnavailable:
                await self._woken(AWAY_SECONDS)
                continue
            batch = await self._batch(place, page)
            batches.append((batch if batch.position <= offered_after else batch.until(offered_after)).wanted(self._filters))
        return batches

    async def _batch(self, place: Place, page: EventPage) -> Batch:
        if len(page.events) <= FEW:
            return batch_of(place, page)
        batch: Batch = await self._look(lambda: batch_of(place, page))
        return batch

    async def _begin_now(self, place: Place) -> None:
        feed = self._followers.feed(place)
        if self.ending is not None:
            return  # another of its feeds could not be opened
        if feed is None:
            page: EventPage = await self._look(lambda: self._store.read_events(EventQuery(*place, tail=True)))
            self.cursors.set(place, page.cursor)
            self._keep(await self._caught_up(place, page))
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
