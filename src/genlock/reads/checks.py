"""Doctor's queries on a project: claims with a lost holder, dependencies that will never be met,
reactions that a crash cut off, and tasks that wait for a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from genlock.core.keys import REFUSED, SETTLED, TASK, Key, Scope
from genlock.core.model import Claim, SettledRecord, TaskRecord
from genlock.core.reasons import FINISHED, Cause, ClaimState, RefusedState, Status
from genlock.core.task.view import waits_for
from genlock.errors import BadArgument, CursorLost
from genlock.reads.reader import PAGE, StoreReader
from genlock.store import Query


class OverdueClaim(NamedTuple):
    """A claim that is no longer live."""

    task: str
    claim: Claim
    cause: Cause


class MissingReaction(NamedTuple):
    """A task whose record lacks a reaction: to the named finished task that it waits for or, if
    none is named, to its own subtasks."""

    task: str
    finished: str | None = None
    state: Status | None = None


class ProjectScan:
    """One pass over the tasks of a project, which collects the data that the checks need."""

    def __init__(self, reader: StoreReader, scope: Scope) -> None:
        self.scope = scope
        self.now = reader.now()
        self.claims: list[TaskRecord] = []
        self.held: list[TaskRecord] = []
        self.reviews: list[TaskRecord] = []
        self.waits: dict[str, tuple[str, ...]] = {}
        """Unfinished tasks, and what each waits for."""
        self.spawning: list[str] = []
        self.newest: tuple[datetime, str] | None = None
        self.count = 0
        self._reader = reader
        for stored in reader.find_tasks(Query(*scope, kind=TASK), page=PAGE):
            self._note(stored)

    def _note(self, record: TaskRecord) -> None:
        self.count += 1
        name = record.task.id
        if self.newest is None or record.updated_at > self.newest[0]:
            self.newest = record.updated_at, name
        if record.claim is not None and record.claim.state is ClaimState.ACTIVE:
            self.claims.append(record)
        if record.state is Status.HELD:
            self.held.append(record)
        if record.state is Status.IN_REVIEW:
            self.reviews.append(record)
        if record.spawning:
            self.spawning.append(name)
        if record.state not in (Status.COMPLETED, Status.CANCELLED):
            known = {**record.dependencies, **record.children}
            self.waits[name] = tuple(other for other in waits_for(record) if other in known)

    def overdue_claims(self) -> Iterator[OverdueClaim]:
        """Claims whose lease is over or whose holder is lost."""
        names = {record.claim.session for record in self.claims if record.claim is not None}
        sessions = self._reader.sessions(self.scope, sorted(names))
        claims = [record.claim for record in self.claims if record.claim is not None]
        causes = self._reader.causes(self.scope, claims, sessions, self.now)
        for record, claim, cause in zip(self.claims, claims, causes, strict=True):
            if cause is not None:
                yield OverdueClaim(record.task.id, claim, cause)

    def missing_dependencies(self) -> Iterator[tuple[str, str]]:
        """Tasks that wait for one that does not exist, and its id."""
        wanted = {
            other: task
            for task, others in self.waits.items()
            for other in others
            if other not in self.waits
        }
        found = self._reader.tasks(self.scope, sorted(wanted))
        yield from ((wanted[name], name) for name in sorted(wanted) if name not in found)

    def depends_on(self, name: str) -> tuple[str, ...]:
        """The dependencies in a task's definition."""
        return self._reader.task(Key(*self.scope, TASK, name)).task.depends_on

    def missing_reactions(self) -> Iterator[MissingReaction]:
        """Yields reactions that were cut off, or that are about to be written."""
        yield from map(MissingReaction, self.spawning)
        waiting: dict[str, list[str]] = {}
        for task, others in self.waits.items():
            for other in others:
                if other not in self.waits:
                    waiting.setdefault(other, []).append(task)
        for name, record in self._reader.tasks(self.scope, sorted(waiting)).items():
            if record.state in FINISHED:
                yield from (MissingReaction(task, name, record.state) for task in waiting[name])

    def events_since_recovery(self) -> int:
        """Returns the number of feed positions since the last recovery. A large number is no
        fault."""
        key = Key(*self.scope, SETTLED, SETTLED)
        record = self._reader.records([key]).get(key)
        start = 0
        if isinstance(record, SettledRecord):
            try:
                page = self._reader.events(self.scope, record.cursor, 1)
                start = page.events[0].position - 1 if page.events else page.position
            except (BadArgument, CursorLost):
                start = 0
        return max(0, self._reader.feed_end(self.scope).position - start)

    def refused_results(self) -> list[str]:
        """The ids of refused results that are kept."""
        query = Query(*self.scope, kind=REFUSED, state=RefusedState.KEPT)
        return [stored.key.id for stored in self._reader.find(query)]
