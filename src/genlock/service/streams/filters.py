"""Which events a client wants: of these tasks, of these sessions, of these types. What is not named is not asked about."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import get_args

from msgspec import Struct

from genlock.core import events
from genlock.core.ids import check_task_id
from genlock.core.names import check_session
from genlock.core.results import FeedEvent
from genlock.errors import BadArgument
from genlock.service.streams.shapes import SC_TYPES, sc_type

EVENT_TYPES = frozenset(kind.__struct_config__.tag for kind in get_args(events.Event))
"""By their names on the wire."""
_TYPES = EVENT_TYPES | {alias for alias, _ in SC_TYPES.values()}


class Filters(Struct, frozen=True):
    """An event passes if it suits each of the three that is given. Types may be named by their aliases too."""

    tasks: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """Is anything filtered out at all?"""
        return bool(self.tasks or self.sessions or self.types)

    def pass_on(self, event: FeedEvent) -> bool:
        """Does the client want it?"""
        if self.types and event.event_type not in self.types and sc_type(event.event_type) not in self.types:
            return False
        fields = event.event
        if self.tasks and fields.get("task_id") not in self.tasks and not (event.kind == "task" and event.id in self.tasks):
            return False
        return not self.sessions or fields.get("session_id") in self.sessions or fields.get("holder_session_id") in self.sessions


EVERYTHING = Filters()


def check_filters(tasks: Collection[str] = (), sessions: Collection[str] = (), types: Collection[str] = ()) -> Filters:
    """Filters from what somebody has typed; `BadArgument` if it can never be met."""
    return Filters(frozenset(map(check_task_id, tasks)), frozenset(map(check_session, sessions)), frozenset(map(_check_type, types)))


def _check_type(name: str) -> str:
    if name in _TYPES:
        return name
    near = get_close_matches(str(name).upper(), _TYPES, 1)
    hint = f"did you mean {near[0]}?" if near else "docs/reference/events.md has them all"
    raise BadArgument(f"there are no events of type {name!r}; {hint}")
