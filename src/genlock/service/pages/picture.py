"""What the status page shows, read at one go: at most so many projects and rows, however much there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from genlock.core.codec import decode_event, decode_record
from genlock.core.keys import NOWHERE, PROJECT, REFUSED, TASK, TENANT
from genlock.core.model import ProjectRecord, TaskRecord
from genlock.core.policy import STANDARD_TRACKS
from genlock.core.reasons import RefusedState, Status
from genlock.engine.engine import Engine
from genlock.engine.walk import records_of
from genlock.errors import CursorLost
from genlock.service.access.grant import Grant
from genlock.service.compat.records import read_flight
from genlock.service.pages.telling import SIGNS_OF_LIFE, told
from genlock.store import MAX_DUE, EventQuery, Query, Store, Stored

MOST_PROJECTS: Final = 20
MOST_ROWS: Final = 50
MOST_EVENTS: Final = 20
MOST_HELD: Final = 10
_MOST_TASKS_BY_TRACK: Final = 2000
"""A larger plan is shown as one bar: to part it by tracks, all of it would have to be read."""
_LONGEST_FEED: Final = 2000
"""A longer one is not read from its beginning; what happens from now on is shown."""
_PAGE: Final = 500
_FOLLOWERS_KEPT: Final = 1000


class Holding(NamedTuple):
    """Who has what."""

    place: tuple[str, str]
    agent: str
    session: str
    task: str
    title: str
    generation: int
    left_seconds: float
    alive: bool


class HeldBack(NamedTuple):
    """What nobody is granted until somebody reopens it."""

    place: tuple[str, str]
    task: str
    reason: str


class Bar(NamedTuple):
    """Some tasks by state."""

    name: str
    purpose: str
    counts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class ProjectPicture(NamedTuple):
    """One project."""

    place: tuple[str, str]
    whole: Bar
    tracks: list[Bar]
    refused: int


class Line(NamedTuple):
    """One event."""

    at: datetime
    place: tuple[str, str]
    words: str


class Picture(NamedTuple):
    """All of it."""

    now: datetime
    projects: list[ProjectPicture]
    more_projects: bool
    held: list[HeldBack]
    """The first few."""
    holdings: list[Holding]
    more_holdings: bool
    events: list[Line]

    def count(self, state: str) -> int:
        """Of all projects."""
        return sum(project.whole.counts.get(state, 0) for project in self.projects)


class Follower:
    """The last events of one project, as far as they were seen."""

    def __init__(self, place: tuple[str, str]) -> None:
        self._place = place
        self._cursor: str | None = None
        self.lines: deque[Line] = deque(maxlen=MOST_EVENTS)

    def look(self, store: Store) -> None:
        """Reads what has come; of very much only the end."""
        tail = store.read_events(EventQuery(*self._place, tail=True))
        if self._cursor is None and tail.position > _LONGEST_FEED:
            self._cursor = tail.cursor
        try:
            self._read(store)
        except CursorLost:
            self._cursor = tail.cursor

    def _read(self, store: Store) -> None:
        for _ in range(_LONGEST_FEED // _PAGE + 1):
            page = store.read_events(EventQuery(*self._place, after=self._cursor, limit=_PAGE))
            self._cursor = page.cursor
            for recorded in page.events:
                event = decode_event(recorded.body).event
                if not isinstance(event, SIGNS_OF_LIFE):
                    self.lines.append(Line(event.timestamp, self._place, told(event)))
            if not page.more:
                return
        self._cursor = store.read_events(EventQuery(*self._place, tail=True)).cursor


class Painter:
    """Looks at the store; keeps only where it is in each feed."""

    def __init__(self) -> None:
        self._followers: dict[tuple[str, str], Follower] = {}

    def paint(self, engine: Engine, grant: Grant) -> Picture:
        """What this caller may see now."""
        store = engine.store
        seen = list(islice(_projects(store, grant), MOST_PROJECTS + 1))
        shown = seen[:MOST_PROJECTS]
        holdings = list(islice((one for stored in shown for one in _holdings(engine, stored.key.place)), MOST_ROWS + 1))
        projects = [_project(store, stored) for stored in shown]
        return Picture(
            now=store.load([]).now,
            projects=projects,
            more_projects=len(seen) > MOST_PROJECTS,
            held=list(islice((one for project in projects for one in _held(store, project)), MOST_HELD)),
            holdings=holdings[:MOST_ROWS],
            more_holdings=len(holdings) > MOST_ROWS,
            events=self._events(store, [stored.key.place for stored in shown]),
        )

    def _events(self, store: Store, places: list[tuple[str, str]]) -> list[Line]:
        lines: list[Line] = []
        for place in places:
            if len(self._followers) >= _FOLLOWERS_KEPT and place not in self._followers:
                self._followers.clear()
            follower = self._followers.setdefault(place, Follower(place))
            follower.look(store)
            lines += reversed(follower.lines)
        # Sorting keeps what is equal in its order: within a project the feed's, the newest first.
        lines.sort(key=lambda line: line.at, reverse=True)
        return lines[:MOST_EVENTS]


def _projects(store: Store, grant: Grant) -> Iterator[Stored]:
    tenants = [grant.tenant] if grant.tenant != "*" else (stored.key.id for stored in records_of(store, NOWHERE, None, TENANT))
    for tenant in tenants:
        for stored in records_of(store, tenant, None, PROJECT):
            if grant.sees(*stored.key.place):
                yield stored


def _project(store: Store, stored: Stored) -> ProjectPicture:
    place = stored.key.place
    counts = dict(store.find(Query(*place), count_by="state").counts)
    refused = store.find(Query(*place, kind=REFUSED, state=RefusedState.KEPT), count_by="state").counts
    whole = Bar("", "", counts)
    record = decode_record(PROJECT, stored.body)
    purposes = record.tracks if isinstance(record, ProjectRecord) and record.tracks is not None else STANDARD_TRACKS
    tracks = _tracks(store, place, purposes) if whole.total <= _MOST_TASKS_BY_TRACK else []
    return ProjectPicture(place, whole, tracks, sum(refused.values()))


def _tracks(store: Store, place: tuple[str, str], purposes: dict[str, str]) -> list[Bar]:
    found: dict[str, dict[str, int]] = {}
    for stored in records_of(store, *place, TASK):
        record = decode_record(TASK, stored.body)
        if isinstance(record, TaskRecord):
            counts = found.setdefault(record.task.track or "", {})
            counts[record.state] = counts.get(record.state, 0) + 1
    return [Bar(name, purposes.get(name, ""), found[name]) for name in sorted(found)][:MOST_ROWS]


def _held(store: Store, project: ProjectPicture) -> Iterator[HeldBack]:
    if project.whole.counts.get(Status.HELD):
        for stored in store.find(Query(*project.place, state=Status.HELD, limit=MOST_HELD)).records:
            record = decode_record(TASK, stored.body)
            if isinstance(record, TaskRecord):
                yield HeldBack(project.place, record.task.id, record.hold.reason if record.hold else "")


def _holdings(engine: Engine, place: tuple[str, str]) -> Iterator[Holding]:
    flight = read_flight(engine, place, Query(*place, due_before=MAX_DUE), MOST_ROWS + 1)
    for held in flight.held:
        yield Holding(
            place,
            held.claim.agent,
            held.claim.session,
            held.record.task.id,
            held.record.task.title,
            held.claim.generation,
            (held.claim.expires_at - flight.now).total_seconds(),
            held.cause is None,
        )
