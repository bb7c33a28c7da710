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
"""A comment: keeps the connection open through proxies, and shows both sides that it is."""


def retry_line(milliseconds: int) -> bytes:
    """When to come back if the connection is lost."""
    return b"retry: %d\n" % milliseconds


def id_line(cursor: str) -> bytes:
    """Where to go on behind this event."""
    return b"id: %s\n" % cursor.encode()


def event_lines(event: str, data: bytes) -> bytes:
    """The rest of an event. Without a name it is a `message`. JSON has no bare line ends, so the
    data is one line."""
    data = safe_json(data)
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data) if event else b"data: %s\n\n" % data


def data_of(text: bytes) -> bytes:
    """The data of an event that was written so."""
    return text[text.index(b"data: ") + len(b"data: ") : -2]


def mark(cursor: str) -> bytes:
    """An id without data: nothing is shown to the client's program, but it resumes from here."""
    return id_line(cursor) + b"\n"


def notice(name: str, **data: Any) -> bytes:
    """What the stream says of itself, as `genlock:<name>`. It has no id: nothing is to be skipped
    for it."""
    return event_lines(f"genlock:{name}", encode_json(data))


GENLOCK = "genlock"
SC = "sc"
DDB = "ddb"
ROW = "row"


def lapse_reason(event: Mapping[str, Any]) -> str:
    """Why a claim was found lost, in SC's words; `session_silent` is ours."""
    if event["event_type"] == "CLAIM_EXPIRED":
        return "expired"
    return "session_silent" if event["cause"] == Cause.SESSION_SILENT else "session_dead"


Fields: TypeAlias = Mapping[str, Any]
Alias: TypeAlias = tuple[str, Callable[[FeedEvent], dict[str, Any] | None]]
"""An event's type elsewhere, and its data there; None: this one is not told."""


def _claimed(found: FeedEvent) -> dict[str, Any]:
    return {"taskId": found.id, "sessionId": found.event["session_id"]}


def _completed(found: FeedEvent) -> dict[str, Any] | None:
    """Nothing of an approval: the claim ended when the review began."""
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
    """Of a claim that an operator has ended, by which verb; nothing if there was no claim."""
    verb = taken_by(found.event)
    return None if verb is None else {"taskId": found.id, "reason": verb}


def _split(found: FeedEvent) -> dict[str, Any] | None:
    return None if keeps_claim(found.event) else {"taskId": found.id, "reason": "spawned"}


def _expired(found: FeedEvent) -> dict[str, Any]:
    return {"taskId": found.id, "sessionId": found.event["holder_session_id"]}


def _orphaned(found: FeedEvent) -> dict[str, Any]:
    return {"taskId": found.id, "reason": lapse_reason(found.event)}


def taken_by(event: Fields) -> str | None:
    """The operator's verb that took a claim away, or None if nobody had one."""
    if not event.get("holder_session_id"):
        return None
    verbs = {"TASK_RESET": "reset", "TASK_CANCELLED": "cancel"}
    verb: str = verbs.get(event["event_type"]) or event["superseded_by"]
    return verb


def keeps_claim(event: Fields) -> bool:
    """Of a split: does nobody's claim end by it?"""
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


# DDB: features and edges are in its fields what they are in its ids. A claim that time or a lost
# process has ended is a `claim_expired` like one that is only silent; `reason` tells them apart.


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
    """In the place of who found out: whose claim it is."""
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
    """By its author; after a review with the reviewer beside."""
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
    """What the documents call this event."""
    return tuple(types[event_type][0] for types in (SC_TYPES, DDB_TYPES) if event_type in types)


def as_genlock(event: FeedEvent) -> bytes:
    """The event as the feed has it."""
    return event_lines(event.event_type, encode_json(event))


def from_genlock(text: bytes) -> FeedEvent:
    """The event that was written so."""
    return decode(data_of(text), FeedEvent)


def _under_alias(types: Mapping[str, Alias], event: FeedEvent) -> bytes:
    """The event under its alias; nothing at all if it has none."""
    if event.event_type not in types:
        return b""
    alias, data_for = types[event.event_type]
    data = data_for(event)
    return b"" if data is None else event_lines("", encode_json({"type": alias, "data": data}))


def as_sc(event: FeedEvent) -> bytes:
    """The event as SC has it."""
    return _under_alias(SC_TYPES, event)


def as_ddb(event: FeedEvent) -> bytes:
    """The event as DDB has it."""
    return _under_alias(DDB_TYPES, event)


SHAPES: dict[str, Callable[[FeedEvent], bytes]] = {GENLOCK: as_genlock, SC: as_sc, DDB: as_ddb}


# For pages that show tasks as rows: each event without its bulk, and the row of its task as it is
# by now. No such message has a name, so one listener gets all.


_BULKY = ("result_data", "task", "children")
"""Fields that can be large; whoever wants them reads the event."""


def task_of(event_type: str, tasks: tuple[str, ...]) -> str | None:
    """The task whose row an event has changed, if any: a denial changes none."""
    return tasks[0] if tasks and event_type != "CLAIM_DENIED" else None


def as_row(text: bytes, row: bytes | None) -> bytes:
    """The event that was written in our own shape, with the row of its task."""
    data = data_of(text)
    if any(f'"{name}":'.encode() in data for name in _BULKY):
        event = decode(data, FeedEvent)
        lean = {name: value for name, value in event.event.items() if name not in _BULKY}
        data = safe_json(encode_json(replace(event, event=lean)))
    return b'data: {"event":%s,"row":%s}\n\n' % (data, safe_json(row) if row else b"null")


def check_shape(shape: str) -> str:
    """The shape, if there is one of this name."""
    known = (*SHAPES, ROW)
    if shape not in known:
        raise BadArgument(f"shape is one of {', '.join(known)}, not {shape!r}")
    return shape
