"""The interface under /api in the document: paths, fields and codes as that interface has them."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec

from genlock.service.compat.codes import STATUSES
from genlock.service.compat.messages import Refused
from genlock.service.compat.routes import PREFIX, ROUTES, ApiRoute
from genlock.service.openapi import examples
from genlock.service.openapi.fields import FIELDS, MEANINGS, Schema

API: Final = "Session claims"
_AT: Final = "#/components/schemas/Api{name}"
_EXAMPLES: Final = {"task_id": examples.TASK, "session_id": examples.SESSION}
_PROBLEMS: Final = (400, 401, 403, 404, 409, 410, 413, 415, 421, 422, 426, 429, 500, 503, 507)


@functools.cache
def _schemas() -> tuple[dict[type[Any], Schema], dict[str, Schema]]:
    kinds: list[type[Any]] = [Refused, *dict.fromkeys(kind for route in ROUTES for kind in (route.request, route.answer))]
    found, components = msgspec.json.schema_components(kinds, ref_template=_AT)
    return dict(zip(kinds, found, strict=True)), {f"Api{name}": schema for name, schema in components.items()}


def api_components() -> dict[str, Schema]:
    """What is sent and answered under /api."""
    # What is a query is told field by field, and what holds nothing not at all.
    unused = {f"Api{route.request.__name__}" for route in ROUTES if route.method == "GET" or not route.request.__struct_fields__}
    return {name: schema for name, schema in _schemas()[1].items() if name not in unused}


def api_paths() -> dict[str, dict[str, Any]]:
    """Every endpoint under /api."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(f"{PREFIX}/{route.path}", {})[route.method.lower()] = _endpoint(route)
    return paths


def _endpoint(route: ApiRoute) -> Schema:
    kinds, components = _schemas()
    refused = {"description": "A refusal or an error.", "content": {"application/json": {"schema": kinds[Refused]}}}
    told: Schema = {
        "operationId": f"api_{route.name}",
        "summary": f"{route.what}.",
        "description": f"Needs the role **{route.role}**.",
        "tags": [API],
        "x-genlock-role": str(route.role),
        "parameters": [_named(route)] if "{name}" in route.path else [],
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": kinds[route.answer]}}},
            **{str(status): refused for status in sorted({*STATUSES.values(), *_PROBLEMS})},
        },
    }
    fields = components[f"Api{route.request.__name__}"].get("properties", {})
    if route.method == "GET":
        told["parameters"] += [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]
    elif fields:
        told["requestBody"] = {"required": False, "content": {"application/json": {"schema": kinds[route.request]}}}
    return told


def _named(route: ApiRoute) -> Schema:
    keyword = "task_id" if route.path.startswith("tasks/") else "session_id"
    return {
        "name": "name",
        "in": "path",
        "required": True,
        "description": MEANINGS[keyword],
        "schema": FIELDS[keyword],
        "example": _EXAMPLES[keyword],
    }
