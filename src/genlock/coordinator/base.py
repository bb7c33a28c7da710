"""What all operations share: who calls, which project, and how results are packed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from genlock.coordinator import payloads
from genlock.coordinator.scripts import Ask, Read, Script
from genlock.core.codec import decode_record
from genlock.core.commands import AdoptResult, Caller, ChangeProject, ChangeTenant, Command, SubmitResult
from genlock.core.identity import NO_AGENT, NO_SESSION
from genlock.core.identity import Identity as Identity
from genlock.core.ids import check_task_id
from genlock.core.keys import TASK, Key, project_key, tenant_key
from genlock.core.model import Actor, ProjectRecord, Record, TaskRecord, TenantRecord
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.core.policy import PROFILES, Policy, TenantLimits
from genlock.engine.engine import Engine
from genlock.errors import BadArgument, GenlockError, StoreCorrupt, TaskNotFound
from genlock.store import Snapshot, Stored

_CALLERS_KEPT = 4096


class Base:
    """State of a connection: its engine, and its defaults."""

    def __init__(self, engine: Engine, identity: Identity, places: set[tuple[str, str]] | None = None) -> None:
        self.engine = engine
        self.store = engine.store
        self.identity = identity
        self._actor = Actor(identity.user_id, identity.client_ip, identity.host, identity.role)
        self._callers: dict[tuple[str, str], Caller] = {}
        self.places: set[tuple[str, str]] = set() if places is None else places
        """Tenants and projects that are known to be listed."""

    # Names

    def place(self, tenant_id: str | None, project_id: str | None) -> tuple[str, str]:
        """Tenant and project of a call."""
        tenant = self.identity.tenant_id if tenant_id is None else tenant_id
        project = self.identity.project_id if project_id is None else project_id
        try:
            return _known_place(tenant, project)
        except TypeError:  # a list or a mapping: no name, as is said here
            return check_tenant(tenant), check_project(project)

    def task_key(self, tenant_id: str | None, project_id: str | None, task_id: str) -> Key:
        """The key of a task, its id checked."""
        tenant, project = self.place(tenant_id, project_id)
        return Key(tenant, project, TASK, check_task_id(task_id))

    def caller(self, session_id: str | None, agent_id: str | None = None, *, need_agent: bool = False) -> Caller:
        """Who calls."""
        session = session_id if session_id is not None else self.identity.session_id
        agent = agent_id if agent_id is not None else self.identity.agent_id
        if session is None:
            raise BadArgument(NO_SESSION)
        if agent is None:
            if need_agent:
                raise BadArgument(NO_AGENT)
            agent = ""
        try:
            known = self._callers.get((session, agent))
        except TypeError:
            known = None
        if known is not None:
            return known
        session = check_session(session)
        if agent_id is not None or agent or need_agent:
            agent = check_agent(agent)
        caller = Caller(session, agent, self._actor, self.identity.process)
        if len(self._callers) >= _CALLERS_KEPT:
            self._callers.clear()
        self._callers[session, agent] = caller
        return caller

    def operator(self, user_id: str | None = None) -> Caller:
        """Whoever operates, with or without a session."""
        session = self.identity.session_id or ""
        agent = self.identity.agent_id or ""
        actor = self._actor if user_id is None else msgspec.structs.replace(self._actor, user_id=check_user(user_id))
        return Caller(session, agent, actor, self.identity.process)

    # Records

    def read_records(self, keys: list[Key]) -> dict[Key, Record]:
        """Records as they are now, decoded."""
        return decoded(self.store.load(keys))

    def read_task(self, key: Key) -> TaskRecord:
        """One task, or TaskNotFound."""
        record = self.read_records([key]).get(key)
        if not isinstance(record, TaskRecord):
            raise TaskNotFound(f"there is no task {key.id!r} in project {key.project!r} of tenant {key.tenant!r}")
        return record

    def read_settings(self, place: tuple[str, str]) -> tuple[Policy, TenantLimits, ProjectRecord | None, TenantRecord | None]:
        """The policy and limits in force."""
        return self.settings_in(place, self.read_records(settings_keys(place)))

    def settings_in(
        self, place: tuple[str, str], found: Mapping[Key, Record]
    ) -> tuple[Policy, TenantLimits, ProjectRecord | None, TenantRecord | None]:
        """The same, of records that have been read."""
        project, tenant = found.get(project_key(*place)), found.get(tenant_key(place[0]))
        project = project if isinstance(project, ProjectRecord) else None
        tenant = tenant if isinstance(tenant, TenantRecord) else None
        policy = project.policy if project else Policy()
        limits = tenant.limits if tenant else PROFILES[self.engine.profile]
        return policy, limits, project, tenant

    def ensure_place(self, place: tuple[str, str]) -> Script[None]:
        """Makes sure that the tenant is listed and the project exists, once a connection."""
        if place in self.places:
            return
        for command in (
            ChangeTenant(tenant_key(place[0]), self.operator(), self.engine.profile),
            ChangeProject(project_key(*place), self.operator()),
        ):
            job = yield Ask([command], prepares=True)
            job.only()
        self.places.add(place)

    def tidied(self, command: SubmitResult | AdoptResult) -> Script[None]:
        """Drops the bytes of what was handed in before. That it was answered counts: bytes that stay do no harm."""
        with contextlib.suppress(GenlockError):
            yield Read(lambda: payloads.drop_if_repeated(self.store, command))

    def ask_one(self, command: Command) -> Script[Any]:
        """One command, its outcome or its error."""
        job = yield Ask([command])
        return job.only()


def decoded(snapshot: Snapshot) -> dict[Key, Record]:
    """The records of a snapshot."""
    return {key: decode_record(key.kind, stored.body) for key, stored in snapshot.records.items()}


def settings_keys(place: tuple[str, str]) -> list[Key]:
    """The records that have a project's policy and its tenant's limits."""
    return [project_key(*place), tenant_key(place[0])]


@functools.lru_cache(maxsize=4096)
def _known_place(tenant: str, project: str) -> tuple[str, str]:
    """Both if they are names; most calls are for a few places."""
    return check_tenant(tenant), check_project(project)


def task_of(stored: Stored) -> TaskRecord:
    """The task that `find` found."""
    record = decode_record(TASK, stored.body)
    if not isinstance(record, TaskRecord):
        raise StoreCorrupt(f"{stored.key.id} is stored as a task and is none")
    return record
