"""The OpenAPI document, made from the table of routes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from genlock import __version__
from genlock.service.openapi import examples
from genlock.service.openapi.fields import FIELDS, KEY_ID, MEANINGS, NAME, SCOPE, Schema
from genlock.service.openapi.others import API, OTHERS, STREAMS, api_components, api_paths
from genlock.service.openapi.schemas import (
    Schemas,
    header_components,
    ref,
    refusal_components,
    response_components,
    responses,
)
from genlock.wire.headers import (
    AGENT_HEADER,
    OLDEST_PROTOCOL,
    OPERATION_HEADER,
    PROTOCOL,
    PROTOCOL_HEADER,
    REQUEST_HEADER,
    SESSION_HEADER,
    USER_HEADER,
)
from genlock.wire.operations import (
    ADMIN,
    AGENT,
    NO_NAME,
    OBSERVER,
    OPERATOR,
    PREFIX,
    ROUTES,
    Route,
    Within,
)

GROUPS: Final = {
    AGENT: "Working",
    OBSERVER: "Looking",
    OPERATOR: "Operating",
    ADMIN: "Administering",
}
"""The operations by group of users."""

_ABOUT: Final = """Genlock coordinates fleets of agents that work one plan of tasks.

A claim is granted at a *generation*. Every later write carries that number, and a lower one is
refused. A refusal is an answer with a reason and a status of its own; an error is a problem
(RFC 9457) whose `code` does not change. Operations that act for a session find it in the body or
in the header genlock-session. A request with an `operation_id`, or with the header
Idempotency-Key, may be sent again until an answer comes."""

_KEY: Final = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "glk_…",
        "description": "A key made by `genlock keys create`.",
    }
}

_PROTOCOLS: Final[Schema] = {
    "type": "string",
    "pattern": f"^({'|'.join(map(str, range(OLDEST_PROTOCOL, PROTOCOL + 1)))})( .*)?$",
}

_HEADERS: Final[dict[str, tuple[str, Schema]]] = {
    SESSION_HEADER: ("The session, where the request does not say; percent-encoded.", NAME),
    AGENT_HEADER: ("The agent, where the request does not say; percent-encoded.", NAME),
    USER_HEADER: ("The person behind it, where no key says; percent-encoded.", NAME),
    REQUEST_HEADER: (
        "A number for the service's log, of letters and digits; else the service makes one.",
        {"type": "string"},
    ),
    PROTOCOL_HEADER: (
        "The protocol that the client speaks: its number, and who speaks it.",
        _PROTOCOLS,
    ),
    OPERATION_HEADER: (MEANINGS["operation_id"], FIELDS["operation_id"]),
}


@functools.cache
def schemas() -> Schemas:
    """The schemas, made once."""
    return Schemas()


def document(*, keys: bool, extra: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """The document. `keys` says whether this service requires keys; `extra` has paths besides the
    table."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(path_of(route), {})[route.method.lower()] = _operation(route)
    for path, methods in {**OTHERS, **STREAMS, **api_paths(), **(extra or {})}.items():
        paths.setdefault(path, {}).update(methods)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Genlock",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}] if keys else [{"key": []}, {}],
        "tags": [{"name": name} for name in (*dict.fromkeys(GROUPS.values()), "Service", API)],
        "paths": paths,
        "components": {
            "schemas": dict(
                sorted({**schemas().components, **refusal_components(), **api_components()}.items())
            ),
            "parameters": _parameters(),
            "responses": response_components(),
            "headers": header_components(),
            "securitySchemes": _KEY,
        },
    }


def path_of(route: Route) -> str:
    """The whole path."""
    place = {
        Within.PROJECT: "{tenant}/{project}",
        Within.TENANT: f"{{tenant}}/{NO_NAME}",
        Within.STORE: f"{NO_NAME}/{NO_NAME}",
    }
    return f"{PREFIX}/{place[route.within]}/{route.path}"


def _operation(route: Route) -> Schema:
    summary, _, more = inspect.cleandoc(route.call.__doc__ or "").partition(". ")
    told = [more] if more else []
    told.append(f"Needs the role **{route.role}**." + _ROLES.get(route.name, ""))
    operation: Schema = {
        "operationId": route.name,
        "summary": summary.rstrip(".") + ".",
        "description": " ".join(told),
        "tags": [GROUPS[route.role]],
        "x-genlock-role": str(route.role),
        "parameters": list(_parameters_of(route)),
        "responses": _with_examples(route, responses(route, schemas().answer(route))),
    }
    if not route.repeatable:
        operation["requestBody"] = _body(route)
    return operation


_ROLES: Final = {
    "adopt_result": " Without a generation, **operator**.",
    "set_policy": " For limits and profile, **admin**.",
}


def _body(route: Route) -> Schema:
    content: Schema = {"schema": ref(route.call.__name__)}
    if route.name in examples.REQUESTS:
        content["example"] = examples.REQUESTS[route.name]
    return {
        "required": bool(schemas().body(route)["required"]),
        "content": {"application/json": content},
    }


def _with_examples(route: Route, found: dict[str, Schema]) -> dict[str, Schema]:
    for status, response in found.items():
        example = examples.ANSWERS.get((route.name, status))
        if example is not None:
            next(iter(response["content"].values()))["example"] = example
    return found


def _parameters_of(route: Route) -> Iterator[Schema]:
    yield from (_parameter(name) for name in _PLACES[route.within])
    if route.variable is not None:
        yield _parameter(route.variable)
    if route.repeatable:
        body = schemas().body(route)
        yield from (
            _in_query(name, field, name in body["required"])
            for name, field in body["properties"].items()
        )
    yield from (
        _parameter(header)
        for header in (SESSION_HEADER, AGENT_HEADER, USER_HEADER, REQUEST_HEADER, PROTOCOL_HEADER)
    )
    if "operation_id" in route.call.__struct_fields__:
        yield _parameter(OPERATION_HEADER)


_PLACES: Final = {
    Within.PROJECT: ("tenant", "project"),
    Within.TENANT: ("any_tenant",),
    Within.STORE: (),
}


def _parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _in_query(name: str, field: Schema, required: bool) -> Schema:
    """A parameter of a query. A query has no null, and repeats a name for a list."""
    choices = [choice for choice in field.get("anyOf", [field]) if choice.get("type") != "null"]
    schema = next((choice for choice in choices if choice.get("type") == "array"), choices[0])
    schema = {key: value for key, value in schema.items() if key != "description"}
    if field.get("default") is not None:
        schema["default"] = field["default"]
    found: Schema = {"name": name, "in": "query", "required": required, "schema": schema}
    return found | ({"description": field["description"]} if "description" in field else {})


def _parameters() -> dict[str, Schema]:
    path = {
        "tenant": ("The tenant; `default` where there is but one.", SCOPE, "default"),
        "project": ("The project; `default` where there is but one.", SCOPE, "default"),
        "task_id": (MEANINGS["task_id"], ref("TaskId"), examples.TASK),
        "session_id": (MEANINGS["session_id"], NAME, examples.SESSION),
        "key_id": (MEANINGS["key_id"], KEY_ID, "abcdefgh2345"),
    }
    found: dict[str, Schema] = {
        name: {
            "name": name,
            "in": "path",
            "required": True,
            "description": words,
            "schema": schema,
            "example": example,
        }
        for name, (words, schema, example) in path.items()
    }
    words = f"The tenant; `{NO_NAME}` for keys that are for all."
    found["any_tenant"] = found["tenant"] | {
        "description": words,
        "schema": {key: value for key, value in SCOPE.items() if key != "not"},
    }
    for name, (words, schema) in _HEADERS.items():
        found[name] = {
            "name": name,
            "in": "header",
            "required": False,
            "description": words,
            "schema": schema,
        }
    return found
