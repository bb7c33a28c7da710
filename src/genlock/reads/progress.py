"""Progress: how many tasks are in which state, by track and by project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from genlock.core.keys import REFUSED, Scope
from genlock.core.reasons import RefusedState, Status
from genlock.core.results import Progress
from genlock.reads.reader import StoreReader
from genlock.store import Query

_PROGRESS: Mapping[str, str] = {
    Status.COMPLETED: "completed",
    Status.IN_PROGRESS: "in_progress",
    Status.PENDING: "pending",
    Status.BACKLOG: "pending",
    Status.BLOCKED: "blocked",
}


class TaskCounts(NamedTuple):
    """Numbers of tasks, claims, sessions and agents in one project."""

    states: Mapping[str, int]
    """Tasks by state."""
    claims: int
    """Tasks that are claimed, including claimed tasks that are held."""
    sessions: int = 0
    """Sessions that have not ended and were active within the policy's
    `orphan_threshold_seconds`."""
    agents: int = 0
    """Agents that hold a task and are not lost."""


def track_progress(reader: StoreReader, scope: Scope) -> dict[str, Progress]:
    """Returns the progress of each track ("" for tasks without a track)."""
    progress: dict[str, Progress] = {}
    for track, states in sorted(states_by_track(reader, scope).items()):
        counts: dict[str, int] = {}
        for state, count in states.items():
            name = _PROGRESS.get(state, "other")
            counts[name] = counts.get(name, 0) + count
        progress[track] = Progress(**counts)
    return progress


def states_by_track(reader: StoreReader, scope: Scope) -> dict[str, dict[str, int]]:
    """Counts tasks by track and state."""
    counts: dict[str, dict[str, int]] = {}
    for record in reader.find_tasks(Query(*scope)):
        track = counts.setdefault(record.task.track or "", {})
        track[record.state] = track.get(record.state, 0) + 1
    return counts


def state_counts(reader: StoreReader, scope: Scope) -> dict[str, int]:
    """Tasks by state."""
    return dict(reader.counts(Query(*scope)))


def task_counts(reader: StoreReader, scope: Scope) -> TaskCounts:
    """Counts tasks by state, and the claimed ones."""
    states = state_counts(reader, scope)
    claims = states.get(Status.IN_PROGRESS, 0)
    if states.get(Status.HELD):
        # The state of a held task does not show whether it is claimed.
        held = Query(*scope, state=Status.HELD)
        claims += sum(reader.counts(held, by="session").values())
    return TaskCounts(states, claims)


def kept_refused_results(reader: StoreReader, scope: Scope) -> int:
    """Counts the refused results that are kept."""
    query = Query(*scope, kind=REFUSED, state=RefusedState.KEPT)
    return sum(reader.counts(query).values())
