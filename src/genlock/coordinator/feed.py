"""The feed: a project's events in order, by page or as they come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from genlock.coordinator.arguments import check_flag, check_limit, check_number, check_text
from genlock.coordinator.base import Base
from genlock.coordinator.scripts import Read, Script
from genlock.core.codec import decode_event, event_to_builtins
from genlock.core.results import Feed, FeedEvent
from genlock.errors import StoreUnavailable
from genlock.store import EventPage, EventQuery

_PAGE = 500
_LOOK_SECONDS = 1.0


class Feeds(Base):
    """Operations on the feed."""

    def read_events(
        self,
        *,
        after: str | None = None,
        limit: int = 100,
        task_id: str | None = None,
        tail: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[Feed]:
        """A page of the project's events after a cursor, or all of one task's. `CursorLost` says that some may be missing."""
        place = self.place(tenant_id, project_id)
        check_flag("tail", tail)
        if after is not None:
            after = check_text("after", after)
        record = None if task_id is None else self.task_key(tenant_id, project_id, task_id)
        query = EventQuery(*place, record=record, after=after, limit=check_limit(limit), tail=tail, cursors=record is None)
        page: EventPage = yield Read(lambda: self.store.read_events(query))
        return Feed(tuple(feed_events(page)), page.cursor, page.more)


def follow(
    operations: Base, place: tuple[str, str], after: str | None, timeout: float | None, is_left: Callable[[], bool] = lambda: False
) -> Iterator[FeedEvent]:
    """Events as they come, for ever or until nothing has come for `timeout` seconds. Blocks the calling thread.

    Within a second after whoever watches has left, it ends. A store that is away is waited for until the deadline, as everywhere.
    """
    if after is not None:
        after = check_text("after", after)
    if timeout is not None:
        check_number("timeout_seconds", timeout, 0, math.inf)
    store, read = operations.store, operations.engine.read
    cursor = after if after is not None else read(lambda: store.read_events(EventQuery(*place, tail=True))).cursor
    quiet_since = time.monotonic()
    while not is_left():
        query = EventQuery(*place, after=cursor, limit=_PAGE, cursors=True)
        page = read(lambda query=query: store.read_events(query))  # type: ignore[misc]
        yield from feed_events(page)
        cursor = page.cursor
        if page.events:
            quiet_since = time.monotonic()
        if page.more:
            continue
        left = _LOOK_SECONDS if timeout is None else min(_LOOK_SECONDS, quiet_since + timeout - time.monotonic())
        if left <= 0:
            return
        with suppress(StoreUnavailable):  # the next read waits for a store that is away
            store.wait([place], [cursor], left)


def feed_events(page: EventPage) -> Iterator[FeedEvent]:
    """Events as readers see them."""
    for at, recorded in enumerate(page.events):
        event = event_to_builtins(decode_event(recorded.body).event)
        key = recorded.key
        cursor = page.cursors[at] if page.cursors else ""
        yield FeedEvent(recorded.position, cursor, key.kind, key.id, event["event_type"], event)
