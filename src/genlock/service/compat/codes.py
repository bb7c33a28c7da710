"""Which of SC's codes an outcome is: the one table. Where SC has none that fits, Genlock's own code stands."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from genlock.core.reasons import ClaimReason, ReleaseAnswer, RenewReason, SubmitReason


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
"""The errors TaskNotFound, SessionNotFound, SessionEnded and LimitReached have these codes and statuses by themselves."""

CODES: Final[dict[Any, Code | None]] = {
    ClaimReason.GRANTED: None,
    ClaimReason.DENIED_ACTIVE_CLAIM: Code.TASK_ALREADY_CLAIMED,
    ClaimReason.DENIED_COMPLETED: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_HELD: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_ASSIGNED: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_BLOCKED: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.NOTHING_READY: Code.TASK_NOT_CLAIMABLE,
    ClaimReason.DENIED_LIMIT: Code.LIMIT_REACHED,
    RenewReason.RENEWED: None,
    RenewReason.ALREADY_EXPIRED: Code.CLAIM_EXPIRED,
    ReleaseAnswer.RELEASED: None,
    # Renewal, release and submission share these. A claim of another generation is somebody's, but not this caller's any more.
    RenewReason.GENERATION_MISMATCH: Code.NOT_CLAIM_OWNER,
    RenewReason.SESSION_MISMATCH: Code.NOT_CLAIM_OWNER,
    RenewReason.NO_CLAIM: Code.TASK_NOT_CLAIMED,
    SubmitReason.ACCEPTED: None,
    SubmitReason.STALE_GENERATION: Code.NOT_CLAIM_OWNER,
    SubmitReason.FUTURE_GENERATION: Code.NOT_CLAIM_OWNER,
    SubmitReason.TASK_ALREADY_COMPLETED: Code.TASK_NOT_CLAIMED,
    SubmitReason.CHILDREN_UNFINISHED: Code.TASK_NOT_CLAIMABLE,
}
"""None: that is no refusal."""
