"""Maintenance: the work of a lane besides its callers' commands. No answer depends on its timing.

It runs reactions after a commit, repeats reactions that a crash cut off, searches for overdue and
lost claims, and writes denials. Only the lane's own thread uses it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from msgspec.structs import replace

from genlock.core.commands import CheckDue, Command, Denial, NoteDenials, ObserveTask
from genlock.core.decision import Decision, Reaction
from genlock.core.index import microseconds
from genlock.core.keys import ACCESS, Key
from genlock.core.model import TaskRecord
from genlock.core.reasons import ClaimReason, Status
from genlock.core.results import ClaimResult, SweepResult
from genlock.core.task.relate import SYSTEM
from genlock.core.task.view import claimable
from genlock.engine.batch import BatchRound
from genlock.engine.commit import LoadedRecord
from genlock.engine.feed_watch import FeedRange, feed_ranges_of
from genlock.engine.jobs import Item, Recover, Sweep, plain_item
from genlock.engine.limits import Counts
from genlock.engine.observer import ObserverNotes
from genlock.engine.reactions import Reactor, reactions_of
from genlock.engine.recovery import Recovery
from genlock.engine.unknown_outcomes import undecided
from genlock.errors import Closed, StoreError
from genlock.store import MAX_DUE, ObservesFiles, Query, Store, Stored

# Denials


FLUSH_SECONDS = 1.0
_MOST_A_COMMAND = 32
_MOST_KEPT = 10_000


class _Denied(NamedTuple):
    place: tuple[str, str]
    task: str
    session: str
    agent: str
    reason: ClaimReason


class Denials:
    """The denials of one lane that are not written yet, merged by task, session and reason.

    Only they are not durable before the answer: they are written once a second.
    """

    def __init__(self, coordinator: str) -> None:
        self._coordinator = coordinator
        self._counts: dict[_Denied, int] = {}
        self._last: dict[_Denied, tuple[datetime, str, str]] = {}
        """The time of the last denial, and the session and agent of the holder at that time."""
        self.dropped = 0

    def __bool__(self) -> bool:
        return bool(self._counts)

    def note(self, key: Key, session: str, agent: str, outcome: ClaimResult, now: datetime) -> None:
        """Adds a denial."""
        holder = outcome.holder
        last = (now, holder.session, holder.agent) if holder is not None else (now, "", "")
        self._add(_Denied(key[:2], key.id, session, agent, outcome.reason), 1, last)

    def _add(self, line: _Denied, count: int, last: tuple[datetime, str, str]) -> None:
        if line not in self._counts and len(self._counts) >= _MOST_KEPT:
            self.dropped += count
            return
        self._counts[line] = self._counts.get(line, 0) + count
        self._last[line] = max(last, self._last.get(line, last))

    def flush(self) -> list[NoteDenials]:
        """Removes all denials and returns the commands that write them."""
        by_key: dict[Key, list[Denial]] = {}
        for line, count in self._counts.items():
            at, holder_session, holder_agent = self._last[line]
            key = Key(*line.place, ACCESS, f"{self._coordinator}/{at:%Y%m%dT%H}")
            by_key.setdefault(key, []).append(
                Denial(
                    line.task,
                    line.session,
                    line.agent,
                    line.reason,
                    count,
                    at,
                    holder_session,
                    holder_agent,
                )
            )
        self._counts.clear()
        self._last.clear()
        return [
            NoteDenials(key, denials=tuple(denials[start : start + _MOST_A_COMMAND]))
            for key, denials in by_key.items()
            for start in range(0, len(denials), _MOST_A_COMMAND)
        ]

    def put_back(self, commands: Iterable[NoteDenials]) -> None:
        """Takes back denials that could not be written. They are written with the next ones."""
        for command in commands:
            for denial in command.denials:
                line = _Denied(
                    command.key.place,
                    denial.task,
                    denial.session,
                    denial.agent,
                    ClaimReason(denial.reason),
                )
                self._add(
                    line, denial.count, (denial.at, denial.holder_session, denial.holder_agent)
                )


Place = tuple[str, str]

SEARCH_SECONDS = 3.0
"""The interval of the searches for lost holders while a request waits for a task."""
_PAGE = 128
_OBSERVED_AT_ONCE = 256
_SEARCHED = 64
_TOURED = 1024
_RECOVER_EVENTS = 1000
_RECOVER_ANYWAY_EVENTS = 5000
_RECOVER_PAUSE = 0.2
_RETRY_PAUSE = 0.5
"""The pause after a recovery that could not write everything."""


Changed = Callable[[Iterable[LoadedRecord], datetime], None]
Progress = Generator[None, None, SweepResult]
"""A sweep, one piece at each step."""


class Maintenance:
    """The maintenance of one lane."""

    def __init__(
        self,
        store: Store,
        counts: Counts,
        new_round: Callable[[], BatchRound],
        *,
        profile: str,
        coordinator: str,
        changed: Changed,
        own: Callable[[list[FeedRange]], None],
        notes: ObserverNotes | None = None,
        keeps_up: bool = False,
    ) -> None:
        """`changed` is called with the written records, `own` with their feed ranges, and `notes`
        gets both for an observer. `keeps_up` is explained in `Recovery`."""
        self._store = store
        self._counts = counts
        self._new_round = new_round
        self._profile = profile
        self._changed = changed
        self._own = own
        self._notes = notes
        self._recovery = Recovery(
            store, counts, profile, notes, wrote=self._wrote, keeps_up=keeps_up
        )
        self._events: dict[Place, int] = {}
        """By project: the number of events since the last recovery."""
        self._recover_at: dict[Place, float] = {}
        """By project: the time of the next recovery."""
        self._paused_until: dict[Place, float] = {}
        """By project: the time until which waiters cause no further recovery."""
        self._postponed: dict[Place, float] = {}
        """By project: the time of a recovery that waiters requested too early."""
        self._next_search: dict[Place, float] = {}
        """By project: the time of the next search for lost holders."""
        self._toured: dict[Place, str] = {}
        """By project: the position at which the next tour continues."""
        self.denials = Denials(coordinator)
        self._flushed = time.monotonic()

    def _wrote(
        self, loaded_records: list[LoadedRecord], written: list[FeedRange], now: datetime
    ) -> None:
        """Notes records that a recovery has written."""
        self._own(written)
        self._changed(loaded_records, now)

    # After a commit

    def react(
        self,
        committed: Sequence[LoadedRecord],
        feed_ranges: Sequence[FeedRange],
        followups: list[tuple[Item, Command]],
        until: float,
        now: datetime,
        also: Sequence[Reaction] = (),
    ) -> bool:
        """Runs the reactions to committed records, and the followups of their decisions. True if
        one of the written tasks can be claimed now. `also` are reactions to something else.

        The commit stands, whatever the outcome of the reactions. A recovery repeats reactions that
        fail. A followup that fails becomes its item's outcome.
        """
        reactor = Reactor(self._store, self._counts, self._profile)
        reactions: list[Reaction] = [*reactions_of(committed), *also]
        complete = True
        if reactions or followups:
            try:
                complete = reactor.run(reactions, followups, until)
            except (StoreError, Closed) as error:
                complete = False
                for item, _ in reactor.unfinished:
                    item.decision = undecided(item, error)
        self._own(reactor.written)
        moved: set[Place] = set()
        for feed_range in (*feed_ranges, *reactor.written):
            place = feed_range.place
            moved.add(place)
            self._events[place] = self._events.get(place, 0) + feed_range.events
            if self._events[place] >= _RECOVER_EVENTS:
                self._recover_at.setdefault(place, 0.0)
            if complete:
                self._recovery.committed(feed_range)
        if not complete:
            self._recover_at.update(dict.fromkeys(moved, 0.0))
        loaded_records = (*committed, *reactor.loaded_records)
        self._changed(loaded_records, now)
        if self._notes is not None:
            self._notes.wrote(loaded_records, reactor.commits)
        return any(
            isinstance(loaded.record, TaskRecord) and claimable(loaded.record)
            for loaded in loaded_records
        )

    def observe(self, keys: Sequence[Key], now: datetime) -> None:
        """Turns the edits of these tasks' files by other tools into events."""
        for start in range(0, len(keys), _OBSERVED_AT_ONCE):
            self.react(
                (),
                (),
                [],
                time.monotonic() + 5,
                now,
                [
                    Reaction(ObserveTask(key, SYSTEM))
                    for key in keys[start : start + _OBSERVED_AT_ONCE]
                ],
            )

    def scan(self, place: Place) -> bool:
        """Scans all files of a project, if other tools edit them. True if any file was edited."""
        if not self._store.limits.observes:
            return False
        keys = cast(ObservesFiles, self._store).scan(*place)
        if keys:
            self.observe(keys, self._store.load(()).now)
        return bool(keys)

    def recover(self, place: Place, until: float) -> None:
        """Runs the reactions of a change that was written without them: now if possible, otherwise
        later."""
        self._recover_at[place] = 0.0
        with contextlib.suppress(StoreError, Closed):
            self._recovery.run(place, until)
            self._note_recovered(place)

    # Between batches

    @property
    def is_due(self) -> bool:
        """Is a recovery due?"""
        return bool(self._recover_at) and min(self._recover_at.values()) <= time.monotonic()

    @property
    def recover_at(self) -> float | None:
        """Returns the time of the next recovery, if any."""
        return min(self._recover_at.values(), default=None)

    @property
    def flush_at(self) -> float | None:
        """Returns the time at which denials must be written, if there are any."""
        return self._flushed + FLUSH_SECONDS if self.denials else None

    def flush_denials(self) -> None:
        """Writes the denials. Those that the store does not take are written the next time."""
        self._flushed = time.monotonic()
        commands, written = self.denials.flush(), set()
        try:
            written = {loaded.key for loaded in self._run_own(commands)}
        finally:
            self.denials.put_back(command for command in commands if command.key not in written)

    def recover_due(self, finish: Callable[[], object] | None) -> None:
        """Recovers a page of each project that has had many events. `finish` finishes the batch in
        flight, if there is one."""
        now = time.monotonic()
        for place in [place for place, at in self._recover_at.items() if at <= now]:
            if finish is not None and self._events.get(place, 0) < _RECOVER_ANYWAY_EVENTS:
                # The events in flight are not known as our own yet, and would be read in vain.
                continue
            if finish is not None:
                finish()
            self._events[place] = 0
            _, more = self._recovery.run_page(place, time.monotonic() + 5)
            if not more:
                self._note_recovered(place)

    def _note_recovered(self, place: Place) -> None:
        """Plans another recovery soon if the store did not take everything, or others kept changing
        it: there may be no later call to repeat it."""
        if self._recovery.is_incomplete(place):
            self._recover_at[place] = time.monotonic() + _RETRY_PAUSE
        else:
            self._recover_at.pop(place, None)

    def leave(self) -> None:
        """Moves the cursors past recovered events, so that the next coordinator need not read
        them."""
        self._recovery.leave()

    # When nothing is ready, and on request

    def search_lost_work(self, place: Place, waits: bool) -> bool:
        """Searches for lost work when nothing was ready: repeats reactions that were cut off, and
        checks overdue claims and lost holders. True if it wrote anything. A request that waits
        causes this less often."""
        now = time.monotonic()
        if waits and now < self._paused_until.get(place, 0):
            self._postponed[place] = self._paused_until[place]
            return False
        self._postponed.pop(place, None)
        self._paused_until[place] = now + _RECOVER_PAUSE
        is_due = now >= self._next_search.get(place, 0)
        # A waiting request scans the files once; afterwards the edit watcher does.
        found = not (waits and self._next_search.get(place)) and self.scan(place)
        found = self._recovery.run(place, now + 5) > 0 or found
        self._note_recovered(place)
        if is_due:
            self._next_search[place] = now + SEARCH_SECONDS
            # Holders whose lease is over, whose process is gone, or who are silent. A few at a time
            # are enough here.
            result, _ = self._check(
                Query(*place, state=Status.IN_PROGRESS, due_before=MAX_DUE, limit=_SEARCHED)
            )
            found = found or bool(result.expired or result.orphaned)
        return found

    def next_search(self, place: Place, now: float) -> float:
        """Returns the time of the next search there, if nothing else happens."""
        search = min(
            self._postponed.get(place, now + SEARCH_SECONDS),
            self._next_search.get(place, now + SEARCH_SECONDS),
        )
        return max(search, now + 0.05)

    def sweep_further(self, item: Item) -> bool:
        """Runs the next piece of a sweep; True if it was the last. After an error it starts
        over."""
        request = item.request
        assert isinstance(request, (Sweep, Recover))
        progress = self._sweep(request) if item.progress is None else item.progress
        item.progress = None
        try:
            next(progress)
        except StopIteration as end:
            item.decision = Decision(end.value)
            return True
        item.progress = progress
        return False

    def _sweep(self, request: Sweep | Recover) -> Progress:
        """Runs the sweep or recovery that a caller requested. The lane serves others between two
        pieces."""
        place, found = request.key.place, SweepResult()
        self.scan(place)
        if isinstance(request, Recover) and request.files_only:
            return found
        if isinstance(request, Sweep):
            everything = Query(*place, due_before=MAX_DUE, limit=_PAGE)
            if request.tour:
                found = yield from self._check_all(
                    replace(everything, due_before=microseconds(self._store.load(()).now)), found
                )
                everything = replace(everything, after=self._toured.pop(place, None))
            found = yield from self._check_all(everything, found, _TOURED if request.tour else None)
        settled, more = self._recovery.run_page(place, time.monotonic() + 60)
        while more:
            yield
            further, more = self._recovery.run_page(place, time.monotonic() + 60)
            settled += further
        self._note_recovered(place)
        return replace(found, settled=settled)

    def _check_all(self, query: Query, found: SweepResult, most: int | None = None) -> Progress:
        """Checks page by page, at most `most` claims, and notes where the next tour begins."""
        seen = 0
        while True:
            piece, after = self._check(query)
            found = SweepResult(
                found.expired + piece.expired,
                found.orphaned + piece.orphaned,
                found.stale + piece.stale,
            )
            seen += query.limit
            if after is None:
                return found
            if most is not None and seen >= most:
                self._toured[query.tenant, str(query.project)] = after
                return found
            query = replace(query, after=after)
            yield

    def _check(self, query: Query) -> tuple[SweepResult, str | None]:
        """Checks tasks that are due or whose holder may be lost, and returns where to continue."""
        page = self._store.find(query)
        committed = self._run_own(
            [CheckDue(stored.key, SYSTEM) for stored in page.records], page.records
        )
        kinds = [type(event).__name__ for loaded in committed for event in loaded.events]
        return SweepResult(
            kinds.count("ClaimExpired"), kinds.count("ClaimOrphaned"), kinds.count("ClaimStale")
        ), page.next

    def _run_own(
        self, commands: Sequence[Command], found: Iterable[Stored] = ()
    ) -> list[LoadedRecord]:
        """Carries out commands of the engine itself, in as many rounds as the events of one record
        need. Conflicts are left to the next time. Records in `found` need not be loaded."""
        written: list[LoadedRecord] = []
        items = [plain_item(command) for command in commands]
        while items:
            round = self._new_round()
            round.add_found(found)
            found = ()
            round.prepare(items)
            items = [item for item in items if round.decide(item) is None]
            committed = round.commit(time.monotonic() + 5)
            feed_ranges = feed_ranges_of(committed)
            self._own(feed_ranges)
            self.react(committed, feed_ranges, [], time.monotonic() + 5, round.now)
            written += committed
        return written
