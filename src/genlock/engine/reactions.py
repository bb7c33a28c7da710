"""The second commit: what events ask of other records, decided only after the change that caused them is known to be done.

Everything here may be repeated at any time by anyone (see `settle`), so nothing is noted for a crash in between.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator

from genlock.core.commands import Command, Hear
from genlock.core.decision import Decision
from genlock.core.keys import Key
from genlock.core.rules import Reaction, react
from genlock.core.task.relate import SYSTEM
from genlock.engine.batch import Cell, Round
from genlock.engine.counts import Counts
from genlock.engine.jobs import Item, plain_item
from genlock.engine.spans import Span, spans_of
from genlock.errors import Busy, GenlockError, StoreUnavailable
from genlock.store import Query, Store

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
        self.written: list[Span] = []
        """What came of it."""

    def run(self, reactions: list[Reaction], also: list[tuple[Item, Command]], until: float) -> bool:
        """Runs them; False if some reactions were left for settling. An `also` that fails becomes its item's outcome."""
        todo, complete = self._expanded(reactions)
        owed = also
        budget = MOST_AT_A_TIME
        tries = 0
        while todo or owed:
            complete = complete and len(todo) <= budget
            todo = todo[:budget]
            outcome = self._round(todo, owed, until)
            complete = complete and not outcome.failed
            budget -= len(todo) - len(outcome.again)
            tries = tries + 1 if outcome.again or outcome.owed else 0
            if tries > _TRIES and not outcome.owed:
                return False
            if tries:
                time.sleep(random.uniform(0, min(0.002 * 2**tries, 0.05)))
            expanded, all_found = self._expanded(outcome.more)
            complete = complete and all_found
            todo, owed = merged(outcome.again + expanded), outcome.owed
        return complete

    def _round(self, todo: list[Command], owed: list[tuple[Item, Command]], until: float) -> _Outcome:
        """One load-decide-commit."""
        round = Round(self._store, self._counts, profile=self._profile)
        everything: list[tuple[Item, Item | None]] = [(plain_item(command), owner) for owner, command in owed]
        everything += [(plain_item(command), None) for command in todo]
        round.prepare([item for item, _ in everything])
        decisions = [(item, owner, round.decide(item)) for item, owner in everything]
        committed = round.commit(until)
        self.written += spans_of(committed)
        outcome = _Outcome(reactions_of(committed), [], [])
        for item, owner, decision in decisions:
            cells = round.cells_of(item) if round.troubled else ()
            error = next((cell.error for cell in cells if cell.error), None)
            if decision is None or isinstance(error, StoreUnavailable) or any(cell.conflicted for cell in cells):
                self._again(outcome, item, owner, error, until)
            elif error is not None or isinstance(decision, GenlockError):
                if owner is not None:
                    owner.decision = error or decision
                else:
                    # What the rules refuse stays refused; what the store could not write is to be made up for.
                    outcome.failed = outcome.failed or error is not None
            elif isinstance(decision, Decision):
                # No `also` of a reaction needs the caller's patience: it is one more reaction.
                outcome.more += [Reaction(further) for further in decision.also]
        return outcome

    def _again(self, outcome: _Outcome, item: Item, owner: Item | None, error: GenlockError | None, until: float) -> None:
        if owner is None:
            outcome.again.append(item.command)
        elif time.monotonic() < until:
            outcome.owed.append((owner, item.command))
        else:
            owner.decision = error or Busy("what belongs to this could not be written before the deadline; try again")

    def _expanded(self, reactions: list[Reaction]) -> tuple[list[Command], bool]:
        """Commands with their keys; those for whoever waits on a task are looked up. False if there are more than fit."""
        commands: list[Command] = []
        complete = True
        for command, waits_on in reactions:
            if waits_on is None:
                commands.append(command)
                continue
            key = command.key
            page = self._store.find(Query(key.tenant, key.project, waits_on=waits_on, limit=MOST_AT_A_TIME))
            complete = complete and page.next is None
            commands += told(command, (stored.key for stored in page.records))
        return merged(commands), complete


def told(command: Command, keys: Iterable[Key]) -> Iterator[Command]:
    """The same news to each of these."""
    assert isinstance(command, Hear)
    for key in keys:
        yield Hear(key, SYSTEM, others=command.others, reset=command.reset)


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
