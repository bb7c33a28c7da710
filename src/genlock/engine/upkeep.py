"""What a lane sees to besides its callers: reactions, settling, lapsed and lost claims, denials. No answer depends on when.

Only the lane's own thread comes here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from genlock.core.commands import CheckDue, Command
from genlock.core.index import microseconds
from genlock.core.model import TaskRecord
from genlock.core.reasons import Status
from genlock.core.results import SweepResult
from genlock.core.rules import Reaction
from genlock.core.task.relate import SYSTEM
from genlock.core.task.view import claimable
from genlock.engine.batch import Round
from genlock.engine.cells import Cell, Memo
from genlock.engine.counts import Counts
from genlock.engine.denials import FLUSH_SECONDS, Denials
from genlock.engine.doubts import undecided
from genlock.engine.jobs import Item, Settle, Sweep, plain_item
from genlock.engine.observing import Notes
from genlock.engine.outages import Outages
from genlock.engine.reactions import Reactor, reactions_of
from genlock.engine.settle import Settler
from genlock.engine.spans import Span, spans_of
from genlock.errors import Closed, StoreError
from genlock.store import MAX_DUE, Query, Store, Stored

Place = tuple[str, str]

LOOK_SECONDS = 3.0
"""How often those who wait for a task have a look at who holds one."""
_CHECKED_AT_ONCE = 128
_CHECKED_IN_PASSING = 64
_TOURED = 1024
_SETTLE_EVENTS = 1000
_SETTLE_AT_LAST = 5000
_SETTLE_PAUSE = 0.2
_AGAIN_PAUSE = 0.5
"""After a settling that could not write what it had to."""


News = Callable[[Iterable[Cell], datetime], None]
Course = Generator[None, None, SweepResult]
"""A sweep under way."""


class Upkeep:
    """Of one lane."""

    def __init__(
        self,
        store: Store,
        counts: Counts,
        memo: Memo,
        profile: str,
        coordinator: str,
        news: News,
        own: Callable[[list[Span]], None],
        notes: Notes | None = None,
        outages: Outages | None = None,
    ) -> None:
        """`news` is told what was written, `own` where in the feeds that is, `notes` both if somebody observes."""
        self._store = store
        self._counts = counts
        self._memo = memo
        self._profile = profile
        self._news = news
        self._own = own
        self._notes = notes
        self._outages = outages
        self._settler = Settler(store, counts, profile, notes, wrote=self._wrote, keeps_up=outages is not None)
        self._events: dict[Place, int] = {}
        """Since they were last settled."""
        self._unsettled: dict[Place, float] = {}
        """Where there is something to settle, and from when on."""
        self._settle_at: dict[Place, float] = {}
        self._postponed: dict[Place, float] = {}
        """When a settling that was left out for haste is to be made up for."""
        self._looked_at: dict[Place, float] = {}
        self._toured: dict[Place, str] = {}
        """Where the next tour of a project goes on."""
        self.denials = Denials(coordinator)
        self._flushed = time.monotonic()

    def _wrote(self, cells: list[Cell], written: list[Span], now: datetime) -> None:
        """Settling has written these."""
        self._own(written)
        self._news(cells, now)

    # After a commit

    def react(
        self, committed: Sequence[Cell], spans: Sequence[Span], also: list[tuple[Item, Command]], until: float, now: datetime
    ) -> bool:
        """What was committed, there in the feeds, is done, whatever becomes of this: reactions are made up for by settling, `also` is owed.

        Is there a task among all that was written that can be had now?
        """
        reactor = Reactor(self._store, self._counts, self._profile)
        reactions: list[Reaction] = reactions_of(committed)
        complete = True
        if reactions or also:
            try:
                complete = reactor.run(reactions, also, until)
            except (StoreError, Closed) as error:
                complete = False
                for item, _ in reactor.owed:
                    item.decision = undecided(item, error)
        self._own(reactor.written)
        moved: set[Place] = set()
        for span in (*spans, *reactor.written):
            place = span.place
            moved.add(place)
            self._events[place] = self._events.get(place, 0) + span.events
            if self._events[place] >= _SETTLE_EVENTS:
                self._unsettled.setdefault(place, 0.0)
            if complete:
                self._settler.committed(span)
        if not complete:
            self._unsettled.update(dict.fromkeys(moved, 0.0))
        cells = (*committed, *reactor.cells)
        self._news(cells, now)
        if self._notes is not None:
            self._notes.wrote(cells, reactor.commits)
        return any(isinstance(cell.record, TaskRecord) and claimable(cell.record) for cell in cells)

    def make_up_for(self, place: Place, until: float) -> None:
        """Something was done whose reactions nobody has run: settling does, at once if that is possible."""
        self._unsettled[place] = 0.0
        with contextlib.suppress(StoreError, Closed):
            self._settler.settle(place, until)
            self._settled(place)

    # Between batches

    @property
    def is_due(self) -> bool:
        """Is there anything to settle now?"""
        return bool(self._unsettled) and min(self._unsettled.values()) <= time.monotonic()

    @property
    def settle_at(self) -> float | None:
        """When there will be something to settle, if there is anything."""
        return min(self._unsettled.values(), default=None)

    @property
    def flush_at(self) -> float | None:
        """When denials are to be written down, if there are any."""
        return self._flushed + FLUSH_SECONDS if self.denials else None

    def flush_denials(self) -> None:
        """Writes them down; what the store does not take, the next time."""
        self._flushed = time.monotonic()
        commands, written = self.denials.flush(), set()
        try:
            written = {cell.key for cell in self._run_own(commands)}
        finally:
            self.denials.put_back(command for command in commands if command.key not in written)

    def settle_now_and_then(self, land: Callable[[], bool] | None) -> None:
        """A page of each project that has had many events. `land` lets the batch under way come to its end, if there is one."""
        now = time.monotonic()
        for place in [place for place, at in self._unsettled.items() if at <= now]:
            if land is not None and self._events.get(place, 0) < _SETTLE_AT_LAST:
                continue  # the events under way are not known to be ours yet, and would be read for nothing
            if land is not None:
                land()
            self._events[place] = 0
            _, more = self._settler.settle_page(place, time.monotonic() + 5)
            if not more:
                self._settled(place)

    def _settled(self, place: Place) -> None:
        """As far as it went. What the store did not take, or others kept changing, is tried again soon: nobody else may come to do it."""
        if self._settler.has_left(place):
            self._unsettled[place] = time.monotonic() + _AGAIN_PAUSE
        else:
            self._unsettled.pop(place, None)

    def leave(self) -> None:
        """Spares whoever comes next what we know."""
        self._settler.leave()

    # When nothing is ready, and when somebody asks

    def look_harder(self, place: Place, waits: bool) -> bool:
        """Nothing was ready: were reactions cut off, or holders lost? True if something came of it."""
        now = time.monotonic()
        if waits and now < self._settle_at.get(place, 0):
            self._postponed[place] = self._settle_at[place]
            return False
        self._postponed.pop(place, None)
        self._settle_at[place] = now + _SETTLE_PAUSE
        found = self._settler.settle(place, now + 5) > 0
        self._settled(place)
        if now >= self._looked_at.get(place, 0):
            self._looked_at[place] = now + LOOK_SECONDS
            # Those who hold tasks: lapsed, vanished, silent. The first few do for a look in passing.
            result, _ = self._check(Query(*place, state=Status.IN_PROGRESS, due_before=MAX_DUE, limit=_CHECKED_IN_PASSING))
            found = found or bool(result.expired or result.orphaned)
        return found

    def look_at(self, place: Place, now: float) -> float:
        """When to look there again, if nothing else happens."""
        look = min(self._postponed.get(place, now + LOOK_SECONDS), self._looked_at.get(place, now + LOOK_SECONDS))
        return max(look, now + 0.05)

    def sweep(self, request: Sweep | Settle) -> Course:
        """What a caller has asked for, a piece at a time: the lane serves its callers between any two."""
        place, found = request.key.place, SweepResult()
        if isinstance(request, Sweep):
            everything = Query(*place, due_before=MAX_DUE, limit=_CHECKED_AT_ONCE)
            if request.tour:
                found = yield from self._walk(replace(everything, due_before=microseconds(self._store.load(()).now)), found)
                everything = replace(everything, after=self._toured.pop(place, None))
            found = yield from self._walk(everything, found, _TOURED if request.tour else None)
        settled, more = self._settler.settle_page(place, time.monotonic() + 60)
        while more:
            yield
            further, more = self._settler.settle_page(place, time.monotonic() + 60)
            settled += further
        self._settled(place)
        return replace(found, settled=settled)

    def _walk(self, query: Query, found: SweepResult, most: int | None = None) -> Course:
        """Page by page; after so many it is noted where the next tour is to begin."""
        seen = 0
        while True:
            piece, after = self._check(query)
            found = SweepResult(found.expired + piece.expired, found.orphaned + piece.orphaned, found.stale + piece.stale)
            seen += query.limit
            if after is None:
                return found
            if most is not None and seen >= most:
                self._toured[query.tenant, str(query.project)] = after
                return found
            query = replace(query, after=after)
            yield

    def _check(self, query: Query) -> tuple[SweepResult, str | None]:
        """Looks at those that are due, or whose holder may be lost; and says where to go on."""
        page = self._store.find(query)
        committed = self._run_own([CheckDue(stored.key, SYSTEM) for stored in page.records], page.records)
        kinds = [type(event).__name__ for cell in committed for event in cell.events]
        return SweepResult(kinds.count("ClaimExpired"), kinds.count("ClaimOrphaned"), kinds.count("ClaimStale")), page.next

    def _run_own(self, commands: Sequence[Command], found: Iterable[Stored] = ()) -> list[Cell]:
        """Commands of our own, in as many rounds as one record's events need; what conflicts is left to the next time.

        What was just found need not be loaded.
        """
        written: list[Cell] = []
        items = [plain_item(command) for command in commands]
        while items:
            round = Round(self._store, self._counts, profile=self._profile, memo=self._memo, outages=self._outages)
            round.take(found)
            found = ()
            round.prepare(items)
            items = [item for item in items if round.decide(item) is None]
            committed = round.commit(time.monotonic() + 5)
            spans = spans_of(committed)
            self._own(spans)
            self.react(committed, spans, [], time.monotonic() + 5, round.now)
            written += committed
        return written
