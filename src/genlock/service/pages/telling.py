"""Events in words, for people."""

from __future__ import annotations

from typing import Final

from genlock.core import events as e

SIGNS_OF_LIFE: Final = (e.LeaseRenewed, e.SessionHeartbeat, e.Settled)
"""There are so many of them that nothing else would be seen."""


def told(event: e.Event) -> str:
    """One event as a sentence."""
    return _claims(event) or _results(event) or _others(event)


def _claims(event: e.Event) -> str | None:
    task, who = event.task_id, event.agent_id or event.session_id
    match event:
        case e.ClaimAcquired():
            return f"{who} claimed {task} at generation {event.generation}"
        case e.ClaimReleased():
            return f"{who} gave {task} back ({event.release_reason.lower()})"
        case e.ClaimExpired():
            return f"the lease of {event.holder_agent_id} on {task} is over"
        case e.ClaimOrphaned():
            return f"{event.holder_agent_id} is gone and has left {task} behind"
        case e.ClaimStale():
            return f"nothing has been heard of {who} on {task} for long"
        case e.ClaimSuperseded():
            return f"{task} was taken from {event.holder_agent_id or 'nobody'} ({event.superseded_by})"
        case e.ClaimDenied():
            times = f" {event.count} times" if event.count > 1 else ""
            return f"{who} was denied {task}{times} ({event.reason.removeprefix('DENIED_').lower().replace('_', ' ')})"
        case _:
            return None


def _results(event: e.Event) -> str | None:
    task, who = event.task_id, event.agent_id or event.session_id
    match event:
        case e.ResultAccepted():
            return f"{who} completed {task} at generation {event.generation}"
        case e.ResultRejected():
            why = event.rejection_reason.lower().replace("_", " ")
            return f"a result of {who} for {task} at generation {event.submitted_generation} was refused ({why}) and kept"
        case e.ResultAdopted():
            return f"a refused result for {task} was adopted"
        case e.ResultDiscarded():
            return f"a refused result for {task} was discarded"
        case e.SubtasksSpawned():
            into = f"{len(event.children)} subtasks" if event.children else "the subtasks it has"
            return f"{who} split {task} into {into}"
        case _:
            return None


def _others(event: e.Event) -> str:
    match event:
        case e.TaskAdded():
            return f"{event.task_id} was added"
        case e.TaskHeld():
            return f"{event.task_id} is held: {event.reason}"
        case e.SessionRegistered():
            return f"session {event.session_id} began"
        case e.SessionEndedEvent():
            return f"session {event.session_id} ended"
        case e.DependencyMet():
            return f"{event.task_id} heard that {', '.join(event.others)} is done"
        case _:
            words = str(event.__struct_config__.tag).lower().replace("_", " ")
            return f"{event.task_id}: {words}" if event.task_id else words
