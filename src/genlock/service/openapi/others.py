"""The documented paths besides the operations. Add each new path of the service here."""

from __future__ import annotations

import functools
from typing import Any, Final

import msgspec

from genlock.service.events.formats import ROW, SHAPES
from genlock.service.openapi import examples
from genlock.service.openapi.fields import FIELDS, MEANINGS, SCOPE, Schema
from genlock.service.session_api.messages import STATUSES, Refused
from genlock.service.session_api.routes import PREFIX, ROUTES, ApiRoute
from genlock.wire.operations import OBSERVER
from genlock.wire.problems import CONTENT_TYPE

_SAID: Final[Schema] = {
    "type": "object",
    "properties": {
        "status": {"type": "string"},
        "version": {"type": "string"},
        "detail": {"type": "string"},
    },
    "required": ["status"],
}


def _answered(description: str, kind: str, schema: Schema) -> Schema:
    return {"description": description, "content": {kind: {"schema": schema}}}


PROBLEM: Final = _answered(
    "What went wrong.", CONTENT_TYPE, {"$ref": "#/components/schemas/Problem"}
)
_REFUSED: Final = _answered(
    "A refusal or an error.", "application/json", {"$ref": "#/components/schemas/ApiRefused"}
)
_SCOPED: Final = [
    {"$ref": "#/components/parameters/tenant"},
    {"$ref": "#/components/parameters/project"},
]

_MESSAGE: Final[Schema] = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer"], "description": "Left out of a notification."},
        "method": {"type": "string"},
        "params": {"type": "object"},
    },
    "required": ["jsonrpc", "method"],
}

_MESSAGE_REFUSED: Final[Schema] = {
    "description": "A refusal of the service, or an error of the protocol.",
    "content": {
        **PROBLEM["content"],
        "application/json": {"schema": {"type": "object", "required": ["jsonrpc", "error"]}},
    },
}

OTHERS: Final[dict[str, dict[str, Any]]] = {
    "/healthz": {
        "get": {
            "operationId": "healthz",
            "summary": "Is the process alive?",
            "tags": ["Service"],
            "security": [],
            "responses": {
                "200": _answered("Alive.", "application/json", _SAID),
                "421": PROBLEM,
                "503": _answered("It needs a new start, and why.", "application/json", _SAID),
            },
        }
    },
    "/readyz": {
        "get": {
            "operationId": "readyz",
            "summary": "Is its store there, and is it not about to stop?",
            "tags": ["Service"],
            "security": [],
            "responses": {
                "200": _answered("Ready.", "application/json", _SAID),
                "421": PROBLEM,
                "503": _answered("Not ready, and why.", "application/json", _SAID),
            },
        }
    },
    "/metrics": {
        "get": {
            "operationId": "metrics",
            "summary": "Figures for Prometheus, for keys that see the whole store.",
            "tags": ["Service"],
            "responses": {
                "200": {
                    "description": "The figures.",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                },
                **dict.fromkeys(("401", "403", "404", "421", "426", "429", "500"), PROBLEM),
            },
        }
    },
    "/mcp": {
        "post": {
            "operationId": "mcp",
            "summary": "A message of the Model Context Protocol, and its answer.",
            "description": (
                "Streamable HTTP without sessions: a request has one JSON-RPC message, of either "
                "era of the protocol. A tool needs the role of the operations that it asks for."
            ),
            "tags": ["Service"],
            "parameters": [
                {
                    "name": name,
                    "in": "query",
                    "description": f"The {name}; without it the key's own.",
                    "schema": SCOPE,
                }
                for name in ("tenant", "project")
            ],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _MESSAGE}},
            },
            "responses": {
                "200": _answered("The answer.", "application/json", {"type": "object"}),
                "202": {"description": "A notification was taken."},
                **dict.fromkeys(("400", "404"), _MESSAGE_REFUSED),
                **dict.fromkeys(
                    ("401", "403", "413", "415", "421", "426", "429", "500", "503"), PROBLEM
                ),
            },
        }
    },
}
"""The operations by path and method."""

_SEVERAL: Final = {
    "task": ("Only of these tasks; several by naming them several times.", FIELDS["task_id"]),
    "session": ("Only of these sessions.", FIELDS["session_id"]),
    "type": ("Only of these types, such as CLAIM_ACQUIRED.", {"type": "string"}),
}


def _stream(
    name: str, summary: str, parameters: list[Schema], more: dict[str, tuple[str, Schema]]
) -> dict[str, Any]:
    queries = [
        {
            "name": each,
            "in": "query",
            "description": words,
            "schema": {"type": "array", "items": schema},
        }
        for each, (words, schema) in {**_SEVERAL, **more}.items()
    ]
    return {
        "operationId": name,
        "summary": summary,
        "description": (
            "Each event has its cursor as its id: a client that was cut off sends it as "
            "`Last-Event-ID` and misses nothing. "
            f"Needs the role **{OBSERVER}**."
        ),
        "tags": ["Looking"],
        "x-genlock-role": str(OBSERVER),
        "parameters": [
            *parameters,
            {
                "name": "last-event-id",
                "in": "header",
                "description": "Continue behind this event.",
                "schema": FIELDS["after"],
            },
            {
                "name": "after",
                "in": "query",
                "description": "The same, for who cannot send headers.",
                "schema": FIELDS["after"],
            },
            {
                "name": "shape",
                "in": "query",
                "description": (
                    "How each event is written: as the feed has it, under the names of other "
                    "documents, or with `row` as `{event, row}`, the row of its task as "
                    "`list_tasks` has it."
                ),
                "schema": {"type": "string", "enum": [*SHAPES, ROW]},
            },
            *queries,
        ],
        "responses": {
            "200": _answered(
                "Events, until the client or the service leaves.",
                "text/event-stream",
                {"type": "string"},
            ),
            **dict.fromkeys(
                ("400", "401", "403", "404", "410", "421", "426", "429", "500", "503"), PROBLEM
            ),
        },
    }


def _api_stream() -> dict[str, Any]:
    told = _stream(
        "api_events", "The events of the project that /api acts on, as server-sent events.", [], {}
    )
    responses = {
        status: answer if answer is not PROBLEM else _REFUSED
        for status, answer in told["responses"].items()
    }
    return told | {"tags": ["Session claims"], "responses": responses}


STREAMS: Final[dict[str, dict[str, Any]]] = {
    "/v1/{tenant}/{project}/events/stream": {
        "get": _stream(
            "stream_events",
            "The project's events as they come, as server-sent events.",
            _SCOPED,
            {},
        )
    },
    "/v1/{tenant}/events/stream": {
        "get": _stream(
            "stream_tenant_events",
            "The events of a tenant's projects as they come, as server-sent events.",
            _SCOPED[:1],
            {"project": ("Only of these projects.", SCOPE)},
        )
    },
    "/api/events": {"get": _api_stream()},
}
"""Paths whose answers do not end. They have tests of their own."""


# The interface under /api: paths, fields and codes as its own documents have them.


API: Final = "Session claims"
_AT: Final = "#/components/schemas/Api{name}"
_EXAMPLES: Final = {"task_id": examples.TASK, "session_id": examples.SESSION}
_PROBLEMS: Final = (400, 401, 403, 404, 409, 410, 413, 415, 421, 422, 426, 429, 500, 503, 507)


@functools.cache
def _schemas() -> tuple[dict[type[Any], Schema], dict[str, Schema]]:
    kinds: list[type[Any]] = [
        Refused,
        *dict.fromkeys(kind for route in ROUTES for kind in (route.request, route.answer)),
    ]
    found, components = msgspec.json.schema_components(kinds, ref_template=_AT)
    return dict(zip(kinds, found, strict=True)), {
        f"Api{name}": schema for name, schema in components.items()
    }


def api_components() -> dict[str, Schema]:
    """The schemas of requests and answers under /api."""
    # Queries are described field by field, and empty requests not at all.
    unused = {
        f"Api{route.request.__name__}"
        for route in ROUTES
        if route.method == "GET" or not route.request.__struct_fields__
    }
    return {name: schema for name, schema in _schemas()[1].items() if name not in unused}


def api_paths() -> dict[str, dict[str, Any]]:
    """Every endpoint under /api."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(f"{PREFIX}/{route.path}", {})[route.method.lower()] = _endpoint(route)
    return paths


def _endpoint(route: ApiRoute) -> Schema:
    kinds, components = _schemas()
    refused = {
        "description": "A refusal or an error.",
        "content": {"application/json": {"schema": kinds[Refused]}},
    }
    told: Schema = {
        "operationId": f"api_{route.name}",
        "summary": f"{route.what}.",
        "description": f"Needs the role **{route.role}**.",
        "tags": [API],
        "x-genlock-role": str(route.role),
        "parameters": [_named(route)] if "{name}" in route.path else [],
        "responses": {
            "200": {
                "description": "Done.",
                "content": {"application/json": {"schema": kinds[route.answer]}},
            },
            **{str(status): refused for status in sorted({*STATUSES.values(), *_PROBLEMS})},
        },
    }
    fields = components[f"Api{route.request.__name__}"].get("properties", {})
    if route.method == "GET":
        told["parameters"] += [
            {"name": name, "in": "query", "schema": schema} for name, schema in fields.items()
        ]
    elif fields:
        told["requestBody"] = {
            "required": False,
            "content": {"application/json": {"schema": kinds[route.request]}},
        }
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
