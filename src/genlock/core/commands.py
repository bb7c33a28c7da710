"""The commands: what can be asked of one record, in the imperative. Each names the record by its
key."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Raw, Struct

from genlock.core.agent_roles import AgentRoles
from genlock.core.key_roles import EVERYWHERE, Role
from genlock.core.keys import Key
from genlock.core.model import NO_DATA, NOBODY, Actor, Manifest, Process, Task
from genlock.core.policy import Order
from genlock.core.reasons import ReleaseReason, SpawnMode, Status

DEFAULT_LEASE_SECONDS = 300.0


class Caller(Struct, frozen=True, gc=False):
    """Who asks: the session and agent that fence, and the actor behind them."""

    session: str = ""
    agent: str = ""
    actor: Actor = NOBODY
    process: Process | None = None
    orphan_seconds: float | None = None
    """What a session that it registers is remembered with."""


NO_CALLER = Caller()


class Command(Struct, frozen=True, gc=False):
    """What all commands have."""

    key: Key
    by: Caller = NO_CALLER


class Content(Struct, frozen=True, gc=False):
    """A result as submitted: its canonical bytes, or the digest and name under which they lie among
    the payloads."""

    digest: str
    size: int
    data: Raw = NO_DATA
    payload: bool = False
    empty: bool = False
    payload_id: str = ""
    reference: str = ""
    """Where the work lies, in the author's words: a commit, a file, an address."""
    manifest: Manifest | None = None
    """Its products. The digest covers them."""


EMPTY_RESULTS = frozenset({b"{}", b"[]", b'""', b"null"})
"""Data that says nothing: it is not kept when it is refused."""


# Tasks: definition


class AddTask(Command, frozen=True):
    task: Task = Task(id="")
    backlog: bool = False
    announced: bool = False
    """Its parent has announced it, or was split into it. If the id belongs to a task of somebody
    else by now, the parent is told."""
    finished: Status | None = None
    """COMPLETED or CANCELLED: the work was ended elsewhere. If the task exists already and nobody
    has begun it, it is finished too."""
    content: Content = Content("", 0)
    """The result of a task that is added as completed."""


class AnnounceChildren(Command, frozen=True):
    """Of a parent: it waits for these children from now on. They are created after it, so that a
    kill in between leaves it blocked."""

    children: tuple[Task, ...] = ()
    backlog: tuple[str, ...] = ()
    """The ids of those that begin in the backlog."""


class EditTask(Command, frozen=True):
    changes: dict[str, Any] = {}
    operation: str = ""
    backlog: bool | None = None
    """Whether a plan has it in the backlog; None if the plan does not say."""


class ReorderTask(Command, frozen=True):
    order: Order = Order.TRACK


# Tasks: fenced acts of workers


class ClaimTask(Command, frozen=True):
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    operation: str = ""
    role: str = ""
    metadata: dict[str, Any] = {}
    next: bool = False
    """Of claim_next: a task that the session holds is not handed out to it again."""


class RenewLease(Command, frozen=True):
    generation: int = 0
    lease_seconds: float | None = None


class ReportProgress(Command, frozen=True):
    generation: int = 0
    fraction: float | None = None
    note: str = ""
    cost: dict[str, float] = {}
    """What this generation has cost up to now. Not what was added since the last report: a repeat
    then counts nothing twice."""
    worktree_path: str | None = None
    """Where this generation works; "" if its worktree is gone, None if that was not reported."""


class ReleaseClaim(Command, frozen=True):
    generation: int = 0
    reason: ReleaseReason = ReleaseReason.VOLUNTARY
    operation: str = ""
    note: str = ""
    """What the next holder should know."""
    stated: str = ""
    """The reason in the holder's own words, if they are not just the kind."""
    renewals: int | None = None
    """Only if the claim was renewed exactly so often: for grants that nobody was told of."""


class SubmitResult(Command, frozen=True):
    generation: int = 0
    content: Content = Content("", 0)
    operation: str = ""
    evaluations: dict[str, bool] = {}
    """Which evaluators have passed, by name."""


class SpawnSubtasks(Command, frozen=True):
    """With a generation: by the holder, fenced. Without: by a planner, of a task that nobody
    holds."""

    generation: int | None = 0
    children: tuple[Task, ...] = ()
    mode: SpawnMode = SpawnMode.PARALLEL
    keep: bool = False
    operation: str = ""
    arguments: str = ""
    """A digest of what was asked, whatever names the children were given that came without one."""


class AdoptResult(Command, frozen=True):
    """With a generation: by the holder, fenced. Without: by an operator, who takes the right first.

    A live claim is taken away only with `take_over`, here and in the acts of operators below."""

    refused: str = ""
    generation: int | None = None
    content: Content = Content("", 0)
    work_product_ref: str = ""
    from_generation: int = 0
    from_session: str = ""
    operation: str = ""
    take_over: bool = False


# Tasks: acts of operators


class ForceRelease(Command, frozen=True):
    operation: str = ""
    take_over: bool = False


class AssignTask(Command, frozen=True):
    agent: str = ""
    hours: float | None = None
    operation: str = ""
    take_over: bool = False


class ResetTask(Command, frozen=True):
    operation: str = ""
    if_completed: bool = False
    """Only if it is completed, as a cascade wants it: whoever has begun anew meanwhile is not
    disturbed."""
    take_over: bool = False


class CancelTask(Command, frozen=True):
    reason: str = ""
    operation: str = ""
    take_over: bool = False


class HoldTask(Command, frozen=True):
    reason: str = ""
    operation: str = ""


class ReopenTask(Command, frozen=True):
    operation: str = ""


SHORTEST_DIGEST = 12
"""So many characters of a digest name a result well enough."""


# Tasks: reviews. Each names the result that its caller has looked at.


class ApproveReview(Command, frozen=True):
    generation: int = 0
    digest: str = ""


class RejectReview(Command, frozen=True):
    generation: int = 0
    digest: str = ""
    feedback: str = ""


class ReportEvaluation(Command, frozen=True):
    generation: int = 0
    digest: str = ""
    evaluator: str = ""
    passed: bool = False
    note: str = ""


# Tasks: what time and others bring


class CheckDue(Command, frozen=True):
    """Writes what time or a vanished holder has already made true: expiry, hold, lapse of a
    reservation, stale mark."""


class ObserveTask(Command, frozen=True):
    """Look at the task's files again: another tool has changed them."""


class CheckRelated(Command, frozen=True):
    """Look at these other tasks again: something happened to them, at least up to the version
    beside each."""

    others: tuple[tuple[str, int], ...] = ()
    reset: bool = False
    """One of them was reset: that is noted even by who did not know it done, so that news still
    under way from before finds a changed record and is decided again."""


# Other records


class CountTasks(CheckRelated, frozen=True):
    """Of a feature: look at these of its tasks again. `reset` says nothing here."""


class KeepRefused(Command, frozen=True):
    task: str = ""
    generation: int = 0
    current_generation: int = 0
    reason: str = ""
    content: Content = Content("", 0)
    work_product_ref: str = ""
    claimed_at: datetime | None = None
    """When its session had claimed the task, if that is known."""


class MarkAdopted(Command, frozen=True):
    pass


class DiscardRefused(Command, frozen=True):
    pass


class RequestPromotion(Command, frozen=True):
    """The result of a task was accepted with these products."""

    task: str = ""
    generation: int = 0
    manifest: Manifest = Manifest("", 0, ())
    accepted_at: datetime | None = None


class SettlePromotion(Command, frozen=True):
    """The products were promoted, or cannot be."""

    digest: str = ""
    """Of the manifest that the promoter has worked on."""
    failure: str = ""
    """Why they cannot be promoted; empty if they were."""
    superseded: tuple[str, ...] = ()


class RegisterSession(Command, frozen=True):
    agent_type: str = ""
    metadata: dict[str, Any] = {}
    implied: bool = False
    """By a granted claim: only if nobody has registered it meanwhile."""
    named: Process | None = None
    """The process that the session is, if the caller speaks for another process than its own."""


class HeartbeatSession(Command, frozen=True):
    metadata: dict[str, Any] = {}


class EndSession(Command, frozen=True):
    pass


class TakeIds(Command, frozen=True):
    prefix: str = ""
    count: int = 1


class ChangeProject(Command, frozen=True):
    """With nothing set: make sure that it exists."""

    policy: dict[str, Any] | None = None
    tracks: dict[str, str] | None = None
    agent_roles: AgentRoles | None = None


class NoteEpoch(Command, frozen=True):
    """Of a project: the store is in a later epoch than the project has heard of."""


class ChangeTenant(Command, frozen=True):
    """With nothing set: make sure that it exists, with the `initial` profile."""

    initial: str = "local"
    profile: str | None = None
    limits: dict[str, Any] | None = None


class Denial(Struct, frozen=True, gc=False):
    """One merged line of denials."""

    task: str
    session: str
    agent: str
    reason: str
    count: int
    at: datetime
    holder_session: str = ""
    holder_agent: str = ""


class NoteDenials(Command, frozen=True):
    denials: tuple[Denial, ...] = ()


class MoveSettled(Command, frozen=True):
    cursor: str = ""
    seen: str = ""
    """The cursor that the caller started from; if it is another by now, someone else has settled
    meanwhile."""


class CreateKey(Command, frozen=True):
    """It ends `expires_in_seconds` from now or at `expires_at`, if either is given. Of the secret
    only the digest comes this far."""

    name: str = ""
    tenant: str = ""
    projects: str = EVERYWHERE
    role: Role = Role.OBSERVER
    session: str | None = None
    digest: str = ""
    expires_in_seconds: float | None = None
    expires_at: datetime | None = None
    agent_roles: tuple[str, ...] = ()


class RotateKey(Command, frozen=True):
    """Another secret for the same key. `tenant` is whose key it must be, or `*`; without an end of
    its own the key keeps the one it has."""

    tenant: str = ""
    digest: str = ""
    overlap_seconds: float = 0.0
    expires_in_seconds: float | None = None
    expires_at: datetime | None = None


class RevokeKey(Command, frozen=True):
    """The key opens nothing any more. `tenant` is whose key it must be, or `*`."""

    tenant: str = ""


TaskCommand: TypeAlias = (
    AddTask
    | AnnounceChildren
    | EditTask
    | ReorderTask
    | ClaimTask
    | RenewLease
    | ReportProgress
    | ReleaseClaim
    | SubmitResult
    | SpawnSubtasks
    | AdoptResult
    | ForceRelease
    | AssignTask
    | ResetTask
    | CancelTask
    | HoldTask
    | ReopenTask
    | ApproveReview
    | RejectReview
    | ReportEvaluation
    | CheckDue
    | CheckRelated
    | ObserveTask
)
