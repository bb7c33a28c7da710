"""Plans as they travel: what is a tuple in the core is an object here."""

from __future__ import annotations

from msgspec import Struct

from genlock.core.definition import Definition
from genlock.core.faults import Fault
from genlock.core.model import Task
from genlock.core.plan import Plan


class WireDefinition(Struct, omit_defaults=True):
    """A task to be added, and whether it starts in the backlog."""

    task: Task
    backlog: bool = False


class WirePlan(Struct, omit_defaults=True):
    """A plan that has been read."""

    project: str | None
    tracks: dict[str, str] | None
    tasks: tuple[WireDefinition, ...]
    notes: tuple[Fault, ...] = ()


def to_wire(plan: Plan) -> WirePlan:
    """The plan as it is sent."""
    return WirePlan(plan.project, plan.tracks, tuple(WireDefinition(task, backlog) for task, backlog in plan.tasks), plan.notes)


def from_wire(plan: WirePlan) -> Plan:
    """The plan as it was."""
    return Plan(plan.project, plan.tracks, tuple(Definition(each.task, each.backlog) for each in plan.tasks), plan.notes)
