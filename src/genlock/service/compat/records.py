"""What /api reads: records as they are, a few at once. Nothing is decided here, and nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.keys import SESSION, TASK, Key, project_key, tenant_key
from genlock.core.model import Claim, ProjectRecord, SessionRecord, TaskRecord, TenantRecord
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.core.reasons import Cause, ClaimState
from genlock.core.task.view import overdue
from genlock.engine.engine import Engine
from genlock.engine.processes import gone
from genlock.service.compat.config import ClaimConfig
from genlock.service.compat.health import Health, health_of
from genlock.service.running import Running
from genlock.store import MAX_DUE, Query, Store, Stored

T = TypeVar("T")
_PAGE: Final = 500


class One(NamedTuple):
    """A task, and what bears on claims of it."""

    record: TaskRecord | None
    limits: TenantLimits
    now: datetime


class Held(NamedTuple):
    """A task that somebody holds."""

    record: TaskRecord
    claim: Claim
    session: SessionRecord | None
    cause: Cause | None
    """Why it is over-due, as the rules see it, or None while it is live."""
    last_activity: datetime
    """Of the session: a heartbeat of its own or of any of its claims, or, where that was asked for, whatever it did to a task."""

    def health(self, now: datetime, config: ClaimConfig) -> Health:
        """How the claim is doing."""
        return health_of(self.claim, now, config, cause=self.cause, last_activity=self.last_activity)


class Flight(NamedTuple):
    """All claims of the project, at one instant."""

    held: list[Held]
    now: datetime


class Records:
    """Those of one project."""

    def __init__(self, running: Running, place: tuple[str, str]) -> None:
        self._running = running
        self.place = place

    async def read(self, function: Callable[[Store], T]) -> T:
        """Looks at the store in a thread; waits for one that is away, as every read does."""
        return await self._ask(lambda engine: function(engine.store))

    async def _ask(self, function: Callable[[Engine], T]) -> T:
        engine = self._running.coordinator.engine
        return await asyncio.get_running_loop().run_in_executor(None, engine.read, lambda: function(engine))

    async def task(self, task_id: str) -> One:
        """One task with its tenant's limits."""
        key, tenant = Key(*self.place, TASK, task_id), tenant_key(self.place[0])
        found = await self.read(lambda store: store.load([key, tenant]))
        stored, limits = found.records.get(key), found.records.get(tenant)
        kept = decode_record(tenant.kind, limits.body) if limits is not None else None
        task = decode_record(TASK, stored.body) if stored is not None else None
        return One(
            task if isinstance(task, TaskRecord) else None,
            kept.limits if isinstance(kept, TenantRecord) else PROFILES[self._running.coordinator.engine.profile],
            found.now,
        )

    async def session(self, session_id: str) -> SessionRecord | None:
        """One session, or None if there is none of this name."""
        key = Key(*self.place, SESSION, session_id)
        return (await self.read(lambda store: _sessions(store, [key]))).get(session_id)

    async def policy(self) -> Policy:
        """The project's policy."""
        key = project_key(*self.place)
        stored = (await self.read(lambda store: store.load([key]))).records.get(key)
        record = decode_record(key.kind, stored.body) if stored is not None else None
        return record.policy if isinstance(record, ProjectRecord) else Policy()

    async def flight(self, session_id: str | None = None, *, heard: bool = False) -> Flight:
        """Every claim that is on record, whether its lease is over or not; of one session only, if one is named.

        Who asks for their health needs to have `heard` of all that their sessions did.
        """
        query = Query(*self.place, due_before=MAX_DUE) if session_id is None else Query(*self.place, session=session_id)

        def read(engine: Engine) -> Flight:
            flight = read_flight(engine, self.place, query)
            if not heard or not flight.held:
                return flight
            last = engine.activity.of(self.place)
            known = [(one, last.get(one.claim.session, one.last_activity)) for one in flight.held]
            return flight._replace(held=[one._replace(last_activity=max(one.last_activity, at)) for one, at in known])

        return await self._ask(read)

    async def sessions(self) -> list[SessionRecord]:
        """Every session that has not ended."""
        query = Query(*self.place, kind=SESSION, state="ACTIVE")
        found = await self.read(lambda store: [decode_record(SESSION, stored.body) for stored in _pages(store, query)])
        return [record for record in found if isinstance(record, SessionRecord)]

    async def heard(self) -> Mapping[str, datetime]:
        """By session, when it last did something to a task."""
        return await self._ask(lambda engine: engine.activity.of(self.place))

    async def counts(self) -> dict[str, int]:
        """How many tasks there are, by state."""
        return dict((await self.read(lambda store: store.find(Query(*self.place), count_by="state"))).counts)


def read_flight(engine: Engine, place: tuple[str, str], query: Query, most: int | None = None) -> Flight:
    """The claims among what a query finds, at most so many."""
    store = engine.store
    now = store.load([]).now
    mercy = engine.mercy(place, now)
    found: list[tuple[TaskRecord, Claim]] = []
    for stored in islice(_pages(store, query), most):
        record = decode_record(TASK, stored.body)
        if isinstance(record, TaskRecord) and record.claim is not None and record.claim.state is ClaimState.ACTIVE:
            found.append((record, record.claim))
    names = sorted({claim.session for _, claim in found})
    sessions = _sessions(store, [Key(*place, SESSION, name) for name in names])
    lost = {name: gone(sessions[name].process) for name in names if name in sessions}
    heard = {name: session.updated_at for name, session in sessions.items()}
    for _, claim in found:
        heard[claim.session] = max(claim.renewed_at, heard.get(claim.session, claim.renewed_at))
    held: list[Held] = []
    for record, claim in found:
        session = sessions.get(claim.session)
        cause = overdue(claim, now, session, lost.get(claim.session, False), mercy)
        held.append(Held(record, claim, session, cause, heard[claim.session]))
    return Flight(sorted(held, key=lambda one: (one.claim.claimed_at, one.record.task.id)), now)


def _sessions(store: Store, keys: list[Key]) -> dict[str, SessionRecord]:
    found: dict[str, SessionRecord] = {}
    for start in range(0, len(keys), _PAGE):
        for key, stored in store.load(keys[start : start + _PAGE]).records.items():
            record = decode_record(SESSION, stored.body)
            if isinstance(record, SessionRecord):
                found[key.id] = record
    return found


def _pages(store: Store, query: Query) -> Iterator[Stored]:
    after: str | None = None
    while True:
        page = store.find(replace(query, after=after, limit=_PAGE))
        yield from page.records
        if page.next is None:
            return
        after = page.next
