"""Calls and answers as JSON Schema: msgspec reads the types, and the bounds are added."""

from __future__ import annotations

from typing import Any, Final, get_args, get_origin

import msgspec

from genlock import errors as e
from genlock.core.plan import Plan
from genlock.errors import GenlockError
from genlock.messages import SENTENCES, title
from genlock.service.api.request import body_type
from genlock.service.openapi.fields import FIELDS, MEANINGS, OF_OPERATION, PROCESS, TASK_ID, Schema
from genlock.wire.answers import Failed, WirePlan
from genlock.wire.headers import PROTOCOL_HEADER, REQUEST_HEADER
from genlock.wire.operations import BODY_ERRORS, COMMON_ERRORS, ROUTES, Errors, Route, answer_type
from genlock.wire.problems import (
    CONTENT_TYPE,
    REASONS,
    REFUSALS,
    RETRY_AFTER_SECONDS,
    Problem,
    error_title,
    status_of_kind,
)

_AT: Final = "#/components/schemas/{name}"
_NULL: Final[Schema] = {"type": "null"}


def ref(name: str) -> Schema:
    """A reference to a component."""
    return {"$ref": _AT.format(name=name)}


class Schemas:
    """The components, and the schemas of each operation's request and answer."""

    def __init__(self) -> None:
        bodies = [body_type(route) for route in ROUTES]
        answers = [_travelling(answer_type(route.call)) for route in ROUTES]
        found, self.components = msgspec.json.schema_components(
            [*bodies, *answers, Problem, Failed], ref_template=_AT
        )
        self.components["Process"] = PROCESS
        self.components["TaskId"] = TASK_ID | {"description": MEANINGS["task_id"]}
        self._answers = dict(
            zip((route.name for route in ROUTES), found[len(ROUTES) : 2 * len(ROUTES)], strict=True)
        )
        # Only bodies are components; queries are described field by field.
        self._bodies = {
            route.name: _bounded(route, self.components.pop(route.call.__name__))
            for route in ROUTES
        }
        self.components |= {
            route.call.__name__: self._bodies[route.name]
            for route in ROUTES
            if not route.repeatable
        }

    def body(self, route: Route) -> Schema:
        """The schema of a request. A GET has its properties in the query."""
        return self._bodies[route.name]

    def answer(self, route: Route) -> Schema:
        """The schema of an answer with status 200."""
        schema = self._answers[route.name]
        if _stands_or_falls(answer_type(route.call)):
            return {"type": "object", "additionalProperties": {"anyOf": [schema, ref("Failed")]}}
        return schema


def _stands_or_falls(kind: Any) -> bool:
    """Is this the type of a batch, whose entries are answers or errors?"""
    return get_origin(kind) is dict and GenlockError in get_args(get_args(kind)[1])


def _travelling(kind: Any) -> Any:
    """The type on the wire; for a batch, that of an entry that is no error."""
    if kind is Plan:
        return WirePlan
    return (
        next(one for one in get_args(get_args(kind)[1]) if one is not GenlockError)
        if _stands_or_falls(kind)
        else kind
    )


def _bounded(route: Route, schema: Schema) -> Schema:
    """Adds the coordinator's checks to the schema of a request."""
    properties = {name: _field(route, name, field) for name, field in schema["properties"].items()}
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _field(route: Route, name: str, schema: Schema) -> Schema:
    known = OF_OPERATION.get((route.name, name)) or FIELDS.get(name)
    field: Schema = dict(schema)
    meaning = MEANINGS.get(name)
    if known is not None:
        known = dict(known)
        meaning = known.pop("description", meaning)
        optional = _NULL in schema.get("anyOf", ())
        field = {"anyOf": [*known.get("anyOf", [known]), _NULL]} if optional else dict(known)
        if "default" in schema:
            field["default"] = schema["default"]
    return field | ({"description": meaning} if meaning else {})


# The statuses of an operation and their bodies, from the table of operations.


def by_status(route: Route) -> dict[int, list[str]]:
    """The reasons and codes of each status but 200, in order."""
    found: dict[int, list[str]] = {}
    for reason in REFUSALS.get(answer_type(route.call), ()):
        if REASONS[reason] != 200:
            found.setdefault(REASONS[reason], []).append(str(reason))
    return _grouped(route.errors, found)


def _grouped(kinds: Errors, found: dict[int, list[str]]) -> dict[int, list[str]]:
    for kind in kinds:
        found.setdefault(status_of_kind(kind), []).append(code_of(kind))
    return dict(sorted(found.items()))


def code_of(kind: type[e.GenlockError]) -> str:
    """The code of an error."""
    return kind.__new__(kind).code


_COMMON: Final = _grouped((*COMMON_ERRORS, *BODY_ERRORS), {})


def _meaning(name: str, kinds: dict[str, type[e.GenlockError]]) -> str:
    return title(name) if name in SENTENCES else error_title(kinds[name])


def responses(route: Route, answer: Schema) -> dict[str, Schema]:
    """Every status of this operation."""
    kinds = {code_of(kind): kind for kind in route.errors}
    refusal = answer_type(route.call) if answer_type(route.call) in REFUSALS else None
    found: dict[str, Schema] = {
        "200": {
            "description": "Done.",
            "headers": _headers(200),
            "content": {"application/json": {"schema": answer}},
        }
    }
    for status, names in by_status(route).items():
        refused = refusal is not None and any(name in SENTENCES for name in names)
        schema = (
            {"anyOf": [ref(refused_name(refusal)), ref("Problem")]} if refused else ref("Problem")
        )
        common = names == _COMMON.get(status)
        found[str(status)] = (
            {"$ref": f"#/components/responses/{status}"}
            if common
            else _response(status, names, kinds, schema)
        )
    return found


def response_components() -> dict[str, Schema]:
    """The answers that most operations share."""
    kinds = {code_of(kind): kind for kind in (*COMMON_ERRORS, *BODY_ERRORS)}
    return {
        str(status): _response(status, names, kinds, ref("Problem"))
        for status, names in sorted(_COMMON.items())
    }


def _response(
    status: int, names: list[str], kinds: dict[str, type[e.GenlockError]], schema: Schema
) -> Schema:
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
    members: dict[str, Any] = {
        name: {"type": "integer" if name == "status" else "string"}
        for name in ("type", "title", "status", "detail", "message")
    }
    members["try_next"] = {
        "type": "array",
        "description": "Commands to try next, each as its words.",
        "items": {"type": "array", "items": {"type": "string"}},
    }
    problem: Schema = {"type": "object", "properties": members, "required": list(members)}
    return {
        refused_name(kind): {
            "description": "A refusal: the answer, and a problem's members.",
            "allOf": [ref(kind.__name__), problem],
        }
        for kind in REFUSALS
    }


def header_components() -> dict[str, Schema]:
    """The headers of answers."""
    return {
        REQUEST_HEADER: _header("The request's number in the service's log.", {"type": "string"}),
        PROTOCOL_HEADER: _header(
            "The protocol that the service speaks, and its version: `1 genlock/0.1.0`.",
            {"type": "string"},
        ),
        "retry-after": _header("When to come again, in seconds.", {"type": "integer"}),
        "www-authenticate": _header("How to show a key.", {"type": "string"}),
    }


def _header(description: str, schema: Schema) -> Schema:
    return {"description": description, "required": True, "schema": schema}


def _headers(status: int) -> dict[str, Schema]:
    names = [REQUEST_HEADER, PROTOCOL_HEADER]
    names += (
        ["retry-after"]
        if status in RETRY_AFTER_SECONDS
        else ["www-authenticate"]
        if status == 401
        else []
    )
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
