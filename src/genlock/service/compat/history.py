"""The last claims of every session, told from the project's feed.

The feed is read once, and afterwards only what has come since: so the first look takes as long as the feed is, and the others no time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from genlock.core import events as e
from genlock.core.codec import decode_event
from genlock.core.history import begun, continued
from genlock.core.keys import TASK
from genlock.core.results import ClaimHistory
from genlock.errors import CursorLost
from genlock.service.compat.records import Records
from genlock.store import EventQuery, Store

KEPT: Final = 10
"""Claims of a session."""
_SESSIONS_KEPT: Final = 10_000
_TASKS_KEPT: Final = 100_000
_PAGE: Final = 1000
_MARKS: Final = tuple(
    f'"{kind.__struct_config__.tag}"'.encode()
    for kind in (
        e.ClaimAcquired,
        e.ClaimReleased,
        e.ClaimExpired,
        e.ClaimOrphaned,
        e.ClaimSuperseded,
        e.ResultAccepted,
        e.SubtasksSpawned,
        e.TaskReset,
        e.TaskCancelled,
    )
)


class Histories:
    """Those of one project."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._reading = asyncio.Lock()
        self._forget()

    def _forget(self) -> None:
        self._cursor: str | None = None
        self._last: OrderedDict[str, ClaimHistory] = OrderedDict()
        """The last claim of each task."""
        self._sessions: OrderedDict[str, deque[tuple[str, int]]] = OrderedDict()
        self._ended: dict[tuple[str, int], ClaimHistory] = {}

    async def of(self, sessions: Iterable[str]) -> dict[str, list[ClaimHistory]]:
        """The last claims of these sessions that are over, the oldest first."""
        async with self._reading:
            try:
                await self._catch_up()
            except CursorLost:
                self._forget()
                await self._catch_up()
            return {session: [self._ended[name] for name in self._sessions.get(session, ())] for session in sessions}

    async def _catch_up(self) -> None:
        while await self._records.read(self._read_page):
            pass

    def _read_page(self, store: Store) -> bool:
        """In a thread, as everything that takes long. Is there more?"""
        page = store.read_events(EventQuery(*self._records.place, after=self._cursor, limit=_PAGE))
        for recorded in page.events:
            # Most events are none of these; to look for a few bytes is cheaper than to decode them all.
            if recorded.key.kind == TASK and any(mark in recorded.body for mark in _MARKS):
                self._happened(recorded.key.id, decode_event(recorded.body).event)
        self._cursor = page.cursor
        return page.more

    def _happened(self, task: str, event: e.Event) -> None:
        if isinstance(event, e.ClaimAcquired):
            self._last[task] = begun(event)
            self._last.move_to_end(task)
            if len(self._last) > _TASKS_KEPT:
                self._last.popitem(last=False)
            return
        last = self._last.get(task)
        entry = None if last is None else continued(last, event)
        if entry is None or entry.released_at is None:
            return
        self._last[task] = entry
        self._keep(entry)

    def _keep(self, entry: ClaimHistory) -> None:
        name = (entry.task_id, entry.generation)
        if name not in self._ended:
            names = self._sessions.setdefault(entry.session_id, deque())
            self._sessions.move_to_end(entry.session_id)
            names.append(name)
            if len(names) > KEPT:
                self._ended.pop(names.popleft(), None)
            if len(self._sessions) > _SESSIONS_KEPT:
                for old in self._sessions.popitem(last=False)[1]:
                    self._ended.pop(old, None)
        self._ended[name] = entry
