"""Claim spans: who held which task in which period, read from the feed.

The end of the feed is read first, and older events only on request. Spans are cached, so a repeated
timeline costs only the events that have happened since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from heapq import nlargest
from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.codec import decode_event, event_type_of, glance_at_event
from genlock.core.dashboard import Activity, ClaimSpan
from genlock.core.keys import TASK, Scope
from genlock.core.reasons import ReleaseReason
from genlock.engine.engine import Engine
from genlock.errors import CursorLost
from genlock.reads.project_view import ProjectView
from genlock.reads.reader import Reader
from genlock.reads.task_rows import holdings
from genlock.store import EventPage, RecordedEvent

_PAGE: Final = 2_000
_AT_FIRST: Final = 5_000
_STEP: Final = 10_000
"""Feed positions in one step backwards."""
_MOST_READ: Final = 100_000
"""The most positions that one request reads backwards."""
_SPANS_KEPT: Final = 50_000
_PROJECTS_KEPT: Final = 16
_ENDS: Final = {
    e.ClaimReleased: None,
    e.ClaimExpired: ReleaseReason.EXPIRED,
    e.ClaimOrphaned: ReleaseReason.ORPHANED,
    e.ClaimSuperseded: ReleaseReason.SUPERSEDED,
    e.TaskReset: ReleaseReason.SUPERSEDED,
    e.TaskCancelled: ReleaseReason.SUPERSEDED,
    e.ResultAccepted: ReleaseReason.COMPLETED,
    e.ConvergenceEscalated: ReleaseReason.COMPLETED,
    e.SubtasksSpawned: ReleaseReason.SPAWNED,
}
_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in (e.ClaimAcquired, *_ENDS))


class Span(Struct, frozen=True, gc=False):
    """A claim, as far as it is known from events."""

    agent: str
    session: str
    start: datetime | None = None
    end: datetime | None = None
    how: ReleaseReason | None = None


Spans = dict[tuple[str, int], Span]
"""By task and generation."""


def spans_in(events: Iterable[RecordedEvent]) -> Spans:
    """Returns the claims in these events, which must be in order."""
    spans: Spans = {}
    granted: dict[str, int | None] = {}
    """The generation of the last grant of each task; None if that grant began no work."""
    for recorded in events:
        if recorded.key.kind == TASK and event_type_of(recorded.body) in _TAGS:
            _apply(spans, granted, recorded.key.id, decode_event(recorded.body).event)
    return spans


def _apply(spans: Spans, granted: dict[str, int | None], task: str, event: e.Event) -> None:
    if isinstance(event, e.ClaimAcquired):
        # An adoption by an operator and a fan-in have no lease.
        granted[task] = event.generation if event.lease_duration_seconds else None
        if event.lease_duration_seconds:
            spans[task, event.generation] = Span(event.agent_id, event.session_id, event.timestamp)
        return
    ended = _end(event)
    if ended is None or granted.get(task, event.generation) is None:
        return
    generation, end = ended
    name = task, granted.get(task) or generation
    known = spans.get(name)
    if known is None:
        spans[name] = end
    else:
        spans[name] = _ended(known, end)


def _ended(known: Span, end: Span) -> Span:
    """Returns the claim with this end. A result may count although its lease is over. If a result
    waited for a review, its submission ended the claim."""
    over = known.end is not None and end.how is not ReleaseReason.COMPLETED
    if over or known.how is ReleaseReason.COMPLETED:
        return known
    return replace(known, end=end.end, how=end.how)


def _end(event: e.Event) -> tuple[int, Span] | None:
    """Returns the generation whose claim an event ended, and how; None if it ended no claim."""
    if type(event) not in _ENDS or (isinstance(event, e.SubtasksSpawned) and event.keep):
        return None
    how = event.release_reason if isinstance(event, e.ClaimReleased) else _ENDS[type(event)]
    agent, session, generation, at = (
        event.agent_id,
        event.session_id,
        event.generation,
        event.timestamp,
    )
    if isinstance(event, e.ClaimExpired):
        at = min(event.expires_at or at, at)  # the end is usually noticed later
    if isinstance(
        event,
        e.ClaimExpired | e.ClaimOrphaned | e.ClaimSuperseded | e.TaskReset | e.TaskCancelled,
    ):
        agent, session = event.holder_agent_id, event.holder_session_id
    if isinstance(event, e.ClaimSuperseded):
        generation = event.previous_generation
    elif isinstance(event, e.TaskReset | e.TaskCancelled):
        generation -= 1
    return (generation, Span(agent, session, None, at, how)) if session else None


def joined(older: Spans, newer: Spans) -> Spans:
    """Merges the spans of older and newer events."""
    spans = dict(older)
    for name, span in newer.items():
        known = older.get(name)
        # A grant names its agent; not every ending event does.
        spans[name] = span if known is None or span.start is not None else _ended(known, span)
    return spans


class SpanLog:
    """The claims of one project, as far as its feed was read. `current` gives it, locked, to one
    reader at a time."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self._first = 0
        self._cursor: str | None = None
        self.spans: Spans = {}
        self.known_since: datetime | None = None
        """Claims that ended before this time are missing; None if the log is complete."""

    @contextmanager
    def current(self, reader: Reader, since: datetime) -> Iterator[SpanLog]:
        """Yields the current log, reaching back to `since` unless that is too far."""
        with self._lock:
            try:
                self._catch_up(reader)
            except CursorLost:
                self._clear()
                self._catch_up(reader)
            self._reach(reader, since)
            yield self

    def _catch_up(self, reader: Reader) -> None:
        if self._cursor is None:
            start = reader.feed_end(self._scope, back=_AT_FIRST)
            self._first, cursor = start.position, start.cursor
        else:
            cursor = self._cursor
        begins = self._cursor is None and self._first > 0
        more = True
        while more:
            page = reader.events(self._scope, cursor, _PAGE)
            if begins:
                self.known_since = _time_of(page.events[0]) if page.events else reader.now()
                begins = False
            self.spans = _followed(self.spans, page)
            self._cursor, cursor, more = page.cursor, page.cursor, page.more
        self._forget_oldest()

    def _reach(self, reader: Reader, since: datetime) -> None:
        """Reads further back."""
        left = _MOST_READ
        while (
            self._first > 0
            and self.known_since is not None
            and self.known_since > since
            and left > 0
            and len(self.spans) < _SPANS_KEPT
        ):
            left -= _STEP
            events = self._events_before(reader, self._first)
            self.spans = joined(spans_in(events), self.spans)
            self._first = max(0, self._first - _STEP)
            if not self._first:
                self.known_since = None
            elif events:
                self.known_since = _time_of(events[0])

    def _events_before(self, reader: Reader, position: int) -> list[RecordedEvent]:
        """Returns the events of one step up to this position."""
        wanted = max(0, position - _STEP)
        back = reader.feed_end(self._scope).position - wanted
        page: EventPage = reader.feed_end(self._scope, back=back)
        while page.position > wanted:  # the feed grew in between
            back += page.position - wanted
            page = reader.feed_end(self._scope, back=back)
        events: list[RecordedEvent] = []
        more = True
        while more:
            page = reader.events(self._scope, page.cursor, _PAGE)
            events += [event for event in page.events if wanted < event.position <= position]
            more = page.more and page.position < position
        return events

    def _forget_oldest(self) -> None:
        too_many = len(self.spans) - _SPANS_KEPT
        if too_many > 0:
            ended = [(span.end, name) for name, span in self.spans.items() if span.end is not None]
            ended.sort()
            for end, name in ended[:too_many]:
                del self.spans[name]
                self.known_since = end


def _followed(spans: Spans, page: EventPage) -> Spans:
    """Adds a page to the log. An ending event completes the claim that was granted earlier."""
    newer = spans_in(page.events)
    for name, span in newer.items():
        known = spans.get(name)
        if known is None:
            spans[name] = span
        else:
            spans[name] = _ended(known, span)
    return spans


def _time_of(recorded: RecordedEvent) -> datetime:
    return glance_at_event(recorded.body).timestamp


# The answer


def activity(
    reader: Reader,
    view: ProjectView,
    since: datetime,
    until: datetime,
    agent: str | None,
    limit: int,
) -> Activity:
    """Returns who held what within a period. `view` must be current and from the same reader."""
    now = reader.now()
    with _logs_of(reader.engine).of(view.scope).current(reader, since) as log:
        known_since = since if log.known_since is None else max(since, log.known_since)
        spans = [
            ClaimSpan(
                agent_id=span.agent,
                session_id=span.session,
                task_id=task,
                generation=generation,
                start=span.start,
                end=span.end,
                ended=span.how,
                user_id=_user_of(view, span.session),
                track=_track_of(view, task),
            )
            for (task, generation), span in log.spans.items()
            if span.end is not None
            and span.end >= since
            and (span.start is None or span.start <= until)
            and agent in (None, span.agent)
        ]
    spans += _open_spans(reader, view, now, until, agent)
    shown = nlargest(limit, spans, key=lambda span: (span.end or now) - (span.start or since))
    shown.sort(key=lambda span: (span.agent_id, span.start or since, span.task_id))
    assert view.cursor is not None
    return Activity(
        spans=tuple(shown),
        since=since,
        until=until,
        known_since=known_since,
        left_out=len(spans) - len(shown),
        cursor=view.cursor,
        now=now,
    )


def _open_spans(
    reader: Reader, view: ProjectView, now: datetime, until: datetime, agent: str | None
) -> list[ClaimSpan]:
    entries = [
        entry
        for held in view.held_by.values()
        for entry in held.values()
        if entry.claim is not None
        and entry.claim.claimed_at <= until
        and agent in (None, entry.claim.agent)
    ]
    health = holdings(reader, view, entries, now, reader.settings(view.scope).policy)
    return [
        ClaimSpan(
            agent_id=entry.claim.agent,
            session_id=entry.claim.session,
            task_id=entry.id,
            generation=entry.claim.generation,
            start=entry.claim.claimed_at,
            end=None,
            ended=None,
            health=health[entry.id].health,
            user_id=_user_of(view, entry.claim.session),
            track=entry.track,
        )
        for entry in entries
        if entry.claim is not None
    ]


def _user_of(view: ProjectView, session: str) -> str:
    known = view.sessions.get(session)
    return "" if known is None else known.user


def _track_of(view: ProjectView, task: str) -> str | None:
    known = view.tasks.get(task)
    return None if known is None else known.track


class _SpanLogs:
    """The logs of the most recently requested projects."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._logs: OrderedDict[Scope, SpanLog] = OrderedDict()

    def of(self, scope: Scope) -> SpanLog:
        with self._lock:
            log = self._logs.setdefault(scope, SpanLog(scope))
            self._logs.move_to_end(scope)
            if len(self._logs) > _PROJECTS_KEPT:
                self._logs.popitem(last=False)
            return log


_LOGS: WeakKeyDictionary[Engine, _SpanLogs] = WeakKeyDictionary()
_LOGS_LOCK: Final = Lock()


def _logs_of(engine: Engine) -> _SpanLogs:
    with _LOGS_LOCK:
        return _LOGS.setdefault(engine, _SpanLogs())
