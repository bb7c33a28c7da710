"""The connection of one client: performs calls on a coordinator and renews the claims that it was
granted.

The coordinator is opened with the first call, so a client that only lists the tools pays for
nothing else, and a missing store becomes an answer that a model can read. Claims are renewed until
they are submitted, released or lost, and released when the connection closes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from genlock.core.durations import read_seconds
from genlock.core.reasons import SubmitReason
from genlock.core.results import (
    ClaimResult,
    ReleaseResult,
    SpawnResult,
    SubmissionResult,
    TaskClaim,
)
from genlock.errors import GenlockError
from genlock.mcp import scripts
from genlock.mcp.answer import LONGEST, Answer, Caller
from genlock.wire import operations as op
from genlock.worker import schedule
from genlock.worker.keeper import Keeper
from genlock.worker.kept_claim import KeptClaim

if TYPE_CHECKING:
    from genlock.coordinator import Coordinator
    from genlock.mcp.protocol import Plan, Task
    from genlock.mcp.tools import Tool

OpenFleet = Callable[[], "Coordinator"]

_SLICE_SECONDS: Final = 5.0
"""A wait for a task is split into slices of this length, so that a cancelled request is detected in
between."""
_STILL_HELD: Final = frozenset({SubmitReason.FUTURE_GENERATION, SubmitReason.CHILDREN_UNFINISHED})
"""A submission refused for one of these reasons leaves the claim unchanged."""


class Abandoned(Exception):
    """The client no longer waits for the answer."""


class Prepared(NamedTuple):
    """An answer, and how to undo it if the client no longer waits for it: release the claim that
    was granted."""

    answer: Answer
    give_back: Callable[[], None]


class Connection:
    """The claims and calls of one client. Calls come from any number of threads."""

    def __init__(self, open_fleet: OpenFleet) -> None:
        self._open_fleet = open_fleet
        self._opening = threading.Lock()
        self._fleet: Coordinator | None = None
        self._keeper: Keeper | None = None
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int], KeptClaim] = {}
        self._agents: dict[tuple[str, int], str] = {}
        self._losses: list[str] = []
        self._closed = False

    def answer(
        self, asked: Tool | Plan | Task, caller: Caller, cancelled: threading.Event
    ) -> Prepared:
        """Returns the answer of a tool or resource to this caller. Raises Abandoned if it was
        cancelled while it waited for a task."""
        try:
            fleet, keeper = self._opened()
        except GenlockError as error:
            return Prepared(scripts.error_answer(error), lambda: None)
        performer = _Performer(self, fleet, keeper, cancelled)
        caller = replace(caller, agents=dict(self._agents))
        answer = scripts.run(asked, caller, performer.perform)
        return Prepared(self._with_losses(answer), performer.give_back)

    def close(self, within: float) -> bool:
        """Releases all claims, within at most `within` seconds. Returns True if all were
        released."""
        with self._lock:
            self._closed = True
        return self._keeper is None or self._keeper.close(release=True, within=within)

    def _opened(self) -> tuple[Coordinator, Keeper]:
        with self._opening:
            if self._fleet is None or self._keeper is None:
                self._fleet = self._open_fleet()
                self._keeper = Keeper(self._fleet)
            return self._fleet, self._keeper

    def keep(self, keeper: Keeper, claim: TaskClaim, asked: float) -> bool:
        """Renews a claim from now on. Returns False if the connection is closed and cannot renew
        it."""
        with self._lock:
            if self._closed:
                return False
        kept = keeper.add(claim, asked=asked, on_lost=self._lost)
        with self._lock:
            self._kept[claim.task_id, claim.generation] = kept
            self._agents[claim.task_id, claim.generation] = claim.agent_id
        return True

    def kept(self, task_id: str, generation: int) -> KeptClaim | None:
        """Returns the claim of this generation, if it is being renewed."""
        with self._lock:
            return self._kept.get((task_id, generation))

    def drop(self, keeper: Keeper, task_id: str, generation: int) -> None:
        """Stops renewing a claim that has ended."""
        with self._lock:
            kept = self._kept.pop((task_id, generation), None)
        if kept is not None:
            keeper.remove(kept)

    def _lost(self, kept: KeptClaim) -> None:
        with self._lock:
            if self._kept.pop((kept.task_id, kept.generation), None) is not None:
                self._losses.append(
                    f"{kept.task_id} at generation {kept.generation} ({kept.reason})"
                )

    def _with_losses(self, answer: Answer) -> Answer:
        """Adds to an answer the claims lost since the last one: a model that does not check a claim
        would not learn of its loss otherwise."""
        with self._lock:
            losses, self._losses = self._losses, []
        if not losses:
            return answer
        told = f"\nLOST: your claim of {', '.join(losses[:5])}. Stop working on it."
        return replace(answer, text=answer.text[: LONGEST - len(told)] + told)


class _Performer:
    """Performs the calls of one request."""

    def __init__(
        self, connection: Connection, fleet: Coordinator, keeper: Keeper, cancelled: threading.Event
    ) -> None:
        self._connection, self._fleet, self._keeper = connection, fleet, keeper
        self._cancelled = cancelled
        self._granted: TaskClaim | None = None

    def perform(self, call: op.Call[Any]) -> Any:
        """Performs a call on the coordinator, and applies its answer to the claims that are being
        renewed."""
        match call:
            case op.ClaimNext():
                return self._claim_next(call)
            case op.ClaimTask():
                return self._claim(call)
            case op.SubmitResult() | op.SpawnSubtasks():
                return self._end(call, call.task_id, call.generation)
            case op.ReleaseClaim():
                return self._end(call, call.task_id, call.expected_generation)
            case op.RenewLease():
                return self._renew(call)
            case _:
                return self._ask(call)

    def give_back(self) -> None:
        """Releases a claim whose grant was never delivered."""
        claim, self._granted = self._granted, None
        if claim is not None:
            self._connection.drop(self._keeper, claim.task_id, claim.generation)
            self._fleet.release_claim(
                task_id=claim.task_id,
                expected_generation=claim.generation,
                session_id=claim.session_id,
            )

    def _ask(self, call: op.Call[Any]) -> Any:
        return getattr(self._fleet, op.BY_CALL[type(call)].name)(**scripts.keywords(call))

    def _claim(self, call: op.ClaimTask | op.ClaimNext) -> ClaimResult:
        asked = schedule.now()
        result: ClaimResult = self._ask(call)
        if result.claim is not None and not result.already_held:
            self._granted = result.claim
            if not self._connection.keep(self._keeper, result.claim, asked):
                self.give_back()
                raise Abandoned
        return result

    def _claim_next(self, call: op.ClaimNext) -> ClaimResult:
        """Waits for a task in slices. Each has a deadline of its own, so slow answers do not add
        up."""
        until = schedule.now() + read_seconds("wait_seconds", call.wait_seconds, 0, math.inf)
        while True:
            left = max(0.0, until - schedule.now())
            result = self._claim(replace(call, wait_seconds=min(left, _SLICE_SECONDS)))
            if result.claim is not None or left <= _SLICE_SECONDS:
                return result
            if self._cancelled.is_set():
                raise Abandoned

    def _renew(self, call: op.RenewLease) -> Any:
        """Renews a claim. A claim granted through an earlier server of the same session is renewed
        from now on, because its holder has just shown that it is working."""
        asked = schedule.now()
        result = self._ask(call)
        if result.success and self._connection.kept(call.task_id, result.generation) is None:
            claim = self._fleet.get_task_state(task_id=call.task_id).claim
            if claim is not None and claim.generation == result.generation:
                self._connection.keep(self._keeper, claim, asked)
        return result

    def _end(self, call: op.Call[Any], task_id: str, generation: int | None) -> Any:
        kept = None if generation is None else self._connection.kept(task_id, generation)
        if kept is None or generation is None:
            return self._ask(call)
        with self._keeper.ending(kept):
            result: SubmissionResult | SpawnResult | ReleaseResult = self._ask(call)
        if result.reason not in _STILL_HELD:
            self._connection.drop(self._keeper, task_id, generation)
        return result
