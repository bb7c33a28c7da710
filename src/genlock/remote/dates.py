"""Dates on their way to a service: as text where the coordinator takes dates, and nowhere else.

JSON has none, and what was made a text everywhere would be taken for one: a title, a name, a result that is read back as something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

import msgspec

from genlock.core.model import Task

_INSTANT: Final = "not_before"
_FIXED: Final = frozenset(Task.__struct_fields__) - {_INSTANT, "metadata"} | {"requires", "state"}
"""The fields of a definition that are no dates. Whatever else stands in one is metadata, and may hold any."""


def as_text(name: str, value: Any) -> Any:
    """The value of this keyword with its dates written out."""
    if name == "expires_at":
        return _instant(value)
    if name == "changes":
        return _definition(value)
    if name in ("tasks", "subtasks"):
        return [_definition(each) for each in value] if isinstance(value, (list, tuple)) else value
    return _plan(value) if name == "source" else value


def _plan(value: Any) -> Any:
    """A plan, or a part of one on the way to its definitions, which are what has an id."""
    if isinstance(value, Mapping):
        return _definition(value) if "id" in value else {key: _plan(inner) for key, inner in value.items()}
    return [_plan(inner) for inner in value] if type(value) in (list, tuple) else value


def _definition(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: inner if key in _FIXED else _instant(inner) if key == _INSTANT else _written(inner) for key, inner in value.items()}


def _instant(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _written(value: Any) -> Any:
    if isinstance(value, date):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: _written(inner) for key, inner in value.items()}
    return [_written(inner) for inner in value] if isinstance(value, (list, tuple)) else value
