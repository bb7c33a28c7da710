"""Problem details (RFC 9457): refusals and errors in their wire form, and their conversion back.

A refusal is the whole answer with the problem's members beside it, so that a client finds the same
fields in both cases. An error has its stable code as `code`; the client raises the class of that
name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from genlock import errors as e
from genlock.core.plan_faults import Fault
from genlock.core.reasons import (
    ClaimReason,
    ProgressReason,
    ReleaseAnswer,
    RenewReason,
    ReviewReason,
    SubmitReason,
)
from genlock.core.results import (
    ClaimResult,
    ProgressResult,
    ReleaseResult,
    RenewalResult,
    ReviewResult,
    SpawnResult,
    SubmissionResult,
)
from genlock.messages import NO_CONTEXT, Command, Context, describe, title
from genlock.typed_json import decode

CONTENT_TYPE: Final = "application/problem+json"
TYPES: Final = "urn:genlock:"
"""The prefix of a problem's type; its reason or code follows, in lower case and with hyphens."""

REFUSALS: Final[dict[Any, Any]] = {
    ClaimResult: ClaimReason,
    RenewalResult: RenewReason,
    ProgressResult: ProgressReason,
    ReleaseResult: ReleaseAnswer,
    SubmissionResult: SubmitReason,
    SpawnResult: SubmitReason,
    ReviewResult: ReviewReason,
}
"""The answers that may be refusals, with the status of each reason."""

REASONS: Final[dict[Any, int]] = {
    **dict.fromkeys(ClaimReason, 409),
    **dict.fromkeys(RenewReason, 409),
    **dict.fromkeys(ProgressReason, 409),
    **dict.fromkeys(ReleaseAnswer, 409),
    **dict.fromkeys(SubmitReason, 409),
    ClaimReason.GRANTED: 200,
    # Not a refusal: a worker asked for a task, and the answer is that there is none.
    ClaimReason.NOTHING_READY: 200,
    ClaimReason.DENIED_LIMIT: 429,
    RenewReason.RENEWED: 200,
    ProgressReason.RECORDED: 200,
    ReleaseAnswer.RELEASED: 200,
    SubmitReason.ACCEPTED: 200,
    SubmitReason.CONVERGENCE_ESCALATED: 200,
    **{reason: 200 if reason.succeeds else 409 for reason in ReviewReason},
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
"""An error that is not listed has the status of its base class."""

RETRY_AFTER_SECONDS: Final = {429: 1, 503: 1}

ERROR_TITLES: Final[dict[type[e.GenlockError], str]] = {
    e.GenlockError: "Something went wrong in the service"
}
"""The titles of errors whose first docstring line is for programmers. For all others that line is
the title."""


class Problem(Struct, omit_defaults=True):
    """An error in its wire form."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    message: str = ""
    """The same as `detail`, under its name in refusals."""
    try_next: tuple[Command, ...] = ()
    """Commands, each as a list of words."""
    request: str = ""
    """The number of the request in the service's log."""
    faults: tuple[Fault | str, ...] | None = None
    """For a plan: all its faults."""
    notes: tuple[Fault | str, ...] = ()
    """For a plan with faults: warnings, not faults but perhaps not intended."""
    retry_after_seconds: float | None = None


def status_of(error: e.GenlockError) -> int:
    """Returns the status of an error."""
    return status_of_kind(type(error))


def status_of_kind(kind: type[e.GenlockError]) -> int:
    """Returns the status of a class of errors: its own, or that of its nearest base class."""
    return next(ERRORS[one] for one in kind.__mro__ if one in ERRORS)


def type_of(name: str) -> str:
    """Returns the type of a problem: `urn:genlock:denied-active-claim`."""
    return TYPES + name.lower().replace("_", "-")


def problem_of(error: e.GenlockError, request: str = "") -> Problem:
    """Returns the error as a problem."""
    faults, notes = (
        (_sent(error.faults), _sent(error.notes))
        if isinstance(error, e.PlanInvalid)
        else (None, ())
    )
    return Problem(
        type_of(error.code),
        error_title(type(error)),
        status_of(error),
        error.message,
        error.code,
        error.message,
        error.try_next,
        request,
        faults,
        notes,
    )


def _sent(faults: Sequence[object]) -> tuple[Fault | str, ...]:
    return tuple(fault if isinstance(fault, Fault) else str(fault) for fault in faults)


def error_title(kind: type[e.GenlockError]) -> str:
    """Returns the title of an error, for people."""
    return ERROR_TITLES.get(kind) or (kind.__doc__ or kind.__name__).partition("\n")[0].rstrip(".")


def refusal_of(result: Any, status: int, context: Context = NO_CONTEXT) -> dict[str, Any]:
    """Returns a refusal as a problem: all fields of the answer, with the problem's members beside
    them.

    The answer's own `detail` is often empty and stays unchanged, because the client reads the
    answer from it. `message` is for people."""
    fields = {name: getattr(result, name) for name in result.__struct_fields__}
    reason = str(fields["reason"])
    told = describe(result, context)
    return {
        "type": type_of(reason),
        "title": title(reason),
        "status": status,
        "detail": title(reason),
        "message": told.text,
        "try_next": told.try_next,
        **fields,
    }


def _kinds(kind: type[e.GenlockError]) -> dict[str, type[e.GenlockError]]:
    found = {kind.__new__(kind).code: kind}
    for below in kind.__subclasses__():
        if below.__module__ == e.__name__:
            found |= _kinds(below)
    return found


KINDS: Final = _kinds(e.GenlockError)
"""All errors by code."""


def error_of(data: bytes, status: int) -> e.GenlockError:
    """Returns the error in the service's answer. Any other body becomes a ServiceError."""
    try:
        problem = decode(data, Problem)
    except msgspec.MsgspecError:
        return e.ServiceError(
            f"the service answered {status} with something that is no answer of Genlock's: "
            f"{data[:200]!r}"
        )
    return revive(problem)


def revive(problem: Problem) -> e.GenlockError:
    """Returns the error from which a problem was made."""
    if problem.faults is not None:
        return e.PlanInvalid(problem.faults, problem.notes)
    error = KINDS.get(problem.code, e.ServiceError)(problem.detail)
    error.advise(problem.try_next)
    return error
