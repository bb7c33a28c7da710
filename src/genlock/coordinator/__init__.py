"""The coordinator offers the operations by name, as plain methods and as coroutines."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from threading import Event, Lock
from typing import TypeVar

from msgspec.structs import replace

from genlock.coordinator.abandoned import release_when_dropped, wait_for_releases
from genlock.coordinator.base import Identity
from genlock.coordinator.bulk_ops import BulkActs
from genlock.coordinator.drivers import asynchronous, synchronous
from genlock.coordinator.key_ops import Access
from genlock.coordinator.operator_ops import Operating
from genlock.coordinator.plan_ops import Plans
from genlock.coordinator.promotion_ops import Promoting
from genlock.coordinator.read_ops import ReadOps, watch
from genlock.coordinator.review_ops import Reviewing
from genlock.coordinator.session_ops import Sessions
from genlock.coordinator.spawn_ops import Spawning
from genlock.coordinator.task_ops import Planning
from genlock.coordinator.worker_ops import Working
from genlock.core.results import FeedEvent
from genlock.engine.engine import Engine
from genlock.engine.processes import identify, own
from genlock.errors import Closed
from genlock.reads.reader import Reader
from genlock.threads import awaited
from genlock.worker.fleet import AsyncWorkerMethods, FleetMethods, WorkerMethods


class Operations(
    Working,
    Spawning,
    Planning,
    Plans,
    ReadOps,
    Operating,
    BulkActs,
    Reviewing,
    Promoting,
    Sessions,
    Access,
):
    """Every operation, as a script."""


class Connection(FleetMethods):
    """The base of both coordinators: an engine that belongs to this process, reopened after a
    fork."""

    _speaks_through: Connection | None = None

    def __init__(self, open_engine: Callable[[], Engine], identity: Identity) -> None:
        self._open_engine = open_engine
        self._identity = identity
        self._closed = False
        self._opening: dict[int, Lock] = {}
        """One lock for each process id: a lock that a thread held during the fork stays locked in
        the child for ever."""
        self._live = Operations(open_engine(), identity)
        self._released = release_when_dropped(self, self._live.engine)
        _open_connections.add(self)

    def _operations(self) -> Operations:
        if self._live.engine.pid != own.pid:
            # A fork does not copy threads, and locks and connections are unusable: the engine that
            # was opened before the fork is left to the parent.
            with self._opening.setdefault(own.pid, Lock()):
                if self._live.engine.pid != own.pid:
                    self._open_anew()
        return self._live

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the coordinator is closed")

    def _open_anew(self) -> None:
        self._check_open()
        if self._identity.own_process:
            self._identity = replace(self._identity, process=identify())
        self._live = Operations(self._open_engine(), self._identity)
        self._released.detach()
        self._released = release_when_dropped(self, self._live.engine)
        if self._closed:
            # `close` was called meanwhile, when there was no engine to close yet.
            self._live.engine.close()

    def _plain_face(self) -> Coordinator:
        return shared(self, Coordinator, self.identity)

    def _async_face(self) -> AsyncCoordinator:
        return shared(self, AsyncCoordinator, self.identity)

    def _close(self) -> None:
        self._end_keepers()
        self._closed = True
        self._released.detach()
        if self._live.engine.pid == os.getpid():
            self._live.engine.close()

    @property
    def identity(self) -> Identity:
        """The default identity of calls on this connection."""
        return self._identity

    @property
    def reader(self) -> Reader:
        """The reader for `genlock.reads`: for edges that show more than an operation returns."""
        return self._operations().reader

    @property
    def engine(self) -> Engine:
        """The engine below, for code that builds on it."""
        return self._operations().engine


_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for connection in list(_open_connections):
        connection._close()
    wait_for_releases()


class Coordinator(WorkerMethods, Connection):
    """A fleet's coordinator. Every method takes keywords only; `tenant_id` and `project_id` default
    to the connection's."""

    claim_task = synchronous(Operations.claim_task)
    renew_lease = synchronous(Operations.renew_lease)
    report_progress = synchronous(Operations.report_progress)
    release_claim = synchronous(Operations.release_claim)
    submit_result = synchronous(Operations.submit_result)
    claim_next = synchronous(Operations.claim_next)
    batch_claim = synchronous(Operations.batch_claim)
    batch_renew = synchronous(Operations.batch_renew)
    batch_submit = synchronous(Operations.batch_submit)
    spawn_subtasks = synchronous(Operations.spawn_subtasks)
    list_tasks = synchronous(Operations.list_tasks)
    get_overview = synchronous(Operations.get_overview)
    get_activity = synchronous(Operations.get_activity)
    search_events = synchronous(Operations.search_events)
    get_task_state = synchronous(Operations.get_task_state)
    check_push = synchronous(Operations.check_push)
    batch_get_states = synchronous(Operations.batch_get_states)
    get_claim_history = synchronous(Operations.get_claim_history)
    get_lineage = synchronous(Operations.get_lineage)
    get_active_claims_for_session = synchronous(Operations.get_active_claims_for_session)
    list_expired_claims = synchronous(Operations.list_expired_claims)
    ready = synchronous(Operations.ready)
    preview_next = synchronous(Operations.preview_next)
    blocked = synchronous(Operations.blocked)
    explain = synchronous(Operations.explain)
    list_refused_results = synchronous(Operations.list_refused_results)
    read_result = synchronous(Operations.read_result)
    track_progress = synchronous(Operations.track_progress)
    add_tasks = synchronous(Operations.add_tasks)
    edit_task = synchronous(Operations.edit_task)
    import_plan = synchronous(Operations.import_plan)
    diff_plan = synchronous(Operations.diff_plan)
    check_plan = synchronous(Operations.check_plan)
    get_plan = synchronous(Operations.get_plan)
    get_graph = synchronous(Operations.get_graph)
    get_graph_layout = synchronous(Operations.get_graph_layout)
    next_id = synchronous(Operations.next_id)
    reset_task = synchronous(Operations.reset_task)
    preview_reset = synchronous(Operations.preview_reset)
    cancel_task = synchronous(Operations.cancel_task)
    assign_task = synchronous(Operations.assign_task)
    force_release = synchronous(Operations.force_release)
    hold_task = synchronous(Operations.hold_task)
    reopen_task = synchronous(Operations.reopen_task)
    batch_act = synchronous(Operations.batch_act)
    adopt_result = synchronous(Operations.adopt_result)
    discard_result = synchronous(Operations.discard_result)
    list_reviews = synchronous(Operations.list_reviews)
    get_review = synchronous(Operations.get_review)
    approve_review = synchronous(Operations.approve_review)
    reject_review = synchronous(Operations.reject_review)
    report_evaluation = synchronous(Operations.report_evaluation)
    list_promotions = synchronous(Operations.list_promotions)
    settle_promotion = synchronous(Operations.settle_promotion)
    get_policy = synchronous(Operations.get_policy)
    set_policy = synchronous(Operations.set_policy)
    sweep = synchronous(Operations.sweep)
    register_session = synchronous(Operations.register_session)
    heartbeat_session = synchronous(Operations.heartbeat_session)
    end_session = synchronous(Operations.end_session)
    list_sessions = synchronous(Operations.list_sessions)
    get_session = synchronous(Operations.get_session)
    list_agents = synchronous(Operations.list_agents)
    get_session_memory = synchronous(Operations.get_session_memory)
    read_events = synchronous(Operations.read_events)
    create_key = synchronous(Operations.create_key)
    list_keys = synchronous(Operations.list_keys)
    rotate_key = synchronous(Operations.rotate_key)
    revoke_key = synchronous(Operations.revoke_key)
    list_tenants = synchronous(Operations.list_tenants)
    get_tenant = synchronous(Operations.get_tenant)
    set_tenant = synchronous(Operations.set_tenant)

    def watch(
        self,
        *,
        after: str | None = None,
        timeout_seconds: float | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Iterator[FeedEvent]:
        """Yields events as they happen, from a cursor or from now on. Ends when none has come for
        `timeout_seconds`."""
        operations = self._operations()
        return self._watched(
            watch(operations, operations.place(tenant_id, project_id), after, timeout_seconds)
        )

    def _watched(self, events: Iterator[FeedEvent]) -> Iterator[FeedEvent]:
        """Yields the events, and keeps the coordinator alive until the watcher has left."""
        yield from events

    def close(self) -> None:
        """Finishes the calls in progress and closes; may be called again. A coordinator that is
        dropped without a close is closed in the background."""
        self._close()

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncCoordinator(AsyncWorkerMethods, Connection):
    """A fleet's coordinator in an event loop: the same operations, outcomes and errors, awaited."""

    claim_task = asynchronous(Operations.claim_task)
    renew_lease = asynchronous(Operations.renew_lease)
    report_progress = asynchronous(Operations.report_progress)
    release_claim = asynchronous(Operations.release_claim)
    submit_result = asynchronous(Operations.submit_result)
    claim_next = asynchronous(Operations.claim_next)
    batch_claim = asynchronous(Operations.batch_claim)
    batch_renew = asynchronous(Operations.batch_renew)
    batch_submit = asynchronous(Operations.batch_submit)
    spawn_subtasks = asynchronous(Operations.spawn_subtasks)
    list_tasks = asynchronous(Operations.list_tasks)
    get_overview = asynchronous(Operations.get_overview)
    get_activity = asynchronous(Operations.get_activity)
    search_events = asynchronous(Operations.search_events)
    get_task_state = asynchronous(Operations.get_task_state)
    check_push = asynchronous(Operations.check_push)
    batch_get_states = asynchronous(Operations.batch_get_states)
    get_claim_history = asynchronous(Operations.get_claim_history)
    get_lineage = asynchronous(Operations.get_lineage)
    get_active_claims_for_session = asynchronous(Operations.get_active_claims_for_session)
    list_expired_claims = asynchronous(Operations.list_expired_claims)
    ready = asynchronous(Operations.ready)
    preview_next = asynchronous(Operations.preview_next)
    blocked = asynchronous(Operations.blocked)
    explain = asynchronous(Operations.explain)
    list_refused_results = asynchronous(Operations.list_refused_results)
    read_result = asynchronous(Operations.read_result)
    track_progress = asynchronous(Operations.track_progress)
    add_tasks = asynchronous(Operations.add_tasks)
    edit_task = asynchronous(Operations.edit_task)
    import_plan = asynchronous(Operations.import_plan)
    diff_plan = asynchronous(Operations.diff_plan)
    check_plan = asynchronous(Operations.check_plan)
    get_plan = asynchronous(Operations.get_plan)
    get_graph = asynchronous(Operations.get_graph)
    get_graph_layout = asynchronous(Operations.get_graph_layout)
    next_id = asynchronous(Operations.next_id)
    reset_task = asynchronous(Operations.reset_task)
    preview_reset = asynchronous(Operations.preview_reset)
    cancel_task = asynchronous(Operations.cancel_task)
    assign_task = asynchronous(Operations.assign_task)
    force_release = asynchronous(Operations.force_release)
    hold_task = asynchronous(Operations.hold_task)
    reopen_task = asynchronous(Operations.reopen_task)
    batch_act = asynchronous(Operations.batch_act)
    adopt_result = asynchronous(Operations.adopt_result)
    discard_result = asynchronous(Operations.discard_result)
    list_reviews = asynchronous(Operations.list_reviews)
    get_review = asynchronous(Operations.get_review)
    approve_review = asynchronous(Operations.approve_review)
    reject_review = asynchronous(Operations.reject_review)
    report_evaluation = asynchronous(Operations.report_evaluation)
    list_promotions = asynchronous(Operations.list_promotions)
    settle_promotion = asynchronous(Operations.settle_promotion)
    get_policy = asynchronous(Operations.get_policy)
    set_policy = asynchronous(Operations.set_policy)
    sweep = asynchronous(Operations.sweep)
    register_session = asynchronous(Operations.register_session)
    heartbeat_session = asynchronous(Operations.heartbeat_session)
    end_session = asynchronous(Operations.end_session)
    list_sessions = asynchronous(Operations.list_sessions)
    get_session = asynchronous(Operations.get_session)
    list_agents = asynchronous(Operations.list_agents)
    get_session_memory = asynchronous(Operations.get_session_memory)
    read_events = asynchronous(Operations.read_events)
    create_key = asynchronous(Operations.create_key)
    list_keys = asynchronous(Operations.list_keys)
    rotate_key = asynchronous(Operations.rotate_key)
    revoke_key = asynchronous(Operations.revoke_key)
    list_tenants = asynchronous(Operations.list_tenants)
    get_tenant = asynchronous(Operations.get_tenant)
    set_tenant = asynchronous(Operations.set_tenant)

    async def watch(
        self,
        *,
        after: str | None = None,
        timeout_seconds: float | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> AsyncIterator[FeedEvent]:
        """Yields events as they happen, from a cursor or from now on. Ends when none has come for
        `timeout_seconds`."""
        operations, left = self._operations(), Event()
        events = watch(
            operations, operations.place(tenant_id, project_id), after, timeout_seconds, left.is_set
        )
        async with aclosing(awaited(events, left.set)) as coming:
            async for event in coming:
                yield event

    async def close(self) -> None:
        """Finishes the calls in progress and closes; may be called again. A coordinator that is
        dropped without a close is closed in the background."""
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self._close)

    async def __aenter__(self) -> AsyncCoordinator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


F = TypeVar("F", bound=Connection)


def speaking_for(identity: Identity, coordinator: AsyncCoordinator) -> AsyncCoordinator:
    """Returns a coordinator on the same engine with another identity."""
    return shared(coordinator, AsyncCoordinator, identity)


def shared(connection: Connection, face: type[F], identity: Identity) -> F:
    """Returns another face of a connection, on the same engine. Only the first need be closed."""
    other = object.__new__(face)
    own = connection._operations()
    other._open_engine, other._identity, other._closed, other._opening = (
        connection._open_engine,
        identity,
        False,
        {},
    )
    other._live = Operations(own.engine, identity, own.places)
    other._origin = connection._origin
    other._open_products = connection._open_products
    # The engine lives as long as any face refers to it.
    other._released, other._speaks_through = connection._released, connection
    return other
