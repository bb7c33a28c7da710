"""For whom a caller may act.

A fenced verb acts for a session. Whoever has a key of one session acts for that one alone; and for a session that has a key of its own
nobody acts but by that key, or an operator. For a session without one, any agent of the tenant may.

Which sessions have a key is known as keys are: what was read counts for half a second, is read again only while somebody asks, and once
for all who wait. So a key that is made for a session shuts the others out within a second, on every replica.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from genlock.core.access import Role
from genlock.core.codec import decode_record
from genlock.core.keys import KEY, NOWHERE
from genlock.core.model import KeyRecord
from genlock.core.reasons import KeyState
from genlock.engine.engine import Engine
from genlock.engine.walk import records_of
from genlock.errors import RoleRefused
from genlock.service.access.grant import Grant
from genlock.service.access.keyring import FRESH_SECONDS

_Bound: TypeAlias = dict[tuple[str, str], datetime | None]
"""By tenant and session, when the last of its keys ends; None: never."""


class _Look(NamedTuple):
    """Which sessions have a key, and when that was read."""

    began: float
    """On our clock, before the store was asked."""
    now: datetime
    """On the store's clock, by which keys end."""
    bound: _Bound


class Acting:
    """Knows which sessions have a key of their own. Belongs to one event loop."""

    def __init__(self, engine: Engine, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._monotonic = monotonic
        self._last: _Look | None = None
        self._reading: asyncio.Task[_Look] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="genlock-acting")
        """Its own, like the keyring's: claims wait for it, and reads that take long may have all the others."""
        self._began = -math.inf

    async def check(self, grant: Grant, tenant: str, session: str | None) -> None:
        """RoleRefused if this caller may not act for this session."""
        if is_own(grant, session):
            return
        if grant.session is not None:
            raise RoleRefused(f"this key acts for session {grant.session!r} alone")
        if session is not None and await self._has_key(tenant, session):
            raise RoleRefused(f"session {session!r} has a key of its own; act with that one, or with an operator's")

    async def _has_key(self, tenant: str, session: str) -> bool:
        came = self._monotonic()
        look = self._last
        if look is None or came - look.began >= FRESH_SECONDS:
            look = await self._look(came)
        if (tenant, session) not in look.bound:
            return False
        end = look.bound[tenant, session]
        return end is None or look.now + timedelta(seconds=self._monotonic() - look.began) < end

    async def _look(self, came: float) -> _Look:
        """One that is about to begin or has just begun, or the next."""
        reading = self._reading
        if reading is None or reading.done() or came - self._began >= FRESH_SECONDS:
            self._began = math.inf  # until it begins, more may come aboard
            reading = self._reading = asyncio.get_running_loop().create_task(self._read(reading))
        # Whoever goes away must not take the answer from the others.
        return await asyncio.shield(reading)

    async def _read(self, before: asyncio.Task[_Look] | None) -> _Look:
        if before is not None and not before.done():
            await asyncio.wait([before])
        began = self._began = self._monotonic()
        now, bound = await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.read, lambda: bound_sessions(self._engine))
        self._last = look = _Look(began, now, bound)
        return look


def is_own(grant: Grant, session: str | None) -> bool:
    """Is it the session's own key, or one that acts for all?"""
    return grant.may(Role.OPERATOR) or (session is not None and grant.session == session)


def bound_sessions(engine: Engine) -> tuple[datetime, _Bound]:
    """The store's time, and the sessions that have a key, each with when the last of its keys ends."""
    now = engine.store.load([]).now
    found: _Bound = {}
    for stored in records_of(engine.store, NOWHERE, NOWHERE, KEY, state=KeyState.ACTIVE.value):
        record = decode_record(KEY, stored.body)
        if isinstance(record, KeyRecord) and record.session is not None:
            place = record.tenant, record.session
            ends = (record.expires_at, found.get(place, record.expires_at))
            found[place] = None if None in ends else max(end for end in ends if end is not None)
    return now, found
