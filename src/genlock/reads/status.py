"""The status of several projects at a glance, with bounded numbers of projects and rows, however
large the store is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from genlock.core import events as e
from genlock.core.codec import decode_event
from genlock.core.keys import Scope
from genlock.core.model import ProjectRecord
from genlock.core.reasons import Status
from genlock.errors import CursorLost
from genlock.reads.claims import active_claims
from genlock.reads.progress import kept_refused_results, state_counts, states_by_track
from genlock.reads.reader import Reader, StoreReader
from genlock.store import Query

MOST_PROJECTS: Final = 20
MOST_ROWS: Final = 50
MOST_EVENTS: Final = 20
MOST_HELD: Final = 10
_MOST_TASKS_BY_TRACK: Final = 2000
"""The limit for counts by track, which read every task. A larger plan is counted as a whole."""
_LONGEST_FEED: Final = 2000
"""A longer feed is not read from its beginning: only new events are shown."""
_PAGE: Final = 500
_FOLLOWERS_KEPT: Final = 1000
_ROUTINE: Final = (e.LeaseRenewed, e.SessionHeartbeat, e.Settled)
"""Events that are left out because their number would hide all others."""


class TaskBar(NamedTuple):
    """Numbers of tasks by state."""

    name: str
    purpose: str
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """The number of tasks."""
        return sum(self.counts.values())


class ProjectSummary(NamedTuple):
    """One project."""

    scope: Scope
    whole: TaskBar
    tracks: list[TaskBar]
    refused: int
    """Refused results that are kept."""


class ClaimRow(NamedTuple):
    """A task and its holder."""

    scope: Scope
    agent: str
    session: str
    task: str
    title: str
    generation: int
    left_seconds: float | None
    """The rest of the lease; None if the claim has no lease."""
    alive: bool


class HeldRow(NamedTuple):
    """A held task: no claim is granted until an operator reopens it."""

    scope: Scope
    task: str
    reason: str


class EventRow(NamedTuple):
    """An event of a project."""

    scope: Scope
    event: e.Event


class FleetStatus(NamedTuple):
    """The status of the projects that a caller may see."""

    now: datetime
    projects: list[ProjectSummary]
    more_projects: bool
    held: list[HeldRow]
    """The first few."""
    claims: list[ClaimRow]
    more_claims: bool
    events: list[EventRow]

    def count(self, state: str) -> int:
        """Tasks in this state, in all projects."""
        return sum(project.whole.counts.get(state, 0) for project in self.projects)


class StatusReader:
    """Reads the status; keeps only its position in each feed. Only one thread at a time may use
    it."""

    def __init__(self) -> None:
        self._feeds: dict[Scope, _RecentEvents] = {}

    def read(
        self, reader: Reader, tenant: str | None, sees: Callable[[str, str], bool]
    ) -> FleetStatus:
        """Returns the current status of the projects visible to the caller: of one tenant, or of
        all."""
        found = list(islice(projects_seen(reader, tenant, sees), MOST_PROJECTS + 1))
        shown = found[:MOST_PROJECTS]
        claims = list(
            islice((row for scope, _ in shown for row in _claims(reader, scope)), MOST_ROWS + 1)
        )
        projects = [_project(reader, *each) for each in shown]
        held = (row for project in projects for row in _held(reader, project))
        return FleetStatus(
            now=reader.now(),
            projects=projects,
            more_projects=len(found) > MOST_PROJECTS,
            held=list(islice(held, MOST_HELD)),
            claims=claims[:MOST_ROWS],
            more_claims=len(claims) > MOST_ROWS,
            events=self._events(reader, [scope for scope, _ in shown]),
        )

    def _events(self, reader: StoreReader, scopes: list[Scope]) -> list[EventRow]:
        rows: list[EventRow] = []
        for scope in scopes:
            if len(self._feeds) >= _FOLLOWERS_KEPT and scope not in self._feeds:
                self._feeds.clear()
            feed = self._feeds.setdefault(scope, _RecentEvents(scope))
            feed.catch_up(reader)
            rows += reversed(feed.rows)
        # The sort is stable: events of one project stay in the order of its feed, newest first.
        rows.sort(key=lambda row: row.event.timestamp, reverse=True)
        return rows[:MOST_EVENTS]


class _RecentEvents:
    """The last events of one project."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._cursor: str | None = None
        self.rows: deque[EventRow] = deque(maxlen=MOST_EVENTS)

    def catch_up(self, reader: StoreReader) -> None:
        """Reads the new events; if there are very many, only the last ones."""
        end = reader.feed_end(self._scope)
        if self._cursor is None and end.position > _LONGEST_FEED:
            self._cursor = end.cursor
        try:
            self._read(reader)
        except CursorLost:
            self._cursor = end.cursor

    def _read(self, reader: StoreReader) -> None:
        for _ in range(_LONGEST_FEED // _PAGE + 1):
            page = reader.events(self._scope, self._cursor, _PAGE)
            self._cursor = page.cursor
            events = (decode_event(recorded.body).event for recorded in page.events)
            self.rows.extend(
                EventRow(self._scope, event) for event in events if not isinstance(event, _ROUTINE)
            )
            if not page.more:
                return
        self._cursor = reader.feed_end(self._scope).cursor


def projects_seen(
    reader: StoreReader, tenant: str | None, sees: Callable[[str, str], bool]
) -> Iterator[tuple[Scope, ProjectRecord]]:
    """Yields the projects of one tenant, or of all, that are visible to the caller."""
    for each in [tenant] if tenant is not None else reader.tenants():
        yield from ((scope, record) for scope, record in reader.projects(each) if sees(*scope))


def _project(reader: StoreReader, scope: Scope, record: ProjectRecord) -> ProjectSummary:
    whole = TaskBar("", "", state_counts(reader, scope))
    purposes = record.tracks or {}
    tracks = _tracks(reader, scope, purposes) if whole.total <= _MOST_TASKS_BY_TRACK else []
    return ProjectSummary(scope, whole, tracks, kept_refused_results(reader, scope))


def _tracks(reader: StoreReader, scope: Scope, purposes: dict[str, str]) -> list[TaskBar]:
    found = states_by_track(reader, scope)
    bars = [TaskBar(name, purposes.get(name, ""), found[name]) for name in sorted(found)]
    return bars[:MOST_ROWS]


def _held(reader: StoreReader, project: ProjectSummary) -> Iterator[HeldRow]:
    if project.whole.counts.get(Status.HELD):
        query = Query(*project.scope, state=Status.HELD)
        for record in islice(reader.find_tasks(query, page=MOST_HELD), MOST_HELD):
            yield HeldRow(project.scope, record.task.id, record.hold.reason if record.hold else "")


def _claims(reader: Reader, scope: Scope) -> Iterator[ClaimRow]:
    found = active_claims(reader, scope, most=MOST_ROWS + 1)
    for each in found.held:
        yield ClaimRow(
            scope,
            each.claim.agent,
            each.claim.session,
            each.record.task.id,
            each.record.task.title,
            each.claim.generation,
            None
            if each.claim.expires_at is None
            else (each.claim.expires_at - found.now).total_seconds(),
            each.cause is None,
        )
