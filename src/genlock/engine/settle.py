"""Settling: repeat the reactions that a crash may have cut off, from a cursor that the project keeps.

Nothing is noted when a commit is made and nothing when its reactions are done. Whoever settles reads the feed from the cursor
on, repeats each event's reactions (most write nothing) and moves the cursor by compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from genlock.core.codec import decode_event
from genlock.core.commands import MoveSettled
from genlock.core.keys import SETTLED, TASK, Key
from genlock.core.model import SettledRecord
from genlock.core.rules import REACTING, Reaction, react, reacts
from genlock.core.task.relate import SYSTEM
from genlock.engine.batch import Round
from genlock.engine.cells import Cell
from genlock.engine.counts import Counts
from genlock.engine.jobs import plain_item
from genlock.engine.observing import Notes
from genlock.engine.reactions import MOST_AT_A_TIME, Reactor, news_of, told
from genlock.engine.spans import Runs, Span, spans_of
from genlock.errors import CursorLost
from genlock.store import EventPage, EventQuery, Recorded, Store

_PAGE = 500

Wrote = Callable[[list[Cell], list[Span], datetime], None]
"""Is told which records were written, where in the feeds that is, and when."""


class Settler:
    """Settles projects of one store."""

    def __init__(
        self, store: Store, counts: Counts, profile: str, notes: Notes | None = None, *, wrote: Wrote | None = None, keeps_up: bool = False
    ) -> None:
        """`wrote` is told what came of it.

        With `keeps_up` the store is told now and then how far all is settled, so that a look at the feed's end is short.
        """
        self._store = store
        self._counts = counts
        self._profile = profile
        self._notes = notes
        self._wrote = wrote
        self._keeps_up = keeps_up
        self._told: dict[tuple[str, str], int] = {}
        """The position that the store was last told of."""
        self._seen: dict[tuple[str, str], tuple[str | None, int]] = {}
        """Where this coordinator itself has settled to, as cursor and position; the store is told only of what was worth telling."""
        self._own: dict[tuple[str, str], Runs] = {}
        """The events in the feed that are this coordinator's own, with all their reactions done."""
        self._left: set[tuple[str, str]] = set()
        """Where something could not be repeated the last time."""

    def committed(self, span: Span) -> None:
        """These events were written, and what they asked of others was done."""
        if span.unbroken:
            self._own.setdefault(span.place, Runs()).add(span.first, span.last)

    def settle(self, place: tuple[str, str], until: float) -> int:
        """Repeats reactions up to the present end of the feed; the number of events that came of it."""
        came, more = self.settle_page(place, until)
        while more:
            further, more = self.settle_page(place, until)
            came += further
        return came

    def settle_page(self, place: tuple[str, str], until: float) -> tuple[int, bool]:
        """The next piece of that, so that a long feed does not keep others waiting; are there more?"""
        if self._skips_own(place):
            return 0, False
        stored = self._stored_cursor(place)
        seen = self._seen.get(place)
        if seen is None and stored is None and self._run_after(place, 0):
            # Nobody has ever settled here, and all there is is ours.
            self._seen[place] = None, 0
            if self._skips_own(place):
                return 0, False
        page = self._read(place, seen[0] if seen is not None else stored)
        came, complete = self._repeat(page, until)
        if not complete:
            # The cursor must not move past what was not written; whoever settles next begins here again.
            self._left.add(place)
            return came, False
        self._left.discard(place)
        self._seen[place] = page.cursor, page.position
        # Where nothing came of it, the store need not know: the next one reads these few events again.
        if came or page.more:
            self._move(place, stored, page.cursor)
        return came, page.more

    def has_left(self, place: tuple[str, str]) -> bool:
        """Could something not be repeated there the last time? Then it is to be tried again."""
        return place in self._left

    def begin_at(self, place: tuple[str, str], cursor: str) -> None:
        """Whoever settles this project next begins here: all before is known to be settled."""
        self._move(place, self._stored_cursor(place), cursor)

    def leave(self) -> None:
        """Spares whoever comes next the reading of what was our own, if it is much."""
        for place, runs in list(self._own.items()):
            first, last = runs.last
            if last - first >= _PAGE:
                stored = self._stored_cursor(place)
                if (stored is None or place in self._seen) and self.settle_page(place, 0) == (0, False):
                    cursor, position = self._seen.get(place, (None, 0))
                    if cursor is not None and position == last:
                        self._move(place, stored, cursor)

    def _skips_own(self, place: tuple[str, str]) -> bool:
        """Is all that the feed has got since we last looked our own? Then nothing was cut off, and nothing need be read."""
        seen = self._seen.get(place)
        last = self._run_after(place, seen[1]) if seen is not None else 0
        if not last:
            return False
        end = self._store.read_events(EventQuery(*place, tail=True))
        if end.position != last:
            return False
        self._seen[place] = end.cursor, end.position
        if self._keeps_up and end.position - self._told.get(place, 0) >= _PAGE:
            self._told[place] = end.position
            self._move(place, self._stored_cursor(place), end.cursor)
        return True

    def _run_after(self, place: tuple[str, str], position: int) -> int:
        """The end of our own events that follow this position without a gap; 0 if there are none."""
        runs = self._own.get(place)
        return runs.end_after(position) if runs is not None else 0

    def _read(self, place: tuple[str, str], cursor: str | None) -> EventPage:
        try:
            return self._store.read_events(EventQuery(*place, after=cursor, limit=_PAGE))
        except CursorLost:
            return self._store.read_events(EventQuery(*place, limit=_PAGE))

    def _repeat(self, page: EventPage, until: float) -> tuple[int, bool]:
        """The number of events that came of repeating a page's reactions, and whether all could be repeated."""
        waking = [(recorded, decode_event(recorded.body).event) for recorded in page.events if _may_react(recorded)]
        waking = [(recorded, event) for recorded, event in waking if reacts(event)]
        if not waking:
            return 0, True
        round = Round(self._store, self._counts, profile=self._profile)
        round.load({recorded.key: None for recorded, _ in waking})
        reactor = Reactor(self._store, self._counts, self._profile)
        reactions: list[Reaction] = []
        for recorded, event in waking:
            record = round.cells[recorded.key].record
            if record is not None:
                reactions += react(recorded.key, record, event, recorded.version)
        complete = self._run(reactor, reactions, until)
        if self._notes is not None and reactor.cells:
            self._notes.wrote(reactor.cells, reactor.commits)
        if self._wrote is not None and reactor.cells:
            self._wrote(reactor.cells, reactor.written, round.now)
        return sum(span.events for span in reactor.written), complete

    def _run(self, reactor: Reactor, reactions: list[Reaction], until: float) -> bool:
        """All of them to the end, however many wait for them."""
        complete = True
        direct = [reaction for reaction in reactions if reaction.waits_on is None]
        for start in range(0, len(direct), MOST_AT_A_TIME):
            complete = reactor.run(direct[start : start + MOST_AT_A_TIME], [], until) and complete
        for place, news in news_of(reactions):
            after: str | None = None
            while True:
                commands, _, after = told(self._store, place, news, after)
                for start in range(0, len(commands), MOST_AT_A_TIME):
                    page = [Reaction(command) for command in commands[start : start + MOST_AT_A_TIME]]
                    complete = reactor.run(page, [], until) and complete
                if after is None:
                    break
        return complete

    def _stored_cursor(self, place: tuple[str, str]) -> str | None:
        round = Round(self._store, self._counts, profile=self._profile)
        key = Key(*place, SETTLED, SETTLED)
        round.load([key])
        record = round.cells[key].record
        return record.cursor if isinstance(record, SettledRecord) else None

    def _move(self, place: tuple[str, str], seen: str | None, cursor: str) -> None:
        command = MoveSettled(Key(*place, SETTLED, SETTLED), SYSTEM, cursor=cursor, seen=seen or "")
        round = Round(self._store, self._counts, profile=self._profile)
        item = plain_item(command)
        round.prepare([item])
        round.decide(item)
        for span in spans_of(round.commit(0)):
            self.committed(span)


_MARKS = tuple(f'"event_type":"{name}"'.encode() for name in REACTING)


def _may_react(recorded: Recorded) -> bool:
    """Most events ask nothing of anyone; to see that they need not be decoded."""
    return recorded.key.kind == TASK and any(mark in recorded.body for mark in _MARKS)
