"""Every state and every reason, by name. Within each enum the order is the order of precedence in
the rules."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """The states of a task."""

    BACKLOG = "BACKLOG"
    PENDING = "PENDING"
    BLOCKED = "BLOCKED"
    IN_PROGRESS = "IN_PROGRESS"
    IN_REVIEW = "IN_REVIEW"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    HELD = "HELD"


FINISHED = frozenset({Status.COMPLETED, Status.CANCELLED})
"""The states that count as done for dependents and parents."""


class ClaimState(StrEnum):
    """The states of a claim."""

    ACTIVE = "ACTIVE"
    EXPIRED = "EXPIRED"
    RELEASED = "RELEASED"
    SUPERSEDED = "SUPERSEDED"


class ReleaseReason(StrEnum):
    """The ways in which a claim ends."""

    COMPLETED = "COMPLETED"
    EXPIRED = "EXPIRED"
    SUPERSEDED = "SUPERSEDED"
    ERROR = "ERROR"
    VOLUNTARY = "VOLUNTARY"
    ORPHANED = "ORPHANED"
    SPAWNED = "SPAWNED"


FAILURES = frozenset({ReleaseReason.EXPIRED, ReleaseReason.ERROR, ReleaseReason.ORPHANED})
"""The endings that the circuit breaker counts."""


class ClaimReason(StrEnum):
    """The answer to a claim."""

    DENIED_COMPLETED = "DENIED_COMPLETED"
    DENIED_HELD = "DENIED_HELD"
    DENIED_ASSIGNED = "DENIED_ASSIGNED"
    DENIED_ROLE = "DENIED_ROLE"
    """The task is for roles other than the caller's."""
    DENIED_ACTIVE_CLAIM = "DENIED_ACTIVE_CLAIM"
    DENIED_BLOCKED = "DENIED_BLOCKED"
    DENIED_LIMIT = "DENIED_LIMIT"
    GRANTED = "GRANTED"
    NOTHING_READY = "NOTHING_READY"
    """claim_next only: no task suits the caller now."""

    @property
    def transient(self) -> bool:
        """May the same claim be granted later without any decision of an operator?"""
        return self in _TRANSIENT


_TRANSIENT = frozenset(
    {
        ClaimReason.DENIED_ASSIGNED,
        ClaimReason.DENIED_ACTIVE_CLAIM,
        ClaimReason.DENIED_BLOCKED,
        ClaimReason.DENIED_LIMIT,
        ClaimReason.NOTHING_READY,
    }
)


class RenewReason(StrEnum):
    """The answer to a renewal."""

    GENERATION_MISMATCH = "GENERATION_MISMATCH"
    NO_CLAIM = "NO_CLAIM"
    SESSION_MISMATCH = "SESSION_MISMATCH"
    ALREADY_EXPIRED = "ALREADY_EXPIRED"
    RENEWED = "RENEWED"


class ReleaseAnswer(StrEnum):
    """The answer to a release."""

    GENERATION_MISMATCH = "GENERATION_MISMATCH"
    NO_CLAIM = "NO_CLAIM"
    SESSION_MISMATCH = "SESSION_MISMATCH"
    RELEASED = "RELEASED"


class ProgressReason(StrEnum):
    """The answer to a report of progress."""

    GENERATION_MISMATCH = "GENERATION_MISMATCH"
    NO_CLAIM = "NO_CLAIM"
    SESSION_MISMATCH = "SESSION_MISMATCH"
    ALREADY_EXPIRED = "ALREADY_EXPIRED"
    RECORDED = "RECORDED"


class SubmitReason(StrEnum):
    """The answer to a submission, and to every other fenced act (spawn, adopt)."""

    STALE_GENERATION = "STALE_GENERATION"
    FUTURE_GENERATION = "FUTURE_GENERATION"
    TASK_ALREADY_COMPLETED = "TASK_ALREADY_COMPLETED"
    NO_CLAIM = "NO_CLAIM"
    SESSION_MISMATCH = "SESSION_MISMATCH"
    CHILDREN_UNFINISHED = "CHILDREN_UNFINISHED"
    CONVERGENCE_ESCALATED = "CONVERGENCE_ESCALATED"
    """The result was recorded and waits for a review."""
    ACCEPTED = "ACCEPTED"


class ReviewCause(StrEnum):
    """The reason why a result waits for a review."""

    OUTSIDE_ROLE = "OUTSIDE_ROLE"
    HUMAN_REQUIRED = "HUMAN_REQUIRED"
    EVALUATORS = "EVALUATORS"


class ReviewReason(StrEnum):
    """The answer to a reviewer or an evaluator."""

    STALE_REVIEW = "STALE_REVIEW"
    FOUR_EYES = "FOUR_EYES"
    CHILDREN_UNFINISHED = "CHILDREN_UNFINISHED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    EVALUATED = "EVALUATED"

    @property
    def succeeds(self) -> bool:
        """Was the operation carried out?"""
        return self in _CARRIED_OUT


_CARRIED_OUT = frozenset({ReviewReason.APPROVED, ReviewReason.REJECTED, ReviewReason.EVALUATED})


class PushReason(StrEnum):
    """The answer to a git repository that asks whether to accept a push."""

    UNKNOWN_TASK = "UNKNOWN_TASK"
    STALE_GENERATION = "STALE_GENERATION"
    FUTURE_GENERATION = "FUTURE_GENERATION"
    FROZEN = "FROZEN"
    NO_CLAIM = "NO_CLAIM"
    CLAIM_OVERDUE = "CLAIM_OVERDUE"
    NOT_ACCEPTED = "NOT_ACCEPTED"
    ALLOWED = "ALLOWED"


class RefusedState(StrEnum):
    """The states of a refused result."""

    KEPT = "KEPT"
    ADOPTED = "ADOPTED"
    DISCARDED = "DISCARDED"


class PromotionState(StrEnum):
    """The states of a promotion of an accepted result's products."""

    PENDING = "PENDING"
    FAILED = "FAILED"
    PROMOTED = "PROMOTED"


class KeyState(StrEnum):
    """The states of a key."""

    REVOKED = "REVOKED"
    EXPIRED = "EXPIRED"
    ACTIVE = "ACTIVE"


class SpawnMode(StrEnum):
    """The order in which spawned subtasks run."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"
    FAN_OUT_FAN_IN = "fan-out-fan-in"


class Isolation(StrEnum):
    """The way in which a worker isolates its files from those of others."""

    NONE = "none"
    WORKTREE = "worktree"
    CONTAINER = "container"


class Cause(StrEnum):
    """The reason why a claim is overdue, as evidence in its event."""

    LEASE_OVER = "LEASE_OVER"
    CLOCK_STEPPED = "CLOCK_STEPPED"
    SESSION_ENDED = "SESSION_ENDED"
    PROCESS_GONE = "PROCESS_GONE"
    SESSION_SILENT = "SESSION_SILENT"

    @property
    def orphans(self) -> bool:
        """Is the reason that the holder is gone, rather than that the lease is over?"""
        return self in _ORPHANS


_ORPHANS = frozenset({Cause.SESSION_ENDED, Cause.PROCESS_GONE, Cause.SESSION_SILENT})


class AgentStatus(StrEnum):
    """The status of an agent, in TD's words, and `lost`, for which TD has no word."""

    STARTING = "starting"
    IDLE = "idle"
    WORKING = "working"
    WAITING = "waiting"
    STOPPING = "stopping"
    LOST = "lost"


class Verdict(StrEnum):
    """The answer to an operator's command, or to a reaction."""

    DONE = "DONE"
    UNCHANGED = "UNCHANGED"


class Waiting(StrEnum):
    """The kind of thing that a task's `waiting_for` names."""

    NOTHING = "nothing"
    TASK = "task"
    TEXT = "text"
