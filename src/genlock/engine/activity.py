"""When sessions were last heard of through what they did to tasks: told from the project's feed, when somebody asks.

A record cannot tell it. What a session has submitted or released has no claim any more, the next holder's takes its place, and to
note every submission in the session's own record would be a second write for each. So the feed is read: at first its last events, and
afterwards only what has come since. Who did something before those is older than fifty thousand events, and known by its record alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime

from genlock.core import events as e
from genlock.core.codec import Glance, glance_at_event
from genlock.engine.walk import pages_of
from genlock.errors import CursorLost
from genlock.store import EventQuery, Store

_PAGE = 1000
_AT_FIRST = 50_000
_PROJECTS_KEPT = 64
_SESSIONS_KEPT = 100_000

_SIGNS_OF_LIFE = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (e.ClaimAcquired, e.LeaseRenewed, e.ClaimReleased, e.SubtasksSpawned, e.ResultAccepted, e.ResultRejected)
)
"""What a session does itself. That its claim was found over-due or taken away is the doing of others."""


class Activity:
    """What has been read so far of the projects that were asked about last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._projects: OrderedDict[tuple[str, str], _Project] = OrderedDict()

    def of(self, place: tuple[str, str]) -> Mapping[str, datetime]:
        """By session, when it last did something to a task of this project. Those that never did are not in it."""
        with self._lock:
            project = self._projects.setdefault(place, _Project())
            self._projects.move_to_end(place)
            if len(self._projects) > _PROJECTS_KEPT:
                self._projects.popitem(last=False)
        with project.lock:
            try:
                project.catch_up(self._store, place)
            except CursorLost:
                project.forget()
                project.catch_up(self._store, place)
            return dict(project.last)


class _Project:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self.cursor: str | None = None
        self.last: OrderedDict[str, datetime] = OrderedDict()

    def catch_up(self, store: Store, place: tuple[str, str]) -> None:
        if self.cursor is None:
            self.cursor = store.read_events(EventQuery(*place, tail=True, back=_AT_FIRST)).cursor
        for page in pages_of(store, place, self.cursor, _PAGE):
            for recorded in page.events:
                event = glance_at_event(recorded.body)
                if event.event_type in _SIGNS_OF_LIFE:
                    self._happened(event)
            self.cursor = page.cursor

    def _happened(self, event: Glance) -> None:
        known = self.last.get(event.session_id)
        # The events of different tasks need not be in the order of their times.
        self.last[event.session_id] = event.timestamp if known is None else max(known, event.timestamp)
        self.last.move_to_end(event.session_id)
        if len(self.last) > _SESSIONS_KEPT:
            self.last.popitem(last=False)
