"""Followers: threads that wait on the store for all who listen, read what has come, and hand it to
the event loop.

A feed that somebody listens to is followed by one thread, whoever and however many listen. Threads
share the work as it comes: a new feed gets a thread at once, since one that waits cannot be told;
whoever is awake takes over the feeds of those who sleep, as long as they are not too many for one;
and who wakes up without a feed ends. So ten feeds cost one waiting thread, and none cost nothing.
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
"""Events that are read at once."""
WAIT_SECONDS = 1.0
"""So long a thread sleeps at most. Stores tell us earlier; it is only in case they cannot."""
MOST_FEEDS = 16
"""Feeds of one thread: when one moves, all are looked at."""
PAUSE_PER_CLIENT = 0.0001
"""Seconds for each listener between two deliveries: so that a busy feed with many listeners leaves
the loop to others."""
LONGEST_PAUSE = 0.25
AWAY_SECONDS = 0.2
"""Between two looks at a store that is away."""
NOTHING_SECONDS = 0.005
"""Between being woken for nothing and sleeping again: a store may say that a feed has moved before
what moved it can be read."""
MOST_UNDER_WAY = 4
"""Batches that the loop has not taken up yet; then a thread waits for it."""


class Listener(Protocol):
    """The callbacks, in the event loop."""

    def offer(self, batch: Batch) -> None:
        """Something has happened."""

    def fail(self, error: GenlockError) -> None:
        """The feed cannot be followed any further."""


class Feed:
    """A project's feed, as far as it has come."""

    def __init__(self, place: Place, cursor: str, position: int) -> None:
        self.place = place
        self.cursor = cursor
        """Of the loop: what is behind has been offered to all who listen."""
        self.position = position
        self.listeners: set[Listener] = set()
        self.read_to = cursor
        """Of the thread: what it has read so far."""

    def deliver(self, batch: Batch) -> None:
        """In the loop: everybody gets it."""
        self.cursor, self.position = batch.cursor, batch.position
        if batch.items:
            for listener in tuple(self.listeners):
                listener.offer(batch)

    def fail(self, error: GenlockError) -> None:
        """In the loop: this was all."""
        for listener in tuple(self.listeners):
            listener.fail(error)


class Follower:
    """One thread's share. Guarded by the lock of all."""

    def __init__(self, feed: Feed) -> None:
        self.feeds = [feed]
        self.asleep = False


class Followers:
    """All threads of one hub. What the loop calls and what the threads do is told apart below."""

    def __init__(self, reader: Reader, loop: AbstractEventLoop) -> None:
        self._reader = reader
        self._loop = loop
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._calling = threading.Lock()
        """Held while the loop is called: one that is closed at that moment can crash."""
        self._feeds: dict[Place, Feed] = {}
        self._followers: list[Follower] = []
        self._room = threading.BoundedSemaphore(MOST_UNDER_WAY)

    # The loop's part

    def feed(self, place: Place) -> Feed | None:
        """The feed, if somebody listens to it."""
        return self._feeds.get(place)

    def join(self, place: Place, cursor: str, position: int, listener: Listener) -> int:
        """From now on `listener` is offered what happens there. The answer is where the offers
        begin: behind this position.

        If that is behind the caller's own, what is between has to be read.
        """
        feed = self._feeds.get(place)
        if feed is None:
            feed = self._feeds[place] = Feed(place, cursor, position)
            self._follow(feed)
        feed.listeners.add(listener)
        return feed.position

    def leave(self, place: Place, listener: Listener) -> None:
        """Nothing more for this one. A feed without listeners is not followed any more."""
        feed = self._feeds.get(place)
        if feed is not None:
            feed.listeners.discard(listener)
            if not feed.listeners:
                self._drop(feed)

    def close(self) -> None:
        """Ends the threads, as soon as each wakes up. From now on none of them calls the loop,
        which may be gone by then."""
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

    # The threads' part

    def _run(self, follower: Follower) -> None:
        error: GenlockError = Closed("the service has stopped to follow this feed; connect again")
        try:
            more = False
            while feeds := self._share(follower):
                if not more:
                    self._sleep(feeds)
                more, moved = self._advance_all(self._awake(follower))
                if not moved:
                    # Woken for nothing: not at once again.
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
        """The feeds to see to now, those of sleepers among them. None: the thread has nothing left
        to do."""
        with self._lock:
            if not me.feeds:
                return []  # who was left without goes, or feeds would wander to and fro
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
        """What is still one's own. From now on nobody takes it away."""
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
        """One page of each, so that none waits for another. Is there more, and was there
        anything?"""
        pages = [(feed, page) for feed in feeds if (page := self._advance(feed)) is not None]
        clients = sum(len(feed.listeners) for feed, page in pages if page.events)
        if clients:
            self._closing.wait(min(clients * PAUSE_PER_CLIENT, LONGEST_PAUSE))
        return any(page.more for _, page in pages), bool(pages)

    def _advance(self, feed: Feed) -> EventPage | None:
        """Reads a page and hands it over, if there is anything."""
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
    """Whom we would tell is gone, or about to go."""
