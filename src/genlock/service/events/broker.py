"""The broker: all event streams of a service. It counts them, keeps them alive, and ends them.

Each periodic job runs as one task for all streams: heartbeats, checks whether a stream is still
permitted, and the search for new projects of a tenant. The tasks start with the first stream and
end with the last one, so an idle service does nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from genlock.core.codec import encode_json
from genlock.core.names import check_project, check_tenant
from genlock.core.results import FeedEvent
from genlock.errors import BadArgument, Closed, CursorLost, GenlockError, StoreError
from genlock.reads.reader import Reader
from genlock.reads.task_rows import task_rows
from genlock.service.events.batches import EVERYTHING, Batch, Filters, Rows
from genlock.service.events.cursors import Place, starts
from genlock.service.events.followers import Followers
from genlock.service.events.settings import (
    LEFT,
    NOT_ALLOWED,
    TOO_SLOW,
    ServiceFull,
    StreamSettings,
    TooManyStreams,
    closing,
)
from genlock.service.events.subscription import Subscription

READERS = 4
"""Threads that read missed events. The number is small, so that other work goes on while many
clients reconnect at once."""
CLOSE_SECONDS = 1.0

Allowed = Callable[[], Awaitable[bool]]


class TooSlow(GenlockError):
    """The reader's queue has overflowed. A new subscription after the last received id misses
    nothing."""


class StreamEvent(Struct, frozen=True):
    """An event of a subscription. A subscription after its `id` continues with the next event."""

    id: str
    tenant_id: str
    project_id: str
    event: FeedEvent


class StreamRequest(Struct, frozen=True, kw_only=True):
    """The projects to stream: those listed, or all visible projects of a tenant, including
    projects made later."""

    places: tuple[Place, ...] = ()
    tenant: str | None = None
    visible: Callable[[str], bool] | None = None
    """Says by its name whether a project is visible."""
    after: str | None = None
    filters: Filters = EVERYTHING
    still_allowed: Allowed | None = None
    caller: str = ""
    """The caller for the limit of streams per caller, such as "key k1". "" is not limited."""

    @property
    def several(self) -> bool:
        """Does its cursor cover several projects?"""
        return self.tenant is not None or len(self.places) > 1


class EventBroker:
    """All streams of one store, in one event loop."""

    def __init__(self, reader: Reader, settings: StreamSettings | None = None) -> None:
        self.settings = settings or StreamSettings()
        self._reader = reader
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="genlock-replay")
        self._followers: Followers | None = None
        self._open: dict[Subscription, StreamRequest] = {}
        self._tenants: Counter[str] = Counter()
        self._callers: Counter[str] = Counter()
        self._chores: list[asyncio.Task[None]] = []
        self._closing = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def clients(self) -> int:
        """The number of streams."""
        return len(self._open)

    def clients_of(self, tenant: str) -> int:
        """The number of this tenant's streams."""
        return self._tenants[tenant]

    async def idle(self) -> None:
        """Waits until there is no stream."""
        await self._empty.wait()

    # Opening

    async def open(self, wish: StreamRequest) -> Subscription:
        """Opens a subscription. The caller passes it to `release` in the end.

        Raises any error before the first event is streamed: `BadArgument`, `CursorLost`,
        `TooManyStreams`, `Closed`, `StoreUnavailable`.
        """
        tenant = _tenant_of(wish)
        self._check_room(tenant, wish.caller)
        subscription = self._registered(wish, tenant)
        try:
            places = await self._places(wish)
            self._check_few(places)
            begins = starts(wish.after, places, several=wish.several)
            await subscription.open(begins, [place for place in places if place not in begins])
        except BaseException:
            self.release(subscription)
            raise
        return subscription

    def release(self, subscription: Subscription) -> None:
        """Ends the stream. Further calls have no effect."""
        subscription.end(LEFT)
        wish = self._open.pop(subscription, None)
        if wish is not None:
            self._tenants[subscription.tenant] -= 1
            self._tenants = +self._tenants
            self._callers[wish.caller] -= 1
            self._callers = +self._callers
        if not self._open:
            self._empty.set()
            for chore in self._chores:
                chore.cancel()
            self._chores.clear()

    async def rows(self, batch: Batch) -> Rows:
        """The current rows of the tasks that a batch has changed, computed once for all streams."""
        if batch.rows is None:
            batch.rows = asyncio.ensure_future(
                self._look(
                    partial(
                        _encoded_rows,
                        self._reader,
                        batch.place,
                        list(batch.tasks()),
                        list(batch.sessions()),
                    )
                )
            )
        # Shielded: a client that disconnects must not cancel the rows of the others.
        return await asyncio.shield(batch.rows)

    async def subscribe(self, wish: StreamRequest) -> AsyncGenerator[StreamEvent, None]:
        """Yields events as they happen, without HTTP. Ends when the broker closes or the permission
        ends. Raises `CursorLost` and `TooSlow`."""
        subscription = await self.open(wish)
        try:
            while (batches := await subscription.take()) is not None:
                for batch in batches:
                    for item in batch.items:
                        subscription.cursors.set(item.place, item.cursor)
                        yield StreamEvent(subscription.cursors.id() or "", *item.place, item.event)
        finally:
            self.release(subscription)
        if subscription.ending is TOO_SLOW:
            raise TooSlow(TOO_SLOW.reason)
        if subscription.ending is not None and subscription.ending.name == "cursor-lost":
            raise CursorLost(subscription.ending.reason)

    async def close(
        self, reason: str = "the service is closing; connect again", retry_ms: int | None = None
    ) -> None:
        """Ends every stream with a last event that says when to reconnect. Returns when they have
        ended, after a second at most.

        The delays are spread from `retry_ms` to twice that, so that clients do not all reconnect at
        once.
        """
        self._closing = True
        least = self.settings.retry_ms if retry_ms is None else retry_ms
        for number, subscription in enumerate(streams := tuple(self._open)):
            subscription.end(closing(reason, least + least * number // len(streams)))
        with suppress(TimeoutError):
            await asyncio.wait_for(self.idle(), CLOSE_SECONDS)
        for subscription in tuple(self._open):
            self.release(subscription)
        if self._followers is not None:
            self._followers.close()
        # Wait for the reading threads: afterwards they would call a closed loop. If they take
        # long, the loop waits for its executor by itself.
        ended = asyncio.get_running_loop().run_in_executor(
            None, partial(self._readers.shutdown, cancel_futures=True)
        )
        await asyncio.wait([ended], timeout=CLOSE_SECONDS)

    # Internals

    def _check_room(self, tenant: str, caller: str) -> None:
        if self._closing:
            raise Closed("the service is closing; connect again")
        settings = self.settings
        if caller and self._callers[caller] >= settings.most_streams_per_caller:
            raise TooManyStreams(
                caller,
                settings.most_streams_per_caller,
                "limit streams, set by genlock serve --streams",
            )
        if self._tenants[tenant] >= settings.most_streams_per_tenant:
            raise TooManyStreams(
                f"tenant {tenant!r}",
                settings.most_streams_per_tenant,
                "limit tenant_streams, which is fixed",
            )
        if len(self._open) >= settings.most_streams:
            raise ServiceFull(
                "the service", settings.most_streams, "limit service_streams, which is fixed"
            )

    def _check_few(self, places: Collection[Place]) -> None:
        most = self.settings.most_projects
        if len(places) > most:
            raise BadArgument(
                f"one stream covers at most {most:,} projects, and these are {len(places):,}: name "
                "those you want"
            )

    def _registered(self, wish: StreamRequest, tenant: str) -> Subscription:
        loop = asyncio.get_running_loop()
        if self._followers is None:
            self._followers = Followers(self._reader, loop)
        subscription = Subscription(
            reader=self._reader,
            look=self._look,
            followers=self._followers,
            settings=self.settings,
            filters=wish.filters,
            tenant=tenant,
            several=wish.several,
        )
        self._open[subscription] = wish
        self._empty.clear()
        self._tenants[tenant] += 1
        self._callers[wish.caller] += 1
        if not self._chores:
            self._chores = [
                loop.create_task(chore)
                for chore in (self._beat(), self._check_allowed(), self._find_projects())
            ]
            for chore in self._chores:
                chore.add_done_callback(self._chore_ended)
        return subscription

    async def _look(self, function: Callable[[], Any]) -> Any:
        """Reads in a thread, and waits for a store that is unavailable."""
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, self._reader.retry, function
        )

    async def _places(self, wish: StreamRequest) -> Sequence[Place]:
        if wish.tenant is None:
            return list(dict.fromkeys(wish.places))
        return [
            place
            for place in await self._look(partial(self._projects, wish.tenant))
            if _sees(wish, place)
        ]

    def _projects(self, tenant: str) -> list[Place]:
        """All projects of a tenant, ordered by name."""
        return list(self._reader.scopes(tenant))

    def _chore_ended(self, chore: asyncio.Task[None]) -> None:
        """Called when a periodic task ends. If it failed, ends all streams: without it, permissions
        would no longer be checked."""
        error = None if chore.cancelled() else chore.exception()
        if error is not None:
            for subscription in tuple(self._open):
                subscription.end(
                    closing("the service has an error; connect again", self.settings.retry_ms)
                )
            chore.get_loop().call_exception_handler(
                {"message": "a chore of the streams has failed", "exception": error, "task": chore}
            )

    # Periodic jobs

    async def _beat(self) -> None:
        pause = self.settings.heartbeat_seconds
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(1.0, pause / 2))
            silent_since = loop.time() - pause
            for subscription in self._open:
                if subscription.idle_since <= silent_since:
                    subscription.beat()

    async def _check_allowed(self) -> None:
        while True:
            await asyncio.sleep(self.settings.look_seconds)
            # Streams of one key have equal checks, and each distinct check runs once.
            for ask in {
                wish.still_allowed for wish in self._open.values() if wish.still_allowed is not None
            }:
                if await _is_allowed(ask):
                    continue
                for subscription in [
                    open for open, wish in self._open.items() if wish.still_allowed == ask
                ]:
                    subscription.end(NOT_ALLOWED)

    async def _find_projects(self) -> None:
        while True:
            await asyncio.sleep(self.settings.look_seconds)
            for tenant in {wish.tenant for wish in self._open.values() if wish.tenant is not None}:
                try:
                    places = await self._look(partial(self._projects, tenant))
                except GenlockError:
                    continue  # the next search finds them
                for subscription, wish in list(self._open.items()):
                    if wish.tenant == tenant:
                        self._add(subscription, [place for place in places if _sees(wish, place)])

    def _add(self, subscription: Subscription, places: list[Place]) -> None:
        """Adds new projects to a stream. If the stream cannot take them, it ends and says why,
        because it must not skip projects that were requested."""
        try:
            self._check_few(places)
        except BadArgument as error:
            subscription.fail(error)
        for place in places:
            subscription.add(place)


def _encoded_rows(reader: Reader, place: Place, names: list[str], sessions: list[str]) -> Rows:
    if not names and not sessions:
        return Rows({}, {})
    encoded: dict[str, bytes] = {}
    held_by: dict[str, list[bytes]] = {session: [] for session in sessions}
    for name, row in task_rows(reader, place, names, sessions).items():
        encoded[name] = encode_json(row)
        if row.holder is not None and row.holder.session_id in held_by:
            held_by[row.holder.session_id].append(encoded[name])
    return Rows(encoded, held_by)


def _tenant_of(wish: StreamRequest) -> str:
    """Checks the projects of a stream, which must all belong to one tenant; returns the tenant."""
    tenants = {check_tenant(tenant) for tenant, _ in wish.places}
    for _, project in wish.places:
        check_project(project)
    if wish.tenant is not None:
        tenants.add(check_tenant(wish.tenant))
    if len(tenants) != 1 or (wish.tenant is not None and wish.places):
        raise BadArgument(
            "a stream is of some projects of one tenant, or of all that are visible there: give "
            "places, or a tenant"
        )
    return tenants.pop()


async def _is_allowed(ask: Allowed) -> bool:
    try:
        return await ask()
    except StoreError:
        return True  # unknown while the store is unavailable; the next check follows soon


def _sees(wish: StreamRequest, place: Place) -> bool:
    return wish.visible is None or wish.visible(place[1])
