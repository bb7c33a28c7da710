"""Observation of the engine: observers of its batches, and the activity of sessions.

An observer is called once per batch, after the answers. It gets the lane's own lists, reads them in
the lane's thread, and must neither keep nor change them. All callers of the lane wait for it. If it
fails, that is logged once, and every caller still gets its answer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from genlock.core import events as e
from genlock.core.codec import EventSummary, decode_record, glance_at_event
from genlock.core.keys import TASK, Key
from genlock.core.model import Claim, TaskRecord
from genlock.core.task.view import is_claimed
from genlock.engine.scan import pages_of
from genlock.errors import CursorLost
from genlock.store import EventQuery, Query, Store

if TYPE_CHECKING:
    from genlock.engine.commit import LoadedRecord
    from genlock.engine.jobs import Item
    from genlock.engine.pipeline import InFlightBatch


class Measures(NamedTuple):
    """Measures of one batch."""

    size: int
    """The number of gathered requests."""
    depth: int
    """The number of jobs that were waiting when it was gathered, including its own."""
    load_seconds: float
    decide_seconds: float
    commit_seconds: float
    conflicts: int
    """The number of records that others had changed in the meantime."""


class Batch(NamedTuple):
    """The work of a lane since its last report."""

    lane: str
    answered: Sequence[Item]
    """Each with its request and its `decision`: a Decision with an outcome, or an error."""
    written: Sequence[LoadedRecord]
    """The records that were committed, including reactions and maintenance, with their events."""
    second_commits: int
    measures: Measures | None
    """None if there was no batch, but only maintenance or answers without a decision."""


class Observer(Protocol):
    """An observer is notified of every batch."""

    def batch_done(self, batch: Batch) -> None:
        """Called by several lanes, each in its own thread."""


class ObserverNotes:
    """The work of one lane that is not reported yet. Only the lane's own thread uses it."""

    def __init__(self, observer: Observer, lane: str) -> None:
        self._observer = observer
        self._lane = lane
        self._written: list[LoadedRecord] = []
        self._second_commits = 0
        self._has_failed = False

    def __bool__(self) -> bool:
        return bool(self._written)

    def wrote(self, loaded_records: Sequence[LoadedRecord], second_commits: int) -> None:
        """Notes committed records."""
        self._written += loaded_records
        self._second_commits += second_commits

    def tell(self, answered: Sequence[Item] = (), in_flight: InFlightBatch | None = None) -> None:
        """Reports to the observer and starts over."""
        batch = Batch(
            self._lane,
            answered,
            self._written,
            self._second_commits,
            None if in_flight is None else _measures(in_flight),
        )
        self._written, self._second_commits = [], 0
        try:
            self._observer.batch_done(batch)
        except Exception:  # an observer's bug must not cost a caller its answer
            if not self._has_failed:
                self._has_failed = True
                import logging  # late: nothing else here needs it, and it costs start-up time

                logging.getLogger("genlock.engine").exception(
                    "an observer has failed; it is told again, but this is not logged again"
                )


def _measures(in_flight: InFlightBatch) -> Measures:
    round = in_flight.round
    conflicts = (
        sum(loaded.conflicted for loaded in round.loaded_records.values()) if round.troubled else 0
    )
    deciding = max(0.0, in_flight.seconds - round.load_seconds)
    return Measures(
        len(in_flight.items),
        in_flight.depth,
        round.load_seconds,
        deciding,
        round.batch_commit.seconds,
        conflicts,
    )


# Activity of sessions
#
# No record has the time of a session's last sign of life. A claim that was submitted or released is
# gone, and a note in the session's record would double the writes. So the feed is read on demand:
# first its last events, afterwards only new ones. For a session whose last event is more than fifty
# thousand events ago, only its record counts.


_PAGE = 1000
_AT_FIRST = 50_000
_PROJECTS_KEPT = 64
_SESSIONS_KEPT = 100_000
_NEVER = datetime.min.replace(tzinfo=UTC)

_SIGNS_OF_LIFE = frozenset(
    str(kind.__struct_config__.tag)
    for kind in (
        e.ClaimAcquired,
        e.LeaseRenewed,
        e.ProgressReported,
        e.ClaimReleased,
        e.SubtasksSpawned,
        e.ResultAccepted,
        e.ConvergenceEscalated,
        e.EvaluationReported,
        e.ResultRejected,
    )
)
"""Events that a session causes itself. Others cause the events by which its claim becomes overdue
or is superseded."""


class Activity:
    """The times at which sessions last acted on a task. Caches the part of the most recently
    requested feeds that was read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._projects: OrderedDict[tuple[str, str], _Project] = OrderedDict()

    def of(self, place: tuple[str, str]) -> Mapping[str, datetime]:
        """Returns, by session, the time at which it last changed a task of this project. Sessions
        that never did are missing."""
        with self._lock:
            project = self._projects.setdefault(place, _Project())
            self._projects.move_to_end(place)
            if len(self._projects) > _PROJECTS_KEPT:
                self._projects.popitem(last=False)
        with project.lock:
            try:
                project.catch_up(self._store, place)
            except CursorLost:
                project.forget()
                project.catch_up(self._store, place)
            return dict(project.last)

    def last_heard(self, session: Key) -> datetime:
        """Returns when a session last changed a task of its project or renewed a claim, as far back
        as the feed was read; the earliest possible time if it never did."""
        renewals = [claim.renewed_at for claim in held_claims(self._store, session)]
        return max([self.of(session.place).get(session.id, _NEVER), *renewals])


def held_claims(store: Store, session: Key) -> Iterator[Claim]:
    """Yields the claims of a session in its project."""
    query = Query(*session.place, session=session.id, limit=_PAGE)
    while True:
        page = store.find(query)
        for stored in page.records:
            record = decode_record(TASK, stored.body)
            if isinstance(record, TaskRecord) and is_claimed(record) and record.claim:
                yield record.claim
        if page.next is None:
            return
        query = replace(query, after=page.next)


class _Project:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        self.cursor: str | None = None
        self.last: OrderedDict[str, datetime] = OrderedDict()

    def catch_up(self, store: Store, place: tuple[str, str]) -> None:
        if self.cursor is None:
            self.cursor = store.read_events(EventQuery(*place, tail=True, back=_AT_FIRST)).cursor
        for page in pages_of(store, place, self.cursor, _PAGE):
            for recorded in page.events:
                event = glance_at_event(recorded.body)
                if event.event_type in _SIGNS_OF_LIFE:
                    self._happened(event)
            self.cursor = page.cursor

    def _happened(self, event: EventSummary) -> None:
        known = self.last.get(event.session_id)
        # The events of different tasks need not be in the order of their times.
        self.last[event.session_id] = (
            event.timestamp if known is None else max(known, event.timestamp)
        )
        self.last.move_to_end(event.session_id)
        if len(self.last) > _SESSIONS_KEPT:
            self.last.popitem(last=False)
