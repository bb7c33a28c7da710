"""What is served beside the operations, as far as the document tells of it. Whoever adds a path to the service adds it here."""

from __future__ import annotations

from typing import Any, Final

from genlock.service.openapi.fields import FIELDS, SCOPE, Schema
from genlock.wire.problems import CONTENT_TYPE
from genlock.wire.routes import OBSERVER

_SAID: Final[Schema] = {
    "type": "object",
    "properties": {"status": {"type": "string"}, "version": {"type": "string"}, "detail": {"type": "string"}},
    "required": ["status"],
}


def _answered(description: str, kind: str, schema: Schema) -> Schema:
    return {"description": description, "content": {kind: {"schema": schema}}}


PROBLEM: Final = _answered("What went wrong.", CONTENT_TYPE, {"$ref": "#/components/schemas/Problem"})
_REFUSED: Final = _answered("A refusal or an error.", "application/json", {"$ref": "#/components/schemas/ApiRefused"})
_SCOPED: Final = [{"$ref": "#/components/parameters/tenant"}, {"$ref": "#/components/parameters/project"}]

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
                "200": {"description": "The figures.", "content": {"text/plain": {"schema": {"type": "string"}}}},
                **dict.fromkeys(("401", "403", "404", "421", "426", "429", "500"), PROBLEM),
            },
        }
    },
}
"""By path, then by method."""

_SEVERAL: Final = {
    "task": ("Only of these tasks; several by naming them several times.", FIELDS["task_id"]),
    "session": ("Only of these sessions.", FIELDS["session_id"]),
    "type": ("Only of these types, such as CLAIM_ACQUIRED.", {"type": "string"}),
}


def _stream(name: str, summary: str, parameters: list[Schema], more: dict[str, tuple[str, Schema]]) -> dict[str, Any]:
    queries = [
        {"name": each, "in": "query", "description": words, "schema": {"type": "array", "items": schema}}
        for each, (words, schema) in {**_SEVERAL, **more}.items()
    ]
    return {
        "operationId": name,
        "summary": summary,
        "description": (
            "Each event has its cursor as its id: a client that was cut off sends it as `Last-Event-ID` and misses nothing. "
            f"Needs the role **{OBSERVER}**."
        ),
        "tags": ["Looking"],
        "x-genlock-role": str(OBSERVER),
        "parameters": [
            *parameters,
            {"name": "last-event-id", "in": "header", "description": "Continue behind this event.", "schema": FIELDS["after"]},
            {"name": "after", "in": "query", "description": "The same, for who cannot send headers.", "schema": FIELDS["after"]},
            *queries,
        ],
        "responses": {
            "200": _answered("Events, until the client or the service leaves.", "text/event-stream", {"type": "string"}),
            **dict.fromkeys(("400", "401", "403", "404", "410", "421", "426", "429", "500", "503"), PROBLEM),
        },
    }


def _api_stream() -> dict[str, Any]:
    told = _stream("api_events", "The events of the project that /api acts on, as server-sent events.", [], {})
    responses = {status: answer if answer is not PROBLEM else _REFUSED for status, answer in told["responses"].items()}
    return told | {"tags": ["Session claims"], "responses": responses}


STREAMS: Final[dict[str, dict[str, Any]]] = {
    "/v1/{tenant}/{project}/events/stream": {
        "get": _stream("stream_events", "The project's events as they come, as server-sent events.", _SCOPED, {})
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
"""They do not end, so that they are tested for themselves."""
