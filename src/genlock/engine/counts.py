"""Counts over many records: live claims and sessions of a tenant, tracks that someone is on.

Exact within one lane, since its own grants are added at once; between lanes and coordinators they may be behind by one refresh.
A refresh happens whenever one is asked for, unless the last one was dear: counting takes at most a twentieth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.facts import Mercy
from genlock.core.ids import Grammar, parse_task_id
from genlock.core.index import microseconds
from genlock.core.keys import PROJECT, SESSION, Key, project_key
from genlock.core.model import Claim, ProjectRecord, Record, SessionRecord, TaskRecord
from genlock.core.others import is_active, last_activity
from genlock.core.policy import Policy
from genlock.core.reasons import Status
from genlock.core.task.view import is_claimed, overdue
from genlock.engine.activity import Activity
from genlock.engine.outages import Outages
from genlock.engine.processes import gone
from genlock.store import MAX_DUE, Query, Store, Stored

_SHARE = 20
_MOST_LOOKED_AT = 1000

T = TypeVar("T")


class Counts:
    """What is counted, and when."""

    def __init__(self, store: Store, outages: Outages | None = None, activity: Activity | None = None) -> None:
        self._store = store
        self._outages = outages
        self._activity = activity
        self._kept: dict[tuple[str, ...], tuple[float, object]] = {}
        self._since: dict[str, int] = {}
        """Claims that this lane has added, by tenant, since they were last counted."""
        self._tracks_since: dict[tuple[str, str], set[str]] = {}
        """Tracks that this lane has taken, by project, since they were last looked at."""

    def claims(self, tenant: str) -> int:
        """Claims of a tenant that nobody has found over-due."""
        counted = self._refreshed(("claims", tenant), lambda: self._claims(tenant))
        return counted + self._since.get(tenant, 0)

    @property
    def is_kept(self) -> bool:
        """Is anything kept that changes would add to?"""
        return bool(self._kept)

    def changed(self, key: Key, before: Record | None, after: Record | None) -> None:
        """A task was committed here: what that adds or takes away counts at once, also while a count is kept."""
        number = claimed(after) - claimed(before)
        if not number:
            return
        if ("claims", key.tenant) in self._kept:
            self._since[key.tenant] = self._since.get(key.tenant, 0) + number
        if number > 0 and ("tracks", *key.place) in self._kept and isinstance(after, TaskRecord) and after.task.track:
            self._tracks_since.setdefault(key.place, set()).add(after.task.track)

    def forget(self) -> None:
        """Others were at work on the same records: count anew."""
        self._kept.clear()

    def sessions(self, tenant: str, now: datetime, limit: int) -> int:
        """Active sessions of a tenant. Asked for only when a session is new, so it is always counted anew.

        Those of which only the feed or their claims can tell that they are not silent are looked at only where it would make a difference.
        """
        active, after = 0, None
        policies: dict[tuple[str, str], Policy] = {}
        unheard: dict[tuple[str, str], list[SessionRecord]] = {}
        while True:
            page = self._store.find(Query(tenant, kind=SESSION, state="ACTIVE", after=after, limit=500))
            for stored in page.records:
                session = decode_record(SESSION, stored.body)
                assert isinstance(session, SessionRecord)
                place = stored.key.place
                if place not in policies:
                    policies[place] = self._policy(place)
                if is_active(session, session.updated_at, policies[place], now, gone=False):
                    active += not gone(session.process)
                else:
                    unheard.setdefault(place, []).append(session)
            if page.next is None:
                break
            after = page.next
        if active >= limit or active + sum(map(len, unheard.values())) < limit:
            return active
        return active + sum(self._still_heard(place, sessions, policies[place], now) for place, sessions in unheard.items())

    def _policy(self, place: tuple[str, str]) -> Policy:
        """How long a session may be silent is for its own project to say."""
        stored = self._store.load([project_key(*place)]).records.get(project_key(*place))
        project = None if stored is None else decode_record(PROJECT, stored.body)
        return project.policy if isinstance(project, ProjectRecord) else Policy()

    def _still_heard(self, place: tuple[str, str], sessions: list[SessionRecord], policy: Policy, now: datetime) -> int:
        """How many of these have done something to a task of late: what was handed in or given back has no claim any more."""
        heard = self._activity.of(place) if self._activity is not None else {}
        # A session is of one project: what its namesake in another holds is another's.
        holding = self._store.find(Query(*place), count_by="session").counts
        active = 0
        for session in sessions:
            last = last_activity(session, (), heard.get(session.id))
            if session.id in holding and not is_active(session, last, policy, now, gone=False):
                # The feed is read only so far back.
                last = last_activity(session, self._claims_of(place, session.id), last)
            active += is_active(session, last, policy, now, gone=gone(session.process))
        return active

    def _claims_of(self, place: tuple[str, str], session: str) -> list[Claim]:
        """What it holds."""
        claims: list[Claim] = []
        after: str | None = None
        while True:
            page = self._store.find(Query(*place, session=session, after=after, limit=_MOST_LOOKED_AT))
            records = [decode_record(stored.key.kind, stored.body) for stored in page.records]
            claims += [record.claim for record in records if isinstance(record, TaskRecord) and is_claimed(record) and record.claim]
            if page.next is None:
                return claims
            after = page.next

    def busy_tracks(self, tenant: str, project: str) -> frozenset[str]:
        """The tracks on which someone has a live claim, looked for among the first thousand claims."""
        counted = self._refreshed(("tracks", tenant, project), lambda: self._tracks(tenant, project))
        return counted | self._tracks_since.get((tenant, project), frozenset())

    def _refreshed(self, key: tuple[str, ...], count: Callable[[], T]) -> T:
        kept = self._kept.get(key)
        start = time.monotonic()
        if kept is not None and start < kept[0]:
            return kept[1]  # type: ignore[return-value]
        counted = count()
        took = time.monotonic() - start
        self._kept[key] = (start + took * _SHARE if took > 0.001 else 0.0, counted)
        return counted

    def _claims(self, tenant: str) -> int:
        self._since.pop(tenant, None)
        # By session, not by state: whoever has a task that was held meanwhile is at work on it like any other.
        return sum(self._store.find(Query(tenant), count_by="session").counts.values())

    def lapsed(self, tenant: str, now: datetime, claims: int) -> int:
        """Of so many claims, those whose lease is over and which nobody has written down as such."""
        begun = self._store.find(Query(tenant, state=Status.IN_PROGRESS), count_by="project").counts
        lapsed = sum(self._lapsed_of(Status.IN_PROGRESS, (tenant, project), now) for project in begun)
        if claims <= sum(begun.values()):
            return lapsed
        # The others are of tasks that are held.
        held = self._store.find(Query(tenant, state=Status.HELD), count_by="project").counts
        return lapsed + sum(self._lapsed_of(Status.HELD, (tenant, project), now) for project in held)

    def _lapsed_of(self, state: Status, place: tuple[str, str], now: datetime) -> int:
        """Looked at one by one: what falls due may be the end of a hold, or the time before which a task is not to begin."""
        mercy = self._mercy(place, now)
        due = self._store.find(Query(*place, state=state, due_before=microseconds(now), limit=_MOST_LOOKED_AT)).records
        return sum(_has_lapsed(stored, now, mercy) for stored in due)

    def _mercy(self, place: tuple[str, str], now: datetime) -> Mercy | None:
        return None if self._outages is None else self._outages.mercy(place, now)

    def _tracks(self, tenant: str, project: str) -> frozenset[str]:
        self._tracks_since.pop((tenant, project), None)
        begun = Query(tenant, project, state=Status.IN_PROGRESS, due_before=MAX_DUE, limit=_MOST_LOOKED_AT)
        # Whoever has a task that was held meanwhile is at work on it like any other.
        held = replace(begun, state=Status.HELD)
        found = [*self._store.find(begun).records, *filter(_is_claimed, self._store.find(held).records)]
        return frozenset(track for track in map(_track, found) if track)


def claimed(record: Record | None) -> int:
    """One if someone is at work on it, as the store counts it."""
    return int(isinstance(record, TaskRecord) and is_claimed(record))


def _is_claimed(stored: Stored) -> bool:
    return bool(claimed(decode_record(stored.key.kind, stored.body)))


def _has_lapsed(stored: Stored, now: datetime, mercy: Mercy | None) -> bool:
    record = decode_record(stored.key.kind, stored.body)
    claim = record.claim if isinstance(record, TaskRecord) and is_claimed(record) else None
    return claim is not None and overdue(claim, now, mercy=mercy) is not None


def _track(stored: Stored) -> str:
    task_id = parse_task_id(stored.key.id)
    if task_id.grammar is Grammar.TRACK:
        return task_id.track or ""
    record = decode_record(stored.key.kind, stored.body)
    return (record.task.track or "") if isinstance(record, TaskRecord) else ""
