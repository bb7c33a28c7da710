"""A view of a project: the data of lists and dashboards, kept up to date from the feed.

A list of ten thousand tasks must not read ten thousand records each time. So the tasks of a project
are read once, and afterwards only those that have changed according to the feed. A view is for
reads: no decision ever depends on it. Its `cursor` is the feed position it has reached; records may
be newer than that, never older.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from sys import intern
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct

from genlock.core import events as e
from genlock.core.codec import EventSummary, decode_event, decode_record, glance_at_event
from genlock.core.dashboard import MinuteCounts, RowReview
from genlock.core.keys import PROJECT, REFUSED, SESSION, TASK, Key, Scope
from genlock.core.model import Claim, RefusedRecord, SessionRecord, TaskRecord
from genlock.core.plan import find_cycles
from genlock.core.reasons import ClaimState, RefusedState, Status, Waiting
from genlock.core.routing import PRIORITIES, order_of
from genlock.core.task.view import waits_for
from genlock.engine.engine import Engine
from genlock.errors import CursorLost
from genlock.reads.reader import Reader
from genlock.store import EventPage, Query

_RECENT_EVENTS: Final = 5_000
"""The number of events read at first, to compute rates and the last activity of sessions."""
_LONG_PAGE: Final = 2_000
_MOST_PAGES: Final = 10
"""A view that is more pages behind than this is rebuilt."""
_MINUTES_KEPT: Final = 60
_SETTLED_KEPT: Final = 100
"""The most refused results kept after they were adopted or discarded."""
_LONGEST_SEARCHED: Final = 2_000
"""The number of characters of a description that a search covers."""
_FEW: Final = 5
"""The most dependencies that a row names."""
_TASKS_KEPT: Final = 200_000
"""The limit on all views of an engine together, apart from the requested one."""

_CLAIMED: Final = str(e.ClaimAcquired.__struct_config__.tag)
_ACCEPTED: Final = str(e.ResultAccepted.__struct_config__.tag)
_REFUSED: Final = str(e.ResultRejected.__struct_config__.tag)
_DENIED: Final = str(e.ClaimDenied.__struct_config__.tag)
_BY_SESSION: Final = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        e.ClaimAcquired,
        e.LeaseRenewed,
        e.ProgressReported,
        e.ClaimReleased,
        e.SubtasksSpawned,
        e.ResultAccepted,
        e.ResultRejected,
    )
)
"""Events of a session's own acts."""


class TaskEntry(Struct, gc=False, kw_only=True):
    """A task in a view: a small copy of its record, without the result."""

    id: str
    title: str
    searched: str
    """The text that a search covers."""
    state: Status
    priority: str
    rank: int
    order: str
    track: str | None
    sequence: int | None
    phase: str
    tags: tuple[str, ...]
    parent: str | None
    depends_on: tuple[str, ...]
    children: tuple[str, ...]
    generation: int
    claim: Claim | None
    """The active claim."""
    attempts: int
    failures: int
    reported: tuple[int, datetime, float | None, str] | None
    """Generation, time, fraction and note of the last report."""
    waits_for: tuple[str, ...]
    inputs_changed: tuple[str, ...]
    hold_reason: str | None
    held_since: datetime | None
    hold_until: datetime | None
    review: RowReview | None
    feedback: str | None
    assigned_to: str | None
    human_required: bool
    waits_for_text: bool
    done_by: str | None
    done_in: str | None
    """The session whose result was accepted."""
    created_at: datetime
    updated_at: datetime

    @property
    def awaited(self) -> tuple[str, ...]:
        """Returns the tasks that it waits for, or has waited for."""
        return (*self.depends_on, *self.children)


class RefusedEntry(Struct, gc=False):
    """A refused result in a view: everything but its data."""

    id: str
    task: str
    generation: int
    session: str
    agent: str
    reason: str
    current_generation: int
    size: int
    at: datetime
    state: RefusedState


class ProjectView:
    """One project, as far as its feed was read. `current` gives it, locked, to one reader at a
    time."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self.cursor: str | None = None
        self.position = 0
        self.changes = 0
        """Increases with every change of a record."""
        self._structure = 0
        """Increases when a task gets a new dependency."""
        self._cycles: tuple[int, tuple[tuple[str, ...], ...]] = (-1, ())
        self.tasks: dict[str, TaskEntry] = {}
        self.states: Counter[str] = Counter()
        self.tracks: dict[str, Counter[str]] = {}
        self.held_by: dict[str, dict[str, TaskEntry]] = {}
        """Tasks with an active claim, by session."""
        self.done_in: Counter[str] = Counter()
        """Accepted results by session."""
        self.sessions: dict[str, SessionRecord] = {}
        """Sessions that have not ended, and all holders of claims."""
        self.refused: dict[str, RefusedEntry] = {}
        self.refused_of: Counter[str] = Counter()
        """Kept refused results by task."""
        self.refused_in: Counter[str] = Counter()
        """Kept refused results by session."""
        self.heard: dict[str, datetime] = {}
        self.minutes: OrderedDict[datetime, Counter[str]] = OrderedDict()
        self.counted_since: datetime | None = None
        """Events before this time are not in `minutes`; None if there were none."""
        self._settled: deque[str] = deque()

    @contextmanager
    def current(self, reader: Reader) -> Iterator[ProjectView]:
        """Yields the current view, locked against other readers."""
        with self._lock:
            try:
                if self.cursor is None or not self._catch_up(reader):
                    self._read_all(reader)
            except CursorLost:
                self._read_all(reader)
            except BaseException:
                # The view may contain a part of a page without the rest.
                self._clear()
                raise
            yield self

    # Reading

    def _read_all(self, reader: Reader) -> None:
        self._clear()
        start = reader.feed_end(self.scope, back=_RECENT_EVENTS)
        cursor, position, more = start.cursor, start.position, True
        while more:
            page = reader.events(self.scope, cursor, _LONG_PAGE)
            if cursor == start.cursor and start.position and page.events:
                self.counted_since = glance_at_event(page.events[0].body).timestamp
            self._note_events(page)
            cursor, position, more = page.cursor, page.position, page.more
        for record in reader.find_tasks(Query(*self.scope)):
            self._set_task(record.task.id, record)
        for kind, state in ((SESSION, "ACTIVE"), (REFUSED, RefusedState.KEPT)):
            for stored in reader.find(Query(*self.scope, kind=kind, state=state)):
                self._set_other(stored.key, decode_record(kind, stored.body))
        self._find_holders(reader)
        self.cursor, self.position = cursor, position

    def _catch_up(self, reader: Reader) -> bool:
        """Reads the changes. False if there are too many."""
        cursor, position = self.cursor, self.position
        for _ in range(_MOST_PAGES):
            page = reader.events(self.scope, cursor, _LONG_PAGE)
            touched = self._note_events(page)
            for key, record in reader.records(touched).items():
                if key.kind == TASK and isinstance(record, TaskRecord):
                    self._set_task(key.id, record)
                else:
                    self._set_other(key, record)
            cursor, position = page.cursor, page.position
            if not page.more:
                if page.events:
                    self._find_holders(reader)
                self.cursor, self.position = cursor, position
                return True
        return False

    def _find_holders(self, reader: Reader) -> None:
        """Loads sessions that hold a task and are missing because they have ended."""
        missing = sorted(self.held_by.keys() - self.sessions.keys())
        if missing:
            self.sessions |= reader.sessions(self.scope, missing)

    def _note_events(self, page: EventPage) -> list[Key]:
        """Counts the events of a page. Returns the keys of changed records."""
        touched: dict[Key, None] = {}
        for recorded in page.events:
            kind = recorded.key.kind
            if kind in (TASK, SESSION, REFUSED):
                touched[recorded.key] = None
            elif kind == PROJECT:
                self.changes += 1
            self._note_event(glance_at_event(recorded.body), recorded.body)
        return list(touched)

    def _note_event(self, event: EventSummary, body: bytes) -> None:
        what, at = event.event_type, event.timestamp
        if what in _BY_SESSION and event.session_id:
            known = self.heard.get(event.session_id)
            self.heard[event.session_id] = at if known is None else max(known, at)
        if what in (_CLAIMED, _ACCEPTED, _REFUSED):
            self._count(at, what, 1)
        elif what == _DENIED:
            denied = decode_event(body).event
            self._count(at, what, denied.count if isinstance(denied, e.ClaimDenied) else 1)

    def _count(self, at: datetime, what: str, number: int) -> None:
        minute = at.replace(second=0, microsecond=0)
        self.minutes.setdefault(minute, Counter())[what] += number
        if len(self.minutes) > _MINUTES_KEPT:
            del self.minutes[min(self.minutes)]

    # Keeping

    def _set_task(self, name: str, record: TaskRecord) -> None:
        self.changes += 1
        before, entry = self.tasks.get(name), entry_of(record)
        if before is None or before.awaited != entry.awaited:
            self._structure += 1
        if before is not None:
            self._tally(before, -1)
            if before.claim is not None:
                self._let_go(before.claim.session, name)
        self.tasks[entry.id] = entry
        self._tally(entry, 1)
        if entry.claim is not None:
            self.held_by.setdefault(entry.claim.session, {})[entry.id] = entry

    def _tally(self, entry: TaskEntry, number: int) -> None:
        self.states[entry.state] += number
        track = self.tracks.setdefault(entry.track or "", Counter())
        track[entry.state] += number
        if entry.done_in is not None:
            self.done_in[entry.done_in] += number

    def _let_go(self, session: str, task: str) -> None:
        held = self.held_by[session]
        del held[task]
        if not held:
            del self.held_by[session]
            known = self.sessions.get(session)
            if known is not None and known.ended_at is not None:
                self._forget_session(session)

    def _forget_session(self, name: str) -> None:
        self.sessions.pop(name, None)
        self.heard.pop(name, None)

    def _set_other(self, key: Key, record: object) -> None:
        self.changes += 1
        if isinstance(record, SessionRecord):
            if record.ended_at is None or key.id in self.held_by:
                self.sessions[key.id] = record
            else:
                self._forget_session(key.id)
        elif isinstance(record, RefusedRecord):
            self._set_refused(key.id, record)

    def _set_refused(self, name: str, record: RefusedRecord) -> None:
        before = self.refused.get(name)
        kept = record.state is RefusedState.KEPT
        change = int(kept) - int(before is not None and before.state is RefusedState.KEPT)
        self.refused_of[record.task] += change
        self.refused_in[record.session] += change
        self.refused[name] = RefusedEntry(
            name,
            record.task,
            record.generation,
            record.session,
            record.agent,
            record.reason,
            record.current_generation,
            record.size,
            record.submitted_at,
            record.state,
        )
        if not kept:
            self._settled.append(name)
            if len(self._settled) > _SETTLED_KEPT:
                old = self.refused.get(self._settled.popleft())
                if old is not None and old.state is not RefusedState.KEPT:
                    del self.refused[old.id]

    # Queries

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Returns the cycles of tasks that wait for themselves. The search is repeated only after
        dependencies have changed."""
        if self._cycles[0] != self._structure:
            awaited = {entry.id: entry.awaited for entry in self.tasks.values() if entry.awaited}
            self._cycles = self._structure, tuple(find_cycles(awaited))
        return self._cycles[1]

    def minutes_until(self, now: datetime, number: int) -> list[MinuteCounts]:
        """Returns the counts of each of the last minutes, the current one included."""
        last = now.replace(second=0, microsecond=0)
        found = []
        for back in range(number - 1, -1, -1):
            at = last - timedelta(minutes=back)
            counts = self.minutes.get(at, Counter())
            found.append(
                MinuteCounts(
                    at, counts[_CLAIMED], counts[_ACCEPTED], counts[_REFUSED], counts[_DENIED]
                )
            )
        return found


def entry_of(record: TaskRecord) -> TaskEntry:
    """Makes a view's entry of a task's record."""
    task, claim, log, hold = record.task, record.claim, record.progress, record.hold
    held = record.state is Status.HELD
    return TaskEntry(
        id=intern(task.id),
        title=task.title or task.description.partition("\n")[0],
        searched="\n".join(
            (task.id, task.title, *task.tags, task.description[:_LONGEST_SEARCHED])
        ).casefold(),
        state=record.state,
        priority=intern(task.priority),
        rank=PRIORITIES.index(task.priority) if task.priority in PRIORITIES else len(PRIORITIES),
        order=order_of(record),
        track=intern(task.track) if task.track else None,
        sequence=task.sequence,
        phase=task.phase,
        tags=task.tags,
        parent=task.parent,
        depends_on=tuple(map(intern, task.depends_on)),
        children=tuple(map(intern, record.children)),
        generation=record.generation,
        claim=claim if claim is not None and claim.state is ClaimState.ACTIVE else None,
        attempts=record.grants,
        failures=record.failures,
        reported=(
            log.generation,
            log.updated_at,
            log.fraction,
            log.notes[-1].text if log.notes else "",
        )
        if log is not None
        else None,
        waits_for=waits_for(record) if record.state is Status.BLOCKED else (),
        inputs_changed=record.inputs_changed,
        hold_reason=hold.reason if held and hold is not None else None,
        held_since=hold.since if held and hold is not None else None,
        hold_until=hold.until if held and hold is not None else None,
        review=_review(record),
        feedback=record.feedback.text if record.feedback is not None else None,
        assigned_to=task.assigned_to,
        human_required=task.human_required,
        waits_for_text=record.waiting is Waiting.TEXT,
        done_by=record.result.agent if record.result is not None else None,
        done_in=record.result.session if record.result is not None else None,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def _review(record: TaskRecord) -> RowReview | None:
    review = record.review
    if review is None:
        return None
    return RowReview(
        agent_id=review.result.agent,
        session_id=review.result.session,
        generation=review.result.generation,
        submitted_at=review.result.submitted_at,
        digest=review.result.digest,
        size=review.result.size,
        causes=review.causes,
        missing_evaluators=review.missing,
    )


def few(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the first few names of what a task waits for."""
    return tuple(names)[:_FEW]


# The views of an engine


class ProjectViews:
    """The views of the most recently requested projects."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._views: OrderedDict[Scope, ProjectView] = OrderedDict()

    def of(self, scope: Scope) -> ProjectView:
        """Returns the view of a project; an empty one at first."""
        with self._lock:
            view = self._views.setdefault(scope, ProjectView(scope))
            self._views.move_to_end(scope)
            kept = sum(len(other.tasks) for other in self._views.values())
            while kept > _TASKS_KEPT and len(self._views) > 1:
                kept -= len(self._views.popitem(last=False)[1].tasks)
            return view


_VIEWS: WeakKeyDictionary[Engine, ProjectViews] = WeakKeyDictionary()
_VIEWS_LOCK: Final = Lock()


def views_of(engine: Engine) -> ProjectViews:
    """The views of this engine's projects."""
    with _VIEWS_LOCK:
        return _VIEWS.setdefault(engine, ProjectViews())
