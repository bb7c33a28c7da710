"""Which statuses an operation answers, and with what.

The statuses come from the one table; which errors an operation can meet is said here.
"""

from __future__ import annotations

from typing import Any, Final

from genlock import errors as e
from genlock.core.reasons import ClaimReason, ReleaseAnswer, RenewReason, SubmitReason
from genlock.core.results import ClaimResult, ReleaseResult, RenewalResult, SpawnResult, SubmissionResult
from genlock.service.openapi.fields import Schema
from genlock.service.openapi.schemas import ref
from genlock.wire.calls import answer_type
from genlock.wire.headers import PROTOCOL_HEADER, REQUEST_HEADER
from genlock.wire.problems import CONTENT_TYPE, TITLES, error_title
from genlock.wire.routes import Route
from genlock.wire.statuses import ERRORS, REASONS, RETRY_AFTER_SECONDS

Errors = tuple[type[e.GenlockError], ...]

ANY: Final[Errors] = (
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
"""What any operation may be answered."""

WITH_BODY: Final[Errors] = (e.OverLimit, e.KindRefused, e.StoreFull)

REFUSALS: Final[dict[Any, Any]] = {
    ClaimResult: ClaimReason,
    RenewalResult: RenewReason,
    ReleaseResult: ReleaseAnswer,
    SubmissionResult: SubmitReason,
    SpawnResult: SubmitReason,
}
"""The answers that may be refusals, and their reasons."""

MORE: Final[dict[str, Errors]] = {
    "claim_task": (e.SessionEnded, e.LimitReached),
    "claim_next": (e.SessionEnded, e.LimitReached),
    "batch_claim": (e.SessionEnded, e.LimitReached),
    "submit_result": (e.ResultTooLarge,),
    "batch_submit": (e.ResultTooLarge,),
    "spawn_subtasks": (e.NotAllowed, e.TaskExists, e.CounterExhausted, e.PlanInvalid),
    "adopt_result": (e.NotAllowed, e.ResultNotFound),
    "discard_result": (e.NotAllowed, e.ResultNotFound),
    "read_result": (e.ResultNotFound,),
    "explain": (e.SessionEnded,),
    "register_session": (e.SessionEnded, e.LimitReached),
    "heartbeat_session": (e.SessionNotFound, e.SessionEnded),
    "end_session": (e.SessionNotFound,),
    "get_session_memory": (e.SessionNotFound,),
    "next_id": (e.CounterExhausted,),
    "read_events": (e.CursorLost,),
    "add_tasks": (e.PlanInvalid, e.TaskExists),
    "edit_task": (e.PlanInvalid, e.NotAllowed),
    "import_plan": (e.PlanInvalid, e.TaskExists),
    "diff_plan": (e.PlanInvalid,),
    "check_plan": (e.PlanInvalid,),
    "rotate_key": (e.KeyNotFound, e.NotAllowed),
    "revoke_key": (e.KeyNotFound,),
    "get_tenant": (e.TenantNotFound,),
    **dict.fromkeys(("reset_task", "cancel_task", "assign_task", "force_release", "hold_task", "reopen_task"), (e.NotAllowed,)),
}
"""What one operation may be answered besides."""


def errors_of(route: Route) -> Errors:
    """The errors that this operation may be answered."""
    fields = route.call.__struct_fields__
    named = (e.TaskNotFound,) if "task_id" in fields else ()
    repeated = (e.OperationMismatch,) if "operation_id" in fields else ()
    return (*ANY, *named, *repeated, *MORE.get(route.name, ()), *(() if route.repeatable else WITH_BODY))


def by_status(route: Route) -> dict[int, list[str]]:
    """The reasons and codes of each status but 200, in order."""
    found: dict[int, list[str]] = {}
    for reason in REFUSALS.get(answer_type(route.call), ()):
        if REASONS[reason] != 200:
            found.setdefault(REASONS[reason], []).append(str(reason))
    return _grouped(errors_of(route), found)


def _grouped(kinds: Errors, found: dict[int, list[str]]) -> dict[int, list[str]]:
    for kind in kinds:
        found.setdefault(_status(kind), []).append(code_of(kind))
    return dict(sorted(found.items()))


def code_of(kind: type[e.GenlockError]) -> str:
    """The code of an error."""
    return kind.__new__(kind).code


def _status(kind: type[e.GenlockError]) -> int:
    return next(ERRORS[one] for one in kind.__mro__ if one in ERRORS)


_COMMON: Final = _grouped((*ANY, *WITH_BODY), {})


def _meaning(name: str, kinds: dict[str, type[e.GenlockError]]) -> str:
    return TITLES[name] if name in TITLES else error_title(kinds[name])


def responses(route: Route, answer: Schema) -> dict[str, Schema]:
    """Every status of this operation."""
    kinds = {code_of(kind): kind for kind in errors_of(route)}
    refusal = answer_type(route.call) if answer_type(route.call) in REFUSALS else None
    found: dict[str, Schema] = {
        "200": {"description": "Done.", "headers": _headers(200), "content": {"application/json": {"schema": answer}}}
    }
    for status, names in by_status(route).items():
        refused = refusal is not None and any(name in TITLES for name in names)
        schema = {"anyOf": [ref(refused_name(refusal)), ref("Problem")]} if refused else ref("Problem")
        common = names == _COMMON.get(status)
        found[str(status)] = {"$ref": f"#/components/responses/{status}"} if common else _response(status, names, kinds, schema)
    return found


def response_components() -> dict[str, Schema]:
    """The answers that most operations share."""
    kinds = {code_of(kind): kind for kind in (*ANY, *WITH_BODY)}
    return {str(status): _response(status, names, kinds, ref("Problem")) for status, names in sorted(_COMMON.items())}


def _response(status: int, names: list[str], kinds: dict[str, type[e.GenlockError]], schema: Schema) -> Schema:
    return {
        "description": "\n".join(f"- `{name}`: {_meaning(name, kinds)}." for name in names),
        "headers": _headers(status),
        "content": {CONTENT_TYPE: {"schema": schema}},
    }


def refused_name(kind: Any) -> str:
    """The component of a refusing answer."""
    return f"{kind.__name__}Refused"


def refusal_components() -> dict[str, Schema]:
    """Refusing answers: all of the answer, and the problem's members beside it."""
    members = {name: {"type": "integer" if name == "status" else "string"} for name in ("type", "title", "status", "detail", "message")}
    problem: Schema = {"type": "object", "properties": members, "required": list(members)}
    return {
        refused_name(kind): {"description": "A refusal: the answer, and a problem's members.", "allOf": [ref(kind.__name__), problem]}
        for kind in REFUSALS
    }


def header_components() -> dict[str, Schema]:
    """The headers of answers."""
    return {
        REQUEST_HEADER: _header("The request's number in the service's log.", {"type": "string"}),
        PROTOCOL_HEADER: _header("The protocol that the service speaks, and its version: `1 genlock/0.1.0`.", {"type": "string"}),
        "retry-after": _header("When to come again, in seconds.", {"type": "integer"}),
        "www-authenticate": _header("How to show a key.", {"type": "string"}),
    }


def _header(description: str, schema: Schema) -> Schema:
    return {"description": description, "required": True, "schema": schema}


def _headers(status: int) -> dict[str, Schema]:
    names = [REQUEST_HEADER, PROTOCOL_HEADER]
    names += ["retry-after"] if status in RETRY_AFTER_SECONDS else ["www-authenticate"] if status == 401 else []
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
