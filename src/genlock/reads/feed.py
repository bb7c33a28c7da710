"""The feed: a project's events in order, by page or as they happen."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from genlock.core.codec import decode_event, event_to_builtins
from genlock.core.keys import Key, Scope
from genlock.core.results import Feed, FeedEvent
from genlock.errors import StoreUnavailable
from genlock.reads.reader import Reader
from genlock.store import EventPage as EventPage
from genlock.store import EventQuery

_WAIT_SECONDS = 1.0


def feed_page(
    reader: Reader,
    scope: Scope,
    *,
    after: str | None = None,
    limit: int = 100,
    record: Key | None = None,
    tail: bool = False,
    back: int = 0,
) -> Feed:
    """Returns a page of the project's events after a cursor, or of one record's events. With
    `tail`, only the cursor of the feed's end, or of the position `back` positions before it."""
    page = reader.store.read_events(
        EventQuery(
            *scope,
            record=record,
            after=after,
            limit=limit,
            tail=tail,
            back=back,
            cursors=record is None,
        )
    )
    return Feed(tuple(feed_events(page)), page.cursor, page.more)


def follow(
    reader: Reader,
    scope: Scope,
    after: str | None = None,
    timeout: float = math.inf,
    is_left: Callable[[], bool] = lambda: False,
) -> Iterator[FeedEvent]:
    """Yields events as they happen, from a cursor or from now on, until none has come for `timeout`
    seconds. Blocks the calling thread.

    It ends within a second after `is_left` reports that the reader has gone. It waits for an
    unavailable store until the deadline, like every read.
    """
    cursor = after if after is not None else reader.retry(lambda: reader.feed_end(scope)).cursor
    quiet_since = time.monotonic()
    while not is_left():
        page = reader.retry(
            lambda cursor=cursor: reader.events(scope, cursor, cursors=True)  # type: ignore[misc]
        )
        yield from feed_events(page)
        cursor = page.cursor
        if page.events:
            quiet_since = time.monotonic()
        if page.more:
            continue
        left = min(_WAIT_SECONDS, quiet_since + timeout - time.monotonic())
        if left <= 0:
            return
        with suppress(StoreUnavailable):  # the next read waits for an unavailable store
            reader.wait([scope], [cursor], left)


def feed_events(page: EventPage) -> Iterator[FeedEvent]:
    """Yields the events of a page in the form that readers get."""
    for at, recorded in enumerate(page.events):
        event = event_to_builtins(decode_event(recorded.body).event)
        key = recorded.key
        cursor = page.cursors[at] if page.cursors else ""
        yield FeedEvent(recorded.position, cursor, key.kind, key.id, event["event_type"], event)
