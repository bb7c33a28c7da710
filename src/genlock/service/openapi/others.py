"""What is served beside the operations, as far as the document tells of it. Whoever adds a path to the service adds it here."""

from __future__ import annotations

from typing import Any, Final

from genlock.service.openapi.fields import FIELDS, Schema
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
_SCOPED: Final = [{"$ref": "#/components/parameters/tenant"}, {"$ref": "#/components/parameters/project"}]

OTHERS: Final[dict[str, dict[str, Any]]] = {
    "/healthz": {
        "get": {
            "operationId": "healthz",
            "summary": "Is the process alive?",
            "tags": ["Service"],
            "security": [],
            "responses": {"200": _answered("Alive.", "application/json", _SAID), "421": PROBLEM},
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
}
"""By path, then by method."""

STREAM: Final[dict[str, dict[str, Any]]] = {
    "/v1/{tenant}/{project}/events/stream": {
        "get": {
            "operationId": "stream_events",
            "summary": "The project's events as they come, as server-sent events.",
            "description": (
                "Each event has its cursor as its id: a client that was cut off sends it as `Last-Event-ID` and misses nothing. "
                "Needs the role **observer**."
            ),
            "tags": ["Looking"],
            "x-genlock-role": OBSERVER,
            "parameters": [
                *_SCOPED,
                {"name": "last-event-id", "in": "header", "description": "Continue behind this event.", "schema": FIELDS["after"]},
                {"name": "task_id", "in": "query", "description": "Only of this task.", "schema": FIELDS["task_id"]},
                {"name": "session_id", "in": "query", "description": "Only of this session.", "schema": FIELDS["session_id"]},
                {"name": "type", "in": "query", "description": "Only of this type, such as CLAIM_ACQUIRED.", "schema": {"type": "string"}},
            ],
            "responses": {
                "200": _answered("Events, until the client or the service leaves.", "text/event-stream", {"type": "string"}),
                **dict.fromkeys(("400", "401", "403", "404", "410", "421", "426", "429", "503"), PROBLEM),
            },
        }
    }
}
"""Not yet served: `document(extra=STREAM)` tells of it."""
