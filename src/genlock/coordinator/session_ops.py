"""Sessions and agents: which exist, what they hold, what they have done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from genlock.coordinator.arguments import (
    LONGEST_WORD,
    check_after,
    check_flag,
    check_limit,
    check_text,
    check_whole,
    plain,
)
from genlock.coordinator.base import Base
from genlock.coordinator.drivers import Ask, Read, Script
from genlock.core import commands as c
from genlock.core.keys import SESSION, TASK, Key
from genlock.core.model import Claim, Process, TaskRecord
from genlock.core.names import check_session, check_user
from genlock.core.process_identity import check_process
from genlock.core.reasons import ReleaseReason
from genlock.core.results import (
    AgentInfo,
    ReleaseResult,
    SessionEnd,
    SessionInfo,
    SessionMemory,
)
from genlock.engine.processes import identify, received
from genlock.errors import BadArgument, GenlockError
from genlock.reads import agents, sessions

_PAGE = 500


class Sessions(Base):
    """Operations on sessions."""

    def register_session(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        agent_type: str = "",
        pid: int | None = None,
        process: Process | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[SessionInfo]:
        """Register a session with its process: `pid` on this machine, or a `process` identity from
        elsewhere."""
        place = self.place(tenant_id, project_id)
        caller = self.caller(session_id)
        agent_type = check_text("agent_type", agent_type, LONGEST_WORD)
        if process is not None:
            check_process(process)
        if pid is not None:
            pid = check_whole("pid", pid, 1, 2**31 - 1)
            process = identify(pid)
            if process is None:
                raise BadArgument(f"process {pid} does not exist or cannot be seen from here")
        actor = caller.actor
        if user_id is not None:
            actor = msgspec.structs.replace(actor, user_id=check_user(user_id))
        by = msgspec.structs.replace(caller, actor=actor)
        key = Key(*place, SESSION, caller.session)
        named = received(process)
        yield from self.ensure_place(place)
        yield from self.ask_one(
            c.RegisterSession(
                key,
                by,
                agent_type,
                plain(metadata),
                named=named if named != caller.process else None,
            )
        )
        return (yield from self._info(key))

    def heartbeat_session(
        self,
        *,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[SessionInfo]:
        """Report that a session is alive. This does not renew leases: `renew_lease` does."""
        key = Key(*self.place(tenant_id, project_id), SESSION, self.caller(session_id).session)
        yield from self.ask_one(c.HeartbeatSession(key, self.caller(session_id), plain(metadata)))
        return (yield from self._info(key))

    def end_session(
        self,
        *,
        session_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[SessionEnd]:
        """End a session and release what it holds in this project."""
        place = self.place(tenant_id, project_id)
        caller = self.caller(session_id)
        yield from self.ask_one(c.EndSession(Key(*place, SESSION, caller.session), caller))
        held: list[tuple[TaskRecord, Claim]] = yield Read(
            lambda: sessions.held_tasks(self.reader, place, caller.session)
        )
        released: list[str] = []
        errors: list[GenlockError] = []
        for start in range(0, len(held), _PAGE):
            commands = [
                c.ReleaseClaim(
                    Key(*place, TASK, record.task.id),
                    caller,
                    record.generation,
                    ReleaseReason.VOLUNTARY,
                )
                for record, _ in held[start : start + _PAGE]
            ]
            job = yield Ask(commands)
            errors += [outcome for outcome in job.results if isinstance(outcome, GenlockError)]
            released += [
                command.key.id
                for command, outcome in zip(commands, job.results, strict=True)
                if isinstance(outcome, ReleaseResult) and outcome.success
            ]
        if errors:
            raise errors[0]
        return SessionEnd(caller.session, tuple(released))

    def list_sessions(
        self,
        *,
        include_ended: bool = False,
        limit: int = 1000,
        after: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[SessionInfo, ...]]:
        """The sessions of a project by id, with what they hold and whether they look alive; `after`
        is the last id of the previous page."""
        check_flag("include_ended", include_ended)
        place = self.place(tenant_id, project_id)
        limit, after_id = check_limit(limit), check_after(after)
        found: tuple[SessionInfo, ...] = yield Read(
            lambda: sessions.session_infos(
                self.reader, place, include_ended=include_ended, limit=limit, after_id=after_id
            )
        )
        return found

    def get_session(
        self,
        *,
        session_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[SessionInfo]:
        """One session, with what it holds and whether it looks alive."""
        place = self.place(tenant_id, project_id)
        session = check_session(session_id) if session_id is not None else self.caller(None).session
        key = Key(*place, SESSION, session)
        found: SessionInfo = yield Read(
            lambda: sessions.session_info(
                self.reader, key, self.reader.activity(place).get(session)
            )
        )
        return found

    def list_agents(
        self,
        *,
        include_idle: bool = False,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[tuple[AgentInfo, ...]]:
        """The agents that hold tasks now; with `include_idle` also those of active sessions that
        hold none, and how many tasks each has completed."""
        idle = check_flag("include_idle", include_idle)
        place = self.place(tenant_id, project_id)
        found: tuple[AgentInfo, ...] = yield Read(
            lambda: agents.agents(self.reader, place, idle=idle)
        )
        return found

    def get_session_memory(
        self,
        *,
        session_id: str | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Script[SessionMemory]:
        """GC 3.5: what a session has done, holds and has completed, read from the project's
        feed."""
        place = self.place(tenant_id, project_id)
        session = check_session(session_id) if session_id is not None else self.caller(None).session
        memory: SessionMemory = yield Read(
            lambda: sessions.session_memory(self.reader, place, session)
        )
        return memory

    def _info(self, key: Key) -> Script[SessionInfo]:
        """Returns a session that has just acted, so there is no later activity to search for."""
        info: SessionInfo = yield Read(lambda: sessions.session_info(self.reader, key))
        return info
