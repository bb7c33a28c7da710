"""How a project stands, at a glance: how many tasks are in which state, and what does not move by
itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from genlock.core.graph import Graph, GraphTask
from genlock.core.reasons import FINISHED, Status
from genlock.core.results import TaskState


class Stuck(Struct, frozen=True, gc=False):
    """A task that somebody has to see to."""

    task_id: str
    state: Status
    why: str
    waited_for_by: int
    """How many tasks wait for it directly."""


class Progress(StrEnum):
    """Why there is nothing to claim; the first that is true."""

    EMPTY = "empty"
    FINISHED = "finished"
    RESERVED = "reserved"
    """Something is ready, for others."""
    AT_WORK = "at_work"
    WAITING = "waiting"
    """For tasks of other tracks, or for a certain time."""
    STUCK = "stuck"
    """Somebody has to see to it: nobody is at work, and nothing opens by itself."""


class ProjectProgress(Struct, frozen=True, gc=False):
    """What there is where nothing can be claimed: why, how many unfinished tasks are in which
    state, and which one to look at first."""

    standing: Progress
    states: dict[str, int]
    first: str | None = None
    at_work: int = 0


def count_states(tasks: Iterable[GraphTask]) -> dict[str, int]:
    """How many tasks are in each state that there are some in, in the order of the states."""
    counts = Counter(task.state for task in tasks)
    return {state.value: counts[state] for state in Status if counts[state]}


def find_outlook(graph: Graph, tracks: Collection[str] = ()) -> ProjectProgress:
    """Why a plan, or these tracks of it, had nothing to claim for whoever asked."""
    here = [task for task in graph.tasks if not tracks or task.track in tracks]
    left = [task for task in here if task.state not in FINISHED]
    states = count_states(left)
    if not left:
        return ProjectProgress(Progress.FINISHED if here else Progress.EMPTY, states)
    ready = [task for task in left if task.state is Status.PENDING]
    if ready:
        return ProjectProgress(Progress.RESERVED, states, ready[0].id)
    at_work = [task.id for task in left if task.agent is not None]
    if at_work:
        return ProjectProgress(Progress.AT_WORK, states, at_work[0], len(at_work))
    names = {task.id for task in left}
    stuck = [one.task_id for one in find_stuck(graph, {}) if one.task_id in names]
    first = stuck[0] if stuck else left[0].id
    return ProjectProgress(
        Progress.WAITING if _moves(graph, left) else Progress.STUCK, states, first
    )


def _moves(graph: Graph, left: Iterable[GraphTask]) -> bool:
    """Is somebody at work elsewhere, or could be, or does one of these tasks open at a certain time
    (which is no task's id)?"""
    others = any(task.agent is not None or task.state is Status.PENDING for task in graph.tasks)
    return others or any(" " in other for task in left for other in task.waits_for)


def find_stuck(
    graph: Graph, states: Mapping[str, TaskState], *, offer_backlog: bool = False
) -> tuple[Stuck, ...]:
    """What does not move by itself, whatever most others wait for first.

    `states` has those of tasks that are held or claimed: why the one is held, and whether the
    other's holder looks alive. `offer_backlog` is the project's policy.
    """
    waiting = Counter(
        other for task in graph.tasks for other in task.waits_for if task.state not in FINISHED
    )
    known = {task.id for task in graph.tasks}
    circles = {cycle[0]: cycle for cycle in graph.cycles}
    found = [
        Stuck(task.id, task.state, why, waiting[task.id])
        for task in graph.tasks
        for why in _reasons(
            task,
            states.get(task.id),
            known,
            circles,
            wanted=waiting[task.id] > 0 and not offer_backlog,
        )
    ]
    return tuple(sorted(found, key=lambda stuck: -stuck.waited_for_by))


def _reasons(
    task: GraphTask,
    state: TaskState | None,
    known: set[str],
    circles: Mapping[str, tuple[str, ...]],
    *,
    wanted: bool,
) -> Iterator[str]:
    match task.state:
        case Status.HELD:
            yield (
                f"held: {state.hold_reason}" if state is not None and state.hold_reason else "held"
            )
        case Status.IN_PROGRESS if (
            state is not None and state.holder is not None and not state.holder.looks_alive
        ):
            yield f"its holder, {state.holder.agent}, looks lost"
        case Status.IN_REVIEW:
            yield "its result waits for a review"
        case Status.BACKLOG if wanted:
            yield "in the backlog, and others wait for it"
        case Status.BLOCKED if task.id in circles:
            yield f"these wait for each other: {' → '.join(circles[task.id])}"
        case Status.BLOCKED:
            # What opens at a certain time is no task, and no reason to do anything.
            missing = [other for other in task.waits_for if other not in known and " " not in other]
            if missing:
                yield f"waits for {', '.join(missing)}, which does not exist"
        case _:
            pass
