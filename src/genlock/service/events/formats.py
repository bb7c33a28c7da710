"""The formats of an event on a stream: ours, that of the session/task document (`sc`), and that of
the feature/edge document (`ddb`).

`sc` knows four types and `ddb` six. Their messages have no `event:` field, because their readers
look at `type` in the data: a browser delivers a named event only to listeners for that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from genlock.core.codec import encode_json
from genlock.core.ids import parse_task_id
from genlock.core.reasons import Cause
from genlock.core.results import FeedEvent
from genlock.errors import BadArgument
from genlock.safe_text import safe_json
from genlock.typed_json import decode

# Server-sent events as bytes, by the WHATWG's grammar: fields on lines of their own, an empty line
# behind each event.


BEAT = b": beat\n\n"
"""A comment: keeps the connection open through proxies and shows both sides that it works."""


def retry_line(milliseconds: int) -> bytes:
    """The delay before the client reconnects."""
    return b"retry: %d\n" % milliseconds


def id_line(cursor: str) -> bytes:
    """The id from which a client resumes after this event."""
    return b"id: %s\n" % cursor.encode()


def event_lines(event: str, data: bytes) -> bytes:
    """The event without its id. Without a name it is a `message`. JSON has no raw line breaks, so
    the data is one line."""
    data = safe_json(data)
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data) if event else b"data: %s\n\n" % data


def data_of(text: bytes) -> bytes:
    """The data of an event in this format."""
    return text[text.index(b"data: ") + len(b"data: ") : -2]


def mark(cursor: str) -> bytes:
    """An id without data. The client's program sees nothing, but the client resumes from here."""
    return id_line(cursor) + b"\n"


def notice(name: str, **data: Any) -> bytes:
    """A message about the stream itself, named `genlock:<name>`. It has no id, so it does not move
    the client's cursor."""
    return event_lines(f"genlock:{name}", encode_json(data))


GENLOCK = "genlock"
SC = "sc"
DDB = "ddb"
ROW = "row"


def lapse_reason(event: Mapping[str, Any]) -> str:
    """The reason why a claim was lost, in SC's words; `session_silent` is our own."""
    if event["event_type"] == "CLAIM_EXPIRED":
        return "expired"
    return "session_silent" if event["cause"] == Cause.SESSION_SILENT else "session_dead"


Fields: TypeAlias = Mapping[str, Any]
Alias: TypeAlias = tuple[str, Callable[[FeedEvent], dict[str, Any] | None]]
"""An event's type in another document, and a function for its data there; the function returns
None for an event that is not sent."""


def _claimed(found: FeedEvent) -> dict[str, Any]:
    return {"taskId": found.id, "sessionId": found.event["session_id"]}


def _completed(found: FeedEvent) -> dict[str, Any] | None:
    """The data of a completion. An approval has none: the claim ended when the review began."""
    if found.event.get("author_session_id"):
        return None
    return {"taskId": found.id, "reason": "completed"}


def _in_review(found: FeedEvent) -> dict[str, Any]:
    return {"taskId": found.id, "reason": "in_review"}


def _released(found: FeedEvent) -> dict[str, Any]:
    event = found.event
    kind = event["release_reason"].lower()
    stated = event.get("stated_reason", "")
    canonical = {"canonicalReason": kind} if stated else {}
    return {"taskId": found.id, "reason": stated or kind, **canonical}


def _taken_away(found: FeedEvent) -> dict[str, Any] | None:
    """The data of a claim that an operator has ended, with the verb; None if there was no claim."""
    verb = taken_by(found.event)
    return None if verb is None else {"taskId": found.id, "reason": verb}


def _split(found: FeedEvent) -> dict[str, Any] | None:
    return None if keeps_claim(found.event) else {"taskId": found.id, "reason": "spawned"}


def _expired(found: FeedEvent) -> dict[str, Any]:
    return {"taskId": found.id, "sessionId": found.event["holder_session_id"]}


def _orphaned(found: FeedEvent) -> dict[str, Any]:
    return {"taskId": found.id, "reason": lapse_reason(found.event)}


def taken_by(event: Fields) -> str | None:
    """The operator's verb that took a claim away; None if there was no claim."""
    if not event.get("holder_session_id"):
        return None
    verbs = {"TASK_RESET": "reset", "TASK_CANCELLED": "cancel"}
    verb: str = verbs.get(event["event_type"]) or event["superseded_by"]
    return verb


def keeps_claim(event: Fields) -> bool:
    """Does this spawn leave the holder its claim?"""
    return bool(event.get("keep"))


SC_TYPES: dict[str, Alias] = {
    "CLAIM_ACQUIRED": ("task:claimed", _claimed),
    "RESULT_ACCEPTED": ("task:released", _completed),
    "CONVERGENCE_ESCALATED": ("task:released", _in_review),
    "CLAIM_RELEASED": ("task:released", _released),
    "CLAIM_SUPERSEDED": ("task:released", _taken_away),
    "TASK_RESET": ("task:released", _taken_away),
    "TASK_CANCELLED": ("task:released", _taken_away),
    "SUBTASKS_SPAWNED": ("task:released", _split),
    "CLAIM_EXPIRED": ("task:claim-expired", _expired),
    "CLAIM_ORPHANED": ("task:claim-orphaned", _orphaned),
}
"""Our events that have an alias in SC, and its data."""


# DDB: the fields name the feature and the edge as its ids do. A claim that has expired or lost its
# process is a `claim_expired`, like one that is only silent; `reason` tells them apart.


def _edge(found: FeedEvent, **more: Any) -> dict[str, Any]:
    event, task = found.event, found.event.get("task_id") or found.id
    parsed = parse_task_id(task)
    names = {"feature": parsed.feature, "edge": parsed.edge}
    fields = {
        "project_id": event.get("project_id"),
        "task_id": task,
        **{name: value for name, value in names.items() if value is not None},
        "agent_id": event.get("agent_id"),
        "session_id": event.get("session_id"),
        "generation": event.get("generation"),
        "timestamp": event.get("timestamp"),
        **more,
    }
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _holder(event: Fields) -> dict[str, Any]:
    """The holder of the claim, in place of the session that detected its end."""
    return {
        "agent_id": event.get("holder_agent_id"),
        "session_id": event.get("holder_session_id"),
    }


def _edge_started(found: FeedEvent) -> dict[str, Any]:
    event = found.event
    return _edge(
        found,
        agent_role=event.get("agent_role"),
        claimed_at=event["timestamp"],
        last_active=event["timestamp"],
        expires_at=event["expires_at"],
    )


def _claim_rejected(found: FeedEvent) -> dict[str, Any]:
    event = found.event
    return _edge(
        found,
        reason=event["reason"],
        count=event["count"],
        held_by=event.get("holder_agent_id"),
        held_by_session=event.get("holder_session_id"),
    )


def _edge_released(found: FeedEvent) -> dict[str, Any]:
    event = found.event
    kind = event["release_reason"].lower()
    return _edge(found, reason=event.get("stated_reason") or kind)


def _edge_taken(found: FeedEvent) -> dict[str, Any] | None:
    verb = taken_by(found.event)
    return None if verb is None else _edge(found, **_holder(found.event), reason=verb)


def _edge_split(found: FeedEvent) -> dict[str, Any] | None:
    return None if keeps_claim(found.event) else _edge(found, reason="spawned")


def _edge_converged(found: FeedEvent) -> dict[str, Any]:
    """The data of a completion: the author and, after a review, the reviewer."""
    event = found.event
    reviewed: dict[str, Any] = {}
    if event.get("author_session_id"):
        user = event.get("actor", {}).get("user_id")
        reviewed = {
            "agent_id": event.get("author_agent_id"),
            "session_id": event["author_session_id"],
            "reviewed_by": user or event.get("agent_id") or "an operator",
        }
    return _edge(
        found,
        work_product_ref=event["work_product_ref"],
        reference=event.get("reference"),
        **reviewed,
    )


def _escalated(found: FeedEvent) -> dict[str, Any]:
    event = found.event
    return _edge(
        found,
        agent_role=event.get("agent_role"),
        causes=event.get("causes"),
        work_product_ref=event["work_product_ref"],
        reference=event.get("reference"),
    )


def _claim_expired(found: FeedEvent) -> dict[str, Any]:
    event = found.event
    reason = "stale" if event["event_type"] == "CLAIM_STALE" else lapse_reason(event)
    return _edge(found, **_holder(event), reason=reason, last_active=event["last_renewal"])


DDB_TYPES: dict[str, Alias] = {
    "CLAIM_ACQUIRED": ("edge_started", _edge_started),
    "CLAIM_DENIED": ("claim_rejected", _claim_rejected),
    "CLAIM_RELEASED": ("edge_released", _edge_released),
    "CLAIM_SUPERSEDED": ("edge_released", _edge_taken),
    "TASK_RESET": ("edge_released", _edge_taken),
    "TASK_CANCELLED": ("edge_released", _edge_taken),
    "SUBTASKS_SPAWNED": ("edge_released", _edge_split),
    "RESULT_ACCEPTED": ("edge_converged", _edge_converged),
    "CLAIM_STALE": ("claim_expired", _claim_expired),
    "CLAIM_EXPIRED": ("claim_expired", _claim_expired),
    "CLAIM_ORPHANED": ("claim_expired", _claim_expired),
    "CONVERGENCE_ESCALATED": ("convergence_escalated", _escalated),
}
"""Our events that have an alias in DDB, and its data."""


def aliases(event_type: str) -> tuple[str, ...]:
    """The names of this event in the documents."""
    return tuple(types[event_type][0] for types in (SC_TYPES, DDB_TYPES) if event_type in types)


def as_genlock(event: FeedEvent) -> bytes:
    """The event in our own shape."""
    return event_lines(event.event_type, encode_json(event))


def from_genlock(text: bytes) -> FeedEvent:
    """Reads an event in our own shape."""
    return decode(data_of(text), FeedEvent)


def _under_alias(types: Mapping[str, Alias], event: FeedEvent) -> bytes:
    """The event under its alias; empty if it has none."""
    if event.event_type not in types:
        return b""
    alias, data_for = types[event.event_type]
    data = data_for(event)
    return b"" if data is None else event_lines("", encode_json({"type": alias, "data": data}))


def as_sc(event: FeedEvent) -> bytes:
    """The event in SC's shape."""
    return _under_alias(SC_TYPES, event)


def as_ddb(event: FeedEvent) -> bytes:
    """The event in DDB's shape."""
    return _under_alias(DDB_TYPES, event)


SHAPES: dict[str, Callable[[FeedEvent], bytes]] = {GENLOCK: as_genlock, SC: as_sc, DDB: as_ddb}


# The shape `row` is for pages that show tasks as rows: each event without its large fields, with
# the current row of its task. These messages have no name, so one browser listener gets them all.


_BULKY = ("result_data", "task", "children")
"""Fields that can be large. A client that needs them reads the event."""


def task_of(event_type: str, tasks: tuple[str, ...]) -> str | None:
    """The task whose row an event has changed; None for events that change none, such as a
    denial."""
    return tasks[0] if tasks and event_type != "CLAIM_DENIED" else None


def as_row(text: bytes, row: bytes | None) -> bytes:
    """Turns an event in our own shape into one with the row of its task."""
    data = data_of(text)
    if any(f'"{name}":'.encode() in data for name in _BULKY):
        event = decode(data, FeedEvent)
        lean = {name: value for name, value in event.event.items() if name not in _BULKY}
        data = safe_json(encode_json(replace(event, event=lean)))
    return b'data: {"event":%s,"row":%s}\n\n' % (data, safe_json(row) if row else b"null")


def check_shape(shape: str) -> str:
    """Returns the shape; BadArgument if there is none of this name."""
    known = (*SHAPES, ROW)
    if shape not in known:
        raise BadArgument(f"shape is one of {', '.join(known)}, not {shape!r}")
    return shape
