"""The second commit: what events ask of other records, decided only after the change that caused them is known to be done.

Everything here may be repeated at any time by anyone (see `settle`), so nothing is noted for a crash in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from genlock.core.codec import decode_record
from genlock.core.commands import Command, Hear
from genlock.core.decision import Decision
from genlock.core.index import waits_of
from genlock.core.keys import TASK, Key
from genlock.core.model import Record, TaskRecord
from genlock.core.rules import Reaction, amended, react
from genlock.core.task.relate import SYSTEM
from genlock.engine.batch import Round
from genlock.engine.cells import Cell
from genlock.engine.counts import Counts
from genlock.engine.doubts import doubts_of, undecided
from genlock.engine.jobs import Item, plain_item
from genlock.engine.patience import patiently, pause_after
from genlock.engine.spans import Span, spans_of
from genlock.errors import Busy, GenlockError, StoreUnavailable
from genlock.store import MOST_WAITED_ON, Query, Store, Stored

Waiter = tuple[Stored, Record]
News = dict[str, list[Hear]]

NEVER = 0.0
"""Reactions alone do not wait for a store that is away: settling makes up for them, and whoever asked can be answered."""
MOST_AT_A_TIME = 512
_TRIES = 10


def reactions_of(cells: Iterable[Cell]) -> list[Reaction]:
    """What the events just committed ask of others."""
    reactions: list[Reaction] = []
    for cell in cells:
        version = cell.read_version
        for event in cell.events:
            version += 1
            if cell.record is not None:
                reactions += react(cell.key, cell.record, event, version)
    return reactions


class _Outcome:
    """What one round of reactions leaves to do."""

    def __init__(self, more: list[Reaction], again: list[Command], owed: list[tuple[Item, Command]]) -> None:
        self.more = more
        self.again = again
        self.owed = owed
        self.failed = False


class Reactor:
    """Runs commands to other records, and what follows from them, round after round."""

    def __init__(self, store: Store, counts: Counts, profile: str) -> None:
        self._store = store
        self._counts = counts
        self._profile = profile
        self.cells: list[Cell] = []
        """What was written by it."""
        self.written: list[Span] = []
        """What came of it."""
        self.commits = 0
        """How many commits that took."""
        self.owed: list[tuple[Item, Command]] = []
        """Each `also` that is not done yet, with its item."""

    def run(self, reactions: list[Reaction], also: list[tuple[Item, Command]], until: float) -> bool:
        """Runs them; False if some reactions were left for settling. An `also` that fails becomes its item's outcome."""
        self.owed = owed = also
        todo, known, complete = self._expanded(reactions, until if owed else NEVER)
        budget = MOST_AT_A_TIME
        tries = 0
        while todo or owed:
            complete = complete and len(todo) <= budget
            todo = todo[:budget]
            outcome = self._round(todo, known, owed, until)
            complete = complete and not outcome.failed
            budget -= len(todo) - len(outcome.again)
            tries = tries + 1 if outcome.again or outcome.owed else 0
            if tries > _TRIES and not outcome.owed:
                return False
            if tries:
                time.sleep(pause_after(tries + 1))
            self.owed = owed = outcome.owed
            expanded, known, all_found = self._expanded(outcome.more, until if owed else NEVER)
            complete = complete and all_found
            todo = merged(outcome.again + expanded)
        return complete

    def _round(self, todo: list[Command], known: list[Waiter], owed: list[tuple[Item, Command]], until: float) -> _Outcome:
        """One load-decide-commit. Those found waiting have just been read, and need not be loaded."""
        everything: list[tuple[Item, Item | None]] = [(plain_item(command), owner) for owner, command in owed]
        everything += [(plain_item(command), None) for command in todo]
        round = patiently(lambda: self._prepared([item for item, _ in everything], known), until if owed else NEVER)
        decisions = [(item, owner, round.decide(item)) for item, owner in everything]
        committed = round.commit(until)
        self.commits += bool(committed)
        self.cells += committed
        self.written += spans_of(committed)
        outcome = _Outcome(reactions_of(committed), [], [])
        for item, owner, decision in decisions:
            cells = round.cells_of(item) if round.troubled else ()
            error = next((cell.error for cell in cells if cell.error), None)
            if owner is not None and cells:
                owner.doubts += doubts_of(item, round)
            if decision is None or isinstance(error, StoreUnavailable) or any(cell.conflicted for cell in cells):
                self._again(outcome, item, owner, error, until)
            elif error is not None or isinstance(decision, GenlockError):
                if owner is not None:
                    owner.decision = undecided(owner, error or decision)  # type: ignore[arg-type]
                else:
                    # What the rules refuse stays refused; what the store could not write is to be made up for.
                    outcome.failed = outcome.failed or error is not None
            elif isinstance(decision, Decision):
                # No `also` of a reaction needs the caller's patience: it is one more reaction.
                outcome.more += [Reaction(further) for further in decision.also]
                if owner is not None and isinstance(owner.decision, Decision):
                    owner.decision = amended(owner.decision, decision)
        return outcome

    def _prepared(self, items: list[Item], known: list[Waiter]) -> Round:
        round = Round(self._store, self._counts, profile=self._profile)
        round.know(known)
        round.prepare(items)
        return round

    def _again(self, outcome: _Outcome, item: Item, owner: Item | None, error: GenlockError | None, until: float) -> None:
        if owner is None:
            outcome.again.append(item.command)
        elif time.monotonic() < until:
            outcome.owed.append((owner, item.command))
        else:
            owner.decision = undecided(owner, error or Busy("what belongs to this could not be written before the deadline; try again"))

    def _expanded(self, reactions: list[Reaction], until: float) -> tuple[list[Command], list[Waiter], bool]:
        """Commands with their keys; those for whoever waits on a task are looked up. False if there are more than fit."""
        commands = [reaction.command for reaction in reactions if reaction.waits_on is None]
        known: list[Waiter] = []
        complete = True
        for place, news in news_of(reactions):
            further, waiters, next = patiently(lambda place=place, news=news: told(self._store, place, news), until)  # type: ignore[misc]
            complete = complete and next is None
            commands += further
            known += waiters
        return merged(commands), known, complete


def news_of(reactions: Iterable[Reaction]) -> Iterator[tuple[tuple[str, str], News]]:
    """What is to be told to whoever waits, by project and by what they wait on, in pieces that one query can ask about."""
    places: dict[tuple[str, str], News] = {}
    for command, waits_on in reactions:
        if waits_on is not None:
            assert isinstance(command, Hear)
            places.setdefault(command.key[:2], {}).setdefault(waits_on, []).append(command)
    for place, news in places.items():
        names = list(news)
        for start in range(0, len(names), MOST_WAITED_ON):
            yield place, {name: news[name] for name in names[start : start + MOST_WAITED_ON]}


def told(store: Store, place: tuple[str, str], news: News, after: str | None = None) -> tuple[list[Command], list[Waiter], str | None]:
    """Commands that tell each of those who wait what concerns it; they themselves; and where to go on if there are more."""
    page = store.find(Query(*place, waits_on=tuple(news), after=after, limit=MOST_AT_A_TIME))
    commands: list[Command] = []
    waiters: list[Waiter] = []
    for stored in page.records:
        record = decode_record(TASK, stored.body)
        assert isinstance(record, TaskRecord)
        waiters.append((stored, record))
        for name in waits_of(record):
            commands += [Hear(stored.key, SYSTEM, others=command.others, reset=command.reset) for command in news.get(name, ())]
    return commands, waiters, page.next


def merged(commands: list[Command]) -> list[Command]:
    """News to the same task becomes one command; everything else stays, in order."""
    if len(commands) < 2:
        return commands
    news: dict[Key, dict[str, int]] = {}
    resets: set[Key] = set()
    rest: list[Command] = []
    for command in commands:
        if isinstance(command, Hear):
            known = news.setdefault(command.key, {})
            for other, version in command.others:
                known[other] = max(version, known.get(other, 0))
            if command.reset:
                resets.add(command.key)
        else:
            rest.append(command)
    return [*rest, *(Hear(key, SYSTEM, others=tuple(known.items()), reset=key in resets) for key, known in news.items())]
