"""The worker's methods of a coordinator: `next_task`, `claim`, `worker` and `work`, in a thread and
in an event loop. A coordinator and the client of a service have the same ones."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from genlock.core.model import Identity
from genlock.errors import BadArgument, NotAllowed

if TYPE_CHECKING:
    from genlock.worker.block import AsyncTaskBlock, TaskBlock
    from genlock.worker.keeper import Keeper
    from genlock.worker.pool import AsyncWorker, Totals, Worker
    from genlock.worker.work import AsyncWork

KeeperKind: TypeAlias = Literal["thread", "process"]
Tracks: TypeAlias = str | Collection[str] | None


class Origin(NamedTuple):
    """How another process opens the same connection."""

    arguments: Mapping[str, Any]
    """The arguments of `genlock.connect`."""
    folder: str
    """The folder in which they were given: settings and relative paths depend on it."""


class _Context:
    """The agent and session of a connection in this process, and the keeper of their claims."""

    def __init__(self, identity: Identity) -> None:
        self.pid = os.getpid()
        name = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c") else "python"
        host = identity.host or os.uname().nodename
        self.session = (
            identity.session_id
            or os.environ.get("GENLOCK_SESSION")
            or f"{_plain(host)}-{self.pid}-{os.urandom(4).hex()}"
        )
        named = identity.agent_id or os.environ.get("GENLOCK_AGENT")
        self.is_named = bool(named)
        self.agent = named or f"{_plain(name)}-{self.pid}"
        self.keepers: dict[str, Keeper] = {}
        self.lock = threading.Lock()


def _plain(name: str) -> str:
    return "".join(each if each.isalnum() or each in "._-" else "_" for each in name)[:48] or "x"


class FleetMethods:
    """The base of the plain and the async methods."""

    _context: _Context | None = None
    _origin: Origin | None = None
    """How another process opens the same connection, if it can."""
    _open_products: Callable[[], Any] | None = None
    _product_access: Any = None

    @property
    def identity(self) -> Identity:
        """The default identity of the connection's calls."""
        raise NotImplementedError

    @property
    def product_access(self) -> Any:
        """The access to the area for work products: a `genlock.products.access.ProductAccess`."""
        if self._product_access is None:
            if self._open_products is None:
                raise NotAllowed("only what genlock.connect has opened knows an area for products")
            self._product_access = self._open_products()
        return self._product_access

    def _plain_face(self) -> Any:
        """The same coordinator as plain methods, for a keeper's threads."""
        raise NotImplementedError

    def _async_face(self) -> Any:
        """The same coordinator as coroutines, for an async handler."""
        raise NotImplementedError

    def _own_context(self) -> _Context:
        """The context of this process: a forked child has its own session and claims."""
        context = self._context
        if context is None or context.pid != os.getpid():
            context = self._context = _Context(self.identity)
        return context

    def _keeper(self, kind: str) -> Keeper:
        context = self._own_context()
        with context.lock:
            found = context.keepers.get(kind)
            if found is None:
                found = context.keepers[kind] = self._new_keeper(kind, context)
            return found

    def _new_keeper(self, kind: str, context: _Context) -> Keeper:
        if kind == "process":
            return self._new_process_keeper()
        if kind != "thread":
            raise BadArgument(f"keeper is 'thread' or 'process', not {kind!r}")
        from genlock.worker.keeper import Keeper

        return Keeper(self._plain_face())

    def _new_process_keeper(self) -> Keeper:
        from genlock.worker.process_keeper import ProcessKeeper

        if self._origin is None:
            raise BadArgument(
                "keeper='process' needs a connection that another process can open, too: a URL "
                "other than memory://, no clock, and no function as api_key"
            )
        return ProcessKeeper(self._plain_face(), self._origin, self.identity.process)

    def _wanted(
        self,
        task_id: str | None,
        lease_seconds: float | None,
        role: str,
        track: Tracks = None,
        wait: float = 0.0,
    ) -> Any:
        from genlock.worker.grant import Wanted

        context = self._own_context()
        return Wanted(
            context.session,
            context.agent,
            task_id,
            track,
            wait,
            lease_seconds,
            role,
            named=context.is_named,
        )

    def _end_keepers(self) -> None:
        """Closes the keepers. Called before the connection ends, because afterwards nothing can be
        renewed."""
        context, self._context = self._context, None
        if context is not None and context.pid == os.getpid():
            for keeper in context.keepers.values():
                keeper.close()


class WorkerMethods(FleetMethods):
    """For threads."""

    def next_task(
        self,
        *,
        track: Tracks = None,
        wait: float = 0.0,
        lease_seconds: float | None = None,
        role: str = "",
        keeper: KeeperKind = "thread",
    ) -> TaskBlock:
        """A block with the next ready task, waiting up to `wait` seconds for one. Its lease is kept
        until the block ends. Raises NothingReady if there is none.

        A keeper in a process of its own renews also while a C function holds the interpreter."""
        from genlock.worker.block import TaskBlock

        wanted = self._wanted(None, lease_seconds, role, track, wait)
        return TaskBlock(self, self._keeper(keeper), wanted)

    def claim(
        self,
        task_id: str,
        *,
        lease_seconds: float | None = None,
        role: str = "",
        keeper: KeeperKind = "thread",
    ) -> TaskBlock:
        """A block with this task. Raises NotGranted if the claim is denied."""
        from genlock.worker.block import TaskBlock

        wanted = self._wanted(task_id, lease_seconds, role)
        return TaskBlock(self, self._keeper(keeper), wanted)

    def worker(
        self, *, concurrency: int = 1, **options: Any
    ) -> Callable[[Callable[[Any], Any]], Worker]:
        """Decorates a handler; `handler.run()` then works until it is stopped. The options are
        those of `work`."""
        from genlock.worker.pool import Worker

        return lambda handler: Worker(self, handler, concurrency=concurrency, **options)

    def work(
        self, handler: Callable[[Any], Any], *, concurrency: int = 1, **options: Any
    ) -> Totals:
        """Calls `handler` with one task after the other, and submits what it returns, until it is
        stopped (SIGINT, SIGTERM, `stop`), or until nothing is left to do (`until_done`). An async
        handler runs in an event loop of its own."""
        from genlock.worker.pool import Worker

        return Worker(self, handler, concurrency=concurrency, **options).run()


class AsyncWorkerMethods(FleetMethods):
    """For event loops."""

    def next_task(
        self,
        *,
        track: Tracks = None,
        wait: float = 0.0,
        lease_seconds: float | None = None,
        role: str = "",
        keeper: KeeperKind = "thread",
    ) -> AsyncTaskBlock:
        """As `WorkerMethods.next_task`, for `async with`. A lost claim cancels the block."""
        from genlock.worker.block import AsyncTaskBlock

        wanted = self._wanted(None, lease_seconds, role, track, wait)
        return AsyncTaskBlock(self, self._keeper(keeper), wanted)

    def claim(
        self,
        task_id: str,
        *,
        lease_seconds: float | None = None,
        role: str = "",
        keeper: KeeperKind = "thread",
    ) -> AsyncTaskBlock:
        """As `WorkerMethods.claim`, for `async with`."""
        from genlock.worker.block import AsyncTaskBlock

        wanted = self._wanted(task_id, lease_seconds, role)
        return AsyncTaskBlock(self, self._keeper(keeper), wanted)

    def worker(
        self, *, concurrency: int = 1, **options: Any
    ) -> Callable[[Callable[[AsyncWork], Awaitable[Any]]], AsyncWorker]:
        """Decorates an async handler; `await handler.run()` then works until it is stopped."""
        from genlock.worker.pool import AsyncWorker

        return lambda handler: AsyncWorker(self, handler, concurrency=concurrency, **options)

    async def work(
        self,
        handler: Callable[[AsyncWork], Awaitable[Any]],
        *,
        concurrency: int = 1,
        **options: Any,
    ) -> Totals:
        """As `WorkerMethods.work`."""
        from genlock.worker.pool import AsyncWorker

        return await AsyncWorker(self, handler, concurrency=concurrency, **options).run()
