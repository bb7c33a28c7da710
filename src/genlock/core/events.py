"""The events: all changes of one record, in the past tense. On the wire, `event_type` has the
upper-case name.

Every event has GC 8.2's fields and its actor from the first day: an immutable log can never gain a
field that it lacks.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Raw, Struct

from genlock.core.agent_roles import AgentRoles
from genlock.core.key_roles import Role
from genlock.core.model import (
    NO_DATA,
    NOBODY,
    Actor,
    Evaluation,
    Holder,
    KnownState,
    Manifest,
    Process,
    Task,
)
from genlock.core.policy import Order, Policy, TenantLimits
from genlock.core.reasons import Cause, ReleaseReason, ReviewCause, SpawnMode, Status, Waiting


def _tag(name: str) -> str:
    return "".join(
        "_" + letter if letter.isupper() and at else letter for at, letter in enumerate(name)
    ).upper()


class Occurrence(
    Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    kw_only=True,
    tag_field="event_type",
    tag=_tag,
):
    """The fields of all events."""

    timestamp: datetime
    tenant_id: str
    project_id: str
    task_id: str = ""
    generation: int = 0
    session_id: str = ""
    agent_id: str = ""
    actor: Actor = NOBODY
    metadata: dict[str, Any] = {}


class OperatorEvent(Occurrence, frozen=True, kw_only=True):
    """The common part of operations that no claim, release or result remembers. Their repeats are
    recognised by it."""

    operation: str = ""
    remembers: int = 0
    """The number of earlier operations that the record still remembers; 0 if the event is from
    before they were kept."""


class RightTaken(OperatorEvent, frozen=True, kw_only=True):
    """The common part of operations that may supersede a claim."""

    superseded: Holder | None = None
    """The holder of that claim, if the operation has an id: the answer to its repeat names the
    holder."""


# Tasks: definition


class TaskAdded(Occurrence, frozen=True):
    """A task was added, blocked on all its dependencies."""

    task: Task
    order: Order = Order.TRACK
    backlog: bool = False
    early: bool = False
    assigned_until: datetime | None = None
    spawn_mode: SpawnMode | None = None
    """The `coordination_mode` of the definition; None in events from before it had an effect."""
    waiting: Waiting | None = None
    """The kind of thing that `waiting_for` names, if it blocks the task; None in events from before
    it did."""


class TaskEdited(OperatorEvent, frozen=True):
    """The definition was changed. `task` is the new one, `changed` has the names of the changed
    fields."""

    task: Task
    changed: tuple[str, ...]
    early: bool = False
    backlog: bool | None = None
    """Is it in the backlog from now on? None if that did not change."""
    waiting: Waiting | None = None
    """The kind of thing that its `waiting_for` names from now on; None if that did not change."""
    spawn_mode: SpawnMode | None = None
    """Its `coordination_mode` from now on; None if that did not change."""
    arguments: str = ""
    """A digest of the arguments, if there is an operation id: the same id with other arguments is
    another operation."""


class TaskReordered(Occurrence, frozen=True):
    """The project's order strategy changed, and with it the task's position."""

    order: Order


class TaskDue(Occurrence, frozen=True):
    """`not_before` has passed."""


# Tasks: the right to work on them


class ClaimAcquired(Occurrence, frozen=True):
    """A claim was granted, at a generation never granted before."""

    claim_id: str
    previous_generation: int
    previous_state: str
    lease_duration_seconds: float
    expires_at: datetime | None
    """None: the claim has no lease (policy `agents: single`)."""
    grace_seconds: float = 0.0
    agent_role: str = ""
    operation: str = ""


class LeaseRenewed(Occurrence, frozen=True):
    """The holder's lease was renewed. It stays without an end if claims have no lease."""

    expires_at: datetime | None
    lease_duration_seconds: float


class ProgressReported(Occurrence, frozen=True):
    """The holder reported its progress, a note, or the cost of the work so far."""

    fraction: float | None = None
    note: str = ""
    cost: dict[str, float] = {}
    """The total cost of this generation so far, by unit."""
    worktree_path: str | None = None
    """The worktree of this generation; None if it was not reported."""


class ClaimReleased(Occurrence, frozen=True):
    """The holder gave the claim back."""

    release_reason: ReleaseReason
    operation: str = ""
    stated_reason: str = ""
    """The holder's own words, if they differ from the kind."""


class ExternalChange(Occurrence, frozen=True):
    """Another tool changed the task's files. The events after this one record the consequences."""

    source: str
    """The name of the tool."""
    changes: dict[str, list[str]]
    """By field: the old value and the new one."""


class Lapsed(Occurrence, frozen=True):
    """The common part of the ways to lose a claim by silence: the evidence."""

    holder_session_id: str
    holder_agent_id: str
    cause: Cause
    expires_at: datetime | None
    last_renewal: datetime
    missed_renewals: int = 0
    process_gone: bool = False
    last_heard: datetime | None = None
    """The last sign of life of its session, if its silence is the cause."""


class ClaimExpired(Lapsed, frozen=True):
    """The lease is over. The claim keeps its generation until another session takes over."""


class ClaimOrphaned(Lapsed, frozen=True):
    """The holder's session has ended, its process is gone, or it has been silent for too long."""


class ClaimStale(Occurrence, frozen=True):
    """The holder has been silent for long. The claim is marked, not released."""

    last_renewal: datetime
    holder_session_id: str = ""
    holder_agent_id: str = ""


class ClaimSuperseded(RightTaken, frozen=True):
    """The claim was superseded and not given to another session. `generation` is the new one, not
    granted yet."""

    previous_generation: int
    superseded_by: str
    """The operation: unlock, assign, reset, cancel or adopt. Or the name of another tool."""
    holder_session_id: str = ""
    holder_agent_id: str = ""


class TaskAssigned(RightTaken, frozen=True):
    """The task was reserved: only this agent is granted it until the reservation lapses."""

    assigned_to: str
    assigned_until: datetime
    arguments: str = ""
    """A digest of the arguments, if there is an operation id: the same id with other arguments is
    another operation."""


class AssignmentLapsed(Occurrence, frozen=True):
    """The reservation is over."""

    assigned_to: str


# Tasks: results and ends


class HandedIn(Occurrence, frozen=True, kw_only=True):
    """The common part of an accepted result and one that waits for a review."""

    result_id: str
    work_product_ref: str
    digest: str
    size: int
    result_data: Raw = NO_DATA
    payload: bool = False
    operation: str = ""
    fan_in: bool = False
    adopted_generation: int | None = None
    adopted_session: str | None = None
    payload_id: str = ""
    """The id of the payload: the digits in its name, unique to this result."""
    reference: str = ""
    """The location of the work, in the author's words."""
    manifest: Manifest | None = None
    """Its products."""
    remembers: int = 0
    """For an adoption by an operator: the number of earlier operations that the record still
    remembers."""


class ResultAccepted(HandedIn, frozen=True, kw_only=True):
    """A result at the highest generation was accepted: the task is completed."""

    author_session_id: str = ""
    """For a reviewed result: the session that submitted it. The event has the reviewer's session
    and agent."""
    author_agent_id: str = ""
    author_user_id: str = ""


class ConvergenceEscalated(HandedIn, frozen=True, kw_only=True):
    """The result waits for a review. The claim ends, and nothing depends on the result yet."""

    causes: tuple[ReviewCause, ...]
    edge: str = ""
    agent_role: str = ""
    evaluators: tuple[str, ...] = ()
    """The evaluators that must pass before the result counts."""
    evaluations: dict[str, Evaluation] = {}


class EvaluationReported(Occurrence, frozen=True):
    """An evaluator reported its verdict on a result that waits for a review."""

    evaluator: str
    passed: bool
    digest: str
    note: str = ""


class ReviewRejected(Occurrence, frozen=True):
    """The review rejected the result, which is kept. The task is open again, at a higher
    generation."""

    rejected_generation: int
    feedback: str
    author_session_id: str
    author_agent_id: str
    work_product_ref: str
    digest: str
    size: int
    author_user_id: str = ""
    result_data: Raw = NO_DATA
    payload: bool = False
    payload_id: str = ""
    refused_id: str = ""
    """The name under which the work is kept; empty if there was none."""
    adopted_generation: int | None = None
    """For a refused result that had been adopted: the generation that it came from."""
    adopted_session: str | None = None
    reference: str = ""
    """The location of the work, in the author's words."""
    manifest: Manifest | None = None
    """Its products."""


class TaskReset(RightTaken, frozen=True):
    """The task was reset: it must be done again, at a higher generation."""

    previous_state: Status
    holder_session_id: str = ""
    holder_agent_id: str = ""


class TaskCancelled(RightTaken, frozen=True):
    """The task was cancelled: it will not be done."""

    previous_state: Status
    reason: str = ""
    holder_session_id: str = ""
    holder_agent_id: str = ""
    arguments: str = ""
    """A digest of the arguments, if there is an operation id: the same id with other arguments is
    another operation."""


class TaskHeld(OperatorEvent, frozen=True):
    """The task was put on hold: it is not granted until it is reopened."""

    reason: str
    until: datetime | None = None
    arguments: str = ""
    """A digest of the arguments, if there is an operation id: the same id with other arguments is
    another operation."""


class TaskReopened(OperatorEvent, frozen=True):
    """The hold was lifted; or the task, if it was not on hold, left the backlog."""

    by_time: bool = False
    """The hold ended by time. No operator has judged the failures that led to it."""
    backlog: bool = False
    """It was put on hold while in the backlog, and returns there."""
    opened: bool = False
    """An operator took it out of the backlog: a plan that still has it there does not put it
    back."""


# Tasks: related tasks


class RelatedChanged(Occurrence, frozen=True):
    """News of other tasks: their ids, and the version and state in which each was seen."""

    others: dict[str, KnownState]


class DependencyMet(RelatedChanged, frozen=True):
    """Dependencies are completed."""


class DependencyCancelled(RelatedChanged, frozen=True):
    """Dependencies were cancelled, which counts as met."""


class DependencyReopened(RelatedChanged, frozen=True):
    """Dependencies that counted as met are open again."""


class ChildNews(RelatedChanged, frozen=True):
    """News of a task's children."""

    last: bool = False
    """For a fan-out that is not claimed: all children are done, and this completes the task."""


class ChildAdded(ChildNews, frozen=True):
    """Children were added; the task waits for them."""


class ChildFinished(ChildNews, frozen=True):
    """Children are completed or cancelled."""


class ChildReopened(ChildNews, frozen=True):
    """Children that were finished are open again."""


class ChildIdTaken(RelatedChanged, frozen=True):
    """Announced or spawned children were not created: their ids belong to unrelated tasks. The task
    does not wait for those."""


class ChildrenAnnounced(Occurrence, frozen=True):
    """A planner added children to the task, which now waits for them. They are created as
    reactions."""

    children: tuple[Task, ...]
    backlog: tuple[str, ...] = ()
    """The ids of the children that start in the backlog."""


class SubtasksSpawned(OperatorEvent, frozen=True):
    """The holder split the task; the children are created as reactions."""

    children: tuple[Task, ...]
    mode: SpawnMode
    keep: bool = False
    """No claim ends: the holder keeps its claim, or the task has no holder."""
    defines_mode: bool = False
    """The definition's `coordination_mode` becomes this mode; False in older events."""
    arguments: str = ""
    """A digest of the arguments, if there is an operation id: the same id with other arguments is
    another operation."""


# Other records


class ResultRejected(Occurrence, frozen=True):
    """A submission was refused; this is the first event of its own record."""

    submitted_generation: int
    current_generation: int
    rejection_reason: str
    work_lost: bool
    """The work does not count. It is kept in this record."""
    work_product_ref: str
    digest: str
    size: int
    result_data: Raw = NO_DATA
    payload: bool = False
    payload_id: str = ""
    """The id of the payload: the digits in its name, unique to this result."""
    reference: str = ""
    """The location of the work, in the author's words."""
    manifest: Manifest | None = None
    """Its products."""


class ResultAdopted(Occurrence, frozen=True):
    """A refused result was adopted as the task's result."""


class ResultDiscarded(Occurrence, frozen=True):
    """An operator discarded a refused result."""


class PromotionRequested(Occurrence, frozen=True):
    """A result was accepted with these products; this is the first event of its own record."""

    manifest: Manifest
    accepted_at: datetime
    """The time of the acceptance. If two acceptances promote the same path, the later one
    counts."""


class PromotionFailed(Occurrence, frozen=True):
    """The products cannot be promoted as they are: a draft is missing, or is not what was
    accepted."""

    reason: str


class PromotionCompleted(Occurrence, frozen=True):
    """The products were promoted: they are now the assets of their paths."""

    superseded: tuple[str, ...] = ()
    """Paths that kept their asset because it came from a later acceptance."""


class SessionRegistered(Occurrence, frozen=True):
    """A session began, or gave more details about itself."""

    process: Process | None = None
    agent_type: str = ""
    implied: bool = False
    """The process is the one that registered or claimed. No other process named it."""
    orphan_seconds: float | None = None
    """Set for a session of the session-claiming interface: the silence it is allowed if its process
    is not known. None for all others, and in events from before this was recorded."""


class SessionHeartbeat(Occurrence, frozen=True):
    """A session sent a heartbeat."""


class SessionEndedEvent(Occurrence, frozen=True, tag="SESSION_ENDED"):
    """A session ended. Its claims are overdue at once."""


class IdsTaken(Occurrence, frozen=True):
    """A counter gave out `count` ids up to and including `value`. The first ids of a new epoch skip
    1,000 numbers."""

    prefix: str
    value: int
    count: int
    epoch: int = 0
    """The store's epoch at the time."""


class ProjectChanged(Occurrence, frozen=True):
    """A project was created, or its policy or tracks were changed."""

    policy: Policy
    tracks: dict[str, str] | None = None
    epoch: int = 0
    """The epoch in which the project was created."""
    agent_roles: AgentRoles | None = None


class EpochRaised(Occurrence, frozen=True):
    """The store may have lost writes: it was restored, copied, or failed over. Generations continue
    above epoch × 1,000,000."""

    epoch: int
    previous: int


class TenantChanged(Occurrence, frozen=True):
    """A tenant was created, or its limits were changed."""

    tenant: str
    profile: str
    limits: TenantLimits


class ClaimDenied(Occurrence, frozen=True):
    """Claims were denied: the counts by caller and reason since the last such event."""

    access_id: str
    reason: str
    count: int
    holder_session_id: str = ""
    """The holder of the task at the last of these denials, if there was one."""
    holder_agent_id: str = ""


class Settled(Occurrence, frozen=True):
    """Reactions are known to be done up to this cursor."""

    cursor: str


class FeatureCounted(RelatedChanged, frozen=True):
    """Tasks of a feature were counted: they are new, finished, or open again."""

    feature: str


class KeyCreated(Occurrence, frozen=True):
    """A key was created. `digest` is the SHA-256 of its secret, which is not stored."""

    key_id: str
    name: str
    tenant: str
    projects: str
    role: Role
    digest: str
    bound_session: str | None = None
    """The one session that may use the key."""
    expires_at: datetime | None = None
    agent_roles: tuple[str, ...] = ()


class KeyRotated(Occurrence, frozen=True):
    """The key was given a new secret."""

    key_id: str
    digest: str
    previous_until: datetime | None = None
    """Until this time the previous secret is accepted too."""
    expires_at: datetime | None = None


class KeyRevoked(Occurrence, frozen=True):
    """The key was revoked. It opens nothing any more."""

    key_id: str


TaskEvent: TypeAlias = (
    TaskAdded
    | TaskEdited
    | TaskReordered
    | TaskDue
    | ClaimAcquired
    | LeaseRenewed
    | ProgressReported
    | ClaimReleased
    | ClaimExpired
    | ClaimOrphaned
    | ClaimStale
    | ClaimSuperseded
    | ExternalChange
    | TaskAssigned
    | AssignmentLapsed
    | ResultAccepted
    | ConvergenceEscalated
    | EvaluationReported
    | ReviewRejected
    | TaskReset
    | TaskCancelled
    | TaskHeld
    | TaskReopened
    | DependencyMet
    | DependencyCancelled
    | DependencyReopened
    | ChildAdded
    | ChildFinished
    | ChildReopened
    | ChildIdTaken
    | ChildrenAnnounced
    | SubtasksSpawned
)

Event: TypeAlias = (
    TaskEvent
    | ResultRejected
    | ResultAdopted
    | ResultDiscarded
    | PromotionRequested
    | PromotionFailed
    | PromotionCompleted
    | SessionRegistered
    | SessionHeartbeat
    | SessionEndedEvent
    | IdsTaken
    | ProjectChanged
    | EpochRaised
    | TenantChanged
    | ClaimDenied
    | Settled
    | FeatureCounted
    | KeyCreated
    | KeyRotated
    | KeyRevoked
)
