"""Events in words: one line each, or nothing for those that would only be noise."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from genlock.cli.demo.plan import short
from genlock.core.results import FeedEvent

CALM, GOOD, WARNING, BAD = "white", "green", "yellow", "red"


class Line(NamedTuple):
    """One line of the ticker."""

    text: str
    colour: str = CALM


def describe(happened: FeedEvent) -> Line | None:
    """What an event means to someone who watches."""
    tell = _WORDS.get(happened.event_type)
    return tell(happened.event) if tell is not None else None


def when(event: Mapping[str, Any], field: str = "timestamp") -> datetime:
    """An instant of an event."""
    return datetime.fromisoformat(event[field])


def _claimed(event: Mapping[str, Any]) -> Line | None:
    agent, task, generation = event["agent_id"], short(event["task_id"]), event["generation"]
    if agent == "genlock" or event["lease_duration_seconds"] == 0:
        return None  # a fan-in or an adoption: the acceptance that follows says it
    if generation == 1:
        return Line(f"{agent} claims {task} at generation 1")
    return Line(f"{agent} takes over {task} at generation {generation}", WARNING)


def _expired(event: Mapping[str, Any]) -> Line:
    return Line(f"the lease of {event['holder_agent_id']} on {short(event['task_id'])} has run out", WARNING)


def _orphaned(event: Mapping[str, Any]) -> Line:
    left = (when(event, "expires_at") - when(event)).total_seconds()
    return Line(f"{event['holder_agent_id']} is found gone: {short(event['task_id'])} is free, {left:.0f} s before its lease ends", WARNING)


def _assigned(event: Mapping[str, Any]) -> Line:
    return Line(f"{event['agent_id']} reserves {short(event['task_id'])} for {event['assigned_to']}: who holds it is fenced off", WARNING)


def _accepted(event: Mapping[str, Any]) -> Line:
    agent, task, generation = event["agent_id"], short(event["task_id"]), event["generation"]
    if event.get("fan_in"):
        return Line(f"all subtasks are done: {task} completes, at generation {generation}", GOOD)
    if event.get("adopted_generation"):
        text = f"{agent} adopts the refused result of generation {event['adopted_generation']}: {task} is done"
        return Line(text, GOOD)
    return Line(f"{agent} completes {task} at generation {generation}", GOOD)


def _rejected(event: Mapping[str, Any]) -> Line:
    generations = f"{event['submitted_generation']} < {event['current_generation']}"
    reason = event["rejection_reason"]
    return Line(f"{event['agent_id']} submits {short(event['task_id'])}: {reason} ({generations}), result kept", BAD)


def _spawned(event: Mapping[str, Any]) -> Line:
    return Line(f"{event['agent_id']} splits {short(event['task_id'])} into {len(event['children'])} subtasks ({event['mode']})")


def _met(event: Mapping[str, Any]) -> Line:
    return Line(f"{short(event['task_id'])} no longer waits for {', '.join(map(short, event['others']))}")


_WORDS = {
    "CLAIM_ACQUIRED": _claimed,
    "CLAIM_EXPIRED": _expired,
    "CLAIM_ORPHANED": _orphaned,
    "TASK_ASSIGNED": _assigned,
    "RESULT_ACCEPTED": _accepted,
    "RESULT_REJECTED": _rejected,
    "SUBTASKS_SPAWNED": _spawned,
    "DEPENDENCY_MET": _met,
}
