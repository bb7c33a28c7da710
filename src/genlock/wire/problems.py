"""Problem details (RFC 9457): refusals and errors as they travel, and back into what they were.

A refusal is the whole answer with the problem's members beside it, so that whoever reads an answer finds the same fields in both cases.
An error has its stable code as `code`; the client raises the class of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from genlock import errors as e
from genlock.core.faults import Fault
from genlock.core.results import Holder
from genlock.typed_json import decode
from genlock.wire.statuses import status_of

CONTENT_TYPE: Final = "application/problem+json"
TYPES: Final = "urn:genlock:"
"""What a problem's type begins with; its reason or code follows, in lower case and with hyphens."""

TITLES: Final[dict[str, str]] = {
    "DENIED_COMPLETED": "The task is done already",
    "DENIED_HELD": "The task is held",
    "DENIED_ASSIGNED": "The task is reserved for another agent",
    "DENIED_ACTIVE_CLAIM": "Somebody else has the task",
    "DENIED_BLOCKED": "The task waits for others",
    "DENIED_LIMIT": "That would be over a limit of the tenant",
    "NOTHING_READY": "No task is ready for this agent",
    "GENERATION_MISMATCH": "The claim is of another generation",
    "NO_CLAIM": "There is no claim at this generation",
    "SESSION_MISMATCH": "The claim belongs to another session",
    "ALREADY_EXPIRED": "The lease is over",
    "STALE_GENERATION": "The task has moved on to a higher generation",
    "FUTURE_GENERATION": "This generation has never been granted",
    "TASK_ALREADY_COMPLETED": "The task is done already",
    "CHILDREN_UNFINISHED": "Subtasks are not finished yet",
}
"""Of every reason that is a refusal."""


ERROR_TITLES: Final[dict[type[e.GenlockError], str]] = {e.GenlockError: "Something went wrong in the service"}
"""Of errors whose own first line is for programmers. The others' is their title."""


class Problem(Struct, omit_defaults=True):
    """An error as it travels."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request: str = ""
    """The request's number in the service's log."""
    faults: tuple[Fault | str, ...] | None = None
    """Of a plan: everything that is wrong with it."""
    notes: tuple[Fault | str, ...] = ()
    """Of a plan with faults: what is none, but perhaps not meant."""
    retry_after_seconds: float | None = None


def type_of(name: str) -> str:
    """A problem's type: `urn:genlock:denied-active-claim`."""
    return TYPES + name.lower().replace("_", "-")


def problem_of(error: e.GenlockError, request: str = "") -> Problem:
    """The error as a problem."""
    faults, notes = (_sent(error.faults), _sent(error.notes)) if isinstance(error, e.PlanInvalid) else (None, ())
    return Problem(type_of(error.code), error_title(type(error)), status_of(error), str(error), error.code, request, faults, notes)


def _sent(faults: Sequence[object]) -> tuple[Fault | str, ...]:
    return tuple(fault if isinstance(fault, Fault) else str(fault) for fault in faults)


def error_title(kind: type[e.GenlockError]) -> str:
    """What an error is called, for people."""
    return ERROR_TITLES.get(kind) or (kind.__doc__ or kind.__name__).partition("\n")[0].rstrip(".")


def refusal_of(result: Struct, status: int) -> dict[str, Any]:
    """A refusing answer as a problem: all its fields, and the problem's beside them.

    The answer's own `detail` is often empty, and stays as it is: the client reads the answer out of this. `message` is for people."""
    fields = {name: getattr(result, name) for name in result.__struct_fields__}
    reason = str(fields["reason"])
    title = TITLES[reason]
    message = f"{title}{_particulars(fields)}."
    return {"type": type_of(reason), "title": title, "status": status, "detail": title, "message": message, **fields}


def _particulars(fields: dict[str, Any]) -> str:
    """Who has it, what it waits for, where it stands: whatever the answer knows."""
    holder: Holder | None = fields.get("holder")
    if holder is not None:
        until = holder.expires_at.isoformat(timespec="seconds").replace("+00:00", "Z")
        lost = "" if holder.looks_alive else ", and looks lost"
        named = holder.agent if holder.agent == holder.session else f"{holder.agent} (session {holder.session})"
        return f": {named}, with a lease until {until}{lost}"
    if fields.get("waits_for"):
        return f": {', '.join(fields['waits_for'])}"
    if fields.get("detail"):
        return f": {fields['detail']}"
    current = fields.get("current_generation", fields.get("generation"))
    return f"; the task is at generation {current}" if current is not None else ""


def _kinds(kind: type[e.GenlockError]) -> dict[str, type[e.GenlockError]]:
    found = {kind.__new__(kind).code: kind}
    for below in kind.__subclasses__():
        if below.__module__ == e.__name__:
            found |= _kinds(below)
    return found


KINDS: Final = _kinds(e.GenlockError)
"""Every error by its code."""


def error_of(data: bytes, status: int) -> e.GenlockError:
    """The error that the service answered; what is no problem of ours is ServiceError."""
    try:
        problem = decode(data, Problem)
    except msgspec.MsgspecError:
        return e.ServiceError(f"the service answered {status} with something that is no answer of Genlock's: {data[:200]!r}")
    return revive(problem)


def revive(problem: Problem) -> e.GenlockError:
    """The error that a problem was made from."""
    if problem.faults is not None:
        return e.PlanInvalid(problem.faults, problem.notes)
    return KINDS.get(problem.code, e.ServiceError)(problem.detail)
