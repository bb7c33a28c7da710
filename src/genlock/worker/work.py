"""A claimed task for a worker: report, submit, release, and detect the loss of the claim.

    with fleet.next_task(track="A", wait=30) as work:
        work.progress(0.4, "tests pass")
        work.submit({"files": ["app.py"]})

Leaving the block without a submission releases the claim. An exception releases it with the error,
which the next holder finds in `work.previous`.
"""

from __future__ import annotations

import time
import weakref
from asyncio import to_thread
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from genlock.core.model import Product, Task
from genlock.core.reasons import ProgressReason, SubmitReason
from genlock.core.results import ProgressResult, ReleaseResult, SubmissionResult
from genlock.worker.grant import PATIENCE_SECONDS, Grant, Previous
from genlock.worker.keeper import Keeper
from genlock.worker.kept_claim import ClaimLost, KeptClaim, Loss
from genlock.worker.products_file import read_products
from genlock.worker.script import AWAY, Call, Script, persistent, run, run_async

if TYPE_CHECKING:
    import threading

LONGEST_NOTE: Final = 500
SUBMIT_PATIENCE_SECONDS: Final = 300.0
"""How long a submission is retried. A result is worth more patience than anything else: it counts
until another holder has taken over."""
_RELEASE_PATIENCE_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 1.0
"""Reports without a note are sent at most once in this time."""


class BaseWork:
    """The base of both kinds of work: the task, and whether the claim is still ours."""

    def __init__(self, fleet: Any, keeper: Keeper, kept: KeptClaim, grant: Grant) -> None:
        self._fleet = fleet
        self._keeper = keeper
        self._kept = kept
        self._unsent: dict[str, Any] = {}
        self._products: dict[str, Product] = {}
        self.products_file: Path | None = None
        """The file in which a command under the claim records its products."""
        self._reported = float("-inf")
        self.claim = grant.claim
        self.id = grant.task.id
        self.generation = grant.claim.generation
        self.task: Task = grant.task
        self.attempt = grant.attempt
        """How often the task was granted, this time included."""
        self.previous: Previous = grant.previous
        """The data that earlier generations left: notes, errors, refused results."""
        self.inputs_changed = grant.inputs_changed
        self.finished = False
        """Has the claim been ended, by a submission or a release?"""
        self.outcome = "released"
        """How it was ended: `accepted`, `refused` or `released`."""
        # A claim whose work object was dropped is not renewed for ever.
        weakref.finalize(self, kept.drop)

    @property
    def lost(self) -> threading.Event:
        """Set when the claim is lost."""
        return self._kept.lost

    @property
    def is_lost(self) -> bool:
        """Is the claim lost?"""
        return self._kept.is_lost

    def check(self) -> None:
        """Raises ClaimLost if the claim is lost. To be called between steps of long work."""
        self._kept.check()

    def _report(
        self,
        fraction: float | None,
        note: str,
        cost: float | Mapping[str, float] | None,
        worktree_path: str | None,
    ) -> Script[None]:
        """Sends a report. If the coordinator is unavailable, the work continues, and the next
        report includes the unsent one."""
        self.check()
        figures = {
            "fraction": fraction,
            "cost": {"usd": cost} if _is_number(cost) else cost,
            "worktree_path": worktree_path,
        }
        self._unsent |= {name: value for name, value in figures.items() if value is not None}
        self._unsent |= {"note": _shortened(note)} if note else {}
        now = time.monotonic()
        if not note and now - self._reported < _REPORT_SECONDS:
            return
        self._reported = now
        yield from self._send_report()

    def _send_report(self) -> Script[None]:
        sent, self._unsent = self._unsent, {}
        if not sent:
            return
        try:
            answer: ProgressResult = yield Call("report_progress", {**self._fence(), **sent})
        except AWAY:
            self._unsent = sent | self._unsent
            return
        if not answer.success:
            outage = answer.reason is ProgressReason.ALREADY_EXPIRED
            self._keeper.lose(self._kept, Loss.OUTAGE if outage else Loss.TAKEN)
            self.check()

    def _submit(self, result: Any, ref: str) -> Script[SubmissionResult]:
        """Submits the result, even if the claim seems lost: the coordinator decides whether it
        counts, and keeps a result that it refuses."""
        with self._keeper.ending(self._kept):
            answer: SubmissionResult = yield from persistent(
                "submit_result",
                SUBMIT_PATIENCE_SECONDS,
                **self._fence(),
                result_data=result,
                work_product_ref=ref,
                **self._manifest(),
            )
            self.outcome = "accepted" if answer.accepted else "refused"
            if answer.accepted or answer.reason is not SubmitReason.CHILDREN_UNFINISHED:
                self._finish()
        return answer

    @property
    def products(self) -> tuple[Product, ...]:
        """The products put so far, by path: `submit` submits them with the result."""
        return tuple(self._products[path] for path in sorted(self._products))

    def add_product(self, product: Product) -> None:
        """Adds a draft of the claim's generation that another program has put. It belongs to the
        result."""
        self._products[product.path] = product

    def _manifest(self) -> dict[str, Any]:
        for product in read_products(self.products_file) if self.products_file else ():
            self.add_product(product)
        return {"products": [asdict(each) for each in self.products]} if self._products else {}

    def _access(self) -> Any:
        return self._fleet.product_access

    def _place(self) -> tuple[str, str]:
        return self.claim.tenant_id, self.claim.project_id

    def _release(self, reason: str, note: str, patience: float) -> Script[ReleaseResult]:
        with self._keeper.ending(self._kept):
            answer: ReleaseResult = yield from persistent(
                "release_claim",
                patience,
                task_id=self.id,
                expected_generation=self.generation,
                session_id=self.claim.session_id,
                reason=reason,
                note=_shortened(note),
                operation_id=f"release-{self.claim.id}",
            )
            self._finish()
        return answer

    def _leave(self, error: BaseException | None) -> Script[None]:
        """Ends the claim at the end of the block. Never hides the block's own exception."""
        if self.finished:
            return
        try:
            if self._kept.reason is not Loss.TAKEN:
                yield from self._send_report()
                failed = isinstance(error, Exception) and not isinstance(error, ClaimLost)
                reason, note = ("ERROR", _told(error)) if failed else ("VOLUNTARY", "")
                yield from self._release(reason, note, _RELEASE_PATIENCE_SECONDS)
        except (*AWAY, ClaimLost):
            pass  # the lease expires by itself
        finally:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._keeper.remove(self._kept)

    def _fence(self) -> dict[str, Any]:
        return {
            "task_id": self.id,
            "generation": self.generation,
            "session_id": self.claim.session_id,
            "agent_id": self.claim.agent_id,
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} generation {self.generation}>"


class Work(BaseWork):
    """A claimed task, in a thread."""

    def progress(
        self,
        fraction: float | None = None,
        note: str = "",
        *,
        cost: float | Mapping[str, float] | None = None,
        worktree_path: str | None = None,
    ) -> None:
        """Report how far the work is, from 0 to 1, and what operators and successors should know.
        `cost` counts from the beginning of this generation: dollars, or {unit: amount}.
        `worktree_path` is where it works, if that is a place of its own. Raises ClaimLost if the
        claim is lost."""
        run(self._fleet, self._report(fraction, note, cost, worktree_path))

    def put(
        self, path: str | PathLike[str], *, name: str | None = None, data: bytes | None = None
    ) -> Product:
        """Put a file among the products of this task: a draft, until the result is accepted. Its
        name is the path below the working folder, unless you give one. `data` is the content, if
        there is no file. Raises ClaimLost if the claim is lost."""
        self.check()
        product: Product = self._access().put(self._fleet, self.claim, path, name, data)
        self.add_product(product)
        return product

    def get(self, path: str) -> bytes:
        """An asset: what was last promoted at this path."""
        found: bytes = self._access().get(self._fleet, self._place(), path)
        return found

    def submit(self, result: Any = None, *, ref: str = "") -> SubmissionResult:
        """Hand in the result, with all that was put. During an outage this is repeated for up to
        five minutes."""
        answer = run(self._fleet, self._submit(result, ref))
        if answer.accepted and self._products:
            self._access().promote(self._fleet, self._place(), self.id)
        return answer

    def release(self, note: str = "", *, error: bool = False) -> ReleaseResult:
        """Give the task back, with a note for the next holder. `error` counts as a failure."""
        reason = "ERROR" if error else "VOLUNTARY"
        return run(self._fleet, self._release(reason, note, PATIENCE_SECONDS))


class AsyncWork(BaseWork):
    """A claimed task, in an event loop. When the claim is lost, the block is cancelled at its next
    await and ends with ClaimLost."""

    async def progress(
        self,
        fraction: float | None = None,
        note: str = "",
        *,
        cost: float | Mapping[str, float] | None = None,
        worktree_path: str | None = None,
    ) -> None:
        """As `Work.progress`."""
        await run_async(self._fleet, self._report(fraction, note, cost, worktree_path))

    async def put(
        self, path: str | PathLike[str], *, name: str | None = None, data: bytes | None = None
    ) -> Product:
        """As `Work.put`."""
        self.check()
        access, fleet = self._access(), self._fleet._plain_face()
        product: Product = await to_thread(access.put, fleet, self.claim, path, name, data)
        self.add_product(product)
        return product

    async def get(self, path: str) -> bytes:
        """As `Work.get`."""
        access, fleet = self._access(), self._fleet._plain_face()
        found: bytes = await to_thread(access.get, fleet, self._place(), path)
        return found

    async def submit(self, result: Any = None, *, ref: str = "") -> SubmissionResult:
        """As `Work.submit`."""
        answer = await run_async(self._fleet, self._submit(result, ref))
        if answer.accepted and self._products:
            fleet = self._fleet._plain_face()
            await to_thread(self._access().promote, fleet, self._place(), self.id)
        return answer

    async def release(self, note: str = "", *, error: bool = False) -> ReleaseResult:
        """As `Work.release`."""
        reason = "ERROR" if error else "VOLUNTARY"
        return await run_async(self._fleet, self._release(reason, note, PATIENCE_SECONDS))


def _is_number(cost: object) -> bool:
    return isinstance(cost, (int, float)) and not isinstance(cost, bool)


def _told(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


def _shortened(note: str) -> str:
    return note if len(note) <= LONGEST_NOTE else note[: LONGEST_NOTE - 1] + "…"
