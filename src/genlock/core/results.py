"""The answers: typed values with the names of the five documents. Refusals are answers too."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from genlock.core.key_roles import Role
from genlock.core.model import Evaluation as Evaluation
from genlock.core.model import Feedback as Feedback
from genlock.core.model import Holder as Holder
from genlock.core.model import Manifest as Manifest
from genlock.core.model import Overlap as Overlap
from genlock.core.model import Product as Product
from genlock.core.model import ProgressNote as ProgressNote
from genlock.core.model import Task
from genlock.core.plan_faults import Fault
from genlock.core.reasons import (
    AgentStatus,
    ClaimReason,
    ClaimState,
    KeyState,
    ProgressReason,
    PromotionState,
    PushReason,
    RefusedState,
    ReleaseAnswer,
    ReleaseReason,
    RenewReason,
    ReviewCause,
    ReviewReason,
    Status,
    SubmitReason,
    Verdict,
)
from genlock.errors import ClaimDenied


class TaskClaim(Struct, frozen=True, gc=False, kw_only=True):
    """A claim as its holder sees it. `generation` is the fencing token: every later write carries
    it."""

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
    expires_at: datetime | None
    """None: the claim has no lease (policy `agents: single`)."""
    state: ClaimState
    work_product_ref: str | None = None
    agent_role: str = ""
    metadata: Mapping[str, Any] = {}


class ClaimRef(Struct, frozen=True, gc=False):
    """A claim of a session in brief."""

    task_id: str
    generation: int
    expires_at: datetime | None


class ClaimResult(Struct, frozen=True, gc=False):
    """The answer to a claim. A denial names the holder of the task or the tasks that it waits
    for."""

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
    already_held: bool = False
    """The session and agent held the task already, perhaps through another of their workers. False
    for the repeat of an operation id."""
    held: tuple[ClaimRef, ...] = ()
    """claim_next only: the session's other live claims in this project. A grant has them only if
    the call had an operation id."""
    attempt: int = 0
    """For a grant: the number of grants since the task was added or reset, including this one. From
    the second on, the task's lineage shows what the earlier ones left."""
    feedback: Feedback | None = None
    """For a grant: the reason why the last review did not accept the result."""
    roles: tuple[str, ...] = ()
    """For DENIED_ROLE: the roles that the task is for."""
    overlaps: tuple[Overlap, ...] = ()
    """Work in flight that shares modules with the task, if the policy `overlap` is on."""
    unfinished: dict[str, int] = {}
    """For NOTHING_READY: the number of unfinished tasks of the project in each state."""

    def require(self) -> TaskClaim:
        """Returns the claim of a grant. Raises ClaimDenied if none was granted."""
        if self.claim is not None:
            return self.claim
        task = f"task {self.task_id!r}" if self.task_id else "a task"
        why = f": {self.detail}" if self.detail else ""
        denied = ClaimDenied(f"{task} was not granted, {self.reason}{why}")
        denied.result = self
        raise denied


class NextPreview(Struct, frozen=True, gc=False):
    """The answer that a request for a next task would get. Nothing is claimed."""

    reason: ClaimReason
    task: Task | None = None
    because: tuple[str, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    """Work in flight that shares modules with the task."""


class RenewalResult(Struct, frozen=True, gc=False):
    """The answer to a renewal."""

    success: bool
    reason: RenewReason
    generation: int
    new_expiry: datetime | None = None
    """The new end of the lease. None if the renewal was refused, or the claim has no lease."""
    inputs_changed: tuple[str, ...] = ()
    """Dependencies that were reset since the claim began."""
    lease_seconds: float | None = None
    """The length of the lease that was granted: the requested length within the tenant's limits."""


class ProgressResult(Struct, frozen=True, gc=False):
    """The answer to a report of progress."""

    success: bool
    reason: ProgressReason
    generation: int


class ReleaseResult(Struct, frozen=True, gc=False):
    """The answer to a release."""

    success: bool
    reason: ReleaseAnswer
    generation: int


class SubmissionResult(Struct, frozen=True, gc=False):
    """The answer to a submission. A refused result with content is kept: see
    `list_refused_results`."""

    accepted: bool
    reason: SubmitReason
    current_generation: int
    work_lost: bool = False
    """The work does not count. It is not lost if `kept` is true."""
    kept: bool = False
    work_product_ref: str | None = None
    refused_id: str | None = None
    waits_for: tuple[str, ...] = ()
    review_causes: tuple[ReviewCause, ...] = ()
    """For CONVERGENCE_ESCALATED: the reasons why the result waits for a review."""


class ReviewInfo(Struct, frozen=True, gc=False, kw_only=True):
    """A result that waits for a review."""

    task_id: str
    title: str
    edge: str | None
    generation: int
    digest: str
    causes: tuple[ReviewCause, ...]
    session_id: str
    agent_id: str
    user_id: str
    agent_role: str
    submitted_at: datetime
    work_product_ref: str
    size: int
    payload: bool
    """`result_data` is None here because it is large: `read_result` returns it."""
    missing_evaluators: tuple[str, ...] = ()
    evaluations: Mapping[str, Evaluation] = {}
    inputs_changed: tuple[str, ...] = ()
    result_data: Any = None
    """Only in the answer of `get_review`."""
    reference: str = ""
    """The location of the work, in the author's words: a commit, a file, an address."""
    manifest: Manifest | None = None
    """Its products."""


class ReviewResult(Struct, frozen=True, gc=False):
    """The answer to an approval, a rejection or an evaluation: the task after it."""

    success: bool
    reason: ReviewReason
    task_id: str
    state: Status
    generation: int
    digest: str = ""
    """The digest of the result that waits for a review now."""
    reviewer: str = ""
    author: str = ""
    """For FOUR_EYES: the author's user."""
    refused_id: str | None = None
    """For a rejection: the name under which the work is kept."""
    waits_for: tuple[str, ...] = ()
    missing_evaluators: tuple[str, ...] = ()


class PromotionInfo(Struct, frozen=True, gc=False, kw_only=True):
    """The products of an accepted result, and the state of their promotion."""

    task_id: str
    generation: int
    """The generation at which the result was accepted."""
    state: PromotionState
    manifest: Manifest
    digest: str
    """The digest of the manifest, which a promoter states."""
    accepted_at: datetime
    updated_at: datetime
    reason: str = ""
    """The reason why it failed."""
    superseded: tuple[str, ...] = ()
    """Paths that kept their asset because it came from a later acceptance."""


class PushVerdict(Struct, frozen=True, gc=False, kw_only=True):
    """May a git repository take this commit?"""

    allowed: bool
    reason: PushReason
    task_id: str
    generation: int
    """The generation of the branch."""
    current_generation: int
    """The generation of the task."""
    state: Status
    commit: str = ""
    """The commit that the result names: the only one that the branch still takes."""
    held_by: str = ""
    """The agent that holds the task now."""


class SpawnResult(Struct, frozen=True, gc=False):
    """The answer to a spawn: the same fence as a submission's."""

    success: bool
    reason: SubmitReason
    current_generation: int
    children: tuple[str, ...] = ()


class OperatorResult(Struct, frozen=True, gc=False):
    """The answer to an operator's command: the state and generation after it."""

    verdict: Verdict
    task_id: str
    state: Status
    generation: int
    superseded: Holder | None = None
    """The holder whose claim it superseded."""
    cascade: tuple[str, ...] = ()


class AddResult(Struct, frozen=True, gc=False):
    """The outcome for one added or edited task."""

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
    """`result_data` is None here because it is large: `read_result` returns it."""
    state: RefusedState | None = None
    adopted_generation: int | None = None
    adopted_session: str | None = None
    reference: str = ""
    """The location of the work, in the author's words: a commit, a file, an address."""
    manifest: Manifest | None = None
    """Its products."""


class TaskProgress(Struct, frozen=True, gc=False):
    """The reported progress of a task."""

    generation: int
    """The generation of the last report; `fraction` belongs to it."""
    updated_at: datetime
    fraction: float | None = None
    """The part of the work that is done, from 0 to 1."""
    cost: Mapping[str, float] = {}
    """The total cost of all generations, by unit."""
    notes: tuple[ProgressNote, ...] = ()
    """The last notes, the oldest first."""
    worktree_path: str = ""
    """The worktree of that generation, if it reported one."""


class TaskState(Struct, frozen=True, gc=False, kw_only=True):
    """The complete present state of a task."""

    task: Task
    state: Status
    generation: int
    claim: TaskClaim | None = None
    holder: Holder | None = None
    unmet_dependencies: tuple[str, ...] = ()
    unfinished_children: tuple[str, ...] = ()
    spawned_tasks: tuple[str, ...] = ()
    """All its subtasks."""
    result: TaskResult | None = None
    refused_results: int = 0
    hold_reason: str | None = None
    held_until: datetime | None = None
    inputs_changed: tuple[str, ...] = ()
    """Dependencies and children that were reset after the work on this task had begun. The mark
    stays when the result is accepted, until the task is reset or granted again."""
    failures: int = 0
    progress: TaskProgress | None = None
    review: ReviewInfo | None = None
    """The result that waits for a review, if the task is IN_REVIEW."""
    feedback: Feedback | None = None
    created_at: datetime
    updated_at: datetime


class ClaimHistory(Struct, frozen=True, gc=False, kw_only=True):
    """The history of one generation (GC 4.2.1)."""

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
    stated_reason: str = ""
    """For a release: the holder's own words, if they differ from the kind."""
    result_accepted: bool = False
    result_rejected: bool = False
    work_product_ref: str | None = None
    renewals: int = 0
    fraction: float | None = None
    note: str = ""
    """The last note of this generation."""
    cost: Mapping[str, float] = {}
    reference: str = ""
    """For the accepted result: the location of the work, in the author's words."""


class Lineage(Struct, frozen=True, gc=False):
    """GC 9.2: the generations of a task and the submissions refused along the way."""

    task_id: str
    generations: tuple[ClaimHistory, ...]
    refused: tuple[TaskResult, ...]


class Root(Struct, frozen=True, gc=False):
    """A root of a task's waiting: a task that itself waits for no other. `state` is None if there
    is no such task."""

    task_id: str
    state: Status | None
    because: str


class Explanation(Struct, frozen=True, gc=False, kw_only=True):
    """Why a task is not ready, or why this agent would not get it, and what would change that."""

    task_id: str
    state: Status
    ready: bool
    reason: ClaimReason
    """The answer that a claim would get now."""
    because: tuple[str, ...] = ()
    try_next: tuple[tuple[str, ...], ...] = ()
    """Commands, each as a list of words."""
    waits_for: tuple[str, ...] = ()
    cycle: tuple[str, ...] = ()
    holder: Holder | None = None
    roots: tuple[Root, ...] = ()
    """The tasks for which a blocked task ultimately waits, the nearest first."""
    own_generation: int | None = None
    """The generation at which the caller's own session holds it already, if any."""


class ReadyTask(Struct, frozen=True, gc=False):
    """One line of `ready`."""

    task: Task
    state: Status
    generation: int


class BlockedTask(Struct, frozen=True, gc=False):
    """One line of `blocked`."""

    task: Task
    blocked_by: tuple[str, ...]


class Progress(Struct, frozen=True, gc=False):
    """The progress of a track."""

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
    """A session in a list."""

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
    """GC 3.5: the tasks that a session has done and holds."""

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


class AgentInfo(Struct, frozen=True, gc=False, kw_only=True):
    """An agent of a session, and its status."""

    agent_id: str
    session_id: str
    status: AgentStatus
    tasks: tuple[str, ...] = ()
    """The tasks that it holds, including those it holds as `lost`."""
    current_task: str | None = None
    """The one of these tasks that it claimed last."""
    tasks_completed: int | None = None
    """The number of tasks whose accepted result came from it; None if that was not requested."""
    started: datetime | None = None
    """The time at which its session began."""
    last_heartbeat: datetime | None = None
    """The time of the last sign of life of its session."""
    user_id: str = ""
    instance_type: str = ""
    workspace: str = ""
    worktree: str = ""


class SessionEnd(Struct, frozen=True, gc=False):
    """The answer to the end of a session: the claims it released."""

    session_id: str
    released: tuple[str, ...]


class SweepResult(Struct, frozen=True, gc=False):
    """The findings and changes of a sweep."""

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
    agent_roles: Mapping[str, Any] = {}
    """The table of roles as `agent_roles.yml` has it; empty if roles limit no agent."""
    has_own_tracks: bool = True
    """False: the project has no table of its own, and `tracks` has the nine standard ones."""

    @property
    def track_titles(self) -> Mapping[str, str]:
        """Returns the titles of the tracks that the project itself describes."""
        return self.tracks if self.has_own_tracks else {}


class TenantInfo(Struct, frozen=True, gc=False, kw_only=True):
    """A tenant in a list: its profile and its limits (None is unlimited)."""

    tenant_id: str
    profile: str
    limits: Mapping[str, Any]
    created_at: datetime
    updated_at: datetime


class KeyInfo(Struct, frozen=True, gc=False, kw_only=True):
    """A key in a list: its permissions, its owner and its end. Nothing here helps to use it."""

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
    """Until this time the text before the last rotation is accepted too."""
    agent_roles: tuple[str, ...] = ()
    """The agents' roles that its holder may state."""


class NewKey(Struct, frozen=True, gc=False):
    """A key that was created or rotated, with its text. No store and no other answer has the
    text."""

    key: KeyInfo
    text: str

    def __repr__(self) -> str:
        return f"NewKey(key={self.key!r}, text=…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Returns the fields for a pretty-printer."""
        return [("key", self.key)]


class FeedEvent(Struct, frozen=True, gc=False):
    """One event of a project's feed. `cursor` continues after it; `kind` and `id` name its
    record."""

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
    """The changes made by the import of a plan."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    gone: tuple[str, ...]
    cancelled: tuple[str, ...] = ()
    fields: Mapping[str, tuple[str, ...]] = {}
    """For each changed task: the fields that changed."""
    still_cancelled: tuple[str, ...] = ()
    """Tasks of the plan that were cancelled before. No import reverses that."""
    notes: tuple[Fault, ...] = ()
    """Warnings: not faults of the plan, but perhaps not intended."""
    prunable: tuple[str, ...] = ()
    """Tasks in `gone` that are not finished: pruning cancels them."""
