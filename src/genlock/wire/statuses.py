"""Which reason and which error is which HTTP status: the one table. A refusal is 409, over a limit 429, the rest the caller or us."""

from __future__ import annotations

from typing import Any, Final

from genlock import errors as e
from genlock.core.reasons import ClaimReason, ReleaseAnswer, RenewReason, SubmitReason

REASONS: Final[dict[Any, int]] = {
    **dict.fromkeys(ClaimReason, 409),
    **dict.fromkeys(RenewReason, 409),
    **dict.fromkeys(ReleaseAnswer, 409),
    **dict.fromkeys(SubmitReason, 409),
    ClaimReason.GRANTED: 200,
    # That there is nothing to do is what a worker asked, and was told.
    ClaimReason.NOTHING_READY: 200,
    ClaimReason.DENIED_LIMIT: 429,
    RenewReason.RENEWED: 200,
    ReleaseAnswer.RELEASED: 200,
    SubmitReason.ACCEPTED: 200,
}

ERRORS: Final[dict[type[e.GenlockError], int]] = {
    e.GenlockError: 500,
    e.BadArgument: 400,
    e.ResultTooLarge: 413,
    e.PlanInvalid: 422,
    e.OperationMismatch: 422,
    e.MethodRefused: 405,
    e.KindRefused: 415,
    e.HostRefused: 421,
    e.NotFound: 404,
    e.StoreMissing: 503,
    e.NotAllowed: 409,
    e.LimitReached: 429,
    e.AccessRefused: 403,
    e.KeyRefused: 401,
    e.ServiceError: 500,
    e.ServiceUnreachable: 503,
    e.ServiceMismatch: 426,
    e.TooManyRequests: 429,
    e.CursorLost: 410,
    e.CounterExhausted: 409,
    e.Busy: 503,
    e.Closed: 503,
    e.StoreUnavailable: 503,
    e.OutcomeUnknown: 503,
    e.StoreReadOnly: 503,
    e.StoreFull: 507,
    e.OverLimit: 413,
}
"""An error that is not here has the status of what it is a kind of."""

RETRY_AFTER_SECONDS: Final = {429: 1, 503: 1}


def status_of(error: e.GenlockError) -> int:
    """The status of an error."""
    return next(ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS)
