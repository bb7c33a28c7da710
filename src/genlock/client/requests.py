"""Turns a call into a request: its path, query and body.

Checks only what a request could not carry. The service checks everything else.
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
from genlock.core.model import NO_SESSION, Identity
from genlock.core.names import check_agent, check_project, check_session, check_tenant
from genlock.core.plan_faults import Fault
from genlock.errors import BadArgument, PlanInvalid
from genlock.typed_json import convert
from genlock.wire import operations as c
from genlock.wire.operations import BY_CALL, NO_NAME, PREFIX, Call, Route, Within, field_types

_SESSION_OF_ANYONE: Final = frozenset({c.Explain, c.AdoptResult, c.CreateKey})
"""Calls whose session is optional, because an operator has none."""
_SEVERAL: Final = frozenset({"task_ids", "tasks", "results", "subtasks", "tracks"})


_LONGEST_QUERY: Final = 8_000
"""Half of a service's limit for the head of a request. The rest is for names, the key, and headers
that proxies add."""


class Request(NamedTuple):
    """A request."""

    route: Route
    target: str
    """The path below the service's address, and the query."""
    body: bytes | None
    operation: str | None = None


def request_of(identity: Identity, call: Call[Any]) -> Request:
    """The request for a call. Raises BadArgument if the call cannot be expressed."""
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
    """Quotes a name for a path. Dots alone would mean a parent folder."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _place(route: Route, identity: Identity, tenant: Any, project: Any) -> tuple[str, str]:
    """The tenant and project in the path."""
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
    """The value of the path's variable."""
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
    """Refuses values of the wrong type, because a query turns everything into text: 5 would pass as
    "5"."""
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
    """Refuses values that JSON would change or cannot express."""
    if isinstance(given.get("generations"), Mapping):
        for task in given["generations"]:
            check_task_id(task)
    if "source" in given and not isinstance(given["source"], (Mapping, str, list, tuple)):
        raise _no_plan(
            "a plan is a mapping with project, tracks and tasks, not "
            f"{describe_value(given['source'])}"
        )


def _listed(name: str, value: Any) -> Any:
    """Accepts any iterable where an operation takes a list."""
    if (
        name in _SEVERAL
        and isinstance(value, Iterable)
        and not isinstance(value, (str, bytes, Mapping))
    ):
        return list(value)
    return value


def _files(value: Any) -> Any:
    """Turns a plan's files into pairs of name and base64; other values stay."""
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


# Not msgspec's encoder, which writes a set as a list, bytes as base64 and NaN as null: the service
# must read exactly what the caller gave.
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode


def _json(name: str, value: Any) -> bytes:
    try:
        try:
            return _encode(value).encode()
        except TypeError:
            # The cause may be a date where dates are allowed. Dates are rare, so they are
            # converted only now.
            return _encode(as_text(name, value)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        said = f"{'the plan' if name == 'source' else name} cannot be written as JSON: {error}"
        raise _no_plan(said) if name == "source" else BadArgument(said) from None


def _no_plan(said: str) -> PlanInvalid:
    return PlanInvalid([Fault(None, None, None, None, said)])
