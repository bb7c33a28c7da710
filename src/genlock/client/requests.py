"""A call as a request: what stands in the path, in the query and in the body.

Only what a path could not carry is checked here; whether the rest is right is for the service to
say.
"""

from __future__ import annotations

import functools
import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from genlock.client.replies import as_text
from genlock.core.fields import check_instant, describe_value
from genlock.core.ids import check_task_id
from genlock.core.key_roles import EVERYWHERE, check_key_id
from genlock.core.model import NO_AGENT, NO_SESSION, Identity
from genlock.core.names import check_agent, check_project, check_session, check_tenant
from genlock.core.plan_faults import Fault
from genlock.errors import BadArgument, PlanInvalid
from genlock.typed_json import convert
from genlock.wire import operations as c
from genlock.wire.operations import BY_CALL, NO_NAME, PREFIX, Call, Route, Within, field_types

_NEED_AGENT: Final = frozenset({c.ClaimTask, c.ClaimNext, c.BatchClaim})
_SESSION_OF_ANYONE: Final = frozenset({c.Explain, c.AdoptResult, c.CreateKey})
"""Their session may be left out: an operator has none."""
_SEVERAL: Final = frozenset({"task_ids", "tasks", "results", "subtasks", "tracks"})


_LONGEST_QUERY: Final = 8_000
"""Half of what a service takes for the head of a request; names, key and whatever is added on the
way have the rest."""


class Request(NamedTuple):
    """What is sent."""

    route: Route
    target: str
    """The path below the service's address, and the query."""
    body: bytes | None
    operation: str | None = None


def request_of(identity: Identity, call: Call[Any]) -> Request:
    """The request that asks for this; BadArgument, before anything is sent, if nobody could."""
    route = BY_CALL[type(call)]
    given = {
        name: value
        for name, default in _fields(type(call)).items()
        if (value := getattr(call, name)) is not default
    }
    tenant, project = given.pop("tenant_id", None), given.pop("project_id", None)
    place = _place(route, identity, tenant, project)
    name = _name(route, given, identity)
    _check_caller(identity, call)
    operation = given.get("operation_id")
    path = (
        route.path
        if route.variable is None
        else route.path.replace(f"{{{route.variable}}}", _quoted(name))
    )
    target = f"{PREFIX}/{place[0]}/{place[1]}/{path}"
    if route.method == "GET":
        return Request(route, target + _query(type(call), given), None)
    return Request(route, target, _body(given), operation if isinstance(operation, str) else None)


def _quoted(name: str) -> str:
    """A name in a path. One that is nothing but dots would be taken for a way up."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _place(route: Route, identity: Identity, tenant: Any, project: Any) -> tuple[str, str]:
    """What stands for tenant and project in the path."""
    if route.within is Within.STORE:
        return NO_NAME, NO_NAME
    if route.within is Within.TENANT and tenant == EVERYWHERE:
        return NO_NAME, NO_NAME
    tenant = identity.tenant_id if tenant is None else check_tenant(tenant)
    if route.within is Within.TENANT:
        return tenant, NO_NAME
    return tenant, identity.project_id if project is None else check_project(project)


@functools.cache
def _fields(call: type[Call[Any]]) -> dict[str, Any]:
    return {field.name: field.default for field in msgspec.structs.fields(call)}


def _name(route: Route, given: dict[str, Any], identity: Identity) -> str:
    """What stands at the path's variable."""
    if route.variable is None:
        return ""
    value = given.pop(route.variable, None)
    if route.variable == "task_id":
        return check_task_id(value)
    if route.variable == "key_id":
        return check_key_id(value)
    session = identity.session_id if value is None else value
    if session is None:
        raise BadArgument(NO_SESSION)
    return check_session(session)


def _check_caller(identity: Identity, call: Call[Any]) -> None:
    kind = type(call)
    if "session_id" not in kind.__struct_fields__:
        return
    anyone = kind in _SESSION_OF_ANYONE and getattr(call, "generation", None) is None
    if getattr(call, "session_id", None) is None and identity.session_id is None and not anyone:
        raise BadArgument(NO_SESSION)
    if (
        kind in _NEED_AGENT
        and getattr(call, "agent_id", None) is None
        and identity.agent_id is None
    ):
        raise BadArgument(NO_AGENT)


def _query(call: type[Call[Any]], given: Mapping[str, Any]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        several = _listed(name, _typed(call, name, value))
        if several == []:
            raise BadArgument(f"{name} is empty; leave it out, or name one")
        pairs += [
            (name, _word(name, each))
            for each in (several if isinstance(several, list) else [several])
        ]
    query = "?" + urlencode(pairs) if pairs else ""
    if len(query) > _LONGEST_QUERY:
        raise BadArgument(f"{max(given, key=lambda name: len(str(given[name])))} is too long")
    return query


_CHECKS: Final[dict[str, Callable[[Any], str]]] = {
    "task_id": check_task_id,
    "around": check_task_id,
    "agent_id": check_agent,
    "session_id": check_session,
}


def _typed(call: type[Call[Any]], name: str, value: Any) -> Any:
    """What is of another type than promised is refused here: in a query everything is a text, and 5
    would pass for "5"."""
    if name in _CHECKS:
        return _CHECKS[name](value)
    if datetime in get_args(_types(call)[name]):
        return None if value is None else check_instant(name, value).isoformat()
    try:
        convert(_listed(name, value), _types(call)[name])
    except msgspec.ValidationError as error:
        raise BadArgument(f"{name} is something else: {error}") from None
    return value


_types = functools.cache(field_types)


def _word(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value).encode().decode()
    except UnicodeEncodeError as error:
        raise BadArgument(f"{name} cannot be sent: {error}") from None


def _body(given: Mapping[str, Any]) -> bytes:
    _check_body(given)
    pieces = [
        f"{json.dumps(name)}:".encode() + _json(name, _files(_listed(name, value)))
        for name, value in given.items()
    ]
    return b"{" + b",".join(pieces) + b"}"


def _check_body(given: Mapping[str, Any]) -> None:
    """What JSON would make something else of, and what nobody could make anything of."""
    if isinstance(given.get("generations"), Mapping):
        for task in given["generations"]:
            check_task_id(task)
    if "source" in given and not isinstance(given["source"], (Mapping, str, list, tuple)):
        raise _no_plan(
            "a plan is a mapping with project, tracks and tasks, not "
            f"{describe_value(given['source'])}"
        )


def _listed(name: str, value: Any) -> Any:
    """Whatever can be gone through counts as a list where several things are taken."""
    if (
        name in _SEVERAL
        and isinstance(value, Iterable)
        and not isinstance(value, (str, bytes, Mapping))
    ):
        return list(value)
    return value


def _files(value: Any) -> Any:
    """A plan's files travel as pairs of name and base64; whatever else it is travels as it is."""
    if isinstance(value, (list, tuple)) and value and all(_is_file(each) for each in value):
        return [[name, b64encode(data).decode()] for name, data in value]
    return value


def _is_file(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], bytes)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


# Not msgspec's: that would write a set as a list, bytes as base64 and NaN as null, and what is read
# must be what was given.
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode


def _json(name: str, value: Any) -> bytes:
    try:
        try:
            return _encode(value).encode()
        except TypeError:
            # Perhaps for a date, and perhaps it may be one. Few have any, so that they are looked
            # for only now.
            return _encode(as_text(name, value)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        said = f"{'the plan' if name == 'source' else name} cannot be written as JSON: {error}"
        raise _no_plan(said) if name == "source" else BadArgument(said) from None


def _no_plan(said: str) -> PlanInvalid:
    return PlanInvalid([Fault(None, None, None, None, said)])
