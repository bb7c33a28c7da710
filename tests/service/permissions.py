"""Who may do what, written down: the access matrix expects this. Nothing here is taken from the
routes that it tests.

Whoever adds an operation, or changes who may do it, says so here as well.
"""

from __future__ import annotations

from typing import NamedTuple


class Operation(NamedTuple):
    """One operation under `/v1/{tenant}/{project}/`."""

    name: str
    method: str
    path: str
    role: str
    """The least one that may do it."""
    session: str | None = None
    """Where the session stands that it acts for: `body`, `path`, or None if it acts for none."""
    within: str = "project"
    """What a key must see: `project`, `tenant` (all projects of it), or `store`."""


OPERATIONS = (
    # Workers
    Operation("claim_task", "POST", "tasks/{task_id}/claim", "agent", "body"),
    Operation("renew_lease", "POST", "tasks/{task_id}/renew", "agent", "body"),
    Operation("report_progress", "POST", "tasks/{task_id}/progress", "agent", "body"),
    Operation("release_claim", "POST", "tasks/{task_id}/release", "agent", "body"),
    Operation("submit_result", "POST", "tasks/{task_id}/submit", "agent", "body"),
    Operation("spawn_subtasks", "POST", "tasks/{task_id}/spawn", "agent", "body"),
    Operation("adopt_result", "POST", "tasks/{task_id}/adopt", "agent", "body"),
    Operation("report_evaluation", "POST", "tasks/{task_id}/evaluate", "agent", "body"),
    Operation("claim_next", "POST", "claim-next", "agent", "body"),
    Operation("batch_claim", "POST", "batch/claim", "agent", "body"),
    Operation("batch_renew", "POST", "batch/renew", "agent", "body"),
    Operation("batch_submit", "POST", "batch/submit", "agent", "body"),
    Operation("register_session", "POST", "sessions", "agent", "body"),
    Operation("heartbeat_session", "POST", "sessions/{session_id}/heartbeat", "agent", "path"),
    Operation("end_session", "POST", "sessions/{session_id}/end", "agent", "path"),
    Operation("next_id", "POST", "next-id", "agent"),
    # Looking
    Operation("list_tasks", "GET", "tasks", "observer"),
    Operation("get_overview", "GET", "overview", "observer"),
    Operation("get_activity", "GET", "activity", "observer"),
    Operation("search_events", "GET", "events/search", "observer"),
    Operation("get_task_state", "GET", "tasks/{task_id}", "observer"),
    Operation("get_claim_history", "GET", "tasks/{task_id}/history", "observer"),
    Operation("get_lineage", "GET", "tasks/{task_id}/lineage", "observer"),
    Operation("check_push", "GET", "tasks/{task_id}/push", "observer"),
    Operation("explain", "GET", "tasks/{task_id}/explain", "observer"),
    Operation("read_result", "GET", "tasks/{task_id}/result", "observer"),
    Operation("batch_get_states", "POST", "batch/states", "observer"),
    Operation("ready", "GET", "ready", "observer"),
    Operation("preview_next", "GET", "claim-next", "observer"),
    Operation("list_reviews", "GET", "reviews", "observer"),
    Operation("get_review", "GET", "tasks/{task_id}/review", "observer"),
    Operation("list_promotions", "GET", "promotions", "observer"),
    Operation("blocked", "GET", "blocked", "observer"),
    Operation("list_refused_results", "GET", "refused", "observer"),
    Operation("track_progress", "GET", "progress", "observer"),
    Operation("get_graph", "GET", "graph", "observer"),
    Operation("get_graph_layout", "GET", "graph/layout", "observer"),
    Operation("get_plan", "GET", "plan", "observer"),
    Operation("diff_plan", "POST", "plan/diff", "observer"),
    Operation("check_plan", "POST", "plan/check", "observer"),
    Operation("get_policy", "GET", "policy", "observer"),
    Operation("list_sessions", "GET", "sessions", "observer"),
    Operation("get_session", "GET", "sessions/{session_id}", "observer"),
    Operation("list_expired_claims", "GET", "expired-claims", "observer"),
    Operation("get_session_memory", "GET", "sessions/{session_id}/memory", "observer"),
    Operation("get_active_claims_for_session", "GET", "sessions/{session_id}/claims", "observer"),
    Operation("list_agents", "GET", "agents", "observer"),
    Operation("read_events", "GET", "events", "observer"),
    # Operators
    Operation("add_tasks", "POST", "tasks", "operator"),
    Operation("edit_task", "PATCH", "tasks/{task_id}", "operator"),
    Operation("import_plan", "POST", "plan", "operator"),
    Operation("preview_reset", "GET", "tasks/{task_id}/reset", "operator"),
    Operation("reset_task", "POST", "tasks/{task_id}/reset", "operator"),
    Operation("cancel_task", "POST", "tasks/{task_id}/cancel", "operator"),
    Operation("assign_task", "POST", "tasks/{task_id}/assign", "operator"),
    Operation("force_release", "POST", "tasks/{task_id}/force-release", "operator"),
    Operation("hold_task", "POST", "tasks/{task_id}/hold", "operator"),
    Operation("reopen_task", "POST", "tasks/{task_id}/reopen", "operator"),
    Operation("batch_act", "POST", "batch/act", "operator"),
    Operation("discard_result", "POST", "tasks/{task_id}/discard", "operator"),
    Operation("approve_review", "POST", "tasks/{task_id}/approve", "operator"),
    Operation("reject_review", "POST", "tasks/{task_id}/reject", "operator"),
    Operation("settle_promotion", "POST", "tasks/{task_id}/promotion", "operator"),
    Operation("set_policy", "PATCH", "policy", "operator"),
    Operation("sweep", "POST", "sweep", "operator"),
    # Admins
    Operation("create_key", "POST", "keys", "admin", within="tenant"),
    Operation("list_keys", "GET", "keys", "admin", within="tenant"),
    Operation("rotate_key", "POST", "keys/{key_id}/rotate", "admin", within="tenant"),
    Operation("revoke_key", "POST", "keys/{key_id}/revoke", "admin", within="tenant"),
    Operation("get_tenant", "GET", "tenant", "admin", within="tenant"),
    Operation("set_tenant", "PATCH", "tenant", "admin", within="tenant"),
    Operation("list_tenants", "GET", "tenants", "admin", within="store"),
)


class ApiOperation(NamedTuple):
    """One of the session-claiming interface, under `/api/`."""

    name: str
    method: str
    path: str
    role: str
    session: str | None = None


API = (
    ApiOperation("claim", "POST", "tasks/{name}/claim", "agent", "body"),
    ApiOperation("release", "POST", "tasks/{name}/release", "agent", "body"),
    ApiOperation("heartbeat", "POST", "tasks/{name}/claim/heartbeat", "agent", "body"),
    ApiOperation("in_flight", "GET", "tasks/in-flight", "observer"),
    ApiOperation("current_task", "GET", "sessions/{name}/current-task", "observer"),
    ApiOperation("cleanup", "POST", "tasks/claims/cleanup", "operator"),
    ApiOperation("stats", "GET", "tasks/claims/stats", "observer"),
    ApiOperation("summary", "GET", "sessions/summary", "observer"),
    ApiOperation("session_heartbeat", "POST", "sessions/{name}/heartbeat", "agent", "path"),
    ApiOperation("status", "GET", "status", "observer"),
    ApiOperation("start", "POST", "start", "observer"),
)
