"""The key cache: finds the permissions of a key, for every request, at the cost of a hash.

A loaded key counts for half a second; then it is loaded again. So a revocation needs no message: on
every replica, a request is admitted only by a record that was read at most half a second before the
request arrived. The cache remembers for just as long that a key does not exist.

Only one load runs at a time, for all keys requested since the last one began. So a flood of
requests, even with invented keys, causes no more load on the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from genlock.core.key_roles import digest_of, parse_key, same_digest
from genlock.core.model import KeyRecord
from genlock.core.records.api_key import opens
from genlock.errors import BadArgument
from genlock.reads.keys import find_keys
from genlock.reads.reader import Reader
from genlock.service.auth.permissions import Grant, grant_of

FRESH_SECONDS: Final = 0.5
MOST_AT_ONCE: Final = 500
MOST_KNOWN: Final = 50_000
MOST_UNKNOWN: Final = 5_000


class _Look(NamedTuple):
    """The result of loading one key, with its time."""

    began: float
    """When the load began, by our clock."""
    now: datetime
    """The store's time, by which keys expire."""
    record: KeyRecord | None
    grant: Grant | None


_Looks: TypeAlias = dict[str, _Look]


class KnownKey(NamedTuple):
    """A key as it is now."""

    record: KeyRecord
    grant: Grant
    now: datetime
    """The store's time."""


class _PendingLoad:
    """One load for several keys. Until it begins, more keys may join it."""

    __slots__ = ("began", "doubted", "ids", "task")

    def __init__(self) -> None:
        self.ids: dict[str, None] = {}
        self.doubted: set[str] = set()
        """Keys that changed after the load began."""
        self.began: float | None = None
        self.task: asyncio.Task[_Looks] | None = None

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()


class KeyCache:
    """The keys that the service knows. Used in one event loop."""

    def __init__(self, reader: Reader, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._monotonic = monotonic
        self._known: _Looks = {}
        self._unknown: _Looks = {}
        self._last: _PendingLoad | None = None
        self._flying: _PendingLoad | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="genlock-keys")
        """A thread of its own, so that busy callers do not delay authentication."""

    async def find(self, text: str) -> Grant | None:
        """The key's permissions; None if it is unknown, expired or revoked. BadArgument, without a
        load, if the text is not a key."""
        key, came = parse_key(text), self._monotonic()
        known = self._known_by(self._recent(key.id, came) or await self._look(key.id, came))
        return (
            known.grant
            if known is not None and opens(known.record, digest_of(key.secret), known.now)
            else None
        )

    async def look(self, id: str) -> KnownKey | None:
        """The key of this id, valid or not; None if there is none."""
        came = self._monotonic()
        return self._known_by(self._recent(id, came) or await self._look(id, came))

    async def expect(self, texts: Iterable[str]) -> None:
        """Prefetches keys that are about to be requested, in as few loads as possible."""
        came = self._monotonic()
        flights: dict[asyncio.Task[_Looks], None] = {}
        for text in texts:
            with suppress(BadArgument):
                id = parse_key(text).id
                if self._recent(id, came) is None:
                    task = self._flight_of(id, came).task
                    assert task is not None
                    flights[task] = None
        for task in flights:
            await asyncio.shield(task)

    def end_of(self, text: str) -> datetime | None:
        """When this key, which was just found, expires; None: never."""
        key = parse_key(text)
        look = self._known.get(key.id)
        if look is None or look.record is None:
            return datetime.min.replace(tzinfo=UTC)
        record = look.record
        ends = [
            record.expires_at,
            None if same_digest(digest_of(key.secret), record.digest) else record.previous_until,
        ]
        return min((end for end in ends if end is not None), default=None)

    def forget(self, ids: Iterable[str] | None) -> None:
        """Forgets changed keys; None means that any key may have changed. Later requests do not use
        what was read before."""
        flight = self._flying
        under_way = {} if flight is None or flight.is_over else flight.ids
        for id in {*self._known, *self._unknown, *under_way} if ids is None else ids:
            self._known.pop(id, None)
            self._unknown.pop(id, None)
            if flight is not None and id in under_way:
                flight.doubted.add(id)

    def _recent(self, id: str, came: float) -> _Look | None:
        """The cached key if it still counts for a request that arrived at this time."""
        look = self._known.get(id) or self._unknown.get(id)
        return None if look is None or came - look.began >= FRESH_SECONDS else look

    def _known_by(self, look: _Look) -> KnownKey | None:
        if look.record is None or look.grant is None:
            return None
        return KnownKey(
            look.record, look.grant, look.now + timedelta(seconds=self._monotonic() - look.began)
        )

    # Loading

    async def _look(self, id: str, came: float) -> _Look:
        task = self._flight_of(id, came).task
        assert task is not None
        # Shielded: a caller that disconnects must not cancel the load for the others.
        return (await asyncio.shield(task))[id]

    def _flight_of(self, id: str, came: float) -> _PendingLoad:
        """The pending load for this key: the current one if it has just begun, or the next one."""
        last = self._last
        if last is not None and not last.is_over:
            if last.began is None and len(last.ids) < MOST_AT_ONCE:
                last.ids[id] = None
                return last
            if (
                last.began is not None
                and id in last.ids
                and id not in last.doubted
                and came - last.began < FRESH_SECONDS
            ):
                return last
        flight = self._last = _PendingLoad()
        flight.ids[id] = None
        flight.task = asyncio.get_running_loop().create_task(
            self._fly(flight, None if last is None else last.task)
        )
        return flight

    async def _fly(self, flight: _PendingLoad, before: asyncio.Task[_Looks] | None) -> _Looks:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._flying, began = flight, self._monotonic()
        flight.began = began
        reader, ids = self._reader, tuple(flight.ids)
        found, now = await asyncio.get_running_loop().run_in_executor(
            self._thread, reader.retry, lambda: find_keys(reader, ids)
        )
        looks = {id: _seen(began, now, found.get(id)) for id in ids}
        for id, look in looks.items():
            if id not in flight.doubted:
                self._keep(id, look)
        return looks

    def _keep(self, id: str, look: _Look) -> None:
        """Stores the key at the end, so that the oldest entries are dropped first."""
        self._known.pop(id, None)
        self._unknown.pop(id, None)
        kept, most = (
            (self._unknown, MOST_UNKNOWN) if look.record is None else (self._known, MOST_KNOWN)
        )
        kept[id] = look
        if len(kept) > most:
            del kept[next(iter(kept))]


def _seen(began: float, now: datetime, record: KeyRecord | None) -> _Look:
    return _Look(began, now, record, None if record is None else grant_of(record))
