"""The events: what has happened to one record, in the past tense. On the wire `event_type` has the upper-case name.

Every event has GC 8.2's fields and its actor from the first day: what an immutable log lacks it lacks for ever.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Raw, Struct

from genlock.core.access import Role
from genlock.core.model import NO_DATA, NOBODY, Actor, Heard, Holder, Process, Task
from genlock.core.policy import Order, Policy, TenantLimits
from genlock.core.reasons import Cause, ReleaseReason, SpawnMode, Status


def _tag(name: str) -> str:
    return "".join("_" + letter if letter.isupper() and at else letter for at, letter in enumerate(name)).upper()


class Occurrence(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="event_type", tag=_tag):
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


class Acted(Occurrence, frozen=True, kw_only=True):
    """What the acts have in common that no claim, release or result remembers: what their repeats are known by."""

    operation: str = ""
    remembers: int = 0
    """How many acts before this one the record still knows; none if the event is from before they were kept."""


class Taking(Acted, frozen=True, kw_only=True):
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


class TaskEdited(Acted, frozen=True):
    """The definition is another; `task` is the new one, `changed` the names of the fields."""

    task: Task
    changed: tuple[str, ...]
    early: bool = False
    backlog: bool | None = None
    """Whether it is in the backlog from now on; none if that is as it was."""
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is another act."""


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
    expires_at: datetime
    grace_seconds: float = 0.0
    agent_role: str = ""
    operation: str = ""


class LeaseRenewed(Occurrence, frozen=True):
    """The holder's lease runs anew."""

    expires_at: datetime
    lease_duration_seconds: float


class ClaimReleased(Occurrence, frozen=True):
    """The holder gave the claim back."""

    release_reason: ReleaseReason
    operation: str = ""


class Lapsed(Occurrence, frozen=True):
    """What the ways of losing a claim by silence have in common: the evidence."""

    holder_session_id: str
    holder_agent_id: str
    cause: Cause
    expires_at: datetime
    last_renewal: datetime
    missed_renewals: int = 0
    process_gone: bool = False


class ClaimExpired(Lapsed, frozen=True):
    """The lease is over. The claim stays the claim at its generation until someone takes over."""


class ClaimOrphaned(Lapsed, frozen=True):
    """The holder's session has ended or its process is gone."""


class ClaimStale(Occurrence, frozen=True):
    """The holder has been silent for long; shown, not released."""

    last_renewal: datetime


class ClaimSuperseded(Taking, frozen=True):
    """The right was taken away without being given to anyone; `generation` is the new one, not granted yet."""

    previous_generation: int
    superseded_by: str
    """The verb: unlock, assign, reset, cancel, adopt."""
    holder_session_id: str = ""
    holder_agent_id: str = ""


class TaskAssigned(Taking, frozen=True):
    """Only this agent is granted the task, until the reservation lapses."""

    assigned_to: str
    assigned_until: datetime
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is another act."""


class AssignmentLapsed(Occurrence, frozen=True):
    """The reservation is over."""

    assigned_to: str


# Tasks: results and ends


class ResultAccepted(Occurrence, frozen=True):
    """The result at the highest generation: the task is completed."""

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
    remembers: int = 0
    """Of an adoption by an operator, which the record remembers like its other acts: how many before this one it still knows."""


class TaskReset(Taking, frozen=True):
    """The task is to be done again, at a higher generation."""

    previous_state: Status
    holder_session_id: str = ""
    holder_agent_id: str = ""


class TaskCancelled(Taking, frozen=True):
    """The task will not be done."""

    previous_state: Status
    reason: str = ""
    holder_session_id: str = ""
    holder_agent_id: str = ""
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is another act."""


class TaskHeld(Acted, frozen=True):
    """Nobody is granted the task until someone reopens it."""

    reason: str
    until: datetime | None = None
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is another act."""


class TaskReopened(Acted, frozen=True):
    """The hold is lifted; or, if it was not held, the task leaves the backlog."""

    by_time: bool = False
    """The hold had an end; nobody has judged the failures that led to it."""
    backlog: bool = False
    """It was held while in the backlog, and goes back there."""
    opened: bool = False
    """Somebody has taken it out of the backlog: a plan that still has it there does not put it back."""


# Tasks: others they depend on


class News(Occurrence, frozen=True):
    """What a task heard of others: their ids, and the version and state in which each was seen."""

    others: dict[str, Heard]


class DependencyMet(News, frozen=True):
    """Dependencies are completed."""


class DependencyCancelled(News, frozen=True):
    """Dependencies were cancelled, which counts as met."""


class DependencyReopened(News, frozen=True):
    """Dependencies that counted as met are open again."""


class ChildNews(News, frozen=True):
    """What a task heard of its children."""

    last: bool = False
    """Of a fan-out that nobody has taken up: all children are done by now, and the task is to be completed by that."""


class ChildAdded(ChildNews, frozen=True):
    """Children exist; the task waits for them."""


class ChildFinished(ChildNews, frozen=True):
    """Children are completed or cancelled."""


class ChildReopened(ChildNews, frozen=True):
    """Children that were finished are open again."""


class SubtasksSpawned(Acted, frozen=True):
    """The holder split the task; the children are created as reactions."""

    children: tuple[Task, ...]
    mode: SpawnMode
    keep: bool = False
    arguments: str = ""
    """A digest of what was asked, if it has an operation id: the same id with other arguments is another act."""


# Other records


class ResultRejected(Occurrence, frozen=True):
    """A submission was refused; this is the first event of its own record."""

    submitted_generation: int
    current_generation: int
    rejection_reason: str
    work_lost: bool
    work_product_ref: str
    digest: str
    size: int
    result_data: Raw = NO_DATA
    payload: bool = False
    payload_id: str = ""
    """Which payload: the digits in its name, which no other result has."""


class ResultAdopted(Occurrence, frozen=True):
    """A refused result became the task's result after all."""


class ResultDiscarded(Occurrence, frozen=True):
    """Someone decided that a refused result is not needed."""


class SessionRegistered(Occurrence, frozen=True):
    """A session began, or said more about itself."""

    process: Process | None = None
    agent_type: str = ""
    implied: bool = False
    """By a claim; the process is that which claimed."""


class SessionHeartbeat(Occurrence, frozen=True):
    """A session showed that it lives."""


class SessionEndedEvent(Occurrence, frozen=True, tag="SESSION_ENDED"):
    """A session is over; its claims are over-due at once."""


class IdsTaken(Occurrence, frozen=True):
    """A counter gave out ids up to and including `value`."""

    prefix: str
    value: int
    count: int


class ProjectChanged(Occurrence, frozen=True):
    """A project exists, or its policy or tracks are others."""

    policy: Policy
    tracks: dict[str, str] | None = None
    epoch: int = 0
    """In which it was made."""


class EpochRaised(Occurrence, frozen=True):
    """The store may have lost writes: it was restored, copied, or failed over. Generations go on above epoch × 1,000,000."""

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


class Settled(Occurrence, frozen=True):
    """Reactions are known to be done up to this cursor."""

    cursor: str


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
    | ClaimReleased
    | ClaimExpired
    | ClaimOrphaned
    | ClaimStale
    | ClaimSuperseded
    | TaskAssigned
    | AssignmentLapsed
    | ResultAccepted
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
    | SubtasksSpawned
)

Event: TypeAlias = (
    TaskEvent
    | ResultRejected
    | ResultAdopted
    | ResultDiscarded
    | SessionRegistered
    | SessionHeartbeat
    | SessionEndedEvent
    | IdsTaken
    | ProjectChanged
    | EpochRaised
    | TenantChanged
    | ClaimDenied
    | Settled
    | KeyCreated
    | KeyRotated
    | KeyRevoked
)
