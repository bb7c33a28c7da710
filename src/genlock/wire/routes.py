"""The routes: where every operation is found, and which role it needs. Service, client, OpenAPI and the tests of access all read this.

Paths stand below `/v1/{tenant}/{project}/`; `_`, which is no name, stands where no project is meant, and for the tenant where all are.
A path has at most one variable, always its second part, so that a request is routed by looking it up, however many routes there are.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from genlock.core.access import Role
from genlock.core.keys import NOWHERE
from genlock.wire import calls as c
from genlock.wire.calls import Call

OBSERVER, AGENT, OPERATOR, ADMIN = Role

PREFIX: Final = "/v1"
NO_NAME: Final = NOWHERE
"""Stands in a path where no project is meant, or every tenant."""


class Within(Enum):
    """What an operation is about."""

    PROJECT = "a project"
    TENANT = "a tenant"
    STORE = "the whole store"


class Route(NamedTuple):
    """One operation over HTTP."""

    name: str
    call: type[Call[Any]]
    method: str
    path: str
    role: Role
    fenced: bool = False
    """Does it act for a session? A key that is bound to one session may do so for that one alone."""
    within: Within = Within.PROJECT

    @property
    def variable(self) -> str | None:
        """The part of the path that is a name: `task_id`, `session_id`, or none."""
        start = self.path.find("{")
        return None if start < 0 else self.path[start + 1 : self.path.index("}")]

    @property
    def repeatable(self) -> bool:
        """Does it change nothing?"""
        return self.method == "GET"


def _task(name: str, call: type[Call[Any]], verb: str, role: Role, *, fenced: bool = False) -> Route:
    return Route(name, call, "POST", f"tasks/{{task_id}}/{verb}", role, fenced)


ROUTES: Final = (
    # Workers
    _task("claim_task", c.ClaimTask, "claim", AGENT, fenced=True),
    _task("renew_lease", c.RenewLease, "renew", AGENT, fenced=True),
    _task("release_claim", c.ReleaseClaim, "release", AGENT, fenced=True),
    _task("submit_result", c.SubmitResult, "submit", AGENT, fenced=True),
    _task("spawn_subtasks", c.SpawnSubtasks, "spawn", AGENT, fenced=True),
    _task("adopt_result", c.AdoptResult, "adopt", AGENT, fenced=True),
    Route("claim_next", c.ClaimNext, "POST", "claim-next", AGENT, fenced=True),
    Route("batch_claim", c.BatchClaim, "POST", "batch/claim", AGENT, fenced=True),
    Route("batch_renew", c.BatchRenew, "POST", "batch/renew", AGENT, fenced=True),
    Route("batch_submit", c.BatchSubmit, "POST", "batch/submit", AGENT, fenced=True),
    Route("register_session", c.RegisterSession, "POST", "sessions", AGENT, fenced=True),
    Route("heartbeat_session", c.HeartbeatSession, "POST", "sessions/{session_id}/heartbeat", AGENT, fenced=True),
    Route("end_session", c.EndSession, "POST", "sessions/{session_id}/end", AGENT, fenced=True),
    Route("next_id", c.NextId, "POST", "next-id", AGENT),
    # Looking
    Route("get_task_state", c.GetTaskState, "GET", "tasks/{task_id}", OBSERVER),
    Route("get_claim_history", c.GetClaimHistory, "GET", "tasks/{task_id}/history", OBSERVER),
    Route("get_lineage", c.GetLineage, "GET", "tasks/{task_id}/lineage", OBSERVER),
    Route("explain", c.Explain, "GET", "tasks/{task_id}/explain", OBSERVER),
    Route("read_result", c.ReadResult, "GET", "tasks/{task_id}/result", OBSERVER),
    Route("batch_get_states", c.BatchGetStates, "POST", "batch/states", OBSERVER),
    Route("ready", c.Ready, "GET", "ready", OBSERVER),
    Route("blocked", c.Blocked, "GET", "blocked", OBSERVER),
    Route("list_refused_results", c.ListRefusedResults, "GET", "refused", OBSERVER),
    Route("track_progress", c.TrackProgress, "GET", "progress", OBSERVER),
    Route("get_graph", c.GetGraph, "GET", "graph", OBSERVER),
    Route("get_plan", c.GetPlan, "GET", "plan", OBSERVER),
    Route("diff_plan", c.DiffPlan, "POST", "plan/diff", OBSERVER),
    Route("check_plan", c.CheckPlan, "POST", "plan/check", OBSERVER),
    Route("get_policy", c.GetPolicy, "GET", "policy", OBSERVER),
    Route("list_sessions", c.ListSessions, "GET", "sessions", OBSERVER),
    Route("get_session_memory", c.GetSessionMemory, "GET", "sessions/{session_id}/memory", OBSERVER),
    Route("get_active_claims_for_session", c.GetActiveClaimsForSession, "GET", "sessions/{session_id}/claims", OBSERVER),
    Route("list_agents", c.ListAgents, "GET", "agents", OBSERVER),
    Route("read_events", c.ReadEvents, "GET", "events", OBSERVER),
    # Operators
    Route("add_tasks", c.AddTasks, "POST", "tasks", OPERATOR),
    Route("edit_task", c.EditTask, "PATCH", "tasks/{task_id}", OPERATOR),
    Route("import_plan", c.ImportPlan, "POST", "plan", OPERATOR),
    Route("preview_reset", c.PreviewReset, "GET", "tasks/{task_id}/reset", OPERATOR),
    _task("reset_task", c.ResetTask, "reset", OPERATOR),
    _task("cancel_task", c.CancelTask, "cancel", OPERATOR),
    _task("assign_task", c.AssignTask, "assign", OPERATOR),
    _task("force_release", c.ForceRelease, "force-release", OPERATOR),
    _task("hold_task", c.HoldTask, "hold", OPERATOR),
    _task("reopen_task", c.ReopenTask, "reopen", OPERATOR),
    _task("discard_result", c.DiscardResult, "discard", OPERATOR),
    Route("set_policy", c.SetPolicy, "PATCH", "policy", OPERATOR),
    Route("sweep", c.Sweep, "POST", "sweep", OPERATOR),
    # Admins
    Route("create_key", c.CreateKey, "POST", "keys", ADMIN, within=Within.TENANT),
    Route("list_keys", c.ListKeys, "GET", "keys", ADMIN, within=Within.TENANT),
    Route("rotate_key", c.RotateKey, "POST", "keys/{key_id}/rotate", ADMIN, within=Within.TENANT),
    Route("revoke_key", c.RevokeKey, "POST", "keys/{key_id}/revoke", ADMIN, within=Within.TENANT),
    Route("get_tenant", c.GetTenant, "GET", "tenant", ADMIN, within=Within.TENANT),
    Route("set_tenant", c.SetTenant, "PATCH", "tenant", ADMIN, within=Within.TENANT),
    Route("list_tenants", c.ListTenants, "GET", "tenants", ADMIN, within=Within.STORE),
)

BY_CALL: Final[dict[type[Call[Any]], Route]] = {route.call: route for route in ROUTES}
