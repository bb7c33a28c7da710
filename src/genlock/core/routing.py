"""Pools and order: the sets of tasks that the same workers may take, and the order within each.

A pool is `track/edge/roles/assignee/offer`; none of its parts can contain a slash. The order within
a pool is a text that sorts as bytes, so that every store can seek its head. Anything that depends
on other records (tracks without an agent come first) orders the pools at query time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from genlock.core import model
from genlock.core.agent_roles import NO_ROLES, AgentRoles
from genlock.core.ids import parse_task_id, sort_path, sort_text
from genlock.core.policy import Order
from genlock.core.reasons import Status

PRIORITIES = ("critical", "high", "medium", "low")
_RANK = {name: str(rank) for rank, name in enumerate(PRIORITIES)}
_NO_SEQUENCE = 1000
_MOST = 10**15 - 1

BACKLOG_OFFER = "backlog"


class Pool(NamedTuple):
    """The parts of a pool; "" for a part that it does not have."""

    track: str
    edge: str
    roles: str
    assignee: str
    offer: str

    def suits(
        self,
        *,
        agent: str | None,
        tracks: Collection[str] | None,
        backlog: bool,
        role: str | None = None,
        table: AgentRoles = NO_ROLES,
    ) -> bool:
        """May this agent, in this role, take tasks of this pool? None means any agent, or any
        role."""
        return (
            (not self.assignee or self.assignee == agent)
            and (tracks is None or self.track in tracks)
            and (not self.offer or backlog)
            and (not self.roles or role is None or table.may_take(role, self.roles.split(",")))
        )


def pool_of(record: model.TaskRecord) -> str:
    """Returns the pool in which a task is offered."""
    task = record.task
    offer = BACKLOG_OFFER if record.state is Status.BACKLOG else ""
    roles = ",".join(task.roles)
    return f"{task.track or ''}/{task.edge or ''}/{roles}/{task.assigned_to or ''}/{offer}"


def parse_pool(pool: str) -> Pool:
    """Returns the parts of a pool."""
    return Pool(*pool.split("/"))


def order_of(record: model.TaskRecord) -> str:
    """Returns the task's position in its pool."""
    if record.order is Order.LEAF_FIRST:
        return _leaf_first(record)
    if record.order is Order.TRACK:
        return _by_track(record)
    # The order of features depends on their remaining work: the features' records are ordered,
    # never the tasks.
    return f"{int(record.task.feature is None)}{_by_track(record)}"


def _by_track(record: model.TaskRecord) -> str:
    task = record.task
    rank = _RANK.get(task.priority, "2")
    if task.sequence is not None:
        return f"{rank}{task.sequence:04d}{sort_text(task.id)}"
    # Tasks without a number come in the order in which they were added. Tasks added together are
    # sorted by the numbers of their ids.
    return f"{rank}{_NO_SEQUENCE}{record.created_at:%Y%m%d%H%M%S%f}{sort_text(task.id)}"


def _leaf_first(record: model.TaskRecord) -> str:
    """ID's sort key: has_children ascending, depth descending, sequence descending."""
    task = record.task
    path = sort_path(parse_task_id(task.id, hierarchical=True))
    sequence = path[-1] if path else 0
    return f"{int(bool(record.children))}{999 - task.depth:03d}{_MOST - sequence:015d}{task.id}"
