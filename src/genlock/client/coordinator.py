"""The remote client as plain methods and as coroutines. Its operations are those of the table
(`wire.operations`); `connect` gives it the static type of the coordinator it stands for.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import Any, Final, NoReturn

from genlock.client.call import (
    Script,
    ask,
    ask_next,
    asking,
    asynchronous,
    synchronous,
)
from genlock.client.events import follow
from genlock.client.transport import StreamHandle, Transport
from genlock.core.model import Identity, Process
from genlock.core.results import FeedEvent, PlanResult, SessionInfo
from genlock.errors import BadArgument, NotAllowed
from genlock.threads import awaited
from genlock.wire import operations as c
from genlock.worker.fleet import AsyncWorkerMethods, FleetMethods, WorkerMethods

# Every operation of the table, as a script. Two of them also do something in the client.


def import_plan(
    link: Transport,
    *,
    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]],
    prune: bool = False,
    progress: Callable[[int, int], None] | None = None,
    tenant_id: str | None = None,
    project_id: str | None = None,
) -> Script[PlanResult]:
    """Import a plan: a mapping, YAML text, or files. Importing again is a diff; `progress` is
    called when all is written."""
    if progress is not None and not callable(progress):
        raise BadArgument(
            "progress is a function of two numbers: how many of how many tasks are written"
        )
    result = yield from ask(
        link, c.ImportPlan(source=source, prune=prune, tenant_id=tenant_id, project_id=project_id)
    )
    if progress is not None:
        written = len(result.added) + len(result.changed) + len(result.cancelled)
        progress(written, written)
    return result


def register_session(
    link: Transport,
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
    """Say that a session begins, and which process it is: `pid` on this machine, or a `process`
    identity from elsewhere."""
    if process is not None and not isinstance(process, Process):
        raise BadArgument(f"process is a Process, not {process!r}")
    if pid is not None:
        if type(pid) is not int or not 1 <= pid < 2**31:
            raise BadArgument(f"pid is a whole number from 1 to {2**31 - 1:,}, not {pid!r}")
        process = link.identify(pid)
        if process is None:
            raise BadArgument(f"process {pid} does not exist or cannot be seen from here")
    call = c.RegisterSession(
        session_id=session_id,
        user_id=user_id,
        agent_type=agent_type,
        process=process,
        metadata=metadata,
        tenant_id=tenant_id,
        project_id=project_id,
    )
    return (yield from ask(link, call))


SCRIPTS: Final[dict[str, Callable[..., Script[Any]]]] = {
    **{route.name: asking(route.call) for route in c.ROUTES},
    "claim_next": asking(c.ClaimNext, ask_next),
    "import_plan": import_plan,
    "register_session": register_session,
}


class Connection(FleetMethods):
    """The base of the synchronous and the asynchronous client."""

    def __init__(self, link: Transport) -> None:
        self._link = link

    @property
    def identity(self) -> Identity:
        """The default identity of calls."""
        return self._link.identity

    @property
    def engine(self) -> NoReturn:
        """Raises: a client has no engine."""
        raise NotAllowed(
            f"this goes through the service at {self._link.url}, which has the store; for the "
            "store itself, use its own URL"
        )

    def _plain_face(self) -> RemoteCoordinator:
        return RemoteCoordinator(self._link)

    def _async_face(self) -> AsyncRemoteCoordinator:
        face = AsyncRemoteCoordinator(self._link)
        face._origin, face._open_products = self._origin, self._open_products
        return face


def report_refused_connection(connection: object) -> None:
    """For interactive programs: if the service refuses the first connection, raises at once instead
    of retrying until the deadline."""
    if isinstance(connection, Connection):
        connection._link.waits_for_start = False


class RemoteCoordinator(WorkerMethods, Connection):
    """The coordinator of a service. Every method takes keywords only; `tenant_id` and `project_id`
    default to the connection's."""

    def watch(
        self,
        *,
        after: str | None = None,
        timeout_seconds: float | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> Iterator[FeedEvent]:
        """Yields events as they happen, from a cursor or from now on. Ends when none has happened
        for `timeout_seconds`."""
        self._link.check_open()
        return follow(self._link, tenant_id, project_id, after, timeout_seconds, StreamHandle())

    def close(self) -> None:
        """Closes the connection. Further calls have no effect."""
        self._end_keepers()
        self._link.close()

    def __enter__(self) -> RemoteCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncRemoteCoordinator(AsyncWorkerMethods, Connection):
    """The coordinator of a service, for an event loop."""

    async def watch(
        self,
        *,
        after: str | None = None,
        timeout_seconds: float | None = None,
        tenant_id: str | None = None,
        project_id: str | None = None,
    ) -> AsyncIterator[FeedEvent]:
        """Yields events as they happen, from a cursor or from now on. Ends when none has happened
        for `timeout_seconds`."""
        self._link.check_open()
        ear = StreamHandle()
        events = follow(self._link, tenant_id, project_id, after, timeout_seconds, ear)
        async with aclosing(awaited(events, ear.stop)) as coming:
            async for event in coming:
                yield event

    async def close(self) -> None:
        """Closes the connection. Further calls have no effect."""
        self._end_keepers()
        await self._link.close_async()

    async def __aenter__(self) -> AsyncRemoteCoordinator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


for _name, _script in SCRIPTS.items():
    setattr(RemoteCoordinator, _name, synchronous(_script))
    setattr(AsyncRemoteCoordinator, _name, asynchronous(_script))
