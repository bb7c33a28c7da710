"""Calls and answers as JSON Schema: what msgspec reads from the types, and the bounds beside it."""

from __future__ import annotations

from typing import Any, Final, get_args, get_origin

import msgspec

from genlock.core.plan import Plan
from genlock.errors import GenlockError
from genlock.service.openapi.fields import FIELDS, MEANINGS, OF_OPERATION, PROCESS, TASK_ID, Schema
from genlock.service.v1.request import body_type
from genlock.wire.answers import Failed
from genlock.wire.calls import answer_type
from genlock.wire.plans import WirePlan
from genlock.wire.problems import Problem
from genlock.wire.routes import ROUTES, Route

_AT: Final = "#/components/schemas/{name}"
_NULL: Final[Schema] = {"type": "null"}


def ref(name: str) -> Schema:
    """A reference to a component."""
    return {"$ref": _AT.format(name=name)}


class Schemas:
    """The components, and what each operation takes and answers."""

    def __init__(self) -> None:
        bodies = [body_type(route) for route in ROUTES]
        answers = [_travelling(answer_type(route.call)) for route in ROUTES]
        found, self.components = msgspec.json.schema_components([*bodies, *answers, Problem, Failed], ref_template=_AT)
        self.components["Process"] = PROCESS
        self.components["TaskId"] = TASK_ID | {"description": MEANINGS["task_id"]}
        self._answers = dict(zip((route.name for route in ROUTES), found[len(ROUTES) : 2 * len(ROUTES)], strict=True))
        # What is a query is told field by field: only bodies are components.
        self._bodies = {route.name: _bounded(route, self.components.pop(route.call.__name__)) for route in ROUTES}
        self.components |= {route.call.__name__: self._bodies[route.name] for route in ROUTES if not route.repeatable}

    def body(self, route: Route) -> Schema:
        """What a request holds, of which a GET has the properties in its query."""
        return self._bodies[route.name]

    def answer(self, route: Route) -> Schema:
        """What is answered with 200."""
        schema = self._answers[route.name]
        if _stands_or_falls(answer_type(route.call)):
            return {"type": "object", "additionalProperties": {"anyOf": [schema, ref("Failed")]}}
        return schema


def _stands_or_falls(kind: Any) -> bool:
    """Is it a batch, of which each entry is an answer or an error?"""
    return get_origin(kind) is dict and GenlockError in get_args(get_args(kind)[1])


def _travelling(kind: Any) -> Any:
    """The type as it is sent; of a batch, that of an entry which is no error."""
    if kind is Plan:
        return WirePlan
    return next(one for one in get_args(get_args(kind)[1]) if one is not GenlockError) if _stands_or_falls(kind) else kind


def _bounded(route: Route, schema: Schema) -> Schema:
    """A request's schema with what the coordinator checks besides."""
    properties = {name: _field(route, name, field) for name, field in schema["properties"].items()}
    return {"type": "object", "properties": properties, "required": schema.get("required", []), "additionalProperties": False}


def _field(route: Route, name: str, schema: Schema) -> Schema:
    known = OF_OPERATION.get((route.name, name)) or FIELDS.get(name)
    field: Schema = dict(schema)
    if known is not None:
        optional = _NULL in schema.get("anyOf", ())
        field = {"anyOf": [*known.get("anyOf", [known]), _NULL]} if optional else dict(known)
        if "default" in schema:
            field["default"] = schema["default"]
    return field | ({"description": MEANINGS[name]} if name in MEANINGS else {})
