"""For whom a caller may act.

A fenced verb acts for a session. Whoever has a key of one session acts for that one alone; and for
a session that has a key of its own nobody acts but by that key, or an operator. A caller over MCP
that names no session is the session of its key, `key-` and the key's id; so that has one, too. For
a session without one, any agent of the tenant may.

Which sessions have a key is known as keys are: what was read counts for half a second, is read
again only while somebody asks, and once for all who wait. So a key that is made for a session shuts
the others out within a second, on every replica. Whoever should know which keys were changed is
told at each look.
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
"""So long we go by our own clock from what the store's said: to look is one query less then."""
_OF_KEY: Final = re.compile(rf"key-[a-z2-7]{{{ID_CHARACTERS}}}")
_FOR_ALL: Final = frozenset(role for role in Role if role.covers(Role.OPERATOR))


class _Time(NamedTuple):
    """What the store's clock said, by which keys end, and when."""

    began: float
    """On our clock, before the store was asked."""
    now: datetime


class SessionAccess:
    """Knows which sessions have a key of their own. Belongs to one event loop."""

    def __init__(self, reader: Reader, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._monotonic = monotonic
        self._bindings = SessionKeys(reader)
        self.on_change: list[Callable[[frozenset[str] | None], None]] = []
        """Told, in the event loop, which keys have changed since the look before; None: any may
        have."""
        self._last = -math.inf
        """When the last look began."""
        self._time: _Time | None = None
        self._reading: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="genlock-acting")
        """Its own, like the keyring's: claims wait for it, and reads that take long may have all
        the others."""
        self._began = -math.inf

    async def check(self, grant: Grant, tenant: str, session: str | None) -> None:
        """RoleRefused if this caller may not act for this session."""
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
        """Looks now, not at what was read a moment ago, and tells who wants to know; the store's
        time."""
        await self._look(self._monotonic())
        return self._now()

    def is_shut_out(self, grant: Grant, tenant: str, session: str | None) -> bool:
        """By what was last read: has the session a key of its own, which this is not?"""
        return (
            session is not None
            and not is_own(grant, session)
            and self._bindings.has_key((tenant, session), self._now)
        )

    def _now(self) -> datetime:
        assert self._time is not None
        return self._time.now + timedelta(seconds=self._monotonic() - self._time.began)

    async def _look(self, came: float) -> None:
        """One that is about to begin or has just begun, or the next."""
        reading = self._reading
        if reading is None or reading.done() or came - self._began >= FRESH_SECONDS:
            self._began = math.inf  # until it begins, more may come aboard
            reading = self._reading = asyncio.get_running_loop().create_task(self._read(reading))
        # A caller that goes away must not take the answer from the others.
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
    """The session of a caller that has a key and names no session."""
    return f"key-{key_id}"


def is_own(grant: Grant, session: str | None) -> bool:
    """Is it the session's own key, or one that acts for all?"""
    return grant.role in _FOR_ALL or (session is not None and grant.session == session)
