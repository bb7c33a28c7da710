"""Tracks: the agents on each, and the unfinished task that comes first in each.

Only projects whose policy has `tracks: strict` or `track_order: enforce` need this. The view is
read once in a round of a lane and updated with the grants of the round. Like every rule over
several records it is exact within one lane; two lanes or coordinators that decide at the same
instant may each let one agent onto a track.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.keys import Scope
from genlock.core.model import Record, Task, TaskRecord
from genlock.core.policy import Policy, TrackOrder, Tracks
from genlock.core.reasons import Status
from genlock.core.task.view import is_claimed
from genlock.store import Query, Store, Stored

_PAGE = 1000
_CLAIMED = (Status.IN_PROGRESS, Status.HELD)
_UNFINISHED = (
    Status.PENDING,
    Status.BLOCKED,
    Status.IN_PROGRESS,
    Status.HELD,
    Status.IN_REVIEW,
)
"""A task in the backlog is not part of the present work: tasks behind it do not wait for it."""


class TrackView:
    """The tracks of one project, as seen by one round of a lane."""

    def __init__(self, store: Store, scope: Scope, policy: Policy) -> None:
        self._agents: dict[str, dict[str, int]] = {}
        """By track, the agents with a live claim on it and how many claims each has."""
        self.first: dict[str, list[Stored]] = {}
        """By track, the unfinished tasks with the lowest number."""
        self._lowest: dict[str, int] = {}
        self.policy = policy
        if policy.tracks is Tracks.STRICT:
            for _, record in _tasks(store, scope, _CLAIMED):
                self.count(None, record)
        if policy.track_order is TrackOrder.ENFORCE:
            for stored, record in _tasks(store, scope, _UNFINISHED):
                self._order(stored, record.task)

    def count(self, before: Record | None, after: Record | None) -> None:
        """Counts a claim that began or ended."""
        for record, number in ((before, -1), (after, 1)):
            if isinstance(record, TaskRecord) and is_claimed(record) and record.task.track:
                assert record.claim is not None
                agents = self._agents.setdefault(record.task.track, {})
                agents[record.claim.agent] = agents.get(record.claim.agent, 0) + number

    def others(self, track: str | None, agent: str) -> tuple[str, ...]:
        """Returns the other agents that work on this track."""
        agents = self._agents.get(track or "", {})
        if agents.get(agent):
            return ()  # it is on the track already, and may claim more there
        return tuple(sorted(name for name, claims in agents.items() if claims > 0))

    def is_full(self, track: str, agent: str) -> bool:
        """Is there no room for this agent on the track?"""
        return len(self.others(track, agent)) >= self.policy.most_agents_on(track)

    def before(self, task: Task) -> tuple[str, ...]:
        """Returns the unfinished tasks with the lowest number of the task's track, if its own is
        higher."""
        lowest = self._lowest.get(task.track or "")
        if lowest is None or task.sequence is None or task.sequence <= lowest:
            return ()
        return tuple(stored.key.id for stored in self.first[task.track or ""])

    def _order(self, stored: Stored, task: Task) -> None:
        if not task.track or task.sequence is None:
            return
        lowest = self._lowest.get(task.track)
        if lowest is None or task.sequence < lowest:
            self._lowest[task.track] = task.sequence
            self.first[task.track] = [stored]
        elif task.sequence == lowest:
            self.first[task.track].append(stored)


def needs_view(policy: Policy) -> bool:
    """Does anything in this policy depend on the agents on tracks?"""
    return policy.tracks is Tracks.STRICT or policy.track_order is TrackOrder.ENFORCE


def _tasks(
    store: Store, scope: Scope, states: Sequence[Status]
) -> Iterator[tuple[Stored, TaskRecord]]:
    for state in states:
        query = Query(*scope, state=state, limit=_PAGE)
        while True:
            page = store.find(query)
            for stored in page.records:
                record = decode_record(stored.key.kind, stored.body)
                if isinstance(record, TaskRecord):
                    yield stored, record
            if page.next is None:
                break
            query = replace(query, after=page.next)
