"""Recovery: repeats the reactions that a crash may have cut off, from a cursor that each project
keeps.

Neither a commit nor its reactions leave a mark of completion. A recovery reads the feed from the
cursor on, repeats the reactions to each event, most of which write nothing, and moves the cursor by
compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from genlock.core.codec import decode_event
from genlock.core.commands import MoveSettled
from genlock.core.decision import Reaction
from genlock.core.keys import SETTLED, TASK, Key
from genlock.core.model import SettledRecord
from genlock.core.rules import REACTING, react, reacts
from genlock.core.task.relate import SYSTEM
from genlock.engine.batch import BatchRound
from genlock.engine.commit import LoadedRecord
from genlock.engine.feed_watch import FeedRange, RangeSet, feed_ranges_of
from genlock.engine.jobs import plain_item
from genlock.engine.limits import Counts
from genlock.engine.observer import ObserverNotes
from genlock.engine.reactions import (
    MOST_AT_A_TIME,
    Reactor,
    find_waiting,
    group_by_awaited,
)
from genlock.errors import CursorLost
from genlock.store import EventPage, EventQuery, RecordedEvent, Store

_PAGE = 500

Wrote = Callable[[list[LoadedRecord], list[FeedRange], datetime], None]
"""Called with the written records, their feed ranges and the time."""


class Recovery:
    """Repeats reactions in the projects of one store."""

    def __init__(
        self,
        store: Store,
        counts: Counts,
        profile: str,
        notes: ObserverNotes | None = None,
        *,
        wrote: Wrote | None = None,
        keeps_up: bool = False,
    ) -> None:
        """`wrote` is called with the records that a recovery wrote.

        With `keeps_up`, the stored cursor also moves past events of this coordinator now and then,
        so that the feed can be read from the cursor in a short time.
        """
        self._store = store
        self._counts = counts
        self._profile = profile
        self._notes = notes
        self._wrote = wrote
        self._keeps_up = keeps_up
        self._stored_position: dict[tuple[str, str], int] = {}
        """By project: the position of the cursor that this coordinator stored last."""
        self._recovered: dict[tuple[str, str], tuple[str | None, int]] = {}
        """By project: the cursor and position up to which this coordinator has recovered. They are
        stored only if the recovery wrote something."""
        self._own: dict[tuple[str, str], RangeSet] = {}
        """The events of this coordinator whose reactions are all done."""
        self._incomplete: set[tuple[str, str]] = set()
        """Projects in which a reaction could not be repeated the last time."""

    def committed(self, feed_range: FeedRange) -> None:
        """Notes events that were written and whose reactions are done."""
        if feed_range.unbroken:
            self._own.setdefault(feed_range.place, RangeSet()).add(
                feed_range.first, feed_range.last
            )

    def run(self, place: tuple[str, str], until: float) -> int:
        """Repeats reactions up to the present end of the feed. Returns the number of events
        written."""
        came, more = self.run_page(place, until)
        while more:
            further, more = self.run_page(place, until)
            came += further
        return came

    def run_page(self, place: tuple[str, str], until: float) -> tuple[int, bool]:
        """Repeats the reactions to the next page of events. Also returns whether there are more
        pages. Other callers are served between two pages."""
        if self._skips_own(place):
            return 0, False
        stored = self._stored_cursor(place)
        seen = self._recovered.get(place)
        if seen is None and stored is None and self._own_end_after(place, 0):
            # There was no recovery here yet, and all events are our own.
            self._recovered[place] = None, 0
            if self._skips_own(place):
                return 0, False
        page = self._read(place, seen[0] if seen is not None else stored)
        came, complete = self._repeat(page, until)
        if not complete:
            # The cursor must not pass a reaction that was not written. The next recovery begins
            # here again.
            self._incomplete.add(place)
            return came, False
        self._incomplete.discard(place)
        self._recovered[place] = page.cursor, page.position
        # If nothing was written the cursor stays: the next recovery reads these few events again.
        if came or page.more:
            self._move_cursor(place, stored, page.cursor)
        return came, page.more

    def is_incomplete(self, place: tuple[str, str]) -> bool:
        """Did a reaction fail there the last time? Then it must be tried again."""
        return place in self._incomplete

    def begin_at(self, place: tuple[str, str], cursor: str) -> None:
        """Makes the next recovery of this project begin here: everything before is recovered."""
        self._move_cursor(place, self._stored_cursor(place), cursor)

    def leave(self) -> None:
        """Moves the cursor past our own events if there are many, so that the next recovery need
        not read them."""
        for place, runs in list(self._own.items()):
            first, last = runs.last
            if last - first >= _PAGE:
                stored = self._stored_cursor(place)
                if (stored is None or place in self._recovered) and self.run_page(place, 0) == (
                    0,
                    False,
                ):
                    cursor, position = self._recovered.get(place, (None, 0))
                    if cursor is not None and position == last:
                        self._move_cursor(place, stored, cursor)

    def _skips_own(self, place: tuple[str, str]) -> bool:
        """Are all events since the last check our own? Then nothing was cut off, and nothing need
        be read."""
        seen = self._recovered.get(place)
        last = self._own_end_after(place, seen[1]) if seen is not None else 0
        if not last:
            return False
        end = self._store.read_events(EventQuery(*place, tail=True))
        if end.position != last:
            return False
        self._recovered[place] = end.cursor, end.position
        if self._keeps_up and end.position - self._stored_position.get(place, 0) >= _PAGE:
            self._stored_position[place] = end.position
            self._move_cursor(place, self._stored_cursor(place), end.cursor)
        return True

    def _own_end_after(self, place: tuple[str, str], position: int) -> int:
        """Returns the end of our own events that follow this position without a gap; 0 if there are
        none."""
        runs = self._own.get(place)
        return runs.end_after(position) if runs is not None else 0

    def _read(self, place: tuple[str, str], cursor: str | None) -> EventPage:
        try:
            return self._store.read_events(EventQuery(*place, after=cursor, limit=_PAGE))
        except CursorLost:
            return self._store.read_events(EventQuery(*place, limit=_PAGE))

    def _repeat(self, page: EventPage, until: float) -> tuple[int, bool]:
        """Repeats a page's reactions. Returns the number of events written, and whether all could
        be repeated."""
        waking = [
            (recorded, decode_event(recorded.body).event)
            for recorded in page.events
            if _may_react(recorded)
        ]
        waking = [(recorded, event) for recorded, event in waking if reacts(event)]
        if not waking:
            return 0, True
        round = BatchRound(self._store, self._counts, profile=self._profile)
        round.load({recorded.key: None for recorded, _ in waking})
        reactor = Reactor(self._store, self._counts, self._profile)
        reactions: list[Reaction] = []
        for recorded, event in waking:
            record = round.loaded_records[recorded.key].record
            if record is not None:
                reactions += react(recorded.key, record, event, recorded.version)
        complete = self._run_reactions(reactor, reactions, until)
        if self._notes is not None and reactor.loaded_records:
            self._notes.wrote(reactor.loaded_records, reactor.commits)
        if self._wrote is not None and reactor.loaded_records:
            self._wrote(reactor.loaded_records, reactor.written, round.now)
        return sum(feed_range.events for feed_range in reactor.written), complete

    def _run_reactions(self, reactor: Reactor, reactions: list[Reaction], until: float) -> bool:
        """Runs all reactions to the end, however many tasks wait for them. Returns whether all are
        done."""
        complete = True
        direct = [reaction for reaction in reactions if reaction.waits_on is None]
        for start in range(0, len(direct), MOST_AT_A_TIME):
            complete = reactor.run(direct[start : start + MOST_AT_A_TIME], [], until) and complete
        for place, awaited in group_by_awaited(reactions):
            after: str | None = None
            while True:
                commands, _, after = find_waiting(self._store, place, awaited, after)
                for start in range(0, len(commands), MOST_AT_A_TIME):
                    page = [
                        Reaction(command) for command in commands[start : start + MOST_AT_A_TIME]
                    ]
                    complete = reactor.run(page, [], until) and complete
                if after is None:
                    break
        return complete

    def _stored_cursor(self, place: tuple[str, str]) -> str | None:
        round = BatchRound(self._store, self._counts, profile=self._profile)
        key = Key(*place, SETTLED, SETTLED)
        round.load([key])
        record = round.loaded_records[key].record
        return record.cursor if isinstance(record, SettledRecord) else None

    def _move_cursor(self, place: tuple[str, str], seen: str | None, cursor: str) -> None:
        command = MoveSettled(Key(*place, SETTLED, SETTLED), SYSTEM, cursor=cursor, seen=seen or "")
        round = BatchRound(self._store, self._counts, profile=self._profile)
        item = plain_item(command)
        round.prepare([item])
        round.decide(item)
        for feed_range in feed_ranges_of(round.commit(0)):
            self.committed(feed_range)


_MARKS = tuple(f'"event_type":"{name}"'.encode() for name in REACTING)


def _may_react(recorded: RecordedEvent) -> bool:
    """May this event cause reactions? Most do not, and that shows without decoding them."""
    return recorded.key.kind == TASK and any(mark in recorded.body for mark in _MARKS)
