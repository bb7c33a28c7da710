"""The blocks in which a task is worked on: `with fleet.next_task() as work`, and `async with`.

The block claims the task on entry, and ends the claim on exit.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from genlock.errors import GenlockError
from genlock.worker.grant import Grant, Wanted, granted
from genlock.worker.keeper import Keeper
from genlock.worker.kept_claim import ClaimLost, KeptClaim, Loss
from genlock.worker.script import Call, Script, run, run_async
from genlock.worker.work import AsyncWork, Work

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task


class TaskBlock:
    """Claims a task on entry, or raises NotGranted; leaves nothing claimed on exit."""

    def __init__(self, fleet: Any, keeper: Keeper, wanted: Wanted) -> None:
        self._fleet = fleet
        self._keeper = keeper
        self._wanted = wanted
        self._work: Work | None = None

    def __enter__(self) -> Work:
        grant = run(self._fleet, granted(self._wanted))
        try:
            kept = _keep(self._keeper, grant)
        except BaseException:  # otherwise nothing would renew or release the claim
            _give_back(self._fleet, grant)
            raise
        self._work = Work(self._fleet, self._keeper, kept, grant)
        return self._work

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        work, self._work = self._work, None
        if work is not None:
            run(self._fleet, work._leave(error))


class AsyncTaskBlock:
    """The same in an event loop. A lost claim cancels the block."""

    def __init__(self, fleet: Any, keeper: Keeper, wanted: Wanted) -> None:
        self._fleet = fleet
        self._keeper = keeper
        self._wanted = wanted
        self._work: AsyncWork | None = None
        self._body: Task[Any] | None = None
        self._cancelled = False

    async def __aenter__(self) -> AsyncWork:
        grant = await run_async(self._fleet, granted(self._wanted))
        loop, self._body, self._cancelled = (
            asyncio.get_running_loop(),
            asyncio.current_task(),
            False,
        )
        try:
            kept = _keep(self._keeper, grant, lambda kept: self._lost(loop))
        except BaseException:
            await run_async(self._fleet, given_back(grant))
            raise
        self._work = AsyncWork(self._fleet, self._keeper, kept, grant)
        return self._work

    def _lost(self, loop: AbstractEventLoop) -> None:
        """Cancels the block. Called in a thread of the keeper."""
        with suppress(RuntimeError):  # the loop has ended, and so has the block
            loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._body is not None and self._work is not None and not self._work.finished:
            self._cancelled = True
            self._body.cancel("the claim is lost")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        work, body = self._work, self._body
        self._work = self._body = None
        if work is None:
            return
        ours = self._cancelled and body is not None and body.uncancel() == 0
        if ours and not isinstance(error, asyncio.CancelledError):
            # The block ended by itself in the same iteration of the loop; the cancel request is
            # still pending.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        await run_async(self._fleet, work._leave(error))
        if ours and (error is None or isinstance(error, asyncio.CancelledError)):
            reason = work._kept.reason or Loss.OUTAGE
            raise ClaimLost(work.id, work.generation, reason) from error


def _keep(keeper: Keeper, grant: Grant, on_lost: Any = None) -> KeptClaim:
    return keeper.add(
        grant.claim,
        asked=grant.sent,
        lease_seconds=grant.lease_seconds,
        on_lost=on_lost,
        known=True,
    )


def _give_back(fleet: Any, grant: Grant) -> None:
    """Releases the claim if possible. Errors are ignored, because an exception is being raised
    already."""
    thread = threading.Thread(target=lambda: run(fleet, given_back(grant)), daemon=True)
    with suppress(RuntimeError):
        thread.start()
        thread.join(1.0)


def given_back(grant: Grant) -> Script[None]:
    """Releases a claim that will not be worked on."""
    with suppress(GenlockError):
        yield Call(
            "release_claim",
            {
                "task_id": grant.claim.task_id,
                "expected_generation": grant.claim.generation,
                "session_id": grant.claim.session_id,
            },
        )
