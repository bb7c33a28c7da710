"""The events: what has happened to one record, in the past tense. On the wire `event_type` has the
upper-case name.

Every event has GC 8.2's fields and its actor from the first day: what an immutable log lacks it
lacks for ever.
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
    """What all events have."""

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
    """What the acts have in common that no claim, release or result remembers: what their repeats
    are known by."""

    operation: str = ""
    remembers: int = 0
    """How many acts before this one the record still knows; none if the event is from before they
    were kept."""


class RightTaken(OperatorEvent, frozen=True, kw_only=True):
    """What the acts have in common that may take a claim away."""

    superseded: Holder | None = None
    """Whose claim that was, if the act has an operation id: its repeat is answered with it."""


# Tasks: definition


class TaskAdded(Occurrence, frozen=True):
    """The task exists from now on, blocked on all its dependencies."""

    task: Task
    order: Order = Order.TRACK
    backlog: bool = False
    early: bool = False
    assigned_until: datetime | None = None
    spawn_mode: SpawnMode | None = None
    """`coordination_mode` of the definition; none in events from before it counted."""
    waiting: Waiting | None = None
    """What its `waiting_for` names, if that blocks it; none in events from before it did."""


class TaskEdited(OperatorEvent, frozen=True):
    """The definition is another; `task` is the new one, `changed` the names of the fields."""

    task: Task
    changed: tuple[str, ...]
    early: bool = False
    backlog: bool | None = None
    """Whether it is in the backlog from now on; none if that is as it was."""
    waiting: Waiting | None = None
    """What its `waiting_for` names from now on; none if that is as it was."""
    spawn_mode: SpawnMode | None = None
    """Its `coordination_mode` from now on; none if that is as it was."""
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is
    another act."""


class TaskReordered(Occurrence, frozen=True):
    """The project's order strategy changed, and with it the task's place."""

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
    """The holder's lease starts again, or is none where claims have none."""

    expires_at: datetime | None
    lease_duration_seconds: float


class ProgressReported(Occurrence, frozen=True):
    """The holder reported how far it is, what it has found, or what the work has cost so far."""

    fraction: float | None = None
    note: str = ""
    cost: dict[str, float] = {}
    """What this generation has cost up to now, by unit."""
    worktree_path: str | None = None
    """Where this generation works; None if that was not reported."""


class ClaimReleased(Occurrence, frozen=True):
    """The holder gave the claim back."""

    release_reason: ReleaseReason
    operation: str = ""
    stated_reason: str = ""
    """The holder's own words, if they are not just the kind."""


class ExternalChange(Occurrence, frozen=True):
    """Another tool has changed the task's files; the events after this one say what came of it."""

    source: str
    """Which tool."""
    changes: dict[str, list[str]]
    """By name: what was there, and what is there."""


class Lapsed(Occurrence, frozen=True):
    """What the ways of losing a claim by silence have in common: the evidence."""

    holder_session_id: str
    holder_agent_id: str
    cause: Cause
    expires_at: datetime | None
    last_renewal: datetime
    missed_renewals: int = 0
    process_gone: bool = False
    last_heard: datetime | None = None
    """When its session was last heard of, if that is why."""


class ClaimExpired(Lapsed, frozen=True):
    """The lease is over. The claim stays the claim at its generation until someone takes over."""


class ClaimOrphaned(Lapsed, frozen=True):
    """The holder's session has ended, its process is gone, or it has been silent for too long."""


class ClaimStale(Occurrence, frozen=True):
    """The holder has been silent for long; shown, not released."""

    last_renewal: datetime
    holder_session_id: str = ""
    holder_agent_id: str = ""


class ClaimSuperseded(RightTaken, frozen=True):
    """The right was taken away without being given to anyone; `generation` is the new one, not
    granted yet."""

    previous_generation: int
    superseded_by: str
    """The verb: unlock, assign, reset, cancel, adopt; or another tool, by its name."""
    holder_session_id: str = ""
    holder_agent_id: str = ""


class TaskAssigned(RightTaken, frozen=True):
    """Only this agent is granted the task, until the reservation lapses."""

    assigned_to: str
    assigned_until: datetime
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is
    another act."""


class AssignmentLapsed(Occurrence, frozen=True):
    """The reservation is over."""

    assigned_to: str


# Tasks: results and ends


class HandedIn(Occurrence, frozen=True, kw_only=True):
    """What an accepted result and one that waits for a review have in common."""

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
    """Which payload: the digits in its name, which no other result has."""
    reference: str = ""
    """Where the work lies, in the author's words."""
    manifest: Manifest | None = None
    """Its products."""
    remembers: int = 0
    """Of an adoption by an operator, which the record remembers like its other acts: how many
    before this one it still knows."""


class ResultAccepted(HandedIn, frozen=True, kw_only=True):
    """The result at the highest generation: the task is completed."""

    author_session_id: str = ""
    """Of a result that was reviewed: who submitted it. Session and agent of the event are the
    reviewer's."""
    author_agent_id: str = ""
    author_user_id: str = ""


class ConvergenceEscalated(HandedIn, frozen=True, kw_only=True):
    """The result waits for a review. The claim ends, and nothing rests on the result yet."""

    causes: tuple[ReviewCause, ...]
    edge: str = ""
    agent_role: str = ""
    evaluators: tuple[str, ...] = ()
    """Those that must pass before the result counts."""
    evaluations: dict[str, Evaluation] = {}


class EvaluationReported(Occurrence, frozen=True):
    """An evaluator has said what it found of a result that waits for a review."""

    evaluator: str
    passed: bool
    digest: str
    note: str = ""


class ReviewRejected(Occurrence, frozen=True):
    """The review ended without the result, which is kept: the task is open again, at a higher
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
    """The name under which the work is kept; none if there was none."""
    adopted_generation: int | None = None
    """Of a refused result that had been adopted: where it came from."""
    adopted_session: str | None = None
    reference: str = ""
    """Where the work lies, in the author's words."""
    manifest: Manifest | None = None
    """Its products."""


class TaskReset(RightTaken, frozen=True):
    """The task is to be done again, at a higher generation."""

    previous_state: Status
    holder_session_id: str = ""
    holder_agent_id: str = ""


class TaskCancelled(RightTaken, frozen=True):
    """The task will not be done."""

    previous_state: Status
    reason: str = ""
    holder_session_id: str = ""
    holder_agent_id: str = ""
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is
    another act."""


class TaskHeld(OperatorEvent, frozen=True):
    """Nobody is granted the task until someone reopens it."""

    reason: str
    until: datetime | None = None
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is
    another act."""


class TaskReopened(OperatorEvent, frozen=True):
    """The hold is lifted; or, if it was not held, the task leaves the backlog."""

    by_time: bool = False
    """The hold had an end; nobody has judged the failures that led to it."""
    backlog: bool = False
    """It was held while in the backlog, and goes back there."""
    opened: bool = False
    """Somebody has taken it out of the backlog: a plan that still has it there does not put it
    back."""


# Tasks: others they depend on


class RelatedChanged(Occurrence, frozen=True):
    """What a task heard of others: their ids, and the version and state in which each was seen."""

    others: dict[str, KnownState]


class DependencyMet(RelatedChanged, frozen=True):
    """Dependencies are completed."""


class DependencyCancelled(RelatedChanged, frozen=True):
    """Dependencies were cancelled, which counts as met."""


class DependencyReopened(RelatedChanged, frozen=True):
    """Dependencies that counted as met are open again."""


class ChildNews(RelatedChanged, frozen=True):
    """What a task heard of its children."""

    last: bool = False
    """Of a fan-out that nobody has taken up: all children are done by now, and the task is to be
    completed by that."""


class ChildAdded(ChildNews, frozen=True):
    """Children exist; the task waits for them."""


class ChildFinished(ChildNews, frozen=True):
    """Children are completed or cancelled."""


class ChildReopened(ChildNews, frozen=True):
    """Children that were finished are open again."""


class ChildIdTaken(RelatedChanged, frozen=True):
    """Announced or spawned children were not created: their ids belong to tasks of others. The task
    does not wait for those."""


class ChildrenAnnounced(Occurrence, frozen=True):
    """A planner adds children to the task, which waits for them from now on; they are created as
    reactions."""

    children: tuple[Task, ...]
    backlog: tuple[str, ...] = ()
    """The ids of those that begin in the backlog."""


class SubtasksSpawned(OperatorEvent, frozen=True):
    """The holder split the task; the children are created as reactions."""

    children: tuple[Task, ...]
    mode: SpawnMode
    keep: bool = False
    """Nobody's claim ends: the holder keeps it, or nobody holds the task."""
    defines_mode: bool = False
    """The definition's `coordination_mode` is this mode from now on; not in older events."""
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is
    another act."""


# Other records


class ResultRejected(Occurrence, frozen=True):
    """A submission was refused; this is the first event of its own record."""

    submitted_generation: int
    current_generation: int
    rejection_reason: str
    work_lost: bool
    """The work does not count; it is kept in this record."""
    work_product_ref: str
    digest: str
    size: int
    result_data: Raw = NO_DATA
    payload: bool = False
    payload_id: str = ""
    """Which payload: the digits in its name, which no other result has."""
    reference: str = ""
    """Where the work lies, in the author's words."""
    manifest: Manifest | None = None
    """Its products."""


class ResultAdopted(Occurrence, frozen=True):
    """A refused result became the task's result after all."""


class ResultDiscarded(Occurrence, frozen=True):
    """Someone decided that a refused result is not needed."""


class PromotionRequested(Occurrence, frozen=True):
    """A result was accepted with these products; this is the first event of its own record."""

    manifest: Manifest
    accepted_at: datetime
    """When: of two acceptances that promote the same path the later one counts."""


class PromotionFailed(Occurrence, frozen=True):
    """The products cannot be promoted as they are: a draft is missing, or is not what was
    accepted."""

    reason: str


class PromotionCompleted(Occurrence, frozen=True):
    """The products are the assets of their paths."""

    superseded: tuple[str, ...] = ()
    """Paths whose asset came from a later acceptance already, and stayed."""


class SessionRegistered(Occurrence, frozen=True):
    """A session began, or said more about itself."""

    process: Process | None = None
    agent_type: str = ""
    implied: bool = False
    """The process is the one that registered or claimed; no other process has named it."""
    orphan_seconds: float | None = None
    """It came through the session-claiming interface: without a known process it may be silent for
    so long. None for all others, and in events from before this was noted."""


class SessionHeartbeat(Occurrence, frozen=True):
    """A session showed that it lives."""


class SessionEndedEvent(Occurrence, frozen=True, tag="SESSION_ENDED"):
    """A session is over; its claims are overdue at once."""


class IdsTaken(Occurrence, frozen=True):
    """A counter gave out `count` ids up to and including `value`. The first ones of a new epoch
    begin 1,000 further on."""

    prefix: str
    value: int
    count: int
    epoch: int = 0
    """The store's, at the time."""


class ProjectChanged(Occurrence, frozen=True):
    """A project exists, or its policy or tracks are others."""

    policy: Policy
    tracks: dict[str, str] | None = None
    epoch: int = 0
    """In which it was made."""
    agent_roles: AgentRoles | None = None


class EpochRaised(Occurrence, frozen=True):
    """The store may have lost writes: it was restored, copied, or failed over. Generations go on
    above epoch × 1,000,000."""

    epoch: int
    previous: int


class TenantChanged(Occurrence, frozen=True):
    """A tenant exists, or its limits are others."""

    tenant: str
    profile: str
    limits: TenantLimits


class ClaimDenied(Occurrence, frozen=True):
    """Claims were denied: how often to whom and why, since the last such event."""

    access_id: str
    reason: str
    count: int
    holder_session_id: str = ""
    """Who held the task at the last of these denials, if somebody did."""
    holder_agent_id: str = ""


class Settled(Occurrence, frozen=True):
    """Reactions are known to be done up to this cursor."""

    cursor: str


class FeatureCounted(RelatedChanged, frozen=True):
    """Tasks of a feature were seen: they are new to it, have come to their end, or are open
    again."""

    feature: str


class KeyCreated(Occurrence, frozen=True):
    """A key exists; `digest` is the SHA-256 of its secret, which nobody keeps."""

    key_id: str
    name: str
    tenant: str
    projects: str
    role: Role
    digest: str
    bound_session: str | None = None
    """The one session that the key is for."""
    expires_at: datetime | None = None
    agent_roles: tuple[str, ...] = ()


class KeyRotated(Occurrence, frozen=True):
    """The key has another secret."""

    key_id: str
    digest: str
    previous_until: datetime | None = None
    """Until then the secret before it is taken too."""
    expires_at: datetime | None = None


class KeyRevoked(Occurrence, frozen=True):
    """The key opens nothing any more."""

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
