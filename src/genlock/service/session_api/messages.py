"""Requests and answers by the documents' names. Unknown fields of a request are ignored, because
its senders follow another document."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from genlock.core.reasons import ClaimReason, ReleaseAnswer, RenewReason, SubmitReason

# The table of SC's code for each outcome. Where SC has no code, Genlock's own is used.


class Code(StrEnum):
    """SC's error codes, and two that it lacks."""

    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    TASK_ALREADY_CLAIMED = "TASK_ALREADY_CLAIMED"
    TASK_NOT_CLAIMED = "TASK_NOT_CLAIMED"
    TASK_NOT_CLAIMABLE = "TASK_NOT_CLAIMABLE"
    NOT_CLAIM_OWNER = "NOT_CLAIM_OWNER"
    CLAIM_EXPIRED = "CLAIM_EXPIRED"
    SESSION_ENDED = "SESSION_ENDED"
    LIMIT_REACHED = "LIMIT_REACHED"


STATUSES: Final[dict[str, int]] = {
    Code.TASK_NOT_FOUND: 404,
    Code.SESSION_NOT_FOUND: 404,
    Code.TASK_ALREADY_CLAIMED: 409,
    Code.TASK_NOT_CLAIMED: 404,
    Code.TASK_NOT_CLAIMABLE: 400,
    Code.NOT_CLAIM_OWNER: 403,
    Code.CLAIM_EXPIRED: 410,
    Code.SESSION_ENDED: 409,
    Code.LIMIT_REACHED: 429,
}
"""The code and status of each refusal. The errors TaskNotFound, SessionNotFound, SessionEnded and
LimitReached have such codes and statuses by themselves."""

CODES: Final[dict[Any, Code | None]] = {
    ClaimReason.GRANTED: None,
    ClaimReason.DENIED_ACTIVE_CLAIM: Code.TASK_ALREADY_CLAIMED,
    ClaimReason.DENIED_COMPLETED: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_HELD: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_ASSIGNED: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_ROLE: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_BLOCKED: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.NOTHING_READY: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_LIMIT: Code.LIMIT_REACHED,
    RenewReason.RENEWED: None,
    RenewReason.ALREADY_EXPIRED: Code.CLAIM_EXPIRED,
    ReleaseAnswer.RELEASED: None,
    # Renewal, release and submission share these. A claim at another generation is no longer this
    # caller's.
    RenewReason.GENERATION_MISMATCH: Code.NOT_CLAIM_OWNER,
    RenewReason.SESSION_MISMATCH: Code.NOT_CLAIM_OWNER,
    RenewReason.NO_CLAIM: Code.TASK_NOT_CLAIMED,
    SubmitReason.ACCEPTED: None,
    SubmitReason.CONVERGENCE_ESCALATED: None,
    SubmitReason.STALE_GENERATION: Code.NOT_CLAIM_OWNER,
    SubmitReason.FUTURE_GENERATION: Code.NOT_CLAIM_OWNER,
    SubmitReason.TASK_ALREADY_COMPLETED: Code.TASK_NOT_CLAIMED,
    SubmitReason.CHILDREN_UNFINISHED: Code.TASK_NOT_CLAIMABLE,
}
"""None for outcomes that are no refusals."""


Milliseconds = Annotated[float, Meta(gt=0)]
Generation = Annotated[int, Meta(ge=0, lt=2**53)]
Words = Annotated[str, Meta(max_length=200)]


class Message(Struct, rename="camel", kw_only=True):
    """A request or an answer."""


def stamp(instant: datetime) -> str:
    """A time as the document writes it: `2025-12-28T12:00:00Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp_or_none(instant: datetime | None) -> str | None:
    """The same of the end of a lease; None where there is no lease."""
    return None if instant is None else stamp(instant)


# Requests


class ClaimRequest(Message, kw_only=True):
    """A session wants a task."""

    session_id: str
    ttl_ms: Milliseconds | None = None
    agent_type: Words = ""
    agent_role: Words = ""
    """Ours, not the document's: the role that the claim is made in."""


class ReleaseRequest(Message, kw_only=True):
    """A session gives a task back, or is done with it (`completed`)."""

    session_id: str
    reason: Words = "released"
    generation: Generation | None = None


class Vitals(Message, kw_only=True):
    """What a session may report about itself with a heartbeat."""

    context_percent: int | float | None = None
    score: int | float | None = None
    phase: Words | None = None

    @property
    def said(self) -> dict[str, Any]:
        """The reported fields by their names on the wire."""
        found = {"contextPercent": self.context_percent, "score": self.score, "phase": self.phase}
        return {name: value for name, value in found.items() if value is not None}


class HeartbeatRequest(Vitals, kw_only=True):
    """A session still works on a task."""

    session_id: str
    extend_ms: Milliseconds | None = None
    generation: Generation | None = None


class SessionHeartbeatRequest(Vitals, kw_only=True):
    """A session lives, whatever it holds."""


class InFlightQuery(Message, kw_only=True):
    """Which claims to list."""

    session_id: str | None = None
    include_expired: bool = False


class StartRequest(Message, kw_only=True):
    """An agent asks what it should take."""

    agent_id: str = "primary"
    agent_role: Words = "full_stack"
    tracks: list[str] | None = None


class Nothing(Message, kw_only=True):
    """An empty request, or one whose body is ignored."""


# Answers


class Refused(Message, kw_only=True):
    """Every refusal and error."""

    success: bool = False
    error: str
    message: str
    reason: str | UnsetType = UNSET
    """Genlock's own word, where it has one of its own."""
    claim: OtherClaim | UnsetType = UNSET


class OtherClaim(Message, kw_only=True):
    """Whose claim is in the way."""

    session_id: str
    claimed_at: str
    remaining_ms: int | None
    """Null: the claim has no lease."""
    last_heartbeat: str | UnsetType = UNSET


class GrantedClaim(Message, kw_only=True):
    """A claim that was granted; `generation` is its fencing token."""

    task_id: str
    session_id: str
    claimed_at: str
    expires_at: str | None
    """Null: the claim has no lease."""
    last_heartbeat: str
    generation: int


class Claimed(Message, kw_only=True):
    """The answer to a claim."""

    success: bool = True
    claim: GrantedClaim
    already_held: bool | UnsetType = UNSET
    """True if the session held the task already: another of its workers may be at work on it. Left
    out otherwise."""


class ReleasedClaim(Message, kw_only=True):
    """A claim that is over."""

    task_id: str
    reason: str
    claim_duration: int


class Released(Message, kw_only=True):
    """The answer to a release."""

    success: bool = True
    released: ReleasedClaim


class BeatenClaim(Message, kw_only=True):
    """A claim that goes on."""

    expires_at: str | None
    """Null: the claim has no lease."""
    last_heartbeat: str
    heartbeat_count: int


class Beaten(Message, kw_only=True):
    """The answer to a claim's heartbeat."""

    success: bool = True
    claim: BeatenClaim


class SessionBeaten(Message, kw_only=True):
    """The answer to a session's heartbeat."""

    success: bool = True
    session_id: str
    last_activity: str


class TaskWords(Message, kw_only=True):
    """A task in short."""

    title: str
    phase: str
    priority: str


class FlyingClaim(Message, kw_only=True):
    """A claim as others see it."""

    session_id: str
    claimed_at: str
    expires_at: str | None
    """Null: the claim has no lease."""
    last_heartbeat: str
    agent_type: str | UnsetType = UNSET
    health_status: str
    generation: int


class Flying(Message, kw_only=True):
    """A task that somebody works on."""

    task_id: str
    task: TaskWords
    claim: FlyingClaim


class InFlightSummary(Message, kw_only=True):
    """How many there are."""

    total: int
    by_session: dict[str, int]


class InFlight(Message, kw_only=True):
    """All that is worked on."""

    in_flight: list[Flying]
    summary: InFlightSummary


class CurrentClaim(Message, kw_only=True):
    """When the claim began, and how long its lease still lasts."""

    claimed_at: str
    last_heartbeat: str
    remaining_ms: int | None
    """Null: the claim has no lease."""


class CurrentTask(Message, kw_only=True):
    """What a session works on."""

    task_id: str
    title: str
    claim: CurrentClaim


class SessionTask(Message, kw_only=True):
    """The answer about one session."""

    session_id: str
    current_task: CurrentTask | None


class Cleaned(Message, kw_only=True):
    """A claim that was found lost."""

    task_id: str
    session_id: str
    reason: str


class Cleanup(Message, kw_only=True):
    """What was found lost."""

    success: bool = True
    cleaned: list[Cleaned]
    count: int


class Stats(Message, kw_only=True):
    """Claims in numbers."""

    total: int
    by_session: dict[str, int]
    by_health: dict[str, int]
    oldest_ms: int | None


class PastClaim(Message, kw_only=True):
    """A claim that is over."""

    task_id: str
    claimed_at: str
    released_at: str
    release_reason: str
    canonical_reason: str | UnsetType = UNSET
    """Genlock's own word, if `release_reason` is the caller's."""
    duration: int


class SessionCard(Message, kw_only=True):
    """A session in short; what is not known of it is left out."""

    session_id: str
    active: bool
    last_activity: str
    current_task_id: str | None
    current_task_claimed_at: str | None
    claim_history: list[PastClaim]
    tasks_completed: int
    """By this session, as far back as the feed goes."""
    tasks_total: int
    """Of the project, those that were cancelled left out."""
    agent_type: str | UnsetType = UNSET
    context_percent: Any = UNSET
    score: Any = UNSET
    phase: Any = UNSET


class Summary(Message, kw_only=True):
    """All sessions that have not ended."""

    sessions: list[SessionCard]
    total: int


class StaleClaim(Message, kw_only=True):
    """DDB: silent for longer than the policy's `stale_threshold_seconds`; shown, not released."""

    task_id: str
    session_id: str
    agent_id: str
    claimed_at: str
    last_active: str
    silent_ms: int


class ProjectHealth(Message, kw_only=True):
    """DDB's status: `healthy`, or `degraded` while some holder is silent."""

    status: str
    version: str
    tasks: dict[str, int]
    claims: int
    stale_claims: list[StaleClaim]


class Offer(Message, kw_only=True):
    """A task that an agent might take."""

    task_id: str
    title: str
    priority: str
    track: str | UnsetType = UNSET
    feature: str | UnsetType = UNSET
    edge: str | UnsetType = UNSET


class Start(Message, kw_only=True):
    """DDB's routing answer. Nothing is claimed by it."""

    agent_id: str
    agent_role: str
    next: Offer | None
    alternatives: list[Offer]
    warnings: list[str]
