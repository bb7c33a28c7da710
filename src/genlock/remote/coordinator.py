"""The two faces of the remote client: plain methods, and coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import NoReturn

from genlock.core.identity import Identity
from genlock.core.results import FeedEvent
from genlock.errors import NotAllowed
from genlock.remote import operations as o
from genlock.remote.ears import Ear
from genlock.remote.link import Link
from genlock.remote.scripts import asynchronous, synchronous
from genlock.remote.watching import follow
from genlock.threads import awaited


class Connection:
    """What both faces share."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def identity(self) -> Identity:
        """Who the connection speaks for where a call does not say."""
        return self._link.identity

    @property
    def engine(self) -> NoReturn:
        """There is none on this side."""
        raise NotAllowed(f"this goes through the service at {self._link.url}, which has the store; for the store itself, use its own URL")


class RemoteCoordinator(Connection):
    """The coordinator of a service. Every method takes keywords only; `tenant_id` and `project_id` default to the connection's."""

    claim_task = synchronous(o.claim_task)
    renew_lease = synchronous(o.renew_lease)
    release_claim = synchronous(o.release_claim)
    submit_result = synchronous(o.submit_result)
    claim_next = synchronous(o.claim_next)
    batch_claim = synchronous(o.batch_claim)
    batch_renew = synchronous(o.batch_renew)
    batch_submit = synchronous(o.batch_submit)
    spawn_subtasks = synchronous(o.spawn_subtasks)
    get_task_state = synchronous(o.get_task_state)
    batch_get_states = synchronous(o.batch_get_states)
    get_claim_history = synchronous(o.get_claim_history)
    get_lineage = synchronous(o.get_lineage)
    get_active_claims_for_session = synchronous(o.get_active_claims_for_session)
    ready = synchronous(o.ready)
    blocked = synchronous(o.blocked)
    explain = synchronous(o.explain)
    list_refused_results = synchronous(o.list_refused_results)
    read_result = synchronous(o.read_result)
    track_progress = synchronous(o.track_progress)
    add_tasks = synchronous(o.add_tasks)
    edit_task = synchronous(o.edit_task)
    import_plan = synchronous(o.import_plan)
    diff_plan = synchronous(o.diff_plan)
    check_plan = synchronous(o.check_plan)
    get_plan = synchronous(o.get_plan)
    get_graph = synchronous(o.get_graph)
    next_id = synchronous(o.next_id)
    reset_task = synchronous(o.reset_task)
    preview_reset = synchronous(o.preview_reset)
    cancel_task = synchronous(o.cancel_task)
    assign_task = synchronous(o.assign_task)
    force_release = synchronous(o.force_release)
    hold_task = synchronous(o.hold_task)
    reopen_task = synchronous(o.reopen_task)
    adopt_result = synchronous(o.adopt_result)
    discard_result = synchronous(o.discard_result)
    get_policy = synchronous(o.get_policy)
    set_policy = synchronous(o.set_policy)
    sweep = synchronous(o.sweep)
    register_session = synchronous(o.register_session)
    heartbeat_session = synchronous(o.heartbeat_session)
    end_session = synchronous(o.end_session)
    list_sessions = synchronous(o.list_sessions)
    list_agents = synchronous(o.list_agents)
    get_session_memory = synchronous(o.get_session_memory)
    read_events = synchronous(o.read_events)
    create_key = synchronous(o.create_key)
    list_keys = synchronous(o.list_keys)
    rotate_key = synchronous(o.rotate_key)
    revoke_key = synchronous(o.revoke_key)
    list_tenants = synchronous(o.list_tenants)
    get_tenant = synchronous(o.get_tenant)
    set_tenant = synchronous(o.set_tenant)

    def watch(
        self,
        *,
        after: str | None = None,
        timeout_seconds: float | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Iterator[FeedEvent]:
        """Events as they come, from a cursor or from now on; ends when none has come for `timeout_seconds`."""
        self._link.check_open()
        return follow(self._link, tenant_id, project_id, after, timeout_seconds, Ear())

    def close(self) -> None:
        """Ends the connection; calling it again is fine."""
        self._link.close()

    def __enter__(self) -> RemoteCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRemoteCoordinator(Connection):
    """The same in an event loop."""

    claim_task = asynchronous(o.claim_task)
    renew_lease = asynchronous(o.renew_lease)
    release_claim = asynchronous(o.release_claim)
    submit_result = asynchronous(o.submit_result)
    claim_next = asynchronous(o.claim_next)
    batch_claim = asynchronous(o.batch_claim)
    batch_renew = asynchronous(o.batch_renew)
    batch_submit = asynchronous(o.batch_submit)
    spawn_subtasks = asynchronous(o.spawn_subtasks)
    get_task_state = asynchronous(o.get_task_state)
    batch_get_states = asynchronous(o.batch_get_states)
    get_claim_history = asynchronous(o.get_claim_history)
    get_lineage = asynchronous(o.get_lineage)
    get_active_claims_for_session = asynchronous(o.get_active_claims_for_session)
    ready = asynchronous(o.ready)
    blocked = asynchronous(o.blocked)
    explain = asynchronous(o.explain)
    list_refused_results = asynchronous(o.list_refused_results)
    read_result = asynchronous(o.read_result)
    track_progress = asynchronous(o.track_progress)
    add_tasks = asynchronous(o.add_tasks)
    edit_task = asynchronous(o.edit_task)
    import_plan = asynchronous(o.import_plan)
    diff_plan = asynchronous(o.diff_plan)
    check_plan = asynchronous(o.check_plan)
    get_plan = asynchronous(o.get_plan)
    get_graph = asynchronous(o.get_graph)
    next_id = asynchronous(o.next_id)
    reset_task = asynchronous(o.reset_task)
    preview_reset = asynchronous(o.preview_reset)
    cancel_task = asynchronous(o.cancel_task)
    assign_task = asynchronous(o.assign_task)
    force_release = asynchronous(o.force_release)
    hold_task = asynchronous(o.hold_task)
    reopen_task = asynchronous(o.reopen_task)
    adopt_result = asynchronous(o.adopt_result)
    discard_result = asynchronous(o.discard_result)
    get_policy = asynchronous(o.get_policy)
    set_policy = asynchronous(o.set_policy)
    sweep = asynchronous(o.sweep)
    register_session = asynchronous(o.register_session)
    heartbeat_session = asynchronous(o.heartbeat_session)
    end_session = asynchronous(o.end_session)
    list_sessions = asynchronous(o.list_sessions)
    list_agents = asynchronous(o.list_agents)
    get_session_memory = asynchronous(o.get_session_memory)
    read_events = asynchronous(o.read_events)
    create_key = asynchronous(o.create_key)
    list_keys = asynchronous(o.list_keys)
    rotate_key = asynchronous(o.rotate_key)
    revoke_key = asynchronous(o.revoke_key)
    list_tenants = asynchronous(o.list_tenants)
    get_tenant = asynchronous(o.get_tenant)
    set_tenant = asynchronous(o.set_tenant)

    async def watch(
        self,
        *,
        after: str | None = None,
        timeout_seconds: float | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> AsyncIterator[FeedEvent]:
        """Events as they come, from a cursor or from now on; ends when none has come for `timeout_seconds`."""
        self._link.check_open()
        ear = Ear()
        events = follow(self._link, tenant_id, project_id, after, timeout_seconds, ear)
        async with aclosing(awaited(events, ear.stop)) as coming:
            async for event in coming:
                yield event

    async def close(self) -> None:
        """Ends the connection; calling it again is fine."""
        await self._link.close_async()

    async def __aenter__(self) -> AsyncRemoteCoordinator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
