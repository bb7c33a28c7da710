"""The answers: typed records with the documents' names. Refusals are answers too."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from genlock.core.access import Role
from genlock.core.faults import Fault
from genlock.core.model import Holder as Holder
from genlock.core.model import Task
from genlock.core.reasons import (
    ClaimReason,
    ClaimState,
    KeyState,
    RefusedState,
    ReleaseAnswer,
    ReleaseReason,
    RenewReason,
    Status,
    SubmitReason,
    Verdict,
)


class TaskClaim(Struct, frozen=True, gc=False, kw_only=True):
    """A claim as its holder sees it. `generation` is the fencing token: every later write carries it."""

    id: str
    tenant_id: str
    project_id: str
    task_id: str
    track: str | None
    sequence: int | None
    agent_id: str
    generation: int
    session_id: str
    claimed_at: datetime
    lease_seconds: float
    expires_at: datetime
    state: ClaimState
    work_product_ref: str | None = None
    agent_role: str = ""
    metadata: Mapping[str, Any] = {}


class ClaimResult(Struct, frozen=True, gc=False):
    """The answer to a claim. A denial says who holds the task or what it waits for."""

    success: bool
    reason: ClaimReason
    task_id: str | None = None
    claim: TaskClaim | None = None
    task: Task | None = None
    current_holder: str | None = None
    holder: Holder | None = None
    waits_for: tuple[str, ...] = ()
    limit: str | None = None
    detail: str = ""
    inputs_changed: tuple[str, ...] = ()


class RenewalResult(Struct, frozen=True, gc=False):
    """The answer to a renewal."""

    success: bool
    reason: RenewReason
    generation: int
    new_expiry: datetime | None = None
    inputs_changed: tuple[str, ...] = ()
    """Dependencies that were reset since the claim began."""


class ReleaseResult(Struct, frozen=True, gc=False):
    """The answer to a release."""

    success: bool
    reason: ReleaseAnswer
    generation: int


class SubmissionResult(Struct, frozen=True, gc=False):
    """The answer to a submission. A refused result with content is kept: see `list_refused_results`."""

    accepted: bool
    reason: SubmitReason
    current_generation: int
    work_lost: bool = False
    kept: bool = False
    work_product_ref: str | None = None
    refused_id: str | None = None
    waits_for: tuple[str, ...] = ()


class SpawnResult(Struct, frozen=True, gc=False):
    """The answer to a spawn: the same fence as a submission's."""

    success: bool
    reason: SubmitReason
    current_generation: int
    children: tuple[str, ...] = ()


class OperatorResult(Struct, frozen=True, gc=False):
    """The answer to an operator's act: the state and generation after it."""

    verdict: Verdict
    task_id: str
    state: Status
    generation: int
    superseded: Holder | None = None
    """Whose claim was taken away by it."""
    cascade: tuple[str, ...] = ()


class AddResult(Struct, frozen=True, gc=False):
    """What became of one added or edited task."""

    verdict: Verdict
    task_id: str
    state: Status
    changed: tuple[str, ...] = ()


class TaskResult(Struct, frozen=True, gc=False, kw_only=True):
    """A submitted result, accepted or refused (GC 4.2.1)."""

    id: str
    tenant_id: str
    project_id: str
    task_id: str
    track: str | None
    sequence: int | None
    generation: int
    session_id: str
    agent_id: str
    work_product_ref: str
    result_data: Any
    submitted_at: datetime
    accepted: bool
    rejection_reason: str | None = None
    digest: str = ""
    size: int = 0
    payload: bool = False
    """`result_data` is None here because it is large: `read_result` opens it."""
    state: RefusedState | None = None
    adopted_generation: int | None = None
    adopted_session: str | None = None


class TaskState(Struct, frozen=True, gc=False, kw_only=True):
    """All that is known of a task now."""

    task: Task
    state: Status
    generation: int
    claim: TaskClaim | None = None
    holder: Holder | None = None
    unmet_dependencies: tuple[str, ...] = ()
    unfinished_children: tuple[str, ...] = ()
    result: TaskResult | None = None
    refused_results: int = 0
    hold_reason: str | None = None
    held_until: datetime | None = None
    inputs_changed: tuple[str, ...] = ()
    failures: int = 0
    created_at: datetime
    updated_at: datetime


class ClaimHistory(Struct, frozen=True, gc=False, kw_only=True):
    """One generation's story (GC 4.2.1)."""

    id: str
    tenant_id: str
    project_id: str
    task_id: str
    track: str | None
    sequence: int | None
    generation: int
    session_id: str
    agent_id: str
    user_id: str = ""
    acquired_at: datetime
    released_at: datetime | None = None
    release_reason: ReleaseReason | None = None
    result_accepted: bool = False
    result_rejected: bool = False
    work_product_ref: str | None = None
    renewals: int = 0


class Lineage(Struct, frozen=True, gc=False):
    """GC 9.2: the generations of a task and the submissions refused along the way."""

    task_id: str
    generations: tuple[ClaimHistory, ...]
    refused: tuple[TaskResult, ...]


class Root(Struct, frozen=True, gc=False):
    """A task at the bottom of what another waits for: it waits for no third one. `state` is None if there is no such task."""

    task_id: str
    state: Status | None
    because: str


class Explanation(Struct, frozen=True, gc=False, kw_only=True):
    """Why a task is not ready, or why this agent would not get it, and what would change that."""

    task_id: str
    state: Status
    ready: bool
    reason: ClaimReason
    """What a claim would be answered now."""
    because: tuple[str, ...] = ()
    try_next: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    cycle: tuple[str, ...] = ()
    holder: Holder | None = None
    roots: tuple[Root, ...] = ()
    """What a blocked task's waiting comes down to, the nearest first."""
    own_generation: int | None = None
    """The generation at which the caller's own session holds it already, if it does."""


class ReadyTask(Struct, frozen=True, gc=False):
    """One line of `ready`."""

    task: Task
    state: Status
    generation: int


class BlockedTask(Struct, frozen=True, gc=False):
    """One line of `blocked`."""

    task: Task
    blocked_by: tuple[str, ...]


class ClaimRef(Struct, frozen=True, gc=False):
    """A claim in a session's memory."""

    task_id: str
    generation: int
    expires_at: datetime


class Progress(Struct, frozen=True, gc=False):
    """How far a track is."""

    completed: int = 0
    in_progress: int = 0
    pending: int = 0
    blocked: int = 0
    other: int = 0


class TaskLogEntry(Struct, frozen=True, gc=False, kw_only=True):
    """One line of a session's task log."""

    timestamp: datetime
    event: str
    task_id: str
    track: str | None
    sequence: int | None
    generation: int
    agent_id: str
    outcome: str | None = None
    work_product_ref: str | None = None
    details: Mapping[str, Any] = {}


class SessionInfo(Struct, frozen=True, gc=False, kw_only=True):
    """A session as listed."""

    session_id: str
    tenant_id: str
    project_id: str
    user_id: str
    agent_type: str
    created_at: datetime
    last_activity: datetime
    ended_at: datetime | None
    active: bool
    host: str | None
    pid: int | None
    process_gone: bool
    claims: tuple[ClaimRef, ...] = ()
    metadata: Mapping[str, Any] = {}


class SessionMemory(Struct, frozen=True, gc=False, kw_only=True):
    """GC 3.5: what a session has done and holds."""

    session_id: str
    tenant_id: str
    project_id: str
    user_id: str
    created_at: datetime
    last_activity: datetime
    task_log: tuple[TaskLogEntry, ...]
    active_claims: tuple[ClaimRef, ...]
    completed_tasks: tuple[str, ...]
    track_assignments: Mapping[str, str]
    track_progress: Mapping[str, Progress]


class AgentInfo(Struct, frozen=True, gc=False):
    """An agent with a live claim or a recent one."""

    agent_id: str
    session_id: str
    status: str
    tasks: tuple[str, ...]


class SessionEnd(Struct, frozen=True, gc=False):
    """What ending a session released."""

    session_id: str
    released: tuple[str, ...]


class SweepResult(Struct, frozen=True, gc=False):
    """What a sweep found and did."""

    expired: int = 0
    orphaned: int = 0
    stale: int = 0
    settled: int = 0
    purged: int = 0


class Settings(Struct, frozen=True, gc=False):
    """A project's policy with its limits and tracks."""

    policy: Mapping[str, Any]
    limits: Mapping[str, Any]
    profile: str
    tracks: Mapping[str, str]


class TenantInfo(Struct, frozen=True, gc=False, kw_only=True):
    """A tenant as listed: its profile, and its limits one by one (None is unlimited)."""

    tenant_id: str
    profile: str
    limits: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


class KeyInfo(Struct, frozen=True, gc=False, kw_only=True):
    """A key as listed: what it opens, for whom, until when. Nothing here helps to use it."""

    key_id: str
    name: str
    tenant_id: str
    projects: str
    role: Role
    session_id: str | None
    state: KeyState
    created_at: datetime
    created_by: str
    updated_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    previous_until: datetime | None = None
    """Until then the text before the last rotation is taken too."""


class NewKey(Struct, frozen=True, gc=False):
    """A key that was made or rotated, with its text: it is in no store and in no other answer."""

    key: KeyInfo
    text: str

    def __repr__(self) -> str:
        return f"NewKey(key={self.key!r}, text=…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What a pretty-printer would show instead."""
        return [("key", self.key)]


class FeedEvent(Struct, frozen=True, gc=False):
    """One event of a project's feed; `cursor` continues behind it, `kind` and `id` name its record."""

    position: int
    cursor: str
    kind: str
    id: str
    event_type: str
    event: Mapping[str, Any]


class Feed(Struct, frozen=True, gc=False):
    """A page of the feed."""

    events: tuple[FeedEvent, ...]
    cursor: str
    more: bool


class PlanResult(Struct, frozen=True, gc=False):
    """What importing a plan changed."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    gone: tuple[str, ...]
    cancelled: tuple[str, ...] = ()
    fields: Mapping[str, tuple[str, ...]] = {}
    """Of each changed task, the fields that changed."""
    still_cancelled: tuple[str, ...] = ()
    """In the plan, but cancelled once, which no import takes back."""
    notes: tuple[Fault, ...] = ()
    """What is no fault of the plan, but perhaps not meant."""
    prunable: tuple[str, ...] = ()
    """Those of the gone that are not finished: what pruning cancels."""
