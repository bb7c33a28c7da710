"""The records: what is remembered of tasks, sessions, refused results, counters, projects, tenants, denials, settling and keys.

Each is the fold of its events and nothing else (see `genlock.core.evolve`). Fields with their default are left out of the
stored bytes, so a field can be added without a new format as long as its default means "as before". (The codec leaves a field out if
it *is* the default, not if it equals it: so no field of a record that is set from an event's text or struct has such a default.)
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Raw, Struct

from genlock.core.access import Role
from genlock.core.policy import Order, Policy, TenantLimits
from genlock.core.reasons import ClaimState, Isolation, RefusedState, ReleaseReason, SpawnMode, Status

NO_DATA = Raw(b"null")
"""No result data here: there is none, or it is a payload, or it was discarded."""

SYSTEM_SESSION = "genlock"
"""The session and agent in whose name the coordinator itself acts (fan-in, adoption by an operator)."""


class Process(Struct, frozen=True, gc=False, omit_defaults=True):
    """Which process a session is: a pid alone may be reused, with its start time it is not."""

    host: str
    boot: str
    pid: int
    started: int


class Actor(Struct, frozen=True, gc=False, omit_defaults=True):
    """Who is behind an event, beyond session and agent."""

    user_id: str = ""
    client_ip: str = ""
    host: str = ""
    role: str = ""


NOBODY = Actor()


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


class Claim(Struct, frozen=True, gc=False, omit_defaults=True):
    """The right of one session and agent to a task, at one generation. It stays on the record, EXPIRED, until someone takes over."""

    id: str
    session: str
    agent: str
    generation: int
    claimed_at: datetime
    renewed_at: datetime
    expires_at: datetime
    lease_seconds: float
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


class Heard(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a task last heard of a dependency or child, and at which version of it: older news is ignored."""

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
    expires_at: datetime
    looks_alive: bool


class Act(Struct, frozen=True, gc=False, omit_defaults=True):
    """An act with an operation id that no claim, release or result remembers, kept so that its repeat is answered alike."""

    operation: str
    session: str
    what: str
    """Its event, and for whom."""
    children: tuple[str, ...] = ()
    """Of a spawn: what it made, since their names may have been taken from a counter."""
    arguments: str = ""
    """A digest of what was asked; empty if the act has no arguments, or if its event is from before they were noted."""
    superseded: Holder | None = None
    """Whose claim it took away; also none if its event is from before that was noted."""


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
    dependencies: dict[str, Heard] = {}
    children: dict[str, Heard] = {}
    spawning: tuple[Task, ...] = ()
    """Children that were spawned and are not known to exist yet."""
    spawn_mode: SpawnMode | None = None
    hold: Hold | None = None
    backlog: bool = False
    early: bool = False
    """`not_before` has not passed yet, as far as anyone has looked."""
    inputs_changed: tuple[str, ...] = ()
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

    def remembered(self, operation: str, session: str) -> Act | None:
        """The act that this session has done under this id, if it is not too long ago."""
        if self.act is None or not operation:
            return None
        return next((act for act in (self.act, *self.acts) if (act.operation, act.session) == (operation, session)), None)


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
    """Nobody has said which process it is: it is the one that claims for it, and none if there are several."""


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


class CounterRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """The last number given out under a prefix."""

    prefix: str
    value: int
    updated_at: datetime


class ProjectRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A project's policy and its table of tracks (None: the nine standard ones)."""

    id: str
    created_at: datetime
    updated_at: datetime
    policy: Policy
    tracks: dict[str, str] | None = None
    epoch: int = 0
    """The last one of the store that it has heard of."""


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


class KeyRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A key that opens the service: what it opens, and the digest of its secret; lives under the reserved tenant."""

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


Record: TypeAlias = (
    TaskRecord | SessionRecord | RefusedRecord | CounterRecord | ProjectRecord | TenantRecord | AccessRecord | SettledRecord | KeyRecord
)
