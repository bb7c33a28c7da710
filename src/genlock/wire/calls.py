"""The calls: what every operation takes and what it answers, one struct each, by the coordinator's names.

The fields are the keywords of the coordinator's methods, with the same defaults; a test holds the two together. The client makes a call
from keywords, the service makes keywords from a request, and the OpenAPI document is made from the structs themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from msgspec import Struct

from genlock.core.graph import Graph
from genlock.core.model import Process
from genlock.core.plan import Plan
from genlock.core.results import (
    AddResult,
    AgentInfo,
    BlockedTask,
    ClaimHistory,
    ClaimResult,
    Explanation,
    Feed,
    KeyInfo,
    Lineage,
    NewKey,
    OperatorResult,
    PlanResult,
    Progress,
    ReadyTask,
    ReleaseResult,
    RenewalResult,
    SessionEnd,
    SessionInfo,
    SessionMemory,
    Settings,
    SpawnResult,
    SubmissionResult,
    SweepResult,
    TaskClaim,
    TaskResult,
    TaskState,
    TenantInfo,
)
from genlock.errors import GenlockError

R = TypeVar("R")

LEASE_SECONDS = 300.0


class Call(Struct, Generic[R], kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One operation's keywords; `R` is its answer."""


class InTenant(Call[R], kw_only=True):
    """A call to a tenant; None is the connection's."""

    tenant_id: str | None = None


class InProject(InTenant[R], kw_only=True):
    """A call to a project; None is the connection's."""

    project_id: str | None = None


# Workers


class ClaimTask(InProject[ClaimResult], kw_only=True):
    """Ask for the right to work on a task. A grant carries the generation that every later write must show."""

    task_id: str
    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: float = LEASE_SECONDS
    operation_id: str | None = None
    agent_role: str = ""
    metadata: Mapping[str, Any] | None = None


class RenewLease(InProject[RenewalResult], kw_only=True):
    """Let the lease run anew, by its own length or another within the tenant's limits."""

    task_id: str
    expected_generation: int
    session_id: str | None = None
    lease_duration_seconds: float | None = None


class ReleaseClaim(InProject[ReleaseResult], kw_only=True):
    """Give the claim back: VOLUNTARY, or ERROR if the work failed (the circuit breaker counts those)."""

    task_id: str
    expected_generation: int
    session_id: str | None = None
    reason: str = "VOLUNTARY"
    operation_id: str | None = None


class SubmitResult(InProject[SubmissionResult], kw_only=True):
    """Hand in the result. It counts if the generation is still the highest; if not, it is refused and kept."""

    task_id: str
    generation: int
    result_data: Any = None
    session_id: str | None = None
    agent_id: str | None = None
    work_product_ref: str = ""
    operation_id: str | None = None


class ClaimNext(InProject[ClaimResult], kw_only=True):
    """Claim whatever ready task comes first for this agent, waiting up to `wait_seconds` for one."""

    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: float | None = None
    tracks: str | Collection[str] | None = None
    wait_seconds: float = 0
    operation_id: str | None = None
    agent_role: str = ""


class BatchClaim(InProject[dict[str, ClaimResult | GenlockError]], kw_only=True):
    """Claim many tasks at once; each stands or falls alone."""

    task_ids: Iterable[str]
    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: float = LEASE_SECONDS
    operation_id: str | None = None


class BatchRenew(InProject[dict[str, RenewalResult | GenlockError]], kw_only=True):
    """Renew many leases at once, given as {task id: generation}."""

    generations: Mapping[str, int]
    session_id: str | None = None


class BatchSubmit(InProject[dict[str, SubmissionResult | GenlockError]], kw_only=True):
    """Hand in many results at once, each with task_id, generation and result_data."""

    results: Iterable[Mapping[str, Any]]
    session_id: str | None = None


class SpawnSubtasks(InProject[SpawnResult], kw_only=True):
    """Split a task into subtasks: sequential, parallel or fan-out-fan-in. The claim is released unless it is kept."""

    task_id: str
    generation: int
    subtasks: Iterable[Mapping[str, Any] | str]
    mode: str = "parallel"
    keep: bool = False
    session_id: str | None = None
    agent_id: str | None = None
    operation_id: str | None = None


# Looking


class GetTaskState(InProject[TaskState], kw_only=True):
    """All that is known of a task now."""

    task_id: str


class BatchGetStates(InProject[dict[str, TaskState]], kw_only=True):
    """The states of many tasks; those that do not exist are left out."""

    task_ids: Iterable[str]


class GetClaimHistory(InProject[tuple[ClaimHistory, ...]], kw_only=True):
    """The generations of a task, from the first to the last."""

    task_id: str


class GetLineage(InProject[Lineage], kw_only=True):
    """The generations of a task, and the submissions that were refused along the way."""

    task_id: str


class GetActiveClaimsForSession(InTenant[tuple[TaskClaim, ...]], kw_only=True):
    """The claims a session holds, in all projects of its tenant."""

    session_id: str | None = None


class Ready(InProject[tuple[ReadyTask, ...]], kw_only=True):
    """What could be claimed now, first things first; with `agent_id`, what that agent would be offered."""

    limit: int = 100
    tracks: str | Collection[str] | None = None
    agent_id: str | None = None


class Blocked(InProject[tuple[BlockedTask, ...]], kw_only=True):
    """What waits for something, and for what, by task id."""

    limit: int = 100
    after: str | None = None


class Explain(InProject[Explanation], kw_only=True):
    """Why a task is not ready, or why this agent would not get it, and what would change that."""

    task_id: str
    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: float = LEASE_SECONDS


class ListRefusedResults(InProject[tuple[TaskResult, ...]], kw_only=True):
    """Refused results that are still kept, by id; with `include_settled` also those adopted or discarded."""

    task_id: str | None = None
    include_settled: bool = False
    limit: int = 100
    after: str | None = None


class ReadResult(InProject[Any], kw_only=True):
    """The data of a task's accepted result, or of a result by its digest, large ones too."""

    task_id: str
    digest: str | None = None


class TrackProgress(InProject[dict[str, Progress]], kw_only=True):
    """How far each track is ("" for tasks of no track)."""


class GetGraph(InProject[Graph], kw_only=True):
    """Who waits for whom: in the whole plan, in some tracks, or up to `depth` steps before and behind the task `around`."""

    tracks: str | Collection[str] | None = None
    around: str | None = None
    depth: int = 2


class ReadEvents(InProject[Feed], kw_only=True):
    """A page of the project's events after a cursor, or all of one task's."""

    after: str | None = None
    limit: int = 100
    task_id: str | None = None
    tail: bool = False


# Planners


class AddTasks(InProject[tuple[AddResult, ...]], kw_only=True):
    """Add tasks, given as mappings of their fields (or just ids). The same task again is no error and changes nothing."""

    tasks: Iterable[Mapping[str, Any] | str]


class EditTask(InProject[AddResult], kw_only=True):
    """Change fields of a definition. Claims stay; new dependencies block the task as soon as it is free."""

    task_id: str
    changes: Mapping[str, Any]
    operation_id: str | None = None


class ImportPlan(InProject[PlanResult], kw_only=True):
    """Import a plan: a mapping, YAML text, or files as pairs of name and bytes (base64). Importing again is a diff."""

    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]]
    prune: bool = False


class DiffPlan(InProject[PlanResult], kw_only=True):
    """What importing a plan would change, with `prune` also what it would cancel; nothing is written. Faults are those of an import."""

    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]]
    prune: bool = False


class CheckPlan(InProject[Plan], kw_only=True):
    """The plan as it would be imported, or every fault of it; nothing is written."""

    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]]


class GetPlan(InProject[Plan], kw_only=True):
    """The definitions as a plan that can be imported elsewhere. Cancelled tasks and dependencies on them are left out."""


class NextId(InProject[str | tuple[str, ...]], kw_only=True):
    """The next free id: 0001 and so on, or below `parent`. With `count` more than 1, so many."""

    parent: str | None = None
    count: int = 1


# Operators


class ResetTask(InProject[OperatorResult], kw_only=True):
    """Have a task done again. With `cascade` also every completed task that rests on it, listed in the answer."""

    task_id: str
    cascade: bool = False
    operation_id: str | None = None


class PreviewReset(InProject[tuple[str, ...]], kw_only=True):
    """The completed tasks that a reset with `cascade` would reset too."""

    task_id: str


class CancelTask(InProject[OperatorResult], kw_only=True):
    """The task will not be done; for its dependents it counts as met (policy `cancelled_dependency`)."""

    task_id: str
    reason: str = ""
    operation_id: str | None = None


class AssignTask(InProject[OperatorResult], kw_only=True):
    """Reserve a task for one agent; a live claim of anyone is superseded."""

    task_id: str
    agent_id: str
    hours: float | None = None
    operation_id: str | None = None


class ForceRelease(InProject[OperatorResult], kw_only=True):
    """Take a claim away; whoever held it is fenced off from now on."""

    task_id: str
    operation_id: str | None = None


class HoldTask(InProject[OperatorResult], kw_only=True):
    """Nobody is granted the task until it is reopened; a present holder may finish."""

    task_id: str
    reason: str = ""
    operation_id: str | None = None


class ReopenTask(InProject[OperatorResult], kw_only=True):
    """Lift a hold; a task that is not held is taken out of the backlog."""

    task_id: str
    operation_id: str | None = None


class AdoptResult(InProject[SubmissionResult], kw_only=True):
    """Make a refused result the task's result: by the holder with its generation, or by an operator without one."""

    task_id: str
    refused_id: str
    session_id: str | None = None
    generation: int | None = None
    operation_id: str | None = None


class DiscardResult(InProject[None], kw_only=True):
    """Say that a refused result is not needed; its data goes, that it existed stays."""

    task_id: str
    refused_id: str


class GetPolicy(InProject[Settings], kw_only=True):
    """The project's policy and tracks, and its tenant's limits."""


class SetPolicy(InProject[Settings], kw_only=True):
    """Change some keys of the project's policy, its tracks, or its tenant's profile and limits."""

    policy: Mapping[str, Any] | None = None
    tracks: Mapping[str, str] | None = None
    profile: str | None = None
    limits: Mapping[str, Any] | None = None


class Sweep(InProject[SweepResult], kw_only=True):
    """Write down what is due, look for lost holders, repeat what a crash cut off, drop what is past its retention."""


# Sessions


class RegisterSession(InProject[SessionInfo], kw_only=True):
    """Say that a session begins, and which process it is: a `process` identity, since a pid alone says nothing elsewhere."""

    session_id: str | None = None
    user_id: str | None = None
    agent_type: str = ""
    process: Process | None = None
    metadata: Mapping[str, Any] | None = None


class HeartbeatSession(InProject[SessionInfo], kw_only=True):
    """Say that a session lives. Leases are renewed by renewing, not by this."""

    session_id: str | None = None
    metadata: Mapping[str, Any] | None = None


class EndSession(InProject[SessionEnd], kw_only=True):
    """End a session and release what it holds in this project."""

    session_id: str | None = None


class ListSessions(InProject[tuple[SessionInfo, ...]], kw_only=True):
    """The sessions of a project by id, with what they hold and whether they look alive."""

    include_ended: bool = False
    limit: int = 1000
    after: str | None = None


class ListAgents(InProject[tuple[AgentInfo, ...]], kw_only=True):
    """The agents that hold tasks now."""


class GetSessionMemory(InProject[SessionMemory], kw_only=True):
    """What a session has done, holds and has completed, read from the project's feed."""

    session_id: str | None = None


# Admins


class CreateKey(InTenant[NewKey], kw_only=True):
    """Make a key, called `name`. Its text is in the answer, once: nobody can show it again."""

    name: str
    role: str
    projects: str = "*"
    session_id: str | None = None
    expires_in_seconds: float | None = None
    expires_at: datetime | str | None = None


class ListKeys(InTenant[tuple[KeyInfo, ...]], kw_only=True):
    """The keys of a tenant, or of all (`*`), the oldest first: what each opens, never what opens it."""

    include_revoked: bool = False


class RotateKey(InTenant[NewKey], kw_only=True):
    """Give a key another text; the one before it is taken for `overlap_seconds` more."""

    key_id: str
    overlap_seconds: float = 0
    expires_in_seconds: float | None = None
    expires_at: datetime | str | None = None


class RevokeKey(InTenant[KeyInfo], kw_only=True):
    """Let a key open nothing any more: within a second, wherever the store is served."""

    key_id: str


class ListTenants(Call[tuple[TenantInfo, ...]], kw_only=True):
    """The tenants of the store."""


class GetTenant(InTenant[TenantInfo], kw_only=True):
    """One tenant: its profile and its limits."""


class SetTenant(InTenant[TenantInfo], kw_only=True):
    """Make a tenant, or change its profile (which sets every limit) or some limits."""

    profile: str | None = None
    limits: Mapping[str, Any] | None = None


def answer_type(call: type[Call[Any]]) -> Any:
    """What this call answers."""
    base = call.__orig_bases__[0]  # type: ignore[attr-defined]
    return get_args(base)[0]


def field_types(call: type[Call[Any]]) -> dict[str, Any]:
    """The types of the call's keywords."""
    return {name: kind for name, kind in get_type_hints(call).items() if name in call.__struct_fields__}
