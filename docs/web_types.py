"""Makes web/src/api.ts, what the dashboard knows of the service, from the OpenAPI document
and the names of the events. `docs.generate` calls it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from genlock.core import model
from genlock.messages import EVENTS
from genlock.service.openapi.document import document, path_of
from genlock.service.openapi.fields import Schema
from genlock.wire.operations import ROUTES

_HEAD = "// Made by docs/web_types.py from the service's own tables. Change those, not this file.\n"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
_PLAIN |= {"null": "null"}


def web_types() -> str:
    """The whole file."""
    schemas = document(keys=True)["components"]["schemas"]
    lacking = {route.call.__name__ for route in ROUTES if not route.repeatable} | _omitting()
    parts = [
        *(_interface(name, schema, name in lacking) for name, schema in schemas.items()),
        "/** The kinds of events. */",
        f"export const EVENTS = {json.dumps(list(EVENTS), indent=2)} as const;",
        "\n".join(_operations()),
    ]
    return _HEAD + "\n".join(parts) + "\n"


def _omitting() -> set[str]:
    """The records that are sent without what is as usual."""
    return {
        kind.__name__
        for kind in vars(model).values()
        if inspect.isclass(kind)
        and issubclass(kind, msgspec.Struct)
        and kind.__struct_config__.omit_defaults
    }


def _interface(name: str, schema: Schema, may_lack: bool) -> str:
    """A schema. What is as usual is sent in answers, but for a few records; a request may lack it."""
    about = re.sub(r"\s+", " ", schema.get("description", ""))
    head = f"/** {about} */\n" if about else ""
    if "properties" not in schema:
        return f"{head}export type {name} = {_type(schema)};"
    required = schema.get("required", [])
    fields = [
        f"  {key}{'?' if may_lack and key not in required else ''}: {_type(field)};\n"
        for key, field in schema["properties"].items()
    ]
    return f"{head}export interface {name} {{\n{''.join(fields)}}}"


def _type(schema: Any) -> str:
    match schema:
        case {"$ref": str(ref)}:
            return ref.rpartition("/")[2]
        case {"enum": list(values)}:
            return " | ".join(map(json.dumps, values))
        case {"anyOf": list(kinds)}:
            return " | ".join(dict.fromkeys(map(_type, kinds)))
        case {"allOf": list(kinds)}:
            return " & ".join(map(_type, kinds))
        case {"prefixItems": list(items)}:
            return f"[{', '.join(map(_type, items))}]"
        case {"type": "array", **rest}:
            return f"({_type(rest.get('items', {}))})[]"
        case {"properties": Mapping() as fields}:
            return f"{{ {'; '.join(f'{key}: {_type(each)}' for key, each in fields.items())} }}"
        case {"type": "object", "additionalProperties": Mapping() as values}:
            return f"Record<string, {_type(values)}>"
        case {"type": "object"}:
            return "Record<string, unknown>"
        case {"type": list(names)}:
            return " | ".join(_PLAIN[name] for name in names)
        case {"type": str(name)}:
            return _PLAIN[name]
        case _:
            return "unknown"


def _operations() -> Iterator[str]:
    """Where each operation is found, what it takes and what it answers."""
    paths = document(keys=True)["paths"]
    yield "/** Method and path of each operation. */"
    yield "export const ROUTES = {"
    for route in ROUTES:
        yield f"  {route.name}: [{json.dumps(route.method)}, {json.dumps(path_of(route))}],"
    yield "} as const;"
    yield "export interface Operations {"
    for route in ROUTES:
        operation = paths[path_of(route)][route.method.lower()]
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
        takes = (
            _query(operation)
            if route.repeatable
            else _type(operation["requestBody"]["content"]["application/json"]["schema"])
        )
        yield f"  {route.name}: {{ takes: {takes}; answers: {_type(answer)} }};"
    yield "}"


def _query(operation: Schema) -> str:
    given = [each for each in operation["parameters"] if each.get("in") == "query"]
    fields = (
        f"{each['name']}{'' if each['required'] else '?'}: {_type(each['schema'])}"
        for each in given
    )
    return f"{{ {'; '.join(fields)} }}"
