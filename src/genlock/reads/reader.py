"""Readers: what every read is made of. A `StoreReader` decodes what a store has; a `Reader` knows
what the engine knows, too."""

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
"""Records that are loaded at once."""
_LONG_PAGE = 2_000
_ONE_COMMIT = 2_048
"""More positions than one commit takes: a session is registered in the commit of its first claim,
and may stand behind it."""


class Settings(NamedTuple):
    """The policy and limits in force, and the records that they are from, if there are any."""

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
        """Is it known that the session's process has ended?"""
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
        """Of each claim, why it is overdue by all that is known of its holder, or None while it is
        live."""
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
        """All pages of a query. With `after_id`, only records with a greater id, whether or not
        there is a record of that id; the query must be of one project."""
        after: str | None = None
        while True:
            found = self.store.find(replace(query, after=after, limit=page))
            # `Page.next` is opaque. That ids come in order is part of the store's contract.
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
        """The same, for tasks."""
        return map(task_of, self.find(query, after_id, page))

    def counts(self, query: Query, by: str = "state") -> Mapping[str, int]:
        """How many records there are, by a field."""
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
        """Their scopes alone."""
        return (stored.key.place for stored in self.find(Query(tenant, kind=PROJECT), page=PAGE))

    def task_ids(self, scope: Scope) -> Iterator[str]:
        """The ids of a project's tasks, in order."""
        return (stored.key.id for stored in self.find(Query(*scope), page=PAGE))

    # Events

    def events(
        self, scope: Scope, after: str | None = None, limit: int = PAGE, *, cursors: bool = False
    ) -> EventPage:
        """A page of a project's feed, as it is stored."""
        return self.store.read_events(EventQuery(*scope, after=after, limit=limit, cursors=cursors))

    def feed_end(self, scope: Scope, back: int = 0) -> EventPage:
        """The cursor so many positions before the feed's present end, and the end's position."""
        return self.store.read_events(EventQuery(*scope, tail=True, back=back))

    def cursor_before(self, key: Key) -> str | None:
        """A cursor of the feed before the commit in which this record began; None, for the feed's
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
        """Returns when one of the feeds has moved past its cursor, when the time is up, or for no
        reason."""
        self.store.wait(scopes, after, seconds)


class Reader(StoreReader):
    """Reads the store of an engine."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.store)
        self._engine = engine

    def retry(self, function: Callable[[], T]) -> T:
        """Calls a function that reads, and again while the store is away, until the deadline. It
        blocks."""
        return self._engine.read(function)

    def wait(self, scopes: Sequence[Scope], after: Sequence[str], seconds: float) -> None:
        """The same. Edits of task files by other tools become events meanwhile."""
        self._engine.watch_edits(scopes)
        super().wait(scopes, after, seconds)

    def settings(self, scope: Scope) -> Settings:
        """The policy and limits in force."""
        return self.settings_in(scope, self.records(settings_keys(scope)))

    def settings_in(self, scope: Scope, found: Mapping[Key, Record]) -> Settings:
        """The same, from records that have been read."""
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
        """What has the store open. Views of projects are kept as long as it is."""
        return self._engine

    def limits(self, tenant: str) -> TenantLimits:
        """The limits of a tenant."""
        key = tenant_key(tenant)
        return self.limits_in(self.records([key]).get(key))

    def limits_in(self, tenant: Record | None) -> TenantLimits:
        """The same, from the tenant's record, if there is one."""
        return tenant.limits if isinstance(tenant, TenantRecord) else PROFILES[self.profile]

    @property
    def profile(self) -> str:
        """The limits of tenants that nobody has set limits for."""
        return self._engine.profile

    def outage_grace(self, scope: Scope, now: datetime) -> OutageGrace | None:
        """What an outage is an excuse for in this project, if it is one."""
        return self._engine.outage_grace(scope, now)

    def activity(self, scope: Scope) -> Mapping[str, datetime]:
        """By session, when it last did something to a task of this project."""
        return self._engine.activity.of(scope)

    def last_heard(self, session: Key) -> datetime:
        """The same of one session, by its claims too."""
        return self._engine.activity.last_heard(session)

    def lane_depths(self) -> dict[str, tuple[int, int]]:
        """By lane: jobs that wait to begin, and requests for a next task that wait for one."""
        return self._engine.depths()

    @property
    def is_broken(self) -> bool:
        """Has a thread of the engine ended that nobody has closed? Only a new start helps."""
        return self._engine.is_broken

    def trial(self) -> BatchRound:
        """A round in which commands are decided and not committed."""
        return self._engine.look()


def decoded(snapshot: Snapshot) -> dict[Key, Record]:
    """The records of a snapshot."""
    return {key: decode_record(key.kind, stored.body) for key, stored in snapshot.records.items()}


def settings_keys(scope: Scope) -> list[Key]:
    """The records that have a project's policy and its tenant's limits."""
    return [project_key(*scope), tenant_key(scope[0])]


def task_of(stored: Stored) -> TaskRecord:
    """The task that `find` found."""
    record = decode_record(TASK, stored.body)
    if not isinstance(record, TaskRecord):
        raise StoreCorrupt(f"{stored.key.id} is stored as a task and is none")
    return record
