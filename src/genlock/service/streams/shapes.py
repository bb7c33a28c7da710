"""What an event looks like on a stream: as we have it, or as the session/task documents have it (`sc`).

`sc` knows four types. Its messages have no `event:` field, since its readers look at `type` in the data: a browser hands a named
event only to who asked for that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genlock.core.codec import encode_json
from genlock.core.results import FeedEvent
from genlock.errors import BadArgument
from genlock.service.streams.frames import event_lines

GENLOCK = "genlock"
SC = "sc"


def _claimed(event: Mapping[str, Any]) -> dict[str, str]:
    return {"sessionId": event["session_id"]}


def _completed(event: Mapping[str, Any]) -> dict[str, str]:
    return {"reason": "completed"}


def _released(event: Mapping[str, Any]) -> dict[str, str]:
    return {"reason": event["release_reason"].lower()}


def _expired(event: Mapping[str, Any]) -> dict[str, str]:
    return {"sessionId": event["holder_session_id"]}


def _orphaned(event: Mapping[str, Any]) -> dict[str, str]:
    return {"reason": "session_dead"}


SC_TYPES: dict[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, str]]]] = {
    "CLAIM_ACQUIRED": ("task:claimed", _claimed),
    "RESULT_ACCEPTED": ("task:released", _completed),
    "CLAIM_RELEASED": ("task:released", _released),
    "CLAIM_EXPIRED": ("task:claim-expired", _expired),
    "CLAIM_ORPHANED": ("task:claim-orphaned", _orphaned),
}
"""Our events that have an alias there, and what else than the task it says."""


def sc_type(event_type: str) -> str:
    """The alias, or "" if there is none."""
    return SC_TYPES[event_type][0] if event_type in SC_TYPES else ""


def as_genlock(event: FeedEvent) -> bytes:
    """The event as the feed has it."""
    return event_lines(event.event_type, encode_json(event))


def as_sc(event: FeedEvent) -> bytes:
    """The event under its alias; nothing at all if it has none."""
    if event.event_type not in SC_TYPES:
        return b""
    alias, more = SC_TYPES[event.event_type]
    return event_lines("", encode_json({"type": alias, "data": {"taskId": event.id, **more(event.event)}}))


SHAPES: dict[str, Callable[[FeedEvent], bytes]] = {GENLOCK: as_genlock, SC: as_sc}


def check_shape(shape: str) -> str:
    """The shape, if there is one of this name."""
    if shape not in SHAPES:
        raise BadArgument(f"shape is one of {', '.join(SHAPES)}, not {shape!r}")
    return shape
