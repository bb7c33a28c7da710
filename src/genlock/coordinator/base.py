"""The base of all operations: the caller, the project, and shared steps."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, cast

import msgspec

from genlock.coordinator import payloads
from genlock.coordinator.drivers import Ask, Read, Script
from genlock.core.commands import (
    AdoptResult,
    Caller,
    ChangeProject,
    ChangeTenant,
    Command,
    ObserveTask,
    SubmitResult,
    TakeIds,
)
from genlock.core.ids import check_task_id
from genlock.core.keys import TASK, Key, Scope, project_key, tenant_key
from genlock.core.model import (
    NO_AGENT,
    NO_SESSION,
    Actor,
)
from genlock.core.model import Identity as Identity
from genlock.core.names import check_agent, check_project, check_session, check_tenant, check_user
from genlock.core.task.relate import SYSTEM
from genlock.engine.engine import Engine
from genlock.engine.jobs import Recover
from genlock.engine.processes import received
from genlock.errors import BadArgument, GenlockError
from genlock.reads.reader import Reader
from genlock.reads.unfinished import UnfinishedCounts
from genlock.store import CountsNumbers

_CALLERS_KEPT = 4096
_MOST_SEEN = 256


class Base:
    """State of a connection: its engine, and its defaults."""

    def __init__(
        self, engine: Engine, identity: Identity, places: set[tuple[str, str]] | None = None
    ) -> None:
        self.engine = engine
        self.store = engine.store
        self.reader = Reader(engine)
        self.unfinished = UnfinishedCounts(engine.store)
        self.identity = identity
        self._actor = Actor(identity.user_id, identity.client_ip, identity.host, identity.role)
        self._process = received(identity.process)
        self._callers: dict[tuple[str, str], Caller] = {}
        self.places: set[tuple[str, str]] = set() if places is None else places
        """Pairs of tenant and project that are known to exist."""

    # Names

    def place(self, tenant_id: str | None, project_id: str | None) -> tuple[str, str]:
        """Returns tenant and project of a call."""
        tenant = self.identity.tenant_id if tenant_id is None else tenant_id
        project = self.identity.project_id if project_id is None else project_id
        try:
            return _known_place(tenant, project)
        except TypeError:  # a list or a mapping is no name
            return check_tenant(tenant), check_project(project)

    def task_key(self, tenant_id: str | None, project_id: str | None, task_id: str) -> Key:
        """Checks a task's id and returns the task's key."""
        tenant, project = self.place(tenant_id, project_id)
        return Key(tenant, project, TASK, check_task_id(task_id))

    def caller(
        self, session_id: str | None, agent_id: str | None = None, *, need_agent: bool = False
    ) -> Caller:
        """Returns the caller."""
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
        caller = Caller(session, agent, self._actor, self._process, self.identity.orphan_seconds)
        if len(self._callers) >= _CALLERS_KEPT:
            self._callers.clear()
        self._callers[session, agent] = caller
        return caller

    def lone_agent(self, place: Scope) -> Script[str | None]:
        """Returns the default agent of a project where one agent works alone; None elsewhere."""
        agent: str | None = yield Read(lambda: self.reader.settings(place).policy.lone_agent)
        return agent

    def claimant(
        self, place: Scope, session_id: str | None, agent_id: str | None
    ) -> Script[Caller]:
        """Returns the caller of a claim. Where one agent works alone, the agent's name may be
        omitted."""
        if agent_id is None and self.identity.agent_id is None:
            agent_id = yield from self.lone_agent(place)
        return self.caller(session_id, agent_id, need_agent=True)

    def operator(self, user_id: str | None = None, session_id: str | None = None) -> Caller:
        """Returns the operator as caller, with or without a session."""
        session = (
            check_session(session_id) if session_id is not None else self.identity.session_id or ""
        )
        agent = self.identity.agent_id or ""
        actor = (
            self._actor
            if user_id is None
            else msgspec.structs.replace(self._actor, user_id=check_user(user_id))
        )
        return Caller(session, agent, actor, self._process)

    # Steps

    def ensure_place(self, place: tuple[str, str]) -> Script[None]:
        """Makes sure that tenant and project exist, once for each connection."""
        if place in self.places:
            return
        for command in (
            ChangeTenant(tenant_key(place[0]), self.operator(), self.engine.profile),
            ChangeProject(project_key(*place), self.operator()),
        ):
            job = yield Ask([command], prepares=True)
            job.only()
        self.places.add(place)

    def see_files(self, scope: Scope, *keys: Key) -> Script[None]:
        """Records the edits that other tools made to files of these tasks, or of the whole project,
        as events. Called before a read; does nothing in other stores."""
        if not self.store.limits.observes or self.store.limits.read_only:
            return
        with contextlib.suppress(GenlockError):  # the read follows even if recording fails
            if keys:
                yield Ask([ObserveTask(key, SYSTEM) for key in keys[:_MOST_SEEN]])
            else:
                yield Ask([Recover(project_key(*scope), files_only=True)])

    def take_numbers(self, counter: Key, caller: Caller, count: int) -> Script[int]:
        """Reserves `count` numbers for the caller. Returns the last of them."""
        last: int
        if self.store.limits.counts:
            store = cast(CountsNumbers, self.store)
            last = yield Read(lambda: store.take_numbers(counter.id, count))
        else:
            last = yield from self.ask_one(TakeIds(counter, caller, counter.id, count))
        return last

    def tidied(self, command: SubmitResult | AdoptResult) -> Script[None]:
        """Drops the payload of a repeated submission. Errors are ignored: the submission is
        answered, and leftover bytes do no harm."""
        with contextlib.suppress(GenlockError):
            yield Read(lambda: payloads.drop_if_repeated(self.store, command))

    def ask_one(self, command: Command) -> Script[Any]:
        """Sends one command. Returns its outcome or raises its error."""
        job = yield Ask([command])
        return job.only()


@functools.lru_cache(maxsize=4096)
def _known_place(tenant: str, project: str) -> tuple[str, str]:
    """Checks both names. Cached, because most calls are for a few projects."""
    return check_tenant(tenant), check_project(project)
