"""How a project stands, at a glance: how many tasks are in which state, and what does not move by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

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


def count_states(graph: Graph) -> dict[str, int]:
    """How many tasks are in each state that there are some in, in the order of the states."""
    counts = Counter(task.state for task in graph.tasks)
    return {state.value: counts[state] for state in Status if counts[state]}


def find_stuck(graph: Graph, states: Mapping[str, TaskState], *, offer_backlog: bool = False) -> tuple[Stuck, ...]:
    """What does not move by itself, whatever most others wait for first.

    `states` has those of tasks that are held or claimed: why the one is held, and whether the other's holder looks alive.
    `offer_backlog` is the project's policy.
    """
    waiting = Counter(other for task in graph.tasks for other in task.waits_for if task.state not in FINISHED)
    known = {task.id for task in graph.tasks}
    circles = {cycle[0]: cycle for cycle in graph.cycles}
    found = [
        Stuck(task.id, task.state, why, waiting[task.id])
        for task in graph.tasks
        for why in _reasons(task, states.get(task.id), known, circles, wanted=waiting[task.id] > 0 and not offer_backlog)
    ]
    return tuple(sorted(found, key=lambda stuck: -stuck.waited_for_by))


def _reasons(
    task: GraphTask, state: TaskState | None, known: set[str], circles: Mapping[str, tuple[str, ...]], *, wanted: bool
) -> Iterator[str]:
    match task.state:
        case Status.HELD:
            yield f"held: {state.hold_reason}" if state is not None and state.hold_reason else "held"
        case Status.IN_PROGRESS if state is not None and state.holder is not None and not state.holder.looks_alive:
            yield f"its holder, {state.holder.agent}, looks lost"
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
