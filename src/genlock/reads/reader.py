"""Readers, the base of every read. A `StoreReader` decodes the content of a store; a `Reader` also
has the engine's knowledge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from genlock.core.codec import decode_event, decode_record
from genlock.core.events import Event
from genlock.core.facts import OutageGrace
from genlock.core.keys import (
    NOWHERE,
    PROJECT,
    SESSION,
    TASK,
    TENANT,
    Key,
    Scope,
    project_key,
    tenant_key,
)
from genlock.core.model import (
    Claim,
    ProjectRecord,
    Record,
    SessionRecord,
    TaskRecord,
    TenantRecord,
)
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.core.reasons import Cause
from genlock.core.task.view import overdue, seems_silent
from genlock.engine.batch import BatchRound
from genlock.engine.engine import Engine
from genlock.engine.observer import Activity
from genlock.engine.processes import gone
from genlock.errors import StoreCorrupt, TaskNotFound
from genlock.store import EventPage, EventQuery, Query, Snapshot, Store, Stored

T = TypeVar("T")

PAGE = 500
"""Records in one load."""
_LONG_PAGE = 2_000
_ONE_COMMIT = 2_048
"""More positions than one commit can take. A session is registered in the same commit as its first
claim, and may come after it."""


class Settings(NamedTuple):
    """The policy and limits in force, and the records that contain them, if any exist."""

    policy: Policy
    limits: TenantLimits
    project: ProjectRecord | None
    tenant: TenantRecord | None


class StoreReader:
    """Reads a store. Its methods block, and raise what the store raises."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def store_kind(self) -> str:
        """The store's kind in one word; never its URL, which may hold a password."""
        module = type(self.store).__module__.split(".")
        return module[2] if module[:2] == ["genlock", "stores"] else type(self.store).__name__

    # Records

    def now(self) -> datetime:
        """The store's time."""
        return self.store.load([]).now

    def records(self, keys: Iterable[Key]) -> dict[Key, Record]:
        """The records among these that exist, loaded some hundreds at a time."""
        wanted, found = list(keys), dict[Key, Record]()
        for start in range(0, len(wanted), PAGE):
            found |= decoded(self.store.load(wanted[start : start + PAGE]))
        return found

    def task(self, key: Key) -> TaskRecord:
        """One task, or TaskNotFound."""
        record = self.records([key]).get(key)
        if not isinstance(record, TaskRecord):
            raise TaskNotFound(
                f"there is no task {key.id!r} in project {key.project!r} of tenant {key.tenant!r}"
            )
        return record

    def tasks(self, scope: Scope, names: Iterable[str]) -> dict[str, TaskRecord]:
        """The tasks among these that exist, by id."""
        records = self.records(Key(*scope, TASK, name) for name in names)
        return {key.id: record for key, record in records.items() if isinstance(record, TaskRecord)}

    def sessions(self, scope: Scope, names: Iterable[str]) -> dict[str, SessionRecord]:
        """The sessions among these that exist, by id."""
        records = self.records(Key(*scope, SESSION, name) for name in names)
        return {
            key.id: record for key, record in records.items() if isinstance(record, SessionRecord)
        }

    def is_gone(self, session: SessionRecord) -> bool:
        """Has the session's process ended, as far as is known?"""
        return gone(session.process, shared=self.store.limits.shared)

    def last_heard(self, session: Key) -> datetime:
        """When a session last did something to a task of its project."""
        return Activity(self.store).last_heard(session)

    def causes(
        self,
        scope: Scope,
        claims: Iterable[Claim],
        sessions: Mapping[str, SessionRecord],
        now: datetime,
        outage_grace: OutageGrace | None = None,
    ) -> list[Cause | None]:
        """Returns for each claim why it is overdue, from everything known about its holder, or None
        while it is live."""
        gone = {name for name, session in sessions.items() if self.is_gone(session)}
        heard: dict[str, datetime] = {}
        causes: list[Cause | None] = []
        for claim in claims:
            name, session = claim.session, sessions.get(claim.session)
            if name not in heard and seems_silent(session, claim, now):
                heard[name] = self.last_heard(Key(*scope, SESSION, name))
            causes.append(overdue(claim, now, session, name in gone, outage_grace, heard.get(name)))
        return causes

    # Queries

    def find(self, query: Query, after_id: str = "", page: int = _LONG_PAGE) -> Iterator[Stored]:
        """Yields the records of all pages of a query. With `after_id`, only records with a greater
        id, even if no record has that id; the query must be limited to one project."""
        after: str | None = None
        while True:
            found = self.store.find(replace(query, after=after, limit=page))
            # `Page.next` is opaque. The order by id is part of the store's contract.
            yield from (
                (stored for stored in found.records if stored.key.id > after_id)
                if after_id
                else found.records
            )
            if found.next is None:
                return
            after = found.next

    def find_tasks(
        self, query: Query, after_id: str = "", page: int = _LONG_PAGE
    ) -> Iterator[TaskRecord]:
        """Yields the tasks of all pages of a query."""
        return map(task_of, self.find(query, after_id, page))

    def counts(self, query: Query, by: str = "state") -> Mapping[str, int]:
        """Counts records by a field."""
        return self.store.find(query, count_by=by).counts

    def tenants(self) -> Iterator[str]:
        """The tenants of the store."""
        return (stored.key.id for stored in self.find(Query(NOWHERE, kind=TENANT), page=PAGE))

    def projects(self, tenant: str) -> Iterator[tuple[Scope, ProjectRecord]]:
        """The projects of a tenant, by name."""
        for stored in self.find(Query(tenant, kind=PROJECT), page=PAGE):
            record = decode_record(PROJECT, stored.body)
            if isinstance(record, ProjectRecord):
                yield stored.key.place, record

    def scopes(self, tenant: str) -> Iterator[Scope]:
        """Yields the scopes of a tenant's projects."""
        return (stored.key.place for stored in self.find(Query(tenant, kind=PROJECT), page=PAGE))

    def task_ids(self, scope: Scope) -> Iterator[str]:
        """The ids of a project's tasks, in order."""
        return (stored.key.id for stored in self.find(Query(*scope), page=PAGE))

    # Events

    def events(
        self, scope: Scope, after: str | None = None, limit: int = PAGE, *, cursors: bool = False
    ) -> EventPage:
        """Returns a page of a project's feed, as stored."""
        return self.store.read_events(EventQuery(*scope, after=after, limit=limit, cursors=cursors))

    def feed_end(self, scope: Scope, back: int = 0) -> EventPage:
        """Returns the cursor `back` positions before the feed's current end, and the position of
        the end."""
        return self.store.read_events(EventQuery(*scope, tail=True, back=back))

    def cursor_before(self, key: Key) -> str | None:
        """Returns a cursor before the commit that created this record; None, for the feed's
        beginning, if that event was purged."""
        first = self.store.read_events(EventQuery(*key.place, record=key, limit=1))
        if not first.events or first.base is not None:
            return None
        end = self.feed_end(key.place)
        return self.feed_end(
            key.place, back=end.position - first.events[0].position + _ONE_COMMIT
        ).cursor

    def history(self, key: Key) -> Iterator[Event]:
        """The events of one record, in order."""
        after = 0
        while True:
            page = self.store.read_events(
                EventQuery(*key.place, record=key, after_version=after, limit=PAGE)
            )
            yield from (decode_event(recorded.body).event for recorded in page.events)
            if not page.more:
                return
            after = page.events[-1].version

    def wait(self, scopes: Sequence[Scope], after: Sequence[str], seconds: float) -> None:
        """Returns when one of the feeds has moved past its cursor, on timeout, or spuriously."""
        self.store.wait(scopes, after, seconds)


class Reader(StoreReader):
    """Reads the store of an engine."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.store)
        self._engine = engine

    def retry(self, function: Callable[[], T]) -> T:
        """Calls a function that reads, and repeats it while the store is unavailable, until the
        deadline. Blocks."""
        return self._engine.read(function)

    def wait(self, scopes: Sequence[Scope], after: Sequence[str], seconds: float) -> None:
        """Waits as `StoreReader.wait` does. Meanwhile, edits of task files by other tools are
        recorded as events."""
        self._engine.watch_edits(scopes)
        super().wait(scopes, after, seconds)

    def settings(self, scope: Scope) -> Settings:
        """The policy and limits in force."""
        return self.settings_in(scope, self.records(settings_keys(scope)))

    def settings_in(self, scope: Scope, found: Mapping[Key, Record]) -> Settings:
        """Returns the policy and limits in force, from loaded records."""
        project, tenant = found.get(project_key(*scope)), found.get(tenant_key(scope[0]))
        project = project if isinstance(project, ProjectRecord) else None
        return Settings(
            project.policy if project else self._engine.store.limits.policy,
            self.limits_in(tenant),
            project,
            tenant if isinstance(tenant, TenantRecord) else None,
        )

    @property
    def engine(self) -> Engine:
        """The engine that has the store open. Views of projects live as long as it does."""
        return self._engine

    def limits(self, tenant: str) -> TenantLimits:
        """The limits of a tenant."""
        key = tenant_key(tenant)
        return self.limits_in(self.records([key]).get(key))

    def limits_in(self, tenant: Record | None) -> TenantLimits:
        """Returns the limits from the tenant's record, if there is one."""
        return tenant.limits if isinstance(tenant, TenantRecord) else PROFILES[self.profile]

    @property
    def profile(self) -> str:
        """The profile of tenants without limits of their own."""
        return self._engine.profile

    def outage_grace(self, scope: Scope, now: datetime) -> OutageGrace | None:
        """Returns the grace period after an outage in this project, if any."""
        return self._engine.outage_grace(scope, now)

    def activity(self, scope: Scope) -> Mapping[str, datetime]:
        """Returns for each session when it last acted on a task of this project."""
        return self._engine.activity.of(scope)

    def last_heard(self, session: Key) -> datetime:
        """Returns when a session last acted, including its claims."""
        return self._engine.activity.last_heard(session)

    def lane_depths(self) -> dict[str, tuple[int, int]]:
        """Returns for each lane the number of queued jobs, and of requests that wait for a next
        task."""
        return self._engine.depths()

    @property
    def is_broken(self) -> bool:
        """Has a thread of the engine ended without being closed? Only a restart helps."""
        return self._engine.is_broken

    def trial(self) -> BatchRound:
        """Returns a round in which commands are decided but not committed."""
        return self._engine.look()


def decoded(snapshot: Snapshot) -> dict[Key, Record]:
    """The records of a snapshot."""
    return {key: decode_record(key.kind, stored.body) for key, stored in snapshot.records.items()}


def settings_keys(scope: Scope) -> list[Key]:
    """Returns the keys of the records with a project's policy and its tenant's limits."""
    return [project_key(*scope), tenant_key(scope[0])]


def task_of(stored: Stored) -> TaskRecord:
    """Decodes a task that `find` returned."""
    record = decode_record(TASK, stored.body)
    if not isinstance(record, TaskRecord):
        raise StoreCorrupt(f"{stored.key.id} is stored as a task and is none")
    return record
