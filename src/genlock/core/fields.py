"""The fields of a task: what each may hold, and the error for anything else.

The results have plain types, each of which survives a round trip through JSON unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from genlock.core.agent_roles import check_role_name
from genlock.core.durations import is_duration, lease_bounds, read_duration
from genlock.core.names import check_agent, describe_character, shown
from genlock.core.policy import MAX_DEFINITION_BYTES
from genlock.core.reasons import Isolation, SpawnMode, Status
from genlock.core.routing import PRIORITIES
from genlock.errors import BadArgument

MOST_ROLES_BYTES: Final = 1024
"""Roles are part of the name of a pool, which every store keeps in an index."""
MOST_SECONDS: Final = 3_155_760_000
"""A hundred years: the sum with the present time must still be a date."""
MOST_NESTING: Final = 64
_LONGEST_LIST = MAX_DEFINITION_BYTES // len('"",')
_OPEN_STATES = frozenset({"pending", "todo", "ready", "active", "in_progress", "blocked"})
"""`active` too: an agent that works on the task outside of Genlock holds no claim."""
_FINISHED_STATES: Final = {
    "done": Status.COMPLETED,
    "completed": Status.COMPLETED,
    "cancelled": Status.CANCELLED,
    "canceled": Status.CANCELLED,
}
_WAITING = "waiting"
_BACKLOG = "backlog"

E = TypeVar("E", bound=StrEnum)


def describe_value(value: object) -> str:
    """Describes a given value in a message: short whatever its size, and never the content of a
    collection."""
    if isinstance(value, str):
        return shown(str.__str__(value))
    if value is None:
        return "nothing"
    if isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return repr(int(value)) if value.bit_length() <= 64 else "a number of more than 64 bits"
    if isinstance(value, Mapping):
        return "a mapping"
    kind = "list" if isinstance(value, (list, tuple)) else type(value).__name__
    return f"an {kind}" if kind[0].lower() in "aeiou" else f"a {kind}"


def check_text(name: str, value: object) -> str:
    """Returns `value` as a plain string that can be written as UTF-8."""
    if not isinstance(value, str):
        raise BadArgument(f"{name} must be a string, not {describe_value(value)}")
    # YAML readers hand out subclasses of str, which msgspec does not encode.
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadArgument(
            f"{name} cannot be written as UTF-8: {describe_character(text, error.start)}"
        ) from None
    return text


class PlainJson:
    """Values as JSON has them.

    A mapping from a YAML reader may hold itself, or the same list a billion times. So the number of
    values read is limited to the number of bytes that a definition may have.
    """

    def __init__(self) -> None:
        self._left = MAX_DEFINITION_BYTES

    def convert(self, name: str, value: Any, nesting: int = 0) -> Any:
        self._left -= 1
        if self._left < 0 or nesting > MOST_NESTING:
            raise BadArgument(
                f"{name[:60]} holds too much: at most {MAX_DEFINITION_BYTES:,} values in "
                f"{MOST_NESTING} levels are kept"
            )
        match value:
            case None | bool():
                return value
            case str():
                return check_text(name, value)
            case int():
                return _check_integer(name, value)
            case float():
                if not math.isfinite(value):
                    raise BadArgument(f"{name} is {float(value)!r}, which JSON cannot hold")
                return float(value)
            case Mapping():
                return self.members(name, value, nesting)
            case list() | tuple():
                return [
                    self.convert(f"{name}[{at}]", item, nesting + 1)
                    for at, item in enumerate(value)
                ]
            case AbstractSet():
                # The order of a set differs from run to run; that of a definition must not.
                return sorted(
                    (self.convert(name, item, nesting + 1) for item in value),
                    key=msgspec.json.encode,
                )
            case _:
                try:
                    builtin = msgspec.to_builtins(value)
                except (TypeError, ValueError, RecursionError):
                    raise BadArgument(
                        f"{name} is {describe_value(value)}, which cannot be written as JSON"
                    ) from None
                return self.convert(name, builtin, nesting + 1)

    def members(self, name: str, mapping: Mapping[Any, Any], nesting: int = 0) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, item in mapping.items():
            if not isinstance(key, str):
                raise BadArgument(f"{name} has the key {describe_value(key)}; keys are strings")
            text = check_text(f"a key of {name or 'the task'}", key)
            plain[text] = self.convert(
                f"{name}.{text[:60]}" if name else text[:60], item, nesting + 1
            )
        return plain


def _check_integer(name: str, value: int) -> int:
    if _is_boolean(value):
        return bool(value)
    # Larger ones are floats to most readers of JSON.
    if not -(2**63) <= value < 2**64:
        raise BadArgument(f"{name} is a number of more than 64 bits; write it as a string")
    return int(value)


def _is_boolean(value: object) -> bool:
    # bool cannot be subclassed: ruamel's round-trip reader hands out an int by this name for a
    # boolean with an anchor.
    return isinstance(value, bool) or type(value).__name__ == "ScalarBoolean"


def check_list(name: str, value: object) -> list[Any]:
    if isinstance(value, (list, tuple)):
        if len(value) > _LONGEST_LIST:
            raise BadArgument(f"{name} has {len(value):,} items, more than a definition holds")
        return list(value)
    if isinstance(value, str):
        raise BadArgument(
            f"{name} must be a list of strings, not the string {describe_value(value)}; put it in "
            "brackets"
        )
    raise BadArgument(f"{name} must be a list of strings, not {describe_value(value)}")


def _check_texts(name: str, value: object) -> tuple[str, ...]:
    return tuple(
        [check_text(f"{name}[{at}]", item) for at, item in enumerate(check_list(name, value))]
    )


def _check_roles(name: str, value: object) -> tuple[str, ...]:
    roles = _check_texts(name, value)
    for at, role in enumerate(roles):
        check_role_name(f"{name}[{at}]", role)
    size = len(",".join(roles).encode())
    if size > MOST_ROLES_BYTES:
        raise BadArgument(
            f"{name} have {size:,} bytes together, at most {MOST_ROLES_BYTES:,} are kept"
        )
    return roles


def _check_flag(name: str, value: object) -> bool:
    if not _is_boolean(value):
        raise BadArgument(f"{name} must be true or false, not {describe_value(value)}")
    return bool(value)


def _check_seconds(name: str, value: object) -> float:
    if isinstance(value, str) and is_duration(value):
        value = read_duration(value, name)
    return _check_number(MOST_SECONDS, name, value)


def _check_number(most: int, name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or _is_boolean(value):
        raise BadArgument(f"{name} must be a number, not {describe_value(value)}")
    # Written so that NaN, for which every comparison is false, is refused.
    if not 0 <= value <= most:
        raise BadArgument(f"{name} must be from 0 to {most:,}, not {describe_value(value)}")
    # An int is encoded differently from the float that it is read back as; so is -0.0.
    return abs(float(value))


def _check_hours(name: str, value: object) -> float:
    if isinstance(value, str) and is_duration(value):
        value = read_duration(value, name) / 3600
    return _check_number(MOST_SECONDS // 3600, name, value)


def _check_lease(name: str, value: object) -> float:
    seconds = _check_seconds(name, value)
    if not seconds:
        raise BadArgument(f"{name}: {lease_bounds(seconds, 0, MOST_SECONDS)}")
    return seconds


def _check_priority(name: str, value: object) -> str:
    text = check_text(name, value).lower()
    if text not in PRIORITIES:
        raise BadArgument(
            f"{name} must be one of {', '.join(PRIORITIES)}, not {describe_value(value)}"
        )
    return text


def _check_choice(kind: type[E], name: str, value: object) -> E:
    text = check_text(name, value)
    try:
        return kind(text)
    except ValueError:
        raise BadArgument(f"{name} must be one of {', '.join(kind)}, not {shown(text)}") from None


def check_instant(name: str, value: object) -> datetime:
    wanted = (
        f"{name} must be a time in ISO 8601, such as 2026-01-31T09:00:00Z, not "
        f"{describe_value(value)}"
    )
    try:
        instant = datetime.fromisoformat(str.__str__(value)) if isinstance(value, str) else value
        utc = (
            instant.astimezone(UTC)
            if isinstance(instant, datetime) and instant.utcoffset() is not None
            else None
        )
    except (ValueError, OverflowError):
        raise BadArgument(wanted) from None
    if not isinstance(instant, datetime):
        raise BadArgument(wanted)
    if utc is None:
        raise BadArgument(
            f"{name} {instant.isoformat()} has no time zone; add Z or an offset such as +02:00"
        )
    # Not a subclass, such as ruamel's.
    return datetime.combine(utc.date(), utc.time(), UTC)


class StartState(NamedTuple):
    """The state in which a task begins."""

    backlog: bool = False
    finished: Status | None = None
    """COMPLETED or CANCELLED, if the work ended before the task was added."""
    waiting: bool = False


def is_state(value: object) -> bool:
    """Is this the name of a state that a task can begin in?"""
    return isinstance(value, str) and value.lower() in {
        _BACKLOG,
        _WAITING,
        *_OPEN_STATES,
        *_FINISHED_STATES,
    }


def check_state(name: str, value: object) -> StartState:
    """Returns the state that a plan or another tool's file gives a task."""
    state = check_text(name, value).lower()
    if state in _FINISHED_STATES:
        return StartState(finished=_FINISHED_STATES[state])
    if state not in (_BACKLOG, _WAITING) and state not in _OPEN_STATES:
        raise BadArgument(
            f"{name} must be one of backlog, todo, ready, active, waiting, done, cancelled, not "
            f"{describe_value(value)}"
        )
    return StartState(backlog=state == _BACKLOG, waiting=state == _WAITING)


def _check_assignee(name: str, value: object) -> str:
    try:
        return check_agent(value)
    except BadArgument as fault:
        raise BadArgument(f"{name}: {fault}") from None


CHECKS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "title": check_text,
    "description": check_text,
    "phase": check_text,
    "priority": _check_priority,
    "tags": _check_texts,
    "modules": _check_texts,
    "repo": check_text,
    "roles": _check_roles,
    "human_required": _check_flag,
    "estimate_seconds": _check_seconds,
    "lease_seconds": _check_lease,
    "parallelizable": _check_flag,
    "isolation": partial(_check_choice, Isolation),
    "worktree_path": check_text,
    "coordination_mode": partial(_check_choice, SpawnMode),
    "assigned_to": _check_assignee,
    "waiting_for": check_text,
    "not_before": check_instant,
    "lock_timeout_hours": _check_hours,
}
