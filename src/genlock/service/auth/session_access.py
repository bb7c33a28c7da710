"""Session access: for which sessions a caller may act.

A fenced verb acts for a session. A key that belongs to a session acts for that session alone, and
only that key or an operator acts for the session. A caller over MCP that names no session acts for
the session of its key (`key-` and the key's id), which counts as a session with a key. For any
other session, every agent of the tenant may act.

The cache of sessions with keys works like that of keys: a read counts for half a second, is
repeated only on demand, and serves all callers that wait. So a new key of a session excludes other
callers within a second, on every replica. Each read notifies the listeners in `on_change` of
changed keys.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from genlock.core.key_roles import ID_CHARACTERS, Role
from genlock.errors import RoleRefused
from genlock.reads.keys import SessionKeys
from genlock.reads.reader import Reader
from genlock.service.auth.key_cache import FRESH_SECONDS
from genlock.service.auth.permissions import Grant

_TIME_SECONDS: Final = 5.0
"""For this long the store's time is computed from our own clock, which saves a query per read."""
_OF_KEY: Final = re.compile(rf"key-[a-z2-7]{{{ID_CHARACTERS}}}")
_FOR_ALL: Final = frozenset(role for role in Role if role.covers(Role.OPERATOR))


class _Time(NamedTuple):
    """The store's time, by which keys expire, and when it was read."""

    began: float
    """When the read began, by our clock."""
    now: datetime


class SessionAccess:
    """Knows which sessions have a key of their own. Used in one event loop."""

    def __init__(self, reader: Reader, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._monotonic = monotonic
        self._bindings = SessionKeys(reader)
        self.on_change: list[Callable[[frozenset[str] | None], None]] = []
        """Listeners, called in the event loop with the keys that have changed since the last read;
        None: any may have changed."""
        self._last = -math.inf
        """When the last read began."""
        self._time: _Time | None = None
        self._reading: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="genlock-acting")
        """A thread of its own, because claims wait for it, and long reads may occupy all other
        threads."""
        self._began = -math.inf

    async def check(self, grant: Grant, tenant: str, session: str | None) -> None:
        """Raises RoleRefused if this caller may not act for this session."""
        if is_own(grant, session):
            return
        if grant.session is not None:
            raise RoleRefused(f"this key acts for session {grant.session!r} alone")
        if session is None or session == session_of_key(grant.key_id):
            return
        if _OF_KEY.fullmatch(session):
            raise RoleRefused(
                f"session {session!r} is that of another key; act with that one, or with an "
                "operator's"
            )
        came = self._monotonic()
        if came - self._last >= FRESH_SECONDS:
            await self._look(came)
        if self._bindings.has_key((tenant, session), self._now):
            raise RoleRefused(
                f"session {session!r} has a key of its own; act with that one, or with an "
                "operator's"
            )

    async def look(self) -> datetime:
        """Reads now, without the cache, and notifies the listeners. Returns the store's time."""
        await self._look(self._monotonic())
        return self._now()

    def is_shut_out(self, grant: Grant, tenant: str, session: str | None) -> bool:
        """By the last read: does the session have a key of its own, other than this one?"""
        return (
            session is not None
            and not is_own(grant, session)
            and self._bindings.has_key((tenant, session), self._now)
        )

    def _now(self) -> datetime:
        assert self._time is not None
        return self._time.now + timedelta(seconds=self._monotonic() - self._time.began)

    async def _look(self, came: float) -> None:
        """Waits for a read that has just begun, or for the next one."""
        reading = self._reading
        if reading is None or reading.done() or came - self._began >= FRESH_SECONDS:
            self._began = math.inf  # until it begins, more callers may join
            reading = self._reading = asyncio.get_running_loop().create_task(self._read(reading))
        # Shielded: a caller that disconnects must not cancel the read for the others.
        await asyncio.shield(reading)

    async def _read(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        began = self._began = self._monotonic()
        time = self._time is None or began - self._time.began >= _TIME_SECONDS
        read = asyncio.get_running_loop().run_in_executor(
            self._thread, self._reader.retry, lambda: self._bindings.catch_up(time=time)
        )
        now, changed = await read
        self._last = began
        if now is not None:
            self._time = _Time(began, now)
        if changed is None or changed:
            for tell in self.on_change:
                tell(changed)


def session_of_key(key_id: str) -> str:
    """The session of a caller with a key that names no session."""
    return f"key-{key_id}"


def is_own(grant: Grant, session: str | None) -> bool:
    """Is this the session's own key, or one that may act for all sessions?"""
    return grant.role in _FOR_ALL or (session is not None and grant.session == session)
