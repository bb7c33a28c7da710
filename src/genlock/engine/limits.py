"""Counts over many records: live claims and sessions of a tenant, busy tracks and features.

They are exact within one lane, whose own grants are added at once. Between lanes and coordinators
they may be one refresh behind. Every use refreshes a count, unless counting is expensive: it takes
at most a twentieth of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from genlock.core.codec import decode_record
from genlock.core.facts import OutageGrace
from genlock.core.ids import Grammar, parse_task_id
from genlock.core.index import microseconds
from genlock.core.keys import PROJECT, SESSION, Key, Scope, project_key
from genlock.core.model import ProjectRecord, Record, SessionRecord, TaskRecord
from genlock.core.policy import Policy
from genlock.core.reasons import Status
from genlock.core.records.session import is_active, last_activity
from genlock.core.task.view import is_claimed, overdue
from genlock.engine.features import FeatureList, FeaturesInFlight
from genlock.engine.observer import Activity, held_claims
from genlock.engine.outage_grace import OutageTracker
from genlock.engine.overlap import ModulesInFlight
from genlock.engine.processes import gone
from genlock.store import MAX_DUE, Query, Store, Stored

_SHARE = 20
_LONGEST_SECONDS = 1.0
"""The longest time for which modules in flight are used before they are read again, however long
that takes."""
_MOST_LOOKED_AT = 1000

T = TypeVar("T")


class Counts:
    """The counts of one lane."""

    def __init__(
        self, store: Store, outages: OutageTracker | None = None, activity: Activity | None = None
    ) -> None:
        self._store = store
        self._outages = outages
        self._activity = activity
        self._kept: dict[tuple[str, ...], tuple[float, object]] = {}
        self._since: dict[str, int] = {}
        """By tenant: claims that this lane has added since the last count."""
        self._tracks_since: dict[tuple[str, str], set[str]] = {}
        """By project: tracks that this lane has taken since they were last looked up."""
        self._in_flight: dict[Scope, tuple[float, ModulesInFlight]] = {}
        """By project: the end of its validity, and the modules of the work in flight."""
        self._features: dict[Scope, tuple[float, FeaturesInFlight]] = {}
        """The same for the features in flight."""
        self._listed: dict[Scope, FeatureList] = {}

    def claims(self, tenant: str) -> int:
        """Counts the claims of a tenant that are not recorded as overdue."""
        counted = self._refreshed(("claims", tenant), lambda: self._claims(tenant))
        return counted + self._since.get(tenant, 0)

    @property
    def is_kept(self) -> bool:
        """Is there a count that must follow changes?"""
        return bool(self._kept or self._in_flight or self._features or self._listed)

    def modules_in_flight(self, place: Scope) -> ModulesInFlight:
        """Returns the modules of a project's work in flight."""
        return self._read(self._in_flight, place, ModulesInFlight)

    def features_in_flight(self, place: Scope) -> FeaturesInFlight:
        """Returns the agents that work on each feature of a project."""
        return self._read(self._features, place, FeaturesInFlight)

    def nearest_features(self, place: Scope) -> FeatureList:
        """Returns the features of a project that are nearest to completion."""
        kept = self._listed.get(place)
        if kept is None or time.monotonic() > kept.since + min(
            kept.took * _SHARE, _LONGEST_SECONDS
        ):
            kept = self._listed[place] = FeatureList(self._store, place)
        return kept

    def _read(
        self, views: dict[Scope, tuple[float, T]], place: Scope, read: Callable[[Store, Scope], T]
    ) -> T:
        kept = views.get(place)
        start = time.monotonic()
        if kept is not None and start < kept[0]:
            return kept[1]
        found = read(self._store, place)
        took = time.monotonic() - start
        views[place] = (start + min(took * _SHARE, _LONGEST_SECONDS), found)
        return found

    def changed(self, key: Key, before: Record | None, after: Record | None) -> None:
        """Updates the kept counts after a commit of a task or a feature by this lane."""
        if key.place in self._listed:
            self._listed[key.place].note(after)
        if key.place in self._in_flight:
            self._in_flight[key.place][1].note(after)
        if key.place in self._features:
            self._features[key.place][1].note(after)
        number = claimed(after) - claimed(before)
        if not number:
            return
        if ("claims", key.tenant) in self._kept:
            self._since[key.tenant] = self._since.get(key.tenant, 0) + number
        if (
            number > 0
            and ("tracks", *key.place) in self._kept
            and isinstance(after, TaskRecord)
            and after.task.track
        ):
            self._tracks_since.setdefault(key.place, set()).add(after.task.track)

    def forget(self) -> None:
        """Refreshes all counts at their next use: others have changed the same records."""
        self._kept.clear()
        self._in_flight.clear()
        self._features.clear()
        self._listed.clear()

    def sessions(self, tenant: str, now: datetime, limit: int) -> int:
        """Counts the active sessions of a tenant. Counted at every call, because only a new session
        needs it.

        Sessions that look silent by their records are looked up in the feed and by their claims
        only if they make a difference to the limit.
        """
        active, after = 0, None
        policies: dict[tuple[str, str], Policy] = {}
        silent: dict[tuple[str, str], list[SessionRecord]] = {}
        while True:
            page = self._store.find(
                Query(tenant, kind=SESSION, state="ACTIVE", after=after, limit=500)
            )
            for stored in page.records:
                session = decode_record(SESSION, stored.body)
                assert isinstance(session, SessionRecord)
                place = stored.key.place
                if place not in policies:
                    policies[place] = self._policy(place)
                if is_active(session, session.updated_at, policies[place], now, gone=False):
                    active += not self._is_gone(session)
                else:
                    silent.setdefault(place, []).append(session)
            if page.next is None:
                break
            after = page.next
        if active >= limit or active + sum(map(len, silent.values())) < limit:
            return active
        return active + sum(
            self._active_among(place, sessions, policies[place], now)
            for place, sessions in silent.items()
        )

    def _policy(self, place: tuple[str, str]) -> Policy:
        """Returns the policy of a session's own project, which limits its silence."""
        stored = self._store.load([project_key(*place)]).records.get(project_key(*place))
        project = None if stored is None else decode_record(PROJECT, stored.body)
        return project.policy if isinstance(project, ProjectRecord) else Policy()

    def _active_among(
        self, place: tuple[str, str], sessions: list[SessionRecord], policy: Policy, now: datetime
    ) -> int:
        """Counts the sessions that have acted on a task recently. A claim that was submitted or
        released is gone, so the feed is read first."""
        heard = self._activity.of(place) if self._activity is not None else {}
        # A session belongs to one project: claims of its namesake in another project do not count.
        holding = self._store.find(Query(*place), count_by="session").counts
        active = 0
        for session in sessions:
            last = last_activity(session, (), heard.get(session.id))
            if session.id in holding and not is_active(session, last, policy, now, gone=False):
                # The feed is read back only to a limit.
                last = last_activity(
                    session, held_claims(self._store, Key(*place, SESSION, session.id)), last
                )
            active += is_active(session, last, policy, now, gone=self._is_gone(session))
        return active

    def last_heard(self, session: Key) -> datetime | None:
        """Returns when a session last changed a task; None if that cannot be determined here."""
        return None if self._activity is None else self._activity.last_heard(session)

    def _is_gone(self, session: SessionRecord) -> bool:
        return gone(session.process, shared=self._store.limits.shared)

    def busy_tracks(self, tenant: str, project: str) -> frozenset[str]:
        """Returns the tracks with a live claim, among the first thousand claims."""
        counted = self._refreshed(
            ("tracks", tenant, project), lambda: self._tracks(tenant, project)
        )
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
        # By session, not by state: a task may have been put on hold during its claim.
        return sum(self._store.find(Query(tenant), count_by="session").counts.values())

    def overdue_claims(self, tenant: str, now: datetime, claims: int) -> int:
        """Counts the claims, of `claims` in all, whose lease is over although that is not recorded
        yet."""
        begun = self._store.find(Query(tenant, state=Status.IN_PROGRESS), count_by="project").counts
        lapsed = sum(
            self._overdue_in(Status.IN_PROGRESS, (tenant, project), now) for project in begun
        )
        if claims <= sum(begun.values()):
            return lapsed
        # The other claims belong to tasks on hold.
        held = self._store.find(Query(tenant, state=Status.HELD), count_by="project").counts
        return lapsed + sum(
            self._overdue_in(Status.HELD, (tenant, project), now) for project in held
        )

    def _overdue_in(self, state: Status, place: tuple[str, str], now: datetime) -> int:
        """Checks each due task, because the end of a hold and the earliest start of a task are due
        times, too."""
        outage_grace = self._outage_grace(place, now)
        due = self._store.find(
            Query(*place, state=state, due_before=microseconds(now), limit=_MOST_LOOKED_AT)
        ).records
        return sum(_is_overdue(stored, now, outage_grace) for stored in due)

    def _outage_grace(self, place: tuple[str, str], now: datetime) -> OutageGrace | None:
        return None if self._outages is None else self._outages.outage_grace(place, now)

    def _tracks(self, tenant: str, project: str) -> frozenset[str]:
        self._tracks_since.pop((tenant, project), None)
        begun = Query(
            tenant, project, state=Status.IN_PROGRESS, due_before=MAX_DUE, limit=_MOST_LOOKED_AT
        )
        # A task may have been put on hold during its claim.
        held = replace(begun, state=Status.HELD)
        found = [
            *self._store.find(begun).records,
            *filter(_is_claimed, self._store.find(held).records),
        ]
        return frozenset(track for track in map(_track, found) if track)


def claimed(record: Record | None) -> int:
    """Returns 1 if the task is claimed, as the store counts it."""
    return int(isinstance(record, TaskRecord) and is_claimed(record))


def _is_claimed(stored: Stored) -> bool:
    return bool(claimed(decode_record(stored.key.kind, stored.body)))


def _is_overdue(stored: Stored, now: datetime, outage_grace: OutageGrace | None) -> bool:
    record = decode_record(stored.key.kind, stored.body)
    claim = record.claim if isinstance(record, TaskRecord) and is_claimed(record) else None
    return claim is not None and overdue(claim, now, outage_grace=outage_grace) is not None


def _track(stored: Stored) -> str:
    task_id = parse_task_id(stored.key.id)
    if task_id.grammar is Grammar.TRACK:
        return task_id.track or ""
    record = decode_record(stored.key.kind, stored.body)
    return (record.task.track or "") if isinstance(record, TaskRecord) else ""
