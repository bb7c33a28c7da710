"""The table of metrics: names, labels, buckets and meanings; and by which word each answer is
counted.

The first eleven are GC 8.1's, with its names, labels and buckets, and with its words as far as they
go. docs/reference/metrics.md is made from this page.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from genlock.core.reasons import ClaimReason, RenewReason, SubmitReason


class Kind(StrEnum):
    """What Prometheus calls it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One line of the table; the name is without its prefix."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


_PLACE = ("tenant", "project")
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)

CLAIMS = Metric("claims_total", Kind.COUNTER, (*_PLACE, "result"), "Claims that were answered.")
RESULTS = Metric(
    "results_total", Kind.COUNTER, (*_PLACE, "result"), "Results that were submitted or adopted."
)
RENEWALS = Metric(
    "lease_renewals_total", Kind.COUNTER, (*_PLACE, "result"), "Renewals that were answered."
)
EXPIRATIONS = Metric(
    "lease_expirations_total", Kind.COUNTER, _PLACE, "Claims whose lease was found to be over."
)
INCREMENTS = Metric(
    "generation_increments_total",
    Kind.COUNTER,
    _PLACE,
    "How often a generation rose: by a grant, or to take a right away.",
)
ACTIVE_CLAIMS = Metric(
    "active_claims",
    Kind.GAUGE,
    _PLACE,
    "Tasks that are claimed, also those that are held meanwhile, and those whose lease is over and "
    "not yet found to be.",
)
PENDING_TASKS = Metric("pending_tasks", Kind.GAUGE, _PLACE, "Tasks that are ready to be claimed.")
COMPLETED_TASKS = Metric("completed_tasks", Kind.GAUGE, _PLACE, "Tasks that have their result.")
CLAIM_DURATION = Metric(
    "claim_duration_seconds",
    Kind.HISTOGRAM,
    _PLACE,
    "How long claims lasted that ended, from the grant to whatever ended them; of one that "
    "expired, to the end of its lease.",
    (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0),
)
COMPLETION_TIME = Metric(
    "task_completion_time_seconds",
    Kind.HISTOGRAM,
    _PLACE,
    "How long tasks that were completed took, from the grant of the claim that completed them to "
    "the acceptance of its result.",
    (10.0, 60.0, 300.0, 900.0, 3600.0, 7200.0),
)
GENERATIONS = Metric(
    "generations_per_task",
    Kind.HISTOGRAM,
    _PLACE,
    "How often tasks that were completed had been granted (since they were last reset or "
    "reopened).",
    (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0),
)

GC = (
    CLAIMS,
    RESULTS,
    RENEWALS,
    EXPIRATIONS,
    INCREMENTS,
    ACTIVE_CLAIMS,
    PENDING_TASKS,
    COMPLETED_TASKS,
    CLAIM_DURATION,
    COMPLETION_TIME,
    GENERATIONS,
)

ORPHANED = Metric(
    "claims_orphaned_total",
    Kind.COUNTER,
    _PLACE,
    "Claims whose session had ended or whose process was gone.",
)
STALE = Metric(
    "claims_stale_total",
    Kind.COUNTER,
    _PLACE,
    "Claims whose holder was found to be silent, and kept them.",
)
REFUSED = Metric(
    "refused_results_total",
    Kind.COUNTER,
    (*_PLACE, "reason"),
    "Refused results that were kept, by the reason they were given.",
)
ACTIVE_SESSIONS = Metric(
    "active_sessions",
    Kind.GAUGE,
    _PLACE,
    "Sessions that have not ended, are not known to be gone, and were heard of within "
    "orphan_threshold_seconds.",
)
ACTIVE_AGENTS = Metric(
    "active_agents", Kind.GAUGE, _PLACE, "Agents that hold a task and are not lost."
)
TASKS = Metric("tasks", Kind.GAUGE, (*_PLACE, "state"), "Tasks by state.")
LANE_DEPTH = Metric("lane_depth", Kind.GAUGE, ("lane",), "Calls that wait to be begun, now.")
LANE_WAITERS = Metric(
    "lane_waiters",
    Kind.GAUGE,
    ("lane",),
    "Requests for a next task that wait until there is one, now.",
)
GATHERED_DEPTH = Metric(
    "lane_gathered_depth",
    Kind.HISTOGRAM,
    (),
    "Calls that were waiting when a batch was gathered, its own included.",
    (*_SIZES, 1024.0, 4096.0),
)
BATCH_SIZE = Metric(
    "batch_size", Kind.HISTOGRAM, (), "Commands that were decided together.", _SIZES
)
LOAD = Metric(
    "load_duration_seconds",
    Kind.HISTOGRAM,
    (),
    "How long the store took to load what a batch needs.",
    _SECONDS,
)
DECIDE = Metric(
    "decide_duration_seconds",
    Kind.HISTOGRAM,
    (),
    "How long a batch took besides loading and committing.",
    _SECONDS,
)
COMMIT = Metric(
    "commit_duration_seconds",
    Kind.HISTOGRAM,
    (),
    "How long the store took to commit a batch.",
    _SECONDS,
)
CONFLICTS = Metric(
    "commit_conflicts_total",
    Kind.COUNTER,
    (),
    "Records that another coordinator had changed meanwhile, and that were decided again.",
)
SECOND_COMMITS = Metric(
    "second_commits_total", Kind.COUNTER, (), "Commits of what events asked of other records."
)
SSE_CLIENTS = Metric("sse_clients", Kind.GAUGE, (), "Clients that are listening to events.")
REQUESTS = Metric(
    "http_requests_total", Kind.COUNTER, ("route", "status"), "HTTP requests that were answered."
)
REQUEST_DURATION = Metric(
    "http_request_duration_seconds",
    Kind.HISTOGRAM,
    ("route",),
    "How long HTTP requests took.",
    (*_SECONDS, 10.0, 30.0, 60.0),
)
BUILD = Metric(
    "build_info",
    Kind.GAUGE,
    ("version", "python", "store"),
    "Always 1; the labels say what is running.",
)

OURS = (
    ACTIVE_SESSIONS,
    ACTIVE_AGENTS,
    ORPHANED,
    STALE,
    REFUSED,
    TASKS,
    LANE_DEPTH,
    LANE_WAITERS,
    GATHERED_DEPTH,
    BATCH_SIZE,
    LOAD,
    DECIDE,
    COMMIT,
    CONFLICTS,
    SECOND_COMMITS,
    SSE_CLIENTS,
    REQUESTS,
    REQUEST_DURATION,
    BUILD,
)

ERROR = "error"
"""The word for what was not decided: an unknown task, an ended session, a store that is away."""

CLAIM_WORDS: dict[ClaimReason, str] = {
    ClaimReason.GRANTED: "granted",
    ClaimReason.DENIED_ACTIVE_CLAIM: "denied_active",
    ClaimReason.DENIED_COMPLETED: "denied_completed",
    ClaimReason.DENIED_HELD: "denied_held",
    ClaimReason.DENIED_ASSIGNED: "denied_assigned",
    ClaimReason.DENIED_ROLE: "denied_role",
    ClaimReason.DENIED_BLOCKED: "denied_blocked",
    ClaimReason.DENIED_LIMIT: "denied_limit",
    ClaimReason.NOTHING_READY: "nothing_ready",
}

RESULT_WORDS: dict[SubmitReason, str] = {
    SubmitReason.ACCEPTED: "accepted",
    SubmitReason.CONVERGENCE_ESCALATED: "in_review",
    SubmitReason.STALE_GENERATION: "stale_generation",
    SubmitReason.SESSION_MISMATCH: "session_mismatch",
    SubmitReason.NO_CLAIM: "no_claim",
    SubmitReason.FUTURE_GENERATION: "future_generation",
    SubmitReason.TASK_ALREADY_COMPLETED: "task_already_completed",
    SubmitReason.CHILDREN_UNFINISHED: "children_unfinished",
}

RENEWAL_WORDS: dict[RenewReason, str] = {
    RenewReason.RENEWED: "renewed",
    RenewReason.GENERATION_MISMATCH: "failed",
    RenewReason.NO_CLAIM: "failed",
    RenewReason.SESSION_MISMATCH: "failed",
    RenewReason.ALREADY_EXPIRED: "failed",
}
"""GC has one word for all of these; a renewal that was not decided is `failed` too."""
