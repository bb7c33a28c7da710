"""The records: what is remembered of tasks, sessions, refused results, counters, projects, tenants,
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
"""No result data here: there is none, or it is a payload, or it was discarded."""

SYSTEM_SESSION = "genlock"
"""The session and agent in whose name the coordinator itself acts (fan-in, adoption by an
operator)."""


class Process(Struct, frozen=True, gc=False, omit_defaults=True):
    """Which process a session is: a pid alone may be reused, with its start time it is not."""

    host: str
    boot: str
    pid: int
    started: int
    namespace: str = ""
    """In which the pid counts; `processes.NO_NAMESPACES` on a system that has none. "" if it is not
    known: then only the lease decides."""


class Actor(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who is behind an event, beyond session and agent."""

    user_id: str = ""
    client_ip: str = ""
    host: str = ""
    role: str = ""


NOBODY = Actor()


def for_user(actor: Actor, user: str) -> Actor:
    """The same actor on behalf of this user; as it is, if nobody is named."""
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
"""How people read the end of a lease that a claim does not have."""


class Claim(Struct, frozen=True, gc=False, omit_defaults=True):
    """The right of one session and agent to a task, at one generation. It stays on the record,
    EXPIRED, until someone takes over."""

    id: str
    session: str
    agent: str
    generation: int
    claimed_at: datetime
    renewed_at: datetime
    expires_at: datetime | None
    """None: it has no lease, and never runs out by time."""
    lease_seconds: float
    """The length that was granted. Of a claim without a lease: the length it would have."""
    grace_seconds: float = 0.0
    state: ClaimState = ClaimState.ACTIVE
    user: str = ""
    role: str = ""
    operation: str = ""
    renewals: int = 0
    stale_at: datetime | None = None
    metadata: dict[str, Any] = {}


class Released(Struct, frozen=True, gc=False, omit_defaults=True):
    """How the last claim ended, kept so that a repeated release is answered alike."""

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
    """The products of one result, and where their drafts are."""

    agent: str
    """Whose drafts: the agent that submitted them."""
    generation: int
    """Of those drafts. An adopted result has another generation than its acceptance."""
    files: tuple[Product, ...]
    """By path."""


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
    """The result reads as {child: its reference}, from the children, when asked."""
    adopted_generation: int | None = None
    adopted_session: str | None = None
    payload_id: str = ""
    """Fresh digits, this result's alone; none if it is from before payloads had them."""
    reviewer: str = ""
    """Who approved it after a review."""
    reference: str = ""
    """Where the work lies, in the author's words. It stands beside `work_product_ref`, which is
    always generated; in results of earlier versions it may stand in its place."""
    manifest: Manifest | None = None
    """Its products, if it has any."""


class Evaluation(Struct, frozen=True, gc=False, omit_defaults=True):
    """What one evaluator found."""

    passed: bool
    at: datetime
    by: str = ""
    """The agent or user that reported it."""
    note: str = ""


class Review(Struct, frozen=True, gc=False, omit_defaults=True):
    """A result that waits for a review, and why."""

    result: Result
    """As it will be the task's, if it is approved. The agent and session are the author's."""
    causes: tuple[ReviewCause, ...]
    role: str = ""
    """Of the claim under which it was submitted."""
    user: str = ""
    """The author's."""
    evaluators: tuple[str, ...] = ()
    """Those that must pass."""
    evaluations: dict[str, Evaluation] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """The evaluators that have not passed."""
        return tuple(
            name
            for name in self.evaluators
            if name not in self.evaluations or not self.evaluations[name].passed
        )


class Feedback(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why the last review ended without the result, for the next holder."""

    at: datetime
    generation: int
    """The one whose result it was."""
    by: str
    digest: str
    text: str = ""
    refused_id: str = ""
    """The name under which the work was kept, if there was any; it can be adopted."""


class Overlap(Struct, frozen=True, gc=False):
    """A task in flight that shares modules with another one."""

    task_id: str
    modules: tuple[str, ...]


class KnownState(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a task last heard of a dependency or child, and at which version of it: older news is
    ignored."""

    version: int = 0
    status: Status = Status.PENDING

    @property
    def finished(self) -> bool:
        return self.status is Status.COMPLETED or self.status is Status.CANCELLED


class Hold(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why nobody may claim a task, and until when (None: until someone reopens it)."""

    reason: str
    since: datetime
    until: datetime | None = None


class Holder(Struct, frozen=True, gc=False):
    """Who has the task, for those who do not."""

    agent: str
    session: str
    user: str
    claimed_at: datetime
    expires_at: datetime | None
    looks_alive: bool


class Act(Struct, frozen=True, gc=False, omit_defaults=True):
    """An act with an operation id that no claim, release or result remembers, kept so that its
    repeat is answered alike."""

    operation: str
    session: str
    what: str
    """Its event, and for whom."""
    children: tuple[str, ...] = ()
    """Of a spawn: what it made, since their names may have been taken from a counter."""
    arguments: str = ""
    """A digest of what was asked; empty if the act has no arguments, or if its event is from before
    they were noted."""
    superseded: Holder | None = None
    """Whose claim it took away; also none if its event is from before that was noted."""


class ProgressNote(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a worker has written about its work, for operators and for its successors."""

    at: datetime
    generation: int
    agent: str
    text: str
    fraction: float | None = None


class ProgressLog(Struct, frozen=True, gc=False, omit_defaults=True):
    """What was reported of the work on a task: the present figures, and the last notes."""

    generation: int
    """Of the last report; fraction and cost are that generation's."""
    updated_at: datetime
    fraction: float | None = None
    cost: dict[str, float] = {}
    earlier_cost: dict[str, float] = {}
    """The sum over the generations before."""
    notes: tuple[ProgressNote, ...] = ()
    """The oldest first, at most `MOST_NOTES`."""
    worktree_path: str = ""
    """Where this generation works, if it has a worktree of its own. A plan may name another place,
    `task.worktree_path`, for all generations."""


MOST_NOTES = 20


class TaskRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A task: definition, state, clock, claim, result, and what it has heard of others."""

    task: Task
    state: Status
    created_at: datetime
    updated_at: datetime
    """The time of the last event; event times never run back."""
    order: Order = Order.TRACK
    generation: int = 0
    granted: bool = False
    """Has the present generation been granted to someone?"""
    grants: int = 0
    failures: int = 0
    """Claims in a row that ended EXPIRED, ERROR or ORPHANED."""
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
    """`not_before` has not passed yet, as far as anyone has looked."""
    inputs_changed: tuple[str, ...] = ()
    """Dependencies and children that were reset after the work on this task had begun. A grant to a
    worker and a reset of this task clear it; an acceptance does not."""
    assigned_until: datetime | None = None
    """When the reservation for `task.assigned_to` lapses."""
    act: Act | None = None
    """The last one that has an operation id."""
    acts: tuple[Act, ...] = ()
    """Those before it, the oldest first: as many as its event says."""
    fan_in_due: bool = False
    """The last child has come to its end, and something else kept that from completing the task."""
    opened: bool = False
    """Has somebody taken it out of the backlog? Then no plan puts it back."""
    spawning_backlog: tuple[str, ...] = ()
    """Those of `spawning` that begin in the backlog."""
    waiting: Waiting = Waiting.NOTHING
    """What kind of thing `task.waiting_for` names, while that keeps the task blocked. A task it
    names stands among the dependencies until it is finished."""
    progress: ProgressLog | None = None
    """What its workers have reported; none if nobody has reported anything."""
    review: Review | None = None
    """While it is IN_REVIEW: what waits for the review."""
    feedback: Feedback | None = None
    """Of the last review that ended without the result, until a result is accepted or the task is
    reset."""

    def remembered(self, operation: str, session: str) -> Act | None:
        """The act that this session has done under this id, if it is not too long ago."""
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
    """No other process has named this session's process: it is the one that registers the session
    or claims for it, and none if there are several."""
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
    """As of a result."""
    reference: str = ""
    """As of a result."""
    manifest: Manifest | None = None
    """As of a result."""


class PromotionRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """The products of one accepted result, on their way to the assets."""

    task: str
    generation: int
    """At which the result was accepted."""
    manifest: Manifest
    accepted_at: datetime
    updated_at: datetime
    state: PromotionState = PromotionState.PENDING
    reason: str = ""
    """Why it failed."""
    superseded: tuple[str, ...] = ()
    """Paths whose asset came from a later acceptance already."""


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
    """The last one of the store that it has heard of."""
    agent_roles: AgentRoles | None = None
    """Which edges each role may converge; None if roles limit nobody."""


class TenantRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tenant's profile and limits; lives under the reserved tenant, which lists them all."""

    id: str
    created_at: datetime
    updated_at: datetime
    profile: str
    limits: TenantLimits


class AccessRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """How often one coordinator denied claims within one hour; the events say whom and why."""

    id: str
    updated_at: datetime
    denials: dict[str, int] = {}


class SettledRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """How far the project's feed has been looked at for reactions that a crash may have cut off."""

    cursor: str
    updated_at: datetime


class FeatureRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is left of a feature: its tasks, each with the version at which it was last seen."""

    name: str
    updated_at: datetime
    unfinished: dict[str, int] = {}
    finished: dict[str, int] = {}
    """The one heard of last is the last. A task is in one of the two."""
    forgotten: int = 0
    """Finished tasks that it no longer knows by name."""
    crowded: bool = False
    """It has had more unfinished tasks than it can know, so nobody knows how many are left."""

    @property
    def done(self) -> int:
        """How many of its tasks are finished."""
        return len(self.finished) + self.forgotten


class KeyRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A key that opens the service: what it opens, and the digest of its secret; lives under the
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
    """The digest before the last rotation, taken until `previous_until`."""
    previous_until: datetime | None = None
    agent_roles: tuple[str, ...] = ()
    """The roles of agents that its holder may state; an operator may state any."""


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


# Who a connection speaks for.


class Identity(Struct, frozen=True, kw_only=True):
    """Who a connection speaks for where a call does not say."""

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
    """Is it the process that made the connection? Then a forked child is another."""
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
