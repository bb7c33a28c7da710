"""Reads a call's keywords from path, query and body, and checks them against the call's fields."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from genlock.errors import BadArgument
from genlock.typed_json import convert, decoder
from genlock.wire.operations import Route, field_types

_FROM_PATH = frozenset({"tenant_id", "project_id"})
_MOST_NAMED = 1000
"""The most names in a query. More hardly fit into the head of a request."""


def body_type(route: Route) -> type[msgspec.Struct]:
    """The type of a request's body or query: the call's fields except those in the path."""
    call = route.call
    types, left_out = field_types(call), _FROM_PATH | {route.variable}
    fields: list[Any] = []
    for field in msgspec.structs.fields(call):
        if field.name not in left_out:
            kind = _in_json(types[field.name])
            fields.append(
                (field.name, kind) if field.required else (field.name, kind, field.default)
            )
    return msgspec.defstruct(
        call.__name__, fields, kw_only=True, forbid_unknown_fields=True, module=__name__
    )


class Keywords:
    """Reads the keywords of one operation."""

    def __init__(self, route: Route) -> None:
        self.type = body_type(route)
        self._decode = decoder(self.type).decode
        self._several = frozenset(
            name for name, kind in field_types(route.call).items() if _takes_several(kind)
        )
        self.takes_operation = "operation_id" in self.type.__struct_fields__

    def of_body(self, body: bytes) -> dict[str, Any]:
        """Reads a JSON body; an empty body counts as an empty object."""
        try:
            found = self._decode(body or b"{}")
        except msgspec.ValidationError as error:
            raise BadArgument(
                f"the request's body is not what this operation takes: {error}"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadArgument(f"the request's body is no JSON: {error}") from None
        return msgspec.structs.asdict(found)

    def of_query(self, query: bytes) -> dict[str, Any]:
        """Reads a query. A repeated name makes a list where the operation takes one."""
        if not query:
            given: dict[str, Any] = {}
        else:
            given = self._pairs(query)
        try:
            found = convert(given, self.type, strict=False)
        except msgspec.ValidationError as error:
            raise BadArgument(f"the query is not what this operation takes: {error}") from None
        return msgspec.structs.asdict(found)

    def _pairs(self, query: bytes) -> dict[str, Any]:
        try:
            pairs = parse_qsl(
                query.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=_MOST_NAMED,
                errors="strict",
            )
        except ValueError as error:
            raise BadArgument(f"the query cannot be read: {error}") from None
        given: dict[str, Any] = {}
        for name, value in pairs:
            if name in self._several:
                given.setdefault(name, []).append(value)
            elif name in given:
                raise BadArgument(f"the query has {name[:60]!r} twice")
            else:
                given[name] = value
        return given


def _in_json(kind: Any) -> Any:
    """The JSON type of a keyword: a list in place of an iterable, so that its entries are checked
    during parsing, and text in place of a date."""
    if get_origin(kind) is Iterable:
        return list[get_args(kind)[0]]  # type: ignore[misc]
    if datetime in get_args(kind):
        return functools.reduce(
            operator.or_, (one for one in get_args(kind) if one is not datetime)
        )
    return kind


def _takes_several(kind: Any) -> bool:
    return any(
        hasattr(one, "__origin__") and one.__origin__ not in (dict, Mapping)
        for one in (kind, *get_args(kind))
    )
