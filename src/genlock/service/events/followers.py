"""Followers: threads that wait on the store, read new events, and pass them to the event loop.

One thread follows a feed, however many listeners it has. A new feed gets a new thread at once,
because a thread that waits in the store cannot be interrupted. A thread that wakes up takes over
the feeds of sleeping threads, up to a limit, and a thread that wakes up without a feed ends. So ten
feeds soon need one waiting thread, and no feeds need none.
"""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from genlock.errors import Busy, Closed, GenlockError, StoreError, StoreUnavailable
from genlock.reads.feed import EventPage
from genlock.reads.reader import Reader
from genlock.service.events.batches import Batch, batch_of
from genlock.service.events.cursors import Place
from genlock.threads import started

PAGE = 200
"""Events per read."""
WAIT_SECONDS = 1.0
"""The longest wait in the store. Stores return earlier when a feed moves; this is the fallback."""
MOST_FEEDS = 16
"""Feeds of one thread. When one of them moves, the thread reads them all."""
PAUSE_PER_CLIENT = 0.0001
"""Seconds per listener between two deliveries, so that a busy feed with many listeners leaves time
in the event loop."""
LONGEST_PAUSE = 0.25
AWAY_SECONDS = 0.2
"""The pause between two attempts while the store is unavailable."""
NOTHING_SECONDS = 0.005
"""The pause after a wake-up without events. A store may wake a thread before the events can be
read."""
MOST_UNDER_WAY = 4
"""Batches that the event loop has not processed yet. At this number a thread waits."""


class Listener(Protocol):
    """The callbacks of a listener, called in the event loop."""

    def offer(self, batch: Batch) -> None:
        """Takes new events."""

    def fail(self, error: GenlockError) -> None:
        """The feed can no longer be followed."""


class Feed:
    """A project's feed and how far it has been read and delivered."""

    def __init__(self, place: Place, cursor: str, position: int) -> None:
        self.place = place
        self.cursor = cursor
        """Owned by the event loop: everything before it has been offered to all listeners."""
        self.position = position
        self.listeners: set[Listener] = set()
        self.read_to = cursor
        """Owned by the thread: everything before it has been read."""

    def deliver(self, batch: Batch) -> None:
        """Event loop: offers the batch to all listeners."""
        self.cursor, self.position = batch.cursor, batch.position
        if batch.items:
            for listener in tuple(self.listeners):
                listener.offer(batch)

    def fail(self, error: GenlockError) -> None:
        """Event loop: tells all listeners that the feed is lost."""
        for listener in tuple(self.listeners):
            listener.fail(error)


class Follower:
    """The feeds of one thread. Guarded by the lock that all threads share."""

    def __init__(self, feed: Feed) -> None:
        self.feeds = [feed]
        self.asleep = False


class Followers:
    """All threads of one broker."""

    def __init__(self, reader: Reader, loop: AbstractEventLoop) -> None:
        self._reader = reader
        self._loop = loop
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._calling = threading.Lock()
        """Held during calls into the event loop, which can crash if it is closed meanwhile."""
        self._feeds: dict[Place, Feed] = {}
        self._followers: list[Follower] = []
        self._room = threading.BoundedSemaphore(MOST_UNDER_WAY)

    # Called by the event loop

    def feed(self, place: Place) -> Feed | None:
        """The feed if it has listeners."""
        return self._feeds.get(place)

    def join(self, place: Place, cursor: str, position: int, listener: Listener) -> int:
        """Offers new events of a feed to `listener` from now on. Returns the position after which
        the offers begin.

        If that is beyond the caller's own position, the caller has to read the events between them.
        """
        feed = self._feeds.get(place)
        if feed is None:
            feed = self._feeds[place] = Feed(place, cursor, position)
            self._follow(feed)
        feed.listeners.add(listener)
        return feed.position

    def leave(self, place: Place, listener: Listener) -> None:
        """Removes a listener. A feed without listeners is no longer followed."""
        feed = self._feeds.get(place)
        if feed is not None:
            feed.listeners.discard(listener)
            if not feed.listeners:
                self._drop(feed)

    def close(self) -> None:
        """Ends each thread when it next wakes up. From now on none of them calls the event loop,
        which may be closed by then."""
        with self._calling:
            self._closing.set()
        for feed in list(self._feeds.values()):
            self._drop(feed)

    def _drop(self, feed: Feed) -> None:
        if self._feeds.get(feed.place) is feed:
            del self._feeds[feed.place]
        self._forget(feed)

    def _follow(self, feed: Feed) -> None:
        follower = Follower(feed)
        with self._lock:
            self._followers.append(follower)
        if started(partial(self._run, follower), "genlock-follower") is None:
            with self._lock:
                self._followers.remove(follower)
            self._drop(feed)
            raise Busy(
                "the machine has no thread left to follow this feed with; connect again later"
            )

    def _delivered(self, feed: Feed, batch: Batch) -> None:
        self._room.release()
        feed.deliver(batch)

    def _failed(self, feed: Feed, error: GenlockError) -> None:
        self._drop(feed)
        feed.fail(error)

    def _forget(self, feed: Feed) -> None:
        with self._lock:
            for follower in self._followers:
                if feed in follower.feeds:
                    follower.feeds.remove(feed)

    # Run by the threads

    def _run(self, follower: Follower) -> None:
        error: GenlockError = Closed("the service has stopped to follow this feed; connect again")
        try:
            more = False
            while feeds := self._share(follower):
                if not more:
                    self._sleep(feeds)
                more, moved = self._advance_all(self._awake(follower))
                if not moved:
                    # There was nothing to read: pause before the next wait.
                    self._closing.wait(NOTHING_SECONDS)
        except (Closed, _LoopClosed):
            error = Closed("the coordinator is closed")
        finally:
            with self._lock:
                left, follower.feeds = follower.feeds, []
                if follower in self._followers:
                    self._followers.remove(follower)
            with suppress(_LoopClosed):
                for feed in left:
                    self._post(self._failed, feed, error)

    def _share(self, me: Follower) -> list[Feed]:
        """The feeds that this thread reads now, including those of sleeping threads. Empty: the
        thread has nothing left to do."""
        with self._lock:
            if not me.feeds:
                return []  # a thread without feeds ends; otherwise feeds would move to and fro
            for other in self._followers:
                if (
                    other is not me
                    and other.asleep
                    and len(me.feeds) + len(other.feeds) <= MOST_FEEDS
                ):
                    me.feeds += other.feeds
                    other.feeds = []
            me.asleep = True
            return list(me.feeds)

    def _awake(self, me: Follower) -> list[Feed]:
        """Marks the thread as awake and returns its feeds, which no other thread takes over now."""
        with self._lock:
            me.asleep = False
            return list(me.feeds)

    def _sleep(self, feeds: list[Feed]) -> None:
        try:
            self._reader.wait(
                [feed.place for feed in feeds], [feed.read_to for feed in feeds], WAIT_SECONDS
            )
        except Closed:
            raise
        except StoreError:
            self._closing.wait(AWAY_SECONDS)

    def _advance_all(self, feeds: list[Feed]) -> tuple[bool, bool]:
        """Reads one page of each feed, so that no feed waits for another. Returns whether there is
        more to read, and whether anything was read."""
        pages = [(feed, page) for feed in feeds if (page := self._advance(feed)) is not None]
        clients = sum(len(feed.listeners) for feed, page in pages if page.events)
        if clients:
            self._closing.wait(min(clients * PAUSE_PER_CLIENT, LONGEST_PAUSE))
        return any(page.more for _, page in pages), bool(pages)

    def _advance(self, feed: Feed) -> EventPage | None:
        """Reads a page and passes it to the event loop if it has events."""
        try:
            page = self._reader.retry(
                lambda: self._reader.events(feed.place, feed.read_to, PAGE, cursors=True)
            )
            batch = batch_of(feed.place, page)
        except (Closed, StoreUnavailable):
            if self._closing.is_set():
                raise Closed("the service is closing") from None
            # A store that is away comes back; one that is closed says so when it is waited for
            return None
        except GenlockError as error:
            self._forget(feed)
            self._post(self._failed, feed, error)
            return None
        if page.cursor == feed.read_to:
            return None
        feed.read_to = page.cursor
        self._take_room()
        self._post(self._delivered, feed, batch)
        return page

    def _take_room(self) -> None:
        while not self._room.acquire(timeout=WAIT_SECONDS):
            if self._closing.is_set():
                raise _LoopClosed

    def _post(self, call: Callable[..., None], *given: object) -> None:
        with self._calling:
            if self._closing.is_set():
                raise _LoopClosed
            self._loop.call_soon_threadsafe(call, *given)


class _LoopClosed(Exception):
    """The event loop is closed or closing."""
