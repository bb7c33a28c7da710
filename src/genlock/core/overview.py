"""The status of a project at a glance: the number of tasks in each state, and the tasks that make
no progress without a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from genlock.core.graph import Graph, GraphTask
from genlock.core.reasons import FINISHED, Status
from genlock.core.results import TaskState


class Stuck(Struct, frozen=True, gc=False):
    """A task that needs a person."""

    task_id: str
    state: Status
    why: str
    waited_for_by: int
    """The number of tasks that wait for it directly."""


class Progress(StrEnum):
    """The reason why there is nothing to claim; the first that applies."""

    EMPTY = "empty"
    FINISHED = "finished"
    RESERVED = "reserved"
    """Tasks are ready, but for other agents."""
    AT_WORK = "at_work"
    WAITING = "waiting"
    """The tasks wait for tasks of other tracks, or for a certain time."""
    STUCK = "stuck"
    """A person is needed: no agent is at work, and no task opens by itself."""


class ProjectProgress(Struct, frozen=True, gc=False):
    """The progress of a project in which nothing can be claimed: the reason, the number of
    unfinished tasks in each state, and the task to look at first."""

    standing: Progress
    states: dict[str, int]
    first: str | None = None
    at_work: int = 0


def count_states(tasks: Iterable[GraphTask]) -> dict[str, int]:
    """Counts the tasks in each state, in the order of the states. States without tasks are left
    out."""
    counts = Counter(task.state for task in tasks)
    return {state.value: counts[state] for state in Status if counts[state]}


def find_outlook(graph: Graph, tracks: Collection[str] = ()) -> ProjectProgress:
    """Finds out why a plan, or these tracks of it, had nothing to claim for the caller."""
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
    """Is an agent at work elsewhere, or could one be, or does one of these tasks open at a certain
    time? A time is recognised because it is not a task's id."""
    others = any(task.agent is not None or task.state is Status.PENDING for task in graph.tasks)
    return others or any(" " in other for task in left for other in task.waits_for)


def find_stuck(
    graph: Graph, states: Mapping[str, TaskState], *, offer_backlog: bool = False
) -> tuple[Stuck, ...]:
    """Returns the tasks that make no progress by themselves, the ones with the most waiting tasks
    first.

    `states` has the states of held and claimed tasks: the reason of a hold, and whether a holder
    looks alive. `offer_backlog` is the project's policy.
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
            # A time is not a task, and needs no action.
            missing = [other for other in task.waits_for if other not in known and " " not in other]
            if missing:
                yield f"waits for {', '.join(missing)}, which does not exist"
        case _:
            pass
