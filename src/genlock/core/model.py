"""The records: the stored state of tasks, sessions, refused results, counters, projects, tenants,
denials, settling and keys.

Each is the fold of its events and nothing else (see `genlock.core.evolve`). Fields with their
default are left out of the stored bytes, so a field can be added without a new format as long as
its default means "as before". (The codec leaves a field out if it *is* the default, not if it
equals it: so no field of a record that is set from an event's text or struct has such a default.)
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from genlock.core.agent_roles import AgentRoles
from genlock.core.key_roles import Role
from genlock.core.policy import Order, Policy, TenantLimits
from genlock.core.reasons import (
    ClaimState,
    Isolation,
    PromotionState,
    RefusedState,
    ReleaseReason,
    ReviewCause,
    SpawnMode,
    Status,
    Waiting,
)

NO_DATA = Raw(b"null")
"""No result data in the record: there is none, it is stored as a payload, or it was discarded."""

SYSTEM_SESSION = "genlock"
"""The session and agent under which the coordinator itself acts (fan-in, adoption by an
operator)."""


class Process(Struct, frozen=True, gc=False, omit_defaults=True):
    """The process of a session. A pid alone may be reused; a pid with its start time is unique."""

    host: str
    boot: str
    pid: int
    started: int
    namespace: str = ""
    """The namespace of the pid; `processes.NO_NAMESPACES` on a system that has none. "" if it is
    not known: then only the lease decides."""


class Actor(Struct, frozen=True, gc=False, omit_defaults=True):
    """The actor behind an event, beyond session and agent."""

    user_id: str = ""
    client_ip: str = ""
    host: str = ""
    role: str = ""


NOBODY = Actor()


def for_user(actor: Actor, user: str) -> Actor:
    """Returns the actor on behalf of this user; unchanged if no user is named."""
    return actor if not user or user == actor.user_id else replace(actor, user_id=user)


class Task(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A task's definition: the union of what the five documents need."""

    id: str
    title: str = ""
    description: str = ""
    phase: str = ""
    priority: str = "medium"
    tags: tuple[str, ...] = ()
    track: str | None = None
    sequence: int | None = None
    feature: str | None = None
    edge: str | None = None
    parent: str | None = None
    depth: int = 0
    depends_on: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    repo: str = ""
    roles: tuple[str, ...] = ()
    human_required: bool = False
    estimate_seconds: float | None = None
    lease_seconds: float | None = None
    parallelizable: bool = False
    isolation: Isolation = Isolation.NONE
    worktree_path: str = ""
    coordination_mode: SpawnMode | None = None
    assigned_to: str | None = None
    assigned_at: datetime | None = None
    waiting_for: str = ""
    not_before: datetime | None = None
    spawned_from: str | None = None
    lock_timeout_hours: float | None = None
    metadata: dict[str, Any] = {}


NO_LEASE = "no lease"
"""The text shown as the end of the lease for a claim without one."""


class Claim(Struct, frozen=True, gc=False, omit_defaults=True):
    """The right of one session and agent to a task, at one generation. It stays on the record,
    EXPIRED, until another session takes over."""

    id: str
    session: str
    agent: str
    generation: int
    claimed_at: datetime
    renewed_at: datetime
    expires_at: datetime | None
    """None: it has no lease, and never runs out by time."""
    lease_seconds: float
    """The length that was granted. For a claim without a lease: the length it would have."""
    grace_seconds: float = 0.0
    state: ClaimState = ClaimState.ACTIVE
    user: str = ""
    role: str = ""
    operation: str = ""
    renewals: int = 0
    stale_at: datetime | None = None
    metadata: dict[str, Any] = {}


class Released(Struct, frozen=True, gc=False, omit_defaults=True):
    """The end of the last claim, kept so that a repeated release gets the same answer."""

    generation: int
    session: str
    reason: ReleaseReason
    operation: str = ""


class Product(Struct, frozen=True, gc=False):
    """A file that was made for a task, by its content."""

    path: str
    sha256: str
    size: int


class Manifest(Struct, frozen=True, gc=False):
    """The products of one result, and the place of their drafts."""

    agent: str
    """The agent that submitted the drafts."""
    generation: int
    """The generation of the drafts. An adopted result has another generation than its
    acceptance."""
    files: tuple[Product, ...]
    """Sorted by path."""


class Result(Struct, frozen=True, gc=False, omit_defaults=True):
    """The accepted result."""

    id: str
    generation: int
    session: str
    agent: str
    work_product_ref: str
    digest: str
    size: int
    submitted_at: datetime
    data: Raw = NO_DATA
    payload: bool = False
    """The data is kept as a payload, under the record's key, the payload's id and the digest."""
    operation: str = ""
    fan_in: bool = False
    """The result is read from the children on request, as {child: its reference}."""
    adopted_generation: int | None = None
    adopted_session: str | None = None
    payload_id: str = ""
    """Random digits, unique to this result; empty if it is from before payloads had them."""
    reviewer: str = ""
    """The reviewer that approved it."""
    reference: str = ""
    """The location of the work, in the author's words. It stands beside `work_product_ref`, which
    is always generated; in results of earlier versions it may stand in its place."""
    manifest: Manifest | None = None
    """Its products, if it has any."""


class Evaluation(Struct, frozen=True, gc=False, omit_defaults=True):
    """The verdict of one evaluator."""

    passed: bool
    at: datetime
    by: str = ""
    """The agent or user that reported it."""
    note: str = ""


class Review(Struct, frozen=True, gc=False, omit_defaults=True):
    """A result that waits for a review, and why."""

    result: Result
    """The result that the task gets if it is approved. The agent and session are the author's."""
    causes: tuple[ReviewCause, ...]
    role: str = ""
    """The role of the claim under which it was submitted."""
    user: str = ""
    """The author's user."""
    evaluators: tuple[str, ...] = ()
    """The evaluators that must pass."""
    evaluations: dict[str, Evaluation] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """Returns the evaluators that have not passed."""
        return tuple(
            name
            for name in self.evaluators
            if name not in self.evaluations or not self.evaluations[name].passed
        )


class Feedback(Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason why the last review did not accept the result, for the next holder."""

    at: datetime
    generation: int
    """The generation of the reviewed result."""
    by: str
    digest: str
    text: str = ""
    refused_id: str = ""
    """The name under which the work was kept, if any. It can be adopted."""


class Overlap(Struct, frozen=True, gc=False):
    """A task in flight that shares modules with another one."""

    task_id: str
    modules: tuple[str, ...]


class KnownState(Struct, frozen=True, gc=False, omit_defaults=True):
    """The last news of a dependency or child, and its version. Older news is ignored."""

    version: int = 0
    status: Status = Status.PENDING

    @property
    def finished(self) -> bool:
        return self.status is Status.COMPLETED or self.status is Status.CANCELLED


class Hold(Struct, frozen=True, gc=False, omit_defaults=True):
    """The reason why a task cannot be claimed, and the end of the hold (None: until it is
    reopened)."""

    reason: str
    since: datetime
    until: datetime | None = None


class Holder(Struct, frozen=True, gc=False):
    """The holder of a task, as shown to other sessions."""

    agent: str
    session: str
    user: str
    claimed_at: datetime
    expires_at: datetime | None
    looks_alive: bool


class Act(Struct, frozen=True, gc=False, omit_defaults=True):
    """An operation with an id that no claim, release or result remembers, kept so that its repeat
    gets the same answer."""

    operation: str
    session: str
    what: str
    """Its event, and its target."""
    children: tuple[str, ...] = ()
    """For a spawn: the children it made, because their names may come from a counter."""
    arguments: str = ""
    """A digest of the arguments; empty if there are none, or if the event is from before they were
    recorded."""
    superseded: Holder | None = None
    """The holder whose claim it superseded; also None if the event is from before that was
    recorded."""


class ProgressNote(Struct, frozen=True, gc=False, omit_defaults=True):
    """A worker's note about its work, for operators and for the next holders."""

    at: datetime
    generation: int
    agent: str
    text: str
    fraction: float | None = None


class ProgressLog(Struct, frozen=True, gc=False, omit_defaults=True):
    """The reported progress of a task: the present figures and the last notes."""

    generation: int
    """The generation of the last report; fraction and cost belong to it."""
    updated_at: datetime
    fraction: float | None = None
    cost: dict[str, float] = {}
    earlier_cost: dict[str, float] = {}
    """The total cost of all earlier generations."""
    notes: tuple[ProgressNote, ...] = ()
    """The oldest first, at most `MOST_NOTES`."""
    worktree_path: str = ""
    """The worktree of this generation, if it has one of its own. A plan may name another path,
    `task.worktree_path`, for all generations."""


MOST_NOTES = 20


class TaskRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A task: definition, state, clock, claim, result, and the news of related tasks."""

    task: Task
    state: Status
    created_at: datetime
    updated_at: datetime
    """The time of the last event. Event times never run backwards."""
    order: Order = Order.TRACK
    generation: int = 0
    granted: bool = False
    """Has the present generation been granted?"""
    grants: int = 0
    failures: int = 0
    """The number of claims in a row that ended EXPIRED, ERROR or ORPHANED."""
    claim: Claim | None = None
    released: Released | None = None
    result: Result | None = None
    dependencies: dict[str, KnownState] = {}
    children: dict[str, KnownState] = {}
    spawning: tuple[Task, ...] = ()
    """Children that were spawned or announced and are not known to exist yet."""
    spawn_mode: SpawnMode | None = None
    hold: Hold | None = None
    backlog: bool = False
    early: bool = False
    """`not_before` had not passed when it was last checked."""
    inputs_changed: tuple[str, ...] = ()
    """Dependencies and children that were reset after the work on this task had begun. A grant to a
    worker or a reset of this task clears the list; an acceptance does not."""
    assigned_until: datetime | None = None
    """The time at which the reservation for `task.assigned_to` lapses."""
    act: Act | None = None
    """The last operation that has an id."""
    acts: tuple[Act, ...] = ()
    """The operations before it, the oldest first: as many as its event says."""
    fan_in_due: bool = False
    """The last child is finished, but something else kept the task from being completed."""
    opened: bool = False
    """Was it taken out of the backlog? Then no plan puts it back."""
    spawning_backlog: tuple[str, ...] = ()
    """The children in `spawning` that start in the backlog."""
    waiting: Waiting = Waiting.NOTHING
    """The kind of thing that `task.waiting_for` names, while it blocks the task. A task that it
    names is among the dependencies until that task is finished."""
    progress: ProgressLog | None = None
    """The reports of its workers; None if there are none."""
    review: Review | None = None
    """While it is IN_REVIEW: the result that waits for the review."""
    feedback: Feedback | None = None
    """From the last review that did not accept the result; kept until a result is accepted or the
    task is reset."""

    def remembered(self, operation: str, session: str) -> Act | None:
        """Returns the operation of this session with this id, if it is still remembered."""
        if self.act is None or not operation:
            return None
        return next(
            (
                act
                for act in (self.act, *self.acts)
                if (act.operation, act.session) == (operation, session)
            ),
            None,
        )


class SessionRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """One run of one user's tool."""

    id: str
    created_at: datetime
    updated_at: datetime
    user: str = ""
    agent_type: str = ""
    process: Process | None = None
    heartbeat_at: datetime | None = None
    ended_at: datetime | None = None
    metadata: dict[str, Any] = {}
    implied: bool = False
    """No other process named this session's process. It is the process that registers the session
    or claims for it; None if there are several."""
    orphan_seconds: float | None = None
    """The silence after which its claims are orphaned, if its process is not known. None: its
    leases alone decide."""


class RefusedRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A result that was refused and kept."""

    task: str
    generation: int
    session: str
    agent: str
    digest: str
    reason: str
    current_generation: int
    work_product_ref: str
    size: int
    submitted_at: datetime
    updated_at: datetime
    data: Raw = NO_DATA
    payload: bool = False
    state: RefusedState = RefusedState.KEPT
    payload_id: str = ""
    """As in `Result`."""
    reference: str = ""
    """As in `Result`."""
    manifest: Manifest | None = None
    """As in `Result`."""


class PromotionRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """The products of one accepted result, on their way to the assets."""

    task: str
    generation: int
    """The generation at which the result was accepted."""
    manifest: Manifest
    accepted_at: datetime
    updated_at: datetime
    state: PromotionState = PromotionState.PENDING
    reason: str = ""
    """The reason why it failed."""
    superseded: tuple[str, ...] = ()
    """Paths that kept their asset because it came from a later acceptance."""


class CounterRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """The last number given out under a prefix."""

    prefix: str
    value: int
    updated_at: datetime
    epoch: int = 0
    """The store's epoch when numbers were last given out."""


class ProjectRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A project's policy and its table of tracks (None: the nine standard ones)."""

    id: str
    created_at: datetime
    updated_at: datetime
    policy: Policy
    tracks: dict[str, str] | None = None
    epoch: int = 0
    """The last epoch of the store that the project knows."""
    agent_roles: AgentRoles | None = None
    """The edges that each role may converge; None if roles limit no agent."""


class TenantRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tenant's profile and limits. Stored under the reserved tenant, which lists all tenants."""

    id: str
    created_at: datetime
    updated_at: datetime
    profile: str
    limits: TenantLimits


class AccessRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """The number of claims that one coordinator denied within one hour. The events have callers and
    reasons."""

    id: str
    updated_at: datetime
    denials: dict[str, int] = {}


class SettledRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """The cursor up to which the project's feed was checked for reactions that a crash may have cut
    off."""

    cursor: str
    updated_at: datetime


class FeatureRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """The remaining work of a feature: its tasks, each with the version at which it was last
    seen."""

    name: str
    updated_at: datetime
    unfinished: dict[str, int] = {}
    finished: dict[str, int] = {}
    """In the order of the news: the latest comes last. A task is in only one of the two."""
    forgotten: int = 0
    """The number of finished tasks that it no longer knows by name."""
    crowded: bool = False
    """It has had more unfinished tasks than it can hold, so the number left is unknown."""

    @property
    def done(self) -> int:
        """Returns the number of its finished tasks."""
        return len(self.finished) + self.forgotten


class KeyRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A key that opens the service: its permissions, and the digest of its secret. Stored under the
    reserved tenant."""

    id: str
    name: str
    tenant: str
    projects: str
    role: Role
    digest: str
    created_at: datetime
    created_by: str
    updated_at: datetime
    session: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    previous: str | None = None
    """The digest before the last rotation, accepted until `previous_until`."""
    previous_until: datetime | None = None
    agent_roles: tuple[str, ...] = ()
    """The agents' roles that its holder may state; an operator may state any."""


Record: TypeAlias = (
    TaskRecord
    | SessionRecord
    | RefusedRecord
    | PromotionRecord
    | CounterRecord
    | ProjectRecord
    | TenantRecord
    | AccessRecord
    | SettledRecord
    | KeyRecord
    | FeatureRecord
)


# The identity behind a connection.


class Identity(Struct, frozen=True, kw_only=True):
    """The identity behind a connection, for calls that do not state one."""

    tenant_id: str = "default"
    project_id: str = "default"
    session_id: str | None = None
    agent_id: str | None = None
    user_id: str = ""
    client_ip: str = ""
    host: str = ""
    role: str = ""
    process: Process | None = None
    own_process: bool = True
    """Is it the process that made the connection? Then a forked child is a different one."""
    orphan_seconds: float | None = None
    """For sessions that it registers: the silence after which claims of those without a known
    process are orphaned. None: their leases alone decide."""


NO_SESSION = (
    "session_id is missing: pass it, or give one to connect(); over HTTP also by the "
    "header genlock-session"
)
NO_AGENT = (
    "agent_id is missing: pass it, or give one to connect(); over HTTP also by the header "
    "genlock-agent"
)
