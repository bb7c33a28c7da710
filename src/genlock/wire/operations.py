"""The table of operations: the arguments and answer of each, its HTTP route, the role it needs and
the errors it may return.

Each operation is one struct. Its name and fields are the name and keywords of the coordinator's
method, with the same defaults; a test compares the two. The struct's type argument is the answer.
The decorator adds the route. Everything else reads this table: the service makes keywords from a
request, the client makes its methods, and the OpenAPI document, the reference pages and the access
tests list the operations.

Paths are below `/v1/{tenant}/{project}/`. `_`, which is not a valid name, replaces the project if
an operation has none, and the tenant if an operation is for all tenants. A path has at most one
variable, always its second part, so the service finds a route by one lookup and never searches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args, get_type_hints

from msgspec import Struct

from genlock import errors as e
from genlock.core.commands import DEFAULT_LEASE_SECONDS
from genlock.core.dashboard import (
    Activity,
    ActsResult,
    EventPage,
    GraphLayout,
    Overview,
    TaskPage,
)
from genlock.core.durations import Seconds
from genlock.core.graph import Graph
from genlock.core.key_roles import Role
from genlock.core.keys import NOWHERE
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
    NextPreview,
    OperatorResult,
    PlanResult,
    Progress,
    ProgressResult,
    PromotionInfo,
    PushVerdict,
    ReadyTask,
    ReleaseResult,
    RenewalResult,
    ReviewInfo,
    ReviewResult,
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
C = TypeVar("C", bound="type[Call[Any]]")

OBSERVER, AGENT, OPERATOR, ADMIN = Role

PREFIX: Final = "/v1"
NO_NAME: Final = NOWHERE
"""Replaces the name of a project or tenant in a path if an operation has none."""
LEASE_SECONDS = DEFAULT_LEASE_SECONDS

Errors = tuple[type[e.GenlockError], ...]

COMMON_ERRORS: Final[Errors] = (
    e.BadArgument,
    e.KeyRefused,
    e.AccessRefused,
    e.RoleRefused,
    e.RouteNotFound,
    e.HostRefused,
    e.ServiceMismatch,
    e.TooManyRequests,
    e.GenlockError,
    e.Busy,
    e.Closed,
    e.StoreUnavailable,
    e.OutcomeUnknown,
    e.StoreReadOnly,
)
"""The errors that every operation may return."""

BODY_ERRORS: Final[Errors] = (e.OverLimit, e.KindRefused, e.StoreFull)
"""The errors that every operation with a request body may return."""


class Within(Enum):
    """The scope of an operation."""

    PROJECT = "a project"
    TENANT = "a tenant"
    STORE = "the whole store"


class Body(Enum):
    """The largest request body that an operation takes."""

    SMALL = "a megabyte"
    PLAN = "a plan"
    RESULT = "as much as the service is set to"


class Route(NamedTuple):
    """One operation over HTTP."""

    name: str
    call: type[Call[Any]]
    method: str
    path: str
    role: Role
    fenced: bool = False
    """Does it act for a session? A key that is bound to one session may act only for that
    session."""
    within: Within = Within.PROJECT
    body: Body = Body.SMALL
    unbounded: bool = False
    """Does the answer grow with the plan or the result, without a limit?"""
    own_errors: Errors = ()
    """The errors that this operation may return and most others may not."""

    @property
    def variable(self) -> str | None:
        """Returns the variable in the path: `task_id`, `session_id`, `key_id`, or none."""
        start = self.path.find("{")
        return None if start < 0 else self.path[start + 1 : self.path.index("}")]

    @property
    def repeatable(self) -> bool:
        """Does it change nothing?"""
        return self.method == "GET"

    @property
    def errors(self) -> Errors:
        """Returns all errors that this operation may return."""
        fields = self.call.__struct_fields__
        return (
            *COMMON_ERRORS,
            *((e.TaskNotFound,) if "task_id" in fields else ()),
            *((e.OperationMismatch,) if "operation_id" in fields else ()),
            *self.own_errors,
            *(() if self.repeatable else BODY_ERRORS),
        )


class Call(Struct, Generic[R], kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One operation's keywords; `R` is its answer."""


class InTenant(Call[R], kw_only=True):
    """A call to a tenant; None means the connection's tenant."""

    tenant_id: str | None = None


class InProject(InTenant[R], kw_only=True):
    """A call to a project; None means the connection's project."""

    project_id: str | None = None


def answer_type(call: type[Call[Any]]) -> Any:
    """Returns the type of this call's answer."""
    base = call.__orig_bases__[0]  # type: ignore[attr-defined]
    return get_args(base)[0]


def field_types(call: type[Call[Any]]) -> dict[str, Any]:
    """Returns the types of the call's keywords."""
    return {
        name: kind for name, kind in get_type_hints(call).items() if name in call.__struct_fields__
    }


_routes: list[Route] = []


def _route(
    method: str,
    path: str,
    role: Role,
    *,
    fenced: bool = False,
    within: Within = Within.PROJECT,
    body: Body = Body.SMALL,
    unbounded: bool = False,
    errors: Errors = (),
) -> Callable[[C], C]:
    """Enters a call in the table, named after its class: `ClaimTask` is `claim_task`."""

    def enter(call: C) -> C:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", call.__name__).lower()
        _routes.append(
            Route(name, call, method, path, role, fenced, within, body, unbounded, errors)
        )
        return call

    return enter


# Workers


@_route(
    "POST", "tasks/{task_id}/claim", AGENT, fenced=True, errors=(e.SessionEnded, e.LimitReached)
)
class ClaimTask(InProject[ClaimResult], kw_only=True):
    """Ask for the right to work on a task. A grant has the generation that every later write must
    carry."""

    task_id: str
    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: Seconds = LEASE_SECONDS
    operation_id: str | None = None
    agent_role: str = ""
    metadata: Mapping[str, Any] | None = None


@_route("POST", "tasks/{task_id}/renew", AGENT, fenced=True)
class RenewLease(InProject[RenewalResult], kw_only=True):
    """Start the lease again, with its own length or another within the tenant's limits.
    `expected_generation` is GC's name for `generation`."""

    task_id: str
    generation: int | None = None
    expected_generation: int | None = None
    session_id: str | None = None
    lease_duration_seconds: Seconds | None = None


@_route("POST", "tasks/{task_id}/progress", AGENT, fenced=True)
class ReportProgress(InProject[ProgressResult], kw_only=True):
    """Report how far the work is, what was found, its total cost so far, or its worktree. This does
    not renew the lease."""

    task_id: str
    generation: int
    fraction: float | None = None
    note: str = ""
    cost: Mapping[str, float] | None = None
    worktree_path: str | None = None
    session_id: str | None = None
    agent_id: str | None = None


@_route("POST", "tasks/{task_id}/release", AGENT, fenced=True)
class ReleaseClaim(InProject[ReleaseResult], kw_only=True):
    """Give the claim back: VOLUNTARY, ERROR if the work failed (the circuit breaker counts those),
    or any text, which is kept beside one of these two ("ERROR: no compiler" is an ERROR)."""

    task_id: str
    generation: int | None = None
    expected_generation: int | None = None
    session_id: str | None = None
    reason: str = "VOLUNTARY"
    note: str = ""
    operation_id: str | None = None


@_route(
    "POST",
    "tasks/{task_id}/submit",
    AGENT,
    fenced=True,
    body=Body.RESULT,
    errors=(e.ResultTooLarge,),
)
class SubmitResult(InProject[SubmissionResult], kw_only=True):
    """Submit the result. It counts if the generation is still the highest, or waits for a review;
    if not, it is refused and kept."""

    task_id: str
    generation: int
    result_data: Any = None
    session_id: str | None = None
    agent_id: str | None = None
    work_product_ref: str = ""
    operation_id: str | None = None
    evaluations: Mapping[str, bool] | None = None
    products: Sequence[Mapping[str, Any]] | None = None


@_route(
    "POST",
    "tasks/{task_id}/spawn",
    AGENT,
    fenced=True,
    errors=(e.NotAllowed, e.TaskExists, e.CounterExhausted, e.PlanInvalid),
)
class SpawnSubtasks(InProject[SpawnResult], kw_only=True):
    """Split a task into subtasks: sequential, parallel or fan-out-fan-in. The claim is released
    unless it is kept.

    The holder gives the generation of its claim. Without one an operator splits a task that has no
    holder."""

    task_id: str
    generation: int | None = None
    subtasks: Iterable[Mapping[str, Any] | str]
    mode: str = "parallel"
    keep: bool = False
    session_id: str | None = None
    agent_id: str | None = None
    operation_id: str | None = None


@_route(
    "POST",
    "tasks/{task_id}/adopt",
    AGENT,
    fenced=True,
    errors=(e.NotAllowed, e.LiveClaim, e.ResultNotFound),
)
class AdoptResult(InProject[SubmissionResult], kw_only=True):
    """Make a refused result the task's result: by the holder with its generation, or by an operator
    without one.

    An operator supersedes a live claim only with `take_over`; without it the answer is LiveClaim.
    The session whose result was refused can adopt it only as the holder."""

    task_id: str
    refused_id: str
    session_id: str | None = None
    generation: int | None = None
    take_over: bool = False
    operation_id: str | None = None


@_route("POST", "tasks/{task_id}/evaluate", AGENT, fenced=True)
class ReportEvaluation(InProject[ReviewResult], kw_only=True):
    """Report whether an evaluator passed the result that waits for a review. If only evaluators are
    missing, the last one to pass completes the task."""

    task_id: str
    generation: int
    digest: str
    evaluator: str
    passed: bool
    note: str = ""
    session_id: str | None = None
    agent_id: str | None = None


@_route("POST", "claim-next", AGENT, fenced=True, errors=(e.SessionEnded, e.LimitReached))
class ClaimNext(InProject[ClaimResult], kw_only=True):
    """Claim the first ready task for this agent, waiting up to `wait_seconds` for one."""

    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: Seconds | None = None
    tracks: str | Collection[str] | None = None
    wait_seconds: Seconds = 0
    operation_id: str | None = None
    agent_role: str = ""


@_route("POST", "batch/claim", AGENT, fenced=True, errors=(e.SessionEnded, e.LimitReached))
class BatchClaim(InProject[dict[str, ClaimResult | GenlockError]], kw_only=True):
    """Claim many tasks at once; each claim is granted or denied on its own."""

    task_ids: Iterable[str]
    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: Seconds = LEASE_SECONDS
    operation_id: str | None = None
    agent_role: str = ""


@_route("POST", "batch/renew", AGENT, fenced=True)
class BatchRenew(InProject[dict[str, RenewalResult | GenlockError]], kw_only=True):
    """Renew many leases at once, given as {task id: generation}."""

    generations: Mapping[str, int]
    session_id: str | None = None


@_route("POST", "batch/submit", AGENT, fenced=True, body=Body.RESULT, errors=(e.ResultTooLarge,))
class BatchSubmit(InProject[dict[str, SubmissionResult | GenlockError]], kw_only=True):
    """Submit many results at once, each with task_id, generation and result_data."""

    results: Iterable[Mapping[str, Any]]
    session_id: str | None = None


@_route("POST", "sessions", AGENT, fenced=True, errors=(e.SessionEnded, e.LimitReached))
class RegisterSession(InProject[SessionInfo], kw_only=True):
    """Register a session and its process. `process` is a full identity, because a pid alone has no
    meaning elsewhere."""

    session_id: str | None = None
    user_id: str | None = None
    agent_type: str = ""
    process: Process | None = None
    metadata: Mapping[str, Any] | None = None


@_route(
    "POST",
    "sessions/{session_id}/heartbeat",
    AGENT,
    fenced=True,
    errors=(e.SessionNotFound, e.SessionEnded),
)
class HeartbeatSession(InProject[SessionInfo], kw_only=True):
    """Report that a session is alive. This does not renew its leases."""

    session_id: str | None = None
    metadata: Mapping[str, Any] | None = None


@_route("POST", "sessions/{session_id}/end", AGENT, fenced=True, errors=(e.SessionNotFound,))
class EndSession(InProject[SessionEnd], kw_only=True):
    """End a session and release what it holds in this project."""

    session_id: str | None = None


@_route("POST", "next-id", AGENT, errors=(e.CounterExhausted,))
class NextId(InProject[str | tuple[str, ...]], kw_only=True):
    """The next free id: 0001 and so on, or below `parent`. With `count` above 1, that many ids."""

    parent: str | None = None
    count: int = 1


# Reads


@_route("GET", "tasks", OBSERVER)
class ListTasks(InProject[TaskPage], kw_only=True):
    """The tasks that match all filters, as rows, and how many there are by state. The answer has
    the cursor of the feed up to which it is current: a stream after it misses nothing."""

    states: str | Collection[str] | None = None
    tracks: str | Collection[str] | None = None
    agent_id: str | None = None
    session_id: str | None = None
    tag: str | None = None
    text: str = ""
    sort: str = "order"
    reverse: bool = False
    limit: int = 100
    after: str | None = None


@_route("GET", "overview", OBSERVER)
class GetOverview(InProject[Overview], kw_only=True):
    """The project at a glance: counts by state and track, what needs a person, rates, sessions,
    what is next, and which results were refused last. It has a cursor like `list_tasks`."""

    limit: int = 100


@_route("GET", "activity", OBSERVER)
class GetActivity(InProject[Activity], kw_only=True):
    """The claims within a time, by default the last hour: the holder, start and end of each, and
    how it ended."""

    since: datetime | str | None = None
    until: datetime | str | None = None
    agent_id: str | None = None
    limit: int = 5000


@_route("GET", "events/search", OBSERVER, errors=(e.CursorLost,))
class SearchEvents(InProject[EventPage], kw_only=True):
    """The last events that match, the newest first. With `task_id`, those of the task and of its
    refused results."""

    task_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    types: str | Collection[str] | None = None
    before: str | None = None
    limit: int = 100


@_route("GET", "tasks/{task_id}", OBSERVER)
class GetTaskState(InProject[TaskState], kw_only=True):
    """The complete present state of a task."""

    task_id: str


@_route("GET", "tasks/{task_id}/push", OBSERVER)
class CheckPush(InProject[PushVerdict], kw_only=True):
    """May a git repository take this commit, for the branch of a generation, or with `protected`
    for a branch that takes accepted work only?"""

    task_id: str
    generation: int
    commit: str
    protected: bool = False


@_route("GET", "tasks/{task_id}/history", OBSERVER)
class GetClaimHistory(InProject[tuple[ClaimHistory, ...]], kw_only=True):
    """The generations of a task, from the first to the last."""

    task_id: str


@_route("GET", "tasks/{task_id}/lineage", OBSERVER)
class GetLineage(InProject[Lineage], kw_only=True):
    """The generations of a task, and the submissions that were refused along the way."""

    task_id: str


@_route("GET", "tasks/{task_id}/explain", OBSERVER, errors=(e.SessionEnded,))
class Explain(InProject[Explanation], kw_only=True):
    """Why a task is not ready, or why this agent would not get it, and what would change that."""

    task_id: str
    agent_id: str | None = None
    session_id: str | None = None
    lease_duration_seconds: Seconds = LEASE_SECONDS
    agent_role: str = ""


@_route("GET", "tasks/{task_id}/result", OBSERVER, unbounded=True, errors=(e.ResultNotFound,))
class ReadResult(InProject[Any], kw_only=True):
    """The data of a task's accepted result, or of a result by its digest, large ones too."""

    task_id: str
    digest: str | None = None


@_route("POST", "batch/states", OBSERVER)
class BatchGetStates(InProject[dict[str, TaskState]], kw_only=True):
    """The states of many tasks; those that do not exist are left out."""

    task_ids: Iterable[str]


@_route("GET", "ready", OBSERVER)
class Ready(InProject[tuple[ReadyTask, ...]], kw_only=True):
    """The tasks that could be claimed now, in their order; with `agent_id` and `agent_role`, those
    that the agent would be offered in that role."""

    limit: int = 100
    tracks: str | Collection[str] | None = None
    agent_id: str | None = None
    agent_role: str | None = None


@_route("GET", "claim-next", OBSERVER, errors=(e.SessionEnded,))
class PreviewNext(InProject[NextPreview], kw_only=True):
    """What `claim_next` would grant this agent now, and why. Nothing is claimed."""

    agent_id: str | None = None
    session_id: str | None = None
    tracks: str | Collection[str] | None = None
    agent_role: str = ""


@_route("GET", "reviews", OBSERVER)
class ListReviews(InProject[tuple[ReviewInfo, ...]], kw_only=True):
    """The results that wait for a review, by task id; `after` is the last id of the page before."""

    limit: int = 100
    after: str | None = None


@_route("GET", "tasks/{task_id}/review", OBSERVER, errors=(e.ReviewNotFound,))
class GetReview(InProject[ReviewInfo], kw_only=True):
    """The result of a task that waits for a review, with its data unless it is large."""

    task_id: str


@_route("GET", "blocked", OBSERVER)
class Blocked(InProject[tuple[BlockedTask, ...]], kw_only=True):
    """The blocked tasks by id, and what each waits for."""

    limit: int = 100
    after: str | None = None


@_route("GET", "refused", OBSERVER)
class ListRefusedResults(InProject[tuple[TaskResult, ...]], kw_only=True):
    """Refused results that are still kept, by id; with `include_settled` also those adopted or
    discarded."""

    task_id: str | None = None
    include_settled: bool = False
    limit: int = 100
    after: str | None = None


@_route("GET", "progress", OBSERVER)
class TrackProgress(InProject[dict[str, Progress]], kw_only=True):
    """The progress of each track ("" for tasks without a track)."""


@_route("GET", "graph", OBSERVER, unbounded=True)
class GetGraph(InProject[Graph], kw_only=True):
    """Which task waits for which: in the whole plan, in some tracks, or up to `depth` steps before
    and behind the task `around`."""

    tracks: str | Collection[str] | None = None
    around: str | None = None
    depth: int = 2


@_route("GET", "graph/layout", OBSERVER, errors=(e.TaskNotFound,))
class GetGraphLayout(InProject[GraphLayout], kw_only=True):
    """The graph with the place of each box, in layers from left to right, at most 500 boxes: of the
    whole plan, some tracks, or around a task. `folded` draws tracks instead of tasks; without it a
    plan of more than 300 tasks is folded."""

    tracks: str | Collection[str] | None = None
    around: str | None = None
    depth: int = 2
    folded: bool | None = None
    hide_finished: bool = False


@_route("GET", "plan", OBSERVER, unbounded=True)
class GetPlan(InProject[Plan], kw_only=True):
    """The definitions as a plan that can be imported elsewhere. Cancelled tasks and dependencies on
    them are left out."""


@_route("POST", "plan/diff", OBSERVER, body=Body.PLAN, errors=(e.PlanInvalid,))
class DiffPlan(InProject[PlanResult], kw_only=True):
    """What importing a plan would change, with `prune` also what it would cancel; nothing is
    written. Faults are those of an import."""

    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]]
    prune: bool = False


@_route("POST", "plan/check", OBSERVER, body=Body.PLAN, errors=(e.PlanInvalid,))
class CheckPlan(InProject[Plan], kw_only=True):
    """The plan as it would be imported, or every fault of it; nothing is written."""

    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]]


@_route("GET", "policy", OBSERVER)
class GetPolicy(InProject[Settings], kw_only=True):
    """The project's policy and tracks, and its tenant's limits."""


@_route("GET", "sessions", OBSERVER)
class ListSessions(InProject[tuple[SessionInfo, ...]], kw_only=True):
    """The sessions of a project by id, with what they hold and whether they look alive."""

    include_ended: bool = False
    limit: int = 1000
    after: str | None = None


@_route("GET", "sessions/{session_id}", OBSERVER, errors=(e.SessionNotFound,))
class GetSession(InProject[SessionInfo], kw_only=True):
    """One session, with what it holds and whether it looks alive."""

    session_id: str | None = None


@_route("GET", "sessions/{session_id}/memory", OBSERVER, errors=(e.SessionNotFound,))
class GetSessionMemory(InProject[SessionMemory], kw_only=True):
    """The tasks that a session has worked on, holds and has completed, read from the project's
    feed."""

    session_id: str | None = None


@_route("GET", "sessions/{session_id}/claims", OBSERVER)
class GetActiveClaimsForSession(InTenant[tuple[TaskClaim, ...]], kw_only=True):
    """The claims a session holds, in all projects of its tenant."""

    session_id: str | None = None


@_route("GET", "expired-claims", OBSERVER)
class ListExpiredClaims(InProject[tuple[TaskClaim, ...]], kw_only=True):
    """Claims whose lease was over before an instant (by default now) and whose tasks were not taken
    over, the longest overdue first."""

    before: datetime | str | None = None
    limit: int = 100


@_route("GET", "agents", OBSERVER)
class ListAgents(InProject[tuple[AgentInfo, ...]], kw_only=True):
    """The agents that hold tasks now; with `include_idle` also those of active sessions that hold
    none, and how many tasks each has completed."""

    include_idle: bool = False


@_route("GET", "events", OBSERVER, errors=(e.CursorLost,))
class ReadEvents(InProject[Feed], kw_only=True):
    """A page of the project's events after a cursor, or all of one task's; with `tail` only the
    cursor of the feed's end, or of the position `back` positions before it."""

    after: str | None = None
    limit: int = 100
    task_id: str | None = None
    tail: bool = False
    back: int = 0


# Operators


@_route("POST", "tasks", OPERATOR, body=Body.PLAN, errors=(e.PlanInvalid, e.TaskExists))
class AddTasks(InProject[tuple[AddResult, ...]], kw_only=True):
    """Add tasks, given as mappings of their fields (or just ids). Adding the same task again is not
    an error and changes nothing."""

    tasks: Iterable[Mapping[str, Any] | str]


@_route("PATCH", "tasks/{task_id}", OPERATOR, errors=(e.PlanInvalid, e.NotAllowed))
class EditTask(InProject[AddResult], kw_only=True):
    """Change fields of a definition. Claims stay; new dependencies block the task as soon as it is
    free."""

    task_id: str
    changes: Mapping[str, Any]
    operation_id: str | None = None


@_route("POST", "plan", OPERATOR, body=Body.PLAN, errors=(e.PlanInvalid, e.TaskExists))
class ImportPlan(InProject[PlanResult], kw_only=True):
    """Import a plan: a mapping, YAML text, or files as pairs of name and bytes (base64). Importing
    again is a diff."""

    source: Mapping[str, Any] | str | Sequence[tuple[str, bytes]]
    prune: bool = False


@_route("GET", "tasks/{task_id}/reset", OPERATOR)
class PreviewReset(InProject[tuple[str, ...]], kw_only=True):
    """The completed tasks that a reset with `cascade` would reset too."""

    task_id: str


@_route("POST", "tasks/{task_id}/reset", OPERATOR, errors=(e.NotAllowed, e.LiveClaim))
class ResetTask(InProject[OperatorResult], kw_only=True):
    """Reset a task, so that it is done again. With `cascade`, also every completed task that
    depends on it, listed in the answer.

    A live claim is superseded only with `take_over`; without it the answer is LiveClaim."""

    task_id: str
    cascade: bool = False
    take_over: bool = False
    operation_id: str | None = None


@_route("POST", "tasks/{task_id}/cancel", OPERATOR, errors=(e.NotAllowed, e.LiveClaim))
class CancelTask(InProject[OperatorResult], kw_only=True):
    """Cancel a task: it will not be done. For its dependents it counts as met (policy
    `cancelled_dependency`).

    A live claim is superseded only with `take_over`; without it the answer is LiveClaim."""

    task_id: str
    reason: str = ""
    take_over: bool = False
    operation_id: str | None = None


@_route("POST", "tasks/{task_id}/assign", OPERATOR, errors=(e.NotAllowed, e.LiveClaim))
class AssignTask(InProject[OperatorResult], kw_only=True):
    """Reserve a task for one agent. A live claim is superseded only with `take_over`; without it
    the answer is LiveClaim."""

    task_id: str
    agent_id: str
    hours: float | None = None
    take_over: bool = False
    operation_id: str | None = None


@_route("POST", "tasks/{task_id}/force-release", OPERATOR, errors=(e.NotAllowed, e.LiveClaim))
class ForceRelease(InProject[OperatorResult], kw_only=True):
    """Supersede a claim; its holder is fenced off from now on. A live claim needs `take_over`;
    without it the answer is LiveClaim."""

    task_id: str
    take_over: bool = False
    operation_id: str | None = None


@_route("POST", "tasks/{task_id}/hold", OPERATOR, errors=(e.NotAllowed,))
class HoldTask(InProject[OperatorResult], kw_only=True):
    """Put a task on hold: it is not granted until it is reopened. A present holder may finish."""

    task_id: str
    reason: str = ""
    operation_id: str | None = None


@_route("POST", "tasks/{task_id}/reopen", OPERATOR, errors=(e.NotAllowed,))
class ReopenTask(InProject[OperatorResult], kw_only=True):
    """Lift a hold; a task that is not held is taken out of the backlog."""

    task_id: str
    operation_id: str | None = None


@_route("POST", "batch/act", OPERATOR, errors=(e.NotAllowed,))
class BatchAct(InProject[ActsResult], kw_only=True):
    """Release, hold, reopen, reset or cancel every task that matches the filter; of `task_ids`, if
    they are given, those that match. Unless `dry_run` is false nothing is changed, and the answer
    predicts the outcome for each task."""

    act: str
    task_ids: Collection[str] | None = None
    states: str | Collection[str] | None = None
    tracks: str | Collection[str] | None = None
    agent_id: str | None = None
    session_id: str | None = None
    tag: str | None = None
    text: str = ""
    reason: str = ""
    take_over: bool = False
    dry_run: bool = True
    limit: int = 1000
    operation_id: str | None = None


@_route("POST", "tasks/{task_id}/discard", OPERATOR, errors=(e.NotAllowed, e.ResultNotFound))
class DiscardResult(InProject[None], kw_only=True):
    """Discard a refused result that is not needed. Its data is deleted; its record stays."""

    task_id: str
    refused_id: str


@_route("POST", "tasks/{task_id}/approve", OPERATOR)
class ApproveReview(InProject[ReviewResult], kw_only=True):
    """Accept the result that waits for a review, in the reviewer's name: the task is completed.

    Generation and digest name the reviewed result; 12 characters of the digest are enough."""

    task_id: str
    generation: int
    digest: str


@_route("POST", "tasks/{task_id}/reject", OPERATOR)
class RejectReview(InProject[ReviewResult], kw_only=True):
    """Open the task again, at a higher generation. The work is kept as a refused result, and the
    next holder gets the feedback with its claim."""

    task_id: str
    generation: int
    digest: str
    feedback: str = ""


@_route("GET", "promotions", OBSERVER)
class ListPromotions(InProject[tuple[PromotionInfo, ...]], kw_only=True):
    """The products of accepted results, and the state of their promotion to assets."""

    task_id: str | None = None
    state: str | None = None
    limit: int = 100
    after: str | None = None


@_route("POST", "tasks/{task_id}/promotion", OPERATOR, errors=(e.NotAllowed, e.PromotionNotFound))
class SettlePromotion(InProject[PromotionInfo], kw_only=True):
    """Report that the products of an accepted result were promoted, or why they cannot be. For
    promoters: this call moves no files."""

    task_id: str
    generation: int
    digest: str
    failure: str = ""
    superseded: Sequence[str] = ()


@_route("PATCH", "policy", OPERATOR)
class SetPolicy(InProject[Settings], kw_only=True):
    """Change some keys of the project's policy, its tracks, its table of roles, or its tenant's
    profile and limits."""

    policy: Mapping[str, Any] | None = None
    tracks: Mapping[str, str] | None = None
    agent_roles: Mapping[str, Any] | None = None
    profile: str | None = None
    limits: Mapping[str, Any] | None = None


@_route("POST", "sweep", OPERATOR)
class Sweep(InProject[SweepResult], kw_only=True):
    """Record what is due, search for lost holders, repeat reactions that a crash cut off, and drop
    data past its retention."""


# Admins


@_route("POST", "keys", ADMIN, within=Within.TENANT)
class CreateKey(InTenant[NewKey], kw_only=True):
    """Create a key with this `name`. Its text is in this answer only and cannot be shown again."""

    name: str
    role: str
    projects: str = "*"
    session_id: str | None = None
    expires_in_seconds: Seconds | None = None
    expires_at: datetime | str | None = None
    agent_roles: Collection[str] | None = None


@_route("GET", "keys", ADMIN, within=Within.TENANT)
class ListKeys(InTenant[tuple[KeyInfo, ...]], kw_only=True):
    """The keys of a tenant, or of all (`*`), the oldest first: their permissions, never their
    texts."""

    include_revoked: bool = False


@_route(
    "POST",
    "keys/{key_id}/rotate",
    ADMIN,
    within=Within.TENANT,
    errors=(e.KeyNotFound, e.NotAllowed),
)
class RotateKey(InTenant[NewKey], kw_only=True):
    """Give a key a new text; the previous one is accepted for `overlap_seconds` more."""

    key_id: str
    overlap_seconds: Seconds = 0
    expires_in_seconds: Seconds | None = None
    expires_at: datetime | str | None = None


@_route("POST", "keys/{key_id}/revoke", ADMIN, within=Within.TENANT, errors=(e.KeyNotFound,))
class RevokeKey(InTenant[KeyInfo], kw_only=True):
    """Revoke a key: within a second, no service of the store accepts it."""

    key_id: str


@_route("GET", "tenant", ADMIN, within=Within.TENANT, errors=(e.TenantNotFound,))
class GetTenant(InTenant[TenantInfo], kw_only=True):
    """One tenant: its profile and its limits."""


@_route("PATCH", "tenant", ADMIN, within=Within.TENANT)
class SetTenant(InTenant[TenantInfo], kw_only=True):
    """Create a tenant, or change its profile (which sets every limit) or some limits."""

    profile: str | None = None
    limits: Mapping[str, Any] | None = None


@_route("GET", "tenants", ADMIN, within=Within.STORE)
class ListTenants(Call[tuple[TenantInfo, ...]], kw_only=True):
    """The tenants of the store."""


ROUTES: Final = tuple(_routes)
BY_CALL: Final[dict[type[Call[Any]], Route]] = {route.call: route for route in ROUTES}
