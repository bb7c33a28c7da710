"""The commands: all requests to change one record, in the imperative. Each names its record by
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
    """The caller: the session and agent, by which it is fenced, and the actor behind them."""

    session: str = ""
    agent: str = ""
    actor: Actor = NOBODY
    process: Process | None = None
    orphan_seconds: float | None = None
    """The `orphan_seconds` of a session that the caller registers."""


NO_CALLER = Caller()


class Command(Struct, frozen=True, gc=False):
    """The fields of all commands."""

    key: Key
    by: Caller = NO_CALLER


class Content(Struct, frozen=True, gc=False):
    """A result as submitted: its canonical bytes, or the digest and name under which they are
    stored as a payload."""

    digest: str
    size: int
    data: Raw = NO_DATA
    payload: bool = False
    empty: bool = False
    payload_id: str = ""
    reference: str = ""
    """The location of the work, in the author's words: a commit, a file, an address."""
    manifest: Manifest | None = None
    """Its products. The digest covers them."""


EMPTY_RESULTS = frozenset({b"{}", b"[]", b'""', b"null"})
"""Data without content: it is not kept when it is refused."""


# Tasks: definition


class AddTask(Command, frozen=True):
    task: Task = Task(id="")
    backlog: bool = False
    announced: bool = False
    """The parent announced this child or was split into it. If the id belongs to an unrelated task
    by now, the parent is notified."""
    finished: Status | None = None
    """COMPLETED or CANCELLED: the work ended elsewhere. If the task exists already and no work on
    it has begun, it is finished too."""
    content: Content = Content("", 0)
    """The result of a task that is added as completed."""


class AnnounceChildren(Command, frozen=True):
    """Makes a parent wait for these children. They are created after this command, so that a crash
    in between leaves the parent blocked."""

    children: tuple[Task, ...] = ()
    backlog: tuple[str, ...] = ()
    """The ids of the children that start in the backlog."""


class EditTask(Command, frozen=True):
    changes: dict[str, Any] = {}
    operation: str = ""
    backlog: bool | None = None
    """Does a plan put the task in the backlog? None if the plan does not say."""


class ReorderTask(Command, frozen=True):
    order: Order = Order.TRACK


# Tasks: fenced commands of workers


class ClaimTask(Command, frozen=True):
    lease_seconds: float = DEFAULT_LEASE_SECONDS
    operation: str = ""
    role: str = ""
    metadata: dict[str, Any] = {}
    next: bool = False
    """Set by claim_next: a task that the session already holds is not granted to it again."""


class RenewLease(Command, frozen=True):
    generation: int = 0
    lease_seconds: float | None = None


class ReportProgress(Command, frozen=True):
    generation: int = 0
    fraction: float | None = None
    note: str = ""
    cost: dict[str, float] = {}
    """The total cost of this generation so far, not the increase since the last report. So a
    repeated report counts nothing twice."""
    worktree_path: str | None = None
    """The worktree of this generation; "" if it is gone, None if it was not reported."""


class ReleaseClaim(Command, frozen=True):
    generation: int = 0
    reason: ReleaseReason = ReleaseReason.VOLUNTARY
    operation: str = ""
    note: str = ""
    """A message to the next holder."""
    stated: str = ""
    """The reason in the holder's own words, if they differ from the kind."""
    renewals: int | None = None
    """Release only if the claim was renewed exactly this many times. For grants that never reached
    their caller."""


class SubmitResult(Command, frozen=True):
    generation: int = 0
    content: Content = Content("", 0)
    operation: str = ""
    evaluations: dict[str, bool] = {}
    """By name of evaluator: did it pass?"""


class SpawnSubtasks(Command, frozen=True):
    """With a generation, the holder spawns, and is fenced. Without one, a planner spawns, and the
    task must have no holder."""

    generation: int | None = 0
    children: tuple[Task, ...] = ()
    mode: SpawnMode = SpawnMode.PARALLEL
    keep: bool = False
    operation: str = ""
    arguments: str = ""
    """A digest of the request. It does not depend on the names given to children that came without
    one."""


class AdoptResult(Command, frozen=True):
    """With a generation, the holder adopts, and is fenced. Without one, an operator adopts, and
    takes the claim first.

    A live claim is superseded only with `take_over`, here and in the operators' commands below."""

    refused: str = ""
    generation: int | None = None
    content: Content = Content("", 0)
    work_product_ref: str = ""
    from_generation: int = 0
    from_session: str = ""
    operation: str = ""
    take_over: bool = False


# Tasks: operators' commands


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
    """Reset only a completed task, as a cascade does. Work that has started again in the meantime
    is not disturbed."""
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
"""The fewest characters of a digest that may name a result."""


# Tasks: reviews. Each names the result that its caller has read.


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


# Tasks: effects of time and of other records


class CheckDue(Command, frozen=True):
    """Records what time or the loss of a holder has already made true: an expiry, the end of a
    hold, the lapse of a reservation, a stale mark."""


class ObserveTask(Command, frozen=True):
    """Read the task's files again: another tool has changed them."""


class CheckRelated(Command, frozen=True):
    """Check these other tasks again: they have changed, at least up to the version beside each."""

    others: tuple[tuple[str, int], ...] = ()
    reset: bool = False
    """One of them was reset. This is recorded even if the record did not know that task as done.
    Older news that is still under way then finds a changed record and is decided again."""


# Other records


class CountTasks(CheckRelated, frozen=True):
    """Checks these tasks of a feature again. `reset` has no meaning here."""


class KeepRefused(Command, frozen=True):
    task: str = ""
    generation: int = 0
    current_generation: int = 0
    reason: str = ""
    content: Content = Content("", 0)
    work_product_ref: str = ""
    claimed_at: datetime | None = None
    """The time at which its session claimed the task, if known."""


class MarkAdopted(Command, frozen=True):
    pass


class DiscardRefused(Command, frozen=True):
    pass


class RequestPromotion(Command, frozen=True):
    """Requests the promotion of products: a task's result was accepted with them."""

    task: str = ""
    generation: int = 0
    manifest: Manifest = Manifest("", 0, ())
    accepted_at: datetime | None = None


class SettlePromotion(Command, frozen=True):
    """Records that the products were promoted, or cannot be."""

    digest: str = ""
    """The digest of the manifest that the promoter worked on."""
    failure: str = ""
    """The reason why the products cannot be promoted; empty if they were promoted."""
    superseded: tuple[str, ...] = ()


class RegisterSession(Command, frozen=True):
    agent_type: str = ""
    metadata: dict[str, Any] = {}
    implied: bool = False
    """Caused by a granted claim: registers the session only if it is not registered yet."""
    named: Process | None = None
    """The process of the session, if the caller acts for a process other than its own."""


class HeartbeatSession(Command, frozen=True):
    metadata: dict[str, Any] = {}


class EndSession(Command, frozen=True):
    pass


class TakeIds(Command, frozen=True):
    prefix: str = ""
    count: int = 1


class ChangeProject(Command, frozen=True):
    """Changes a project. With nothing set, it only makes sure that the project exists."""

    policy: dict[str, Any] | None = None
    tracks: dict[str, str] | None = None
    agent_roles: AgentRoles | None = None


class NoteEpoch(Command, frozen=True):
    """Tells a project of an epoch of the store that is later than the last one it knows."""


class ChangeTenant(Command, frozen=True):
    """Changes a tenant. With nothing set, it only makes sure that the tenant exists, with the
    `initial` profile."""

    initial: str = "local"
    profile: str | None = None
    limits: dict[str, Any] | None = None


class Denial(Struct, frozen=True, gc=False):
    """Denials of one kind, merged into one entry."""

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
    """The cursor from which the caller started. If the record has another one by now, another
    coordinator has settled in the meantime."""


class CreateKey(Command, frozen=True):
    """Creates a key. It ends `expires_in_seconds` from now or at `expires_at`, if either is given.
    Only the digest of the secret is passed on."""

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
    """Gives a key a new secret. The key must belong to `tenant`, unless that is `*`. Without a new
    end the key keeps its old one."""

    tenant: str = ""
    digest: str = ""
    overlap_seconds: float = 0.0
    expires_in_seconds: float | None = None
    expires_at: datetime | None = None


class RevokeKey(Command, frozen=True):
    """Revokes a key: it opens nothing any more. The key must belong to `tenant`, unless that is
    `*`."""

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
